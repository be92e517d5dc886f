//! ha-watchdog-standin: entry point of the simulated watchdog for the sandbox and tests.

use clap::Parser;
use ha_node_agent::watchdog::stand_in;

fn main() -> anyhow::Result<()> {
    stand_in::run(&stand_in::Options::parse())
}
