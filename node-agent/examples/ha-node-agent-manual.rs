//! Writes the manual pages (section 8) of the node's programs into a directory; `dev/packages` adds them to the
//! package.

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use ha_node_agent::{shell, watchdog};
use ha_runtime::program::ProgramOptions;
use std::path::PathBuf;

/// Sections of the manual pages in addition to the options.
const AGENT: &str = include_str!("../../manifests/man/ha-node-agent.roff");
const WATCHDOGD: &str = include_str!("../../manifests/man/ha-watchdogd.roff");

fn main() -> anyhow::Result<()> {
    let directory =
        std::env::args_os().nth(1).map(PathBuf::from).ok_or_else(|| anyhow::anyhow!("which directory?"))?;
    let agent = ha_runtime::config::command::<shell::Options>(shell::Options::PREFIX);
    std::fs::write(directory.join("ha-node-agent.8"), page(agent, AGENT)?)?;
    let watchdogd = watchdog::daemon::Options::command();
    std::fs::write(directory.join("ha-watchdogd.8"), page(watchdogd, WATCHDOGD)?)?;
    Ok(())
}

fn page(command: Command, arguments: &str) -> anyhow::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command).section("8").render(&mut page)?;
    page.extend_from_slice(arguments.as_bytes());
    Ok(page)
}
