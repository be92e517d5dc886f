//! ha-watchdog-standin: entry point of the simulated watchdog for the sandbox and tests.

use clap::Parser;
use ha_node_agent::watchdog::simulated;

fn main() -> anyhow::Result<()> {
    simulated::run(&simulated::Options::parse())
}
