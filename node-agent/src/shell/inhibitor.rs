//! Keeps the machine awake while its watchdog is armed: a suspended machine neither heartbeats nor is it reset in time
//! (FENCING, section 5).

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
        let possible = can_suspend(&states) && Path::new("/run/systemd/seats").exists();
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
    // `cat` ends when the agent's end of the pipe is closed, and the inhibitor with it.
    let child = Command::new("systemd-inhibit")
        .args(["--what=sleep", "--mode=block", "--who=ha-node-agent"])
        .args(["--why=services of this node are guarded by its watchdog", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    match child {
        Ok(child) => Some(child),
        Err(error) => {
            tracing::warn!(%error, "this machine can suspend and nothing keeps it awake: systemd-inhibit cannot be run");
            None
        }
    }
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
