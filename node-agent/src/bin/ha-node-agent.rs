//! ha-node-agent: the program around the node agent.

use std::process::ExitCode;

fn main() -> ExitCode {
    ha_node_agent::shell::main()
}
