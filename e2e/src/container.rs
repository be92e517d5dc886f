//! Nodes that are system containers. A real systemd runs their daemons from the units of `manifests/`, with the options of a node
//! that is a process tree.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::binaries::repository;
use crate::command::{path_text, run, tool};
use crate::init::Program;
use crate::machine::Machine;
use crate::process::{self, ProcessId};
use crate::scratch::build_directory;
use crate::wait::{wait_for, wait_for_ok};

/// Name of the only program of such a machine.
pub const PROGRAM: &str = "systemd";
/// Longest time for systemd to start its own process, or to finish the boot.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// Units of the host that a container does not need.
const MASKED_UNITS: [&str; 9] = [
    "systemd-modules-load.service",
    "systemd-logind.service",
    "modprobe@.service",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "tmp.mount",
];

/// Returns a copy of a node's machine whose only program is systemd. The build directory, `plan_directory` and the machine's own
/// directories are visible inside.
///
/// # Errors
/// Fails if the build directory is unknown.
pub fn convert_to_container(machine: &Machine, run: &str, plan_directory: &Path) -> Result<Machine> {
    let mut command = vec![tool("unshare"), "--mount".to_owned(), "sh".to_owned()];
    command.extend([path_text(&script_path(machine)), "outside".to_owned()]);
    command.extend([
        path_text(&machine.directory),
        path_text(&machine.volatile),
        format!("hactl-{run}/{}", machine.name),
    ]);
    let build = build_directory()?;
    for directory in [&build, plan_directory, &machine.volatile] {
        command.extend([path_text(directory), path_text(directory)]);
    }
    for (source, target) in &machine.bind_mounts {
        command.extend([path_text(source), path_text(target)]);
    }
    let systemd = Program { name: PROGRAM.to_owned(), command, environment: BTreeMap::new() };
    Ok(Machine { programs: vec![systemd], ..machine.clone() })
}

/// Writes the files that overlay the files of the host: the units of the daemons and those of the tests.
///
/// # Errors
/// Fails if a file cannot be written.
pub fn write_overlay(machine: &Machine, daemons: &[Program], units: &[(String, String)]) -> Result<()> {
    fs::create_dir_all(&machine.directory)?;
    fs::write(script_path(machine), include_str!("container.sh"))?;
    let directory = machine.directory.join("root/etc/systemd/system");
    let wants_directory = directory.join("multi-user.target.wants");
    fs::create_dir_all(&wants_directory).with_context(|| wants_directory.display().to_string())?;
    symlink("/lib/systemd/system/multi-user.target", directory.join("default.target"))?;
    for unit in MASKED_UNITS {
        symlink("/dev/null", directory.join(unit))?;
    }
    for daemon in daemons {
        let unit = format!("{}.service", daemon.name);
        let shipped = repository().join("manifests/systemd").join(&unit);
        fs::copy(&shipped, directory.join(&unit)).with_context(|| shipped.display().to_string())?;
        fs::create_dir_all(directory.join(format!("{unit}.d")))?;
        fs::write(directory.join(format!("{unit}.d/test.conf")), drop_in_text(machine, daemon))?;
        symlink(format!("../{unit}"), wants_directory.join(&unit))?;
    }
    for (name, text) in units {
        fs::write(directory.join(name), text).with_context(|| name.clone())?;
    }
    fs::write(machine.directory.join("root/etc/machine-id"), "")?;
    Ok(())
}

/// Returns a systemd drop-in with the differences between a daemon of a test and an installed one.
fn drop_in_text(machine: &Machine, daemon: &Program) -> String {
    let words: Vec<String> = daemon
        .command
        .iter()
        .map(|word| format!("\"{}\"", word.replace('%', "%%").replace('$', "$$")))
        .collect();
    let environment: Vec<String> =
        daemon.environment.iter().map(|(name, text)| format!("{name}={text}")).collect();
    let log = machine.log(&daemon.name);
    format!(
        "[Unit]\nConditionPathExists=\n[Service]\nExecStart=\nExecStart={}\nEnvironment={}\nReadWritePaths={}\nStandardOutput=append:{}\nStandardError=inherit\n",
        words.join(" "),
        environment.join(" "),
        machine.volatile.display(),
        log.display()
    )
}

fn script_path(machine: &Machine) -> PathBuf {
    machine.directory.join("container.sh")
}

/// Returns process 1 of a running container, with its process id on the host.
///
/// # Errors
/// Fails if the process does not appear in time.
pub fn systemd_process(machine: &Machine) -> Result<ProcessId> {
    wait_for(&format!("systemd on {}", machine.name), STEP_TIMEOUT, || {
        let holder = machine.program(PROGRAM)?;
        process::children_of(holder.pid).into_iter().find(|child| {
            process::program_name(child.pid).as_deref() == Some("systemd")
                && process::pid_in_namespace(child.pid) == Some(1)
        })
    })
}

/// Runs a command in a container.
///
/// # Errors
/// Fails if the command fails. The error contains its output.
pub fn run_inside(machine: &Machine, command: &[&str]) -> Result<String> {
    let pid = systemd_process(machine)?.pid.to_string();
    let entered = ["--target", &pid, "--all", "--root", "--wd"];
    run(tool("nsenter"), &[&entered, command].concat())
}

/// Waits until systemd has finished the boot, even if units failed. Process 1 exists before its socket does, so earlier calls can
/// fail.
///
/// # Errors
/// Fails if the boot does not finish in time.
pub fn wait_until_booted(machine: &Machine) -> Result<()> {
    wait_for_ok(&format!("systemd of {} to have started everything", machine.name), STEP_TIMEOUT, || {
        // The command exits with 1 both if a unit failed and if systemd does not respond.
        let state = run_inside(machine, &["sh", "-c", "systemctl is-system-running --wait; true"])?;
        ensure!(["running", "degraded"].contains(&state.trim()), "systemd reports {state:?}");
        Ok(())
    })
}

/// Removes the control groups of a run's containers.
///
/// # Errors
/// Fails if a control group cannot be removed.
pub fn remove_groups(run_name: &str) -> Result<()> {
    let script = "mount -t cgroup2 groups /mnt && cd /mnt && [ ! -d \"$0\" ] || find \"$0\" -depth -type d -exec rmdir {} +";
    let group = format!("hactl-{run_name}");
    run(tool("unshare"), &["--mount", "sh", "-c", script, &group]).map(|_| ())
}
