//! `ha-exec-shim`: stands between the agent and a supervised service; started by the agent only.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let role = std::env::args().nth(1);
    match ha_node_agent::driver::exec::shim(role.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error is the service's log or the agent's; if it cannot be written, nobody listens.
            let _ = writeln!(std::io::stderr(), "ha-exec-shim: {error}");
            ExitCode::FAILURE
        }
    }
}
