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
use ha_e2e::metal::holders::{OWNER, PREFIX, VIOLATIONS};
use ha_e2e::program::end;

/// Hold a directory on shared storage while the process runs
#[derive(Parser)]
struct Arguments {
    /// Directory to hold; created if missing
    #[arg(long)]
    folder: PathBuf,
    /// Time between two writes, in milliseconds
    #[arg(long, default_value_t = 40)]
    interval_ms: u64,
}

fn main() -> ExitCode {
    // `end` writes the error to standard error, which the agent copies to the service's log.
    end("ha-holder", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let folder = &arguments.folder;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let node = std::env::var("HA_NODE").context("missing environment variable HA_NODE")?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").context("cannot read the boot id")?;
    let me = format!("{PREFIX}.{node}.{}-{}", boot.get(..8).unwrap_or("unknown"), std::process::id());
    let mut record = append(&folder.join(&me))?;
    record.write_all(b".")?;
    // The rename is atomic: a concurrent reader gets the old owner or the new one.
    let next = folder.join(format!("next-{me}"));
    fs::write(&next, &me).with_context(|| next.display().to_string())?;
    fs::rename(&next, folder.join(OWNER))?;
    let mut noticed = String::new();
    loop {
        record.write_all(b".")?;
        let owner = fs::read_to_string(folder.join(OWNER)).context("cannot read the owner of the storage")?;
        if owner != me && owner != noticed {
            // The service continues on purpose, like a service that does not check.
            writeln!(append(&folder.join(VIOLATIONS))?, "{me} still ran after {owner} had started")?;
            noticed = owner;
        }
        thread::sleep(Duration::from_millis(arguments.interval_ms));
    }
}
