//! ha-controller: the program around the controller.

use std::process::ExitCode;

fn main() -> ExitCode {
    ha_controller::shell::main()
}
