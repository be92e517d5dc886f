//! ha-watchdogd: entry point of the watchdog daemon.

use clap::Parser;
use ha_node_agent::watchdog::daemon;

fn main() -> anyhow::Result<()> {
    daemon::run(&daemon::Options::parse())
}
