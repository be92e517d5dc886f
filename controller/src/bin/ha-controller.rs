//! The binary `ha-controller`: it only calls the shell.

use std::process::ExitCode;

fn main() -> ExitCode {
    ha_controller::shell::main()
}
