//! A service for tests that holds a lock and appends "node pid time" to a file while it runs.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use ha_e2e::machine::append;
use ha_e2e::program::exit_code_of;
use ha_e2e::wait::monotonic_ns;
use nix::fcntl::{Flock, FlockArg};

/// Record that at most one instance of this process runs
#[derive(Parser)]
struct Arguments {
    /// File to write; the directory must exist
    #[arg(long)]
    file: PathBuf,
    /// Time between two lines, in milliseconds
    #[arg(long, default_value_t = 20)]
    interval_ms: u64,
}

fn main() -> ExitCode {
    // `exit_code_of` writes the error to standard error, which the agent copies to the service's log.
    exit_code_of("ha-witness", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let node = std::env::var("HA_NODE").unwrap_or_else(|_| "unknown".to_owned());
    let identity = format!("{node} {}", std::process::id());
    let mut record = append(&arguments.file)?;
    let lock = append(&arguments.file.with_extension("lock"))?;
    // The lock is held until the process ends, and then the kernel releases it.
    let _lock_guard = match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
        Ok(lock_guard) => Some(lock_guard),
        Err((_, error)) => {
            let mut violations = append(&arguments.file.with_extension("violations"))?;
            writeln!(violations, "{identity} {} lock refused: {error}", monotonic_ns())?;
            None
        }
    };
    loop {
        // A single write, so that lines of two processes can alternate but not mix.
        record.write_all(format!("{identity} {}\n", monotonic_ns()).as_bytes())?;
        thread::sleep(Duration::from_millis(arguments.interval_ms));
    }
}
