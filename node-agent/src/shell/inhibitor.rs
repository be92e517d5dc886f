//! Inhibitor locks of systemd-logind.

use std::path::Path;
use std::process::Stdio;
use tokio::process::{Child, Command};

/// Returns `true` if this machine runs systemd-logind, which provides inhibitors.
pub(super) fn is_available() -> bool {
    Path::new("/run/systemd/seats").exists()
}

/// Takes an inhibitor lock in a child process. The child reads a pipe whose other end the agent holds, so it ends with
/// the agent even after a crash. The child writes a line once the lock is granted, and exits if it is not granted.
pub(super) fn acquire(operations: &str, mode: &str, reason: &str) -> std::io::Result<Child> {
    Command::new("systemd-inhibit")
        .arg(format!("--what={operations}"))
        .arg(format!("--mode={mode}"))
        .args(["--who=ha-node-agent", &format!("--why={reason}"), "sh", "-c", "echo held; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
}
