//! Inhibitors of the log-in manager's; one keeps the machine awake while its watchdog is armed: a suspended machine neither
//! heartbeats nor is it reset in time (FENCING, section 5).

use std::path::Path;
use std::process::Stdio;
use tokio::process::{Child, Command};

/// A blocking sleep inhibitor of the service manager's, held by a child that ends with the agent, however that ends.
pub(super) struct SleepInhibitor {
    /// Whether this machine can suspend and has a service manager to ask.
    possible: bool,
    held: Option<Child>,
}

impl SleepInhibitor {
    pub(super) fn new() -> SleepInhibitor {
        let states = std::fs::read_to_string("/sys/power/state").unwrap_or_default();
        let possible = can_suspend(&states) && can_be_held();
        SleepInhibitor { possible, held: None }
    }

    /// Holds it while armed, and lets go otherwise.
    pub(super) fn set(&mut self, armed: bool) {
        if !self.possible {
            return;
        }
        if self.held.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None))) {
            tracing::warn!(
                "this machine can suspend and nothing keeps it awake: systemd-inhibit ended by itself"
            );
            (self.possible, self.held) = (false, None);
            return;
        }
        if !armed {
            self.held = None;
        }
        if armed && self.held.is_none() {
            self.held = take();
            // It is not tried for ever: the operator was told.
            self.possible = self.held.is_some();
        }
    }
}

fn take() -> Option<Child> {
    match hold("sleep", "block", "services of this node are guarded by its watchdog") {
        Ok(child) => Some(child),
        Err(error) => {
            tracing::warn!(%error, "this machine can suspend and nothing keeps it awake: systemd-inhibit cannot be run");
            None
        }
    }
}

/// Whether this machine has a log-in manager, which keeps inhibitors.
pub(super) fn can_be_held() -> bool {
    Path::new("/run/systemd/seats").exists()
}

/// An inhibitor held by a child that ends with the agent, however that ends: `cat` ends when our end of the pipe closes.
pub(super) fn hold(what: &str, mode: &str, why: &str) -> std::io::Result<Child> {
    Command::new("systemd-inhibit")
        .arg(format!("--what={what}"))
        .arg(format!("--mode={mode}"))
        .args(["--who=ha-node-agent", &format!("--why={why}"), "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
}

fn can_suspend(states: &str) -> bool {
    states.split_whitespace().any(|state| matches!(state, "mem" | "disk" | "standby" | "freeze"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_sleep_states_needs_none() {
        assert!(can_suspend("freeze mem disk\n"));
        assert!(!can_suspend(""));
    }
}
