//! ha-node-agent: entry point of the node agent.

use std::process::ExitCode;

fn main() -> ExitCode {
    ha_node_agent::shell::main()
}
