//! `ha-exec-shim`: the process between the agent and a supervised service. Only the agent starts it.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let role = std::env::args().nth(1);
    match ha_node_agent::driver::exec::shim(role.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error is the log of the service or of the agent. If writing to it fails, the error has no other
            // output.
            let _ = writeln!(std::io::stderr(), "ha-exec-shim: {error}");
            ExitCode::FAILURE
        }
    }
}
