//! Stateful service for the metal suite: takes over a directory on shared storage, records its own writes and detects a second
//! owner.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use ha_e2e::machine::append;
use ha_e2e::program::exit_code_of;
use ha_e2e::qemu_nodes::holders::{OWNER, PREFIX, VIOLATIONS};

/// Hold a directory on shared storage while the process runs
#[derive(Parser)]
struct Arguments {
    /// Directory to hold; created if missing
    #[arg(long = "folder")]
    directory: PathBuf,
    /// Time between two writes, in milliseconds
    #[arg(long, default_value_t = 40)]
    interval_ms: u64,
}

fn main() -> ExitCode {
    // `exit_code_of` writes the error to standard error, which the agent copies to the service's log.
    exit_code_of("ha-holder", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let directory = &arguments.directory;
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let node = std::env::var("HA_NODE").context("missing environment variable HA_NODE")?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").context("cannot read the boot id")?;
    let own_name = format!("{PREFIX}.{node}.{}-{}", boot.get(..8).unwrap_or("unknown"), std::process::id());
    let mut record = append(&directory.join(&own_name))?;
    record.write_all(b".")?;
    // The rename is atomic: a concurrent reader gets the old owner or the new owner.
    let next_owner = directory.join(format!("next-{own_name}"));
    fs::write(&next_owner, &own_name).with_context(|| next_owner.display().to_string())?;
    fs::rename(&next_owner, directory.join(OWNER))?;
    let mut reported_owner = String::new();
    loop {
        record.write_all(b".")?;
        let owner =
            fs::read_to_string(directory.join(OWNER)).context("cannot read the owner of the storage")?;
        if owner != own_name && owner != reported_owner {
            // The service continues on purpose: it imitates a service without this check.
            writeln!(append(&directory.join(VIOLATIONS))?, "{own_name} still ran after {owner} had started")?;
            reported_owner = owner;
        }
        thread::sleep(Duration::from_millis(arguments.interval_ms));
    }
}
