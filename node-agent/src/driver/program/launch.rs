//! The last steps before a program of a service runs: control group, session, signals, user, directory, exec.

use super::cgroup::ServiceCgroup;
use super::order::{LaunchFailure, LaunchOrder, LaunchStep};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, Uid, User, close, getppid, initgroups, setgid, setsid, setuid};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::ffi::CString;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::signal::unix::SignalKind;

/// Reads a [`LaunchOrder`] from the socket on standard input, and executes the program in this process.
///
/// The socket closes on a successful exec; otherwise the failure is written to it. Guarantees for the program:
///
/// - Standard input is /dev/null or the order's input. No descriptors except 0, 1 and 2 are open.
/// - Every signal has its default action, and none is blocked. The file mode mask is 022.
/// - The program does not inherit the agent's protection from the kernel's OOM killer.
pub(in crate::driver) fn run() -> io::Result<()> {
    let channel = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    close_others(&[channel.as_raw_fd()])?;
    let failure = match read_order(&channel) {
        Ok(order) => exec_program(&order),
        Err(error) => LaunchFailure::new(LaunchStep::Prepare, "the launcher received no request", &error),
    };
    (&channel).write_all(&serde_json::to_vec(&failure)?)
}

/// Sends a launcher its order. Returns `None` once the program was executed.
pub(in crate::driver) async fn send_launch_request(
    channel: UnixStream,
    order: &LaunchOrder,
) -> io::Result<Option<LaunchFailure>> {
    channel.set_nonblocking(true)?;
    let mut channel = tokio::net::UnixStream::from_std(channel)?;
    channel.write_all(&serde_json::to_vec(order)?).await?;
    channel.shutdown().await?;
    let mut answer = Vec::new();
    channel.read_to_end(&mut answer).await?;
    Ok(if answer.is_empty() { None } else { Some(serde_json::from_slice(&answer)?) })
}

