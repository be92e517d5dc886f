//! The binary `ha-controller`, which only calls the shell.

use std::process::ExitCode;

fn main() -> ExitCode {
    ha_controller::shell::main()
}
