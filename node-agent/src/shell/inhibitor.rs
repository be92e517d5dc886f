//! Inhibitors of the log-in manager.

use std::path::Path;
use std::process::Stdio;
use tokio::process::{Child, Command};

/// Whether this machine has a log-in manager, which keeps inhibitors.
pub(super) fn can_be_held() -> bool {
    Path::new("/run/systemd/seats").exists()
}

/// Has the log-in manager keep an inhibitor for a child that ends with the agent, however that ends: the child reads a pipe
/// whose other end is ours. The child writes a line once the log-in manager has granted the inhibitor, and ends if it has not.
pub(super) fn hold(what: &str, mode: &str, why: &str) -> std::io::Result<Child> {
    Command::new("systemd-inhibit")
        .arg(format!("--what={what}"))
        .arg(format!("--mode={mode}"))
        .args(["--who=ha-node-agent", &format!("--why={why}"), "sh", "-c", "echo held; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
}
