//! Rolling upgrades. Machines run the programs of an older build through scripts until each machine is upgraded to this build.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use ha_api_types::kind::Kind;
use ha_api_types::renamed;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::binaries;
use crate::cluster::Cluster;
use crate::machine::{Machine, Role};
use crate::wait::wait_until;

/// Variable with the directory of an older build, which contains `ha-controller`, `ha-node-agent` and `ha-watchdogd`.
const OLD_BINARIES_VARIABLE: &str = "HACTL_OLD_BINARIES";
/// Longest time between the signal to a program and the start of its next process.
const RESTART_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the program that the file next to this script names, without the flags that the program does not support.
const SCRIPT: &str = r#"#!/bin/sh
program=$(cat "$0.build")
known=$("$program" --help)
count=$#
skip=no
while [ "$count" -gt 0 ]; do
  word=$1
  shift
  count=$((count - 1))
  # The flag for the simulated watchdog in earlier versions of ha-watchdogd.
  case "$word $known" in "--simulated "*"--stand-in "*) word=--stand-in ;; esac
  case $word in
  --*) case $known in *"$word "*) skip=no ;; *) skip=yes ;; esac ;;
  esac
  [ "$skip" = yes ] || set -- "$@" "$word"
done
exec "$program" "$@"
"#;

/// Returns the directory of the older build: `$HACTL_OLD_BINARIES`, or without it the directory of this build.
///
/// # Errors
/// Fails if this build has no programs.
pub fn old_binaries() -> Result<PathBuf> {
    if let Some(directory) = std::env::var_os(OLD_BINARIES_VARIABLE) {
        return Ok(PathBuf::from(directory));
    }
    let program = binaries::workspace_program("ha-controller")?;
    Ok(program.parent().context("program has no directory")?.to_owned())
}

/// Gives the fields of an object the names that the older build accepts, if an older build runs. The current build
/// accepts these names too.
pub(crate) fn use_names_of_old_build(kind: Kind, object: &mut Value) {
    if std::env::var_os(OLD_BINARIES_VARIABLE).is_some() {
        renamed::to_stored(kind, object);
    }
}

/// Creates the script that runs a machine's program of the older build, and returns its path.
///
/// # Errors
/// Fails if the older build has no such program, or if the script cannot be written.
pub fn write_script(directory: &Path, machine: &str, name: &str, old: &Path) -> Result<PathBuf> {
    let path = script_path(directory, machine, name);
    fs::create_dir_all(path.parent().context("script has no directory")?)?;
    write_build_path(&path, &old.join(name))?;
    fs::write(&path, SCRIPT).with_context(|| path.display().to_string())?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

fn script_path(directory: &Path, machine: &str, name: &str) -> PathBuf {
    directory.join("programs").join(machine).join(name)
}

fn write_build_path(script: &Path, program: &Path) -> Result<()> {
    anyhow::ensure!(program.is_file(), "{} does not exist", program.display());
    let file = script.with_extension("build");
    fs::write(&file, program.display().to_string()).with_context(|| file.display().to_string())
}

/// Upgrades a machine's programs to this build, like a package: first the new program is installed, then its process is
/// restarted.
///
/// # Errors
/// Fails if a program does not start again in time.
pub fn upgrade(cluster: &Cluster, name: &str) -> Result<()> {
    let machine = cluster.machine(name)?;
    let programs: &[(&str, Signal)] = match machine.role {
        Role::Controller => &[("ha-controller", Signal::SIGTERM)],
        // A daemon with an armed device does not end on SIGTERM. After SIGKILL, its successor takes over the device.
        Role::Node => &[("ha-watchdogd", Signal::SIGKILL), ("ha-node-agent", Signal::SIGTERM)],
        Role::Etcd | Role::Storage => &[],
    };
    for (program, signal) in programs {
        write_build_path(
            &script_path(cluster.directory(), name, program),
            &binaries::workspace_program(program)?,
        )?;
        restart(machine, program, *signal)?;
    }
    Ok(())
}

fn restart(machine: &Machine, program: &str, signal: Signal) -> Result<()> {
    let process_before = machine.program(program);
    machine.signal(program, signal)?;
    wait_until(&format!("another {program} on {}", machine.name), RESTART_TIMEOUT, || {
        let now = machine.program(program);
        now.is_some() && now != process_before
    })
}