fn read_order(mut channel: &UnixStream) -> io::Result<LaunchOrder> {
    let mut text = Vec::new();
    channel.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Closes every descriptor above 2 except these, because the parent process may have leaked some.
pub(in crate::driver) fn close_others(keep: &[RawFd]) -> io::Result<()> {
    // The list is complete before the first close. The list includes its own descriptor, which is already closed.
    let open: Vec<RawFd> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for descriptor in open {
        if descriptor > 2 && !keep.contains(&descriptor) {
            let _ = close(descriptor);
        }
    }
    Ok(())
}

/// Executes the program. Returns only on failure.
fn exec_program(order: &LaunchOrder) -> LaunchFailure {
    match prepare(order) {
        Ok(mut command) => {
            let error = command.exec();
            let program = order.program.first().map_or("", String::as_str);
            LaunchFailure::new(LaunchStep::Program, &format!("cannot execute program `{program}`"), &error)
        }
        Err(failure) => failure,
    }
}

fn prepare(order: &LaunchOrder) -> Result<Command, LaunchFailure> {
    let step = |operation: &'static str| {
        move |error: io::Error| LaunchFailure::new(LaunchStep::Prepare, operation, &error)
    };
    if let Some(cgroup) = &order.cgroup {
        ServiceCgroup::at(cgroup.clone())
            .join_as_service()
            .map_err(step("cannot join the control group of the service"))?;
    }
    if order.supervisor.is_some() {
        setsid().map_err(|error| step("cannot create a session")(error.into()))?;
    }
    umask(Mode::from_bits_truncate(0o022));
    reset_oom_score();
    default_signals().map_err(step("cannot reset signals"))?;
    let Some((program, arguments)) = order.program.split_first() else {
        let message = "the command is empty".to_owned();
        return Err(LaunchFailure { step: LaunchStep::Program, errno: None, message });
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(match &order.input {
        Some(input) => Stdio::from(readable(input).map_err(step("cannot prepare standard input"))?),
        None => Stdio::null(),
    });
    if let Some(name) = &order.user {
        for (variable, value) in become_user(name)? {
            // Variables that the resource sets take precedence.
            if std::env::var_os(variable).is_none() {
                command.env(variable, value);
            }
        }
    }
    // This call must follow the change of user, which resets this signal.
    if let Some(supervisor) = order.supervisor {
        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(|error| step("prctl failed")(error.into()))?;
        if getppid().as_raw() != supervisor {
            return Err(step("the supervisor exited")(io::Error::from(io::ErrorKind::BrokenPipe)));
        }
    }
    // The directory is changed after the user, so that the launch fails if the user has no access to the directory.
    std::env::set_current_dir(&order.working_directory).map_err(|error| {
        let operation = format!("working directory {}", order.working_directory.display());
        LaunchFailure::new(LaunchStep::Directory, &operation, &error)
    })?;
    Ok(command)
}

/// Returns an anonymous file in memory with this content.
fn readable(input: &str) -> io::Result<fs::File> {
    let mut file = fs::File::from(memfd_create("input", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(input.as_bytes())?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// Changes to the user, with all of the user's groups, and returns the matching environment variables.
fn become_user(name: &str) -> Result<Vec<(&'static str, std::ffi::OsString)>, LaunchFailure> {
    let launch_failure = |error_text: String, errno: Option<i32>| LaunchFailure {
        step: LaunchStep::User,
        errno,
        message: error_text,
    };
    let user = User::from_name(name)
        .map_err(|error| {
            launch_failure(format!("cannot look up user `{name}`: {error}"), Some(nix::libc::EAGAIN))
        })?
        .ok_or_else(|| {
            launch_failure(format!("user `{name}` does not exist on this node"), Some(nix::libc::ENOENT))
        })?;
    if Uid::effective().is_root() || user.uid != Uid::effective() {
        change_user(&user).map_err(|error| {
            launch_failure(format!("cannot run as user `{name}`: {error}"), Some(error as i32))
        })?;
    }
    let shell =
        if user.shell.as_os_str().is_empty() { "/bin/sh".into() } else { user.shell.into_os_string() };
    Ok(vec![
        ("HOME", user.dir.into_os_string()),
        ("USER", user.name.clone().into()),
        ("LOGNAME", user.name.into()),
        ("SHELL", shell),
    ])
}

fn change_user(user: &User) -> nix::Result<()> {
    let name = CString::new(user.name.as_str()).map_err(|_| nix::errno::Errno::EINVAL)?;
    if user.uid == Uid::effective() && user.gid == Gid::effective() {
        return Ok(());
    }
    initgroups(&name, user.gid)?;
    setgid(user.gid)?;
    setuid(user.uid)
}

/// Resets ignored signals. exec keeps ignored signals ignored, but resets caught signals to the default action. Each
/// ignored signal is therefore caught before exec.
///
/// The standard library handles SIGPIPE and blocked signals when it executes a program.
fn default_signals() -> io::Result<()> {
    let status = fs::read_to_string("/proc/self/status")?;
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .ok_or_else(|| io::Error::other("/proc/self/status has no SigIgn"))?;
    // The C library reserves signals 32 and 33.
    let may_be_reset = |signal: &i32| ![nix::libc::SIGPIPE, 32, 33].contains(signal);
    let to_reset: Vec<i32> =
        (1..=64).filter(|signal| ignored & (1 << (signal - 1)) != 0).filter(may_be_reset).collect();
    if to_reset.is_empty() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    for signal in to_reset {
        // The handler stays after the stream is dropped. Tokio refuses signals of program errors, which are not
        // ignored in practice.
        drop(tokio::signal::unix::signal(SignalKind::from_raw(signal)));
    }
    Ok(())
}

/// Removes the agent's protection from the OOM killer, which the service manager set for the agent only. Raising the
/// score is always permitted.
fn reset_oom_score() {
    let path = "/proc/self/oom_score_adj";
    let protected = fs::read_to_string(path).is_ok_and(|score| score.trim().starts_with('-'));
    if protected {
        let _ = fs::write(path, "0");
    }
}
