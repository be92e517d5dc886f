//! Signals as inputs: SIGTERM alone restarts the agent; while the machine shuts down or the agent is removed, the node
//! leaves.

use super::Inputs;
use super::machine_end::{Evidence, exit_cause};
use crate::core::Input;
use ha_runtime::shutdown::Shutdown;
use std::time::Duration;
use tokio::process::Command;

/// Time limit of one answer of the service manager.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Number of attempts to ask the service manager.
const ATTEMPTS: usize = 3;
/// File that the package's script creates before it stops an agent that is being removed.
const REMOVED: &str = "/run/hactl/agent-removed";

/// Waits for the request to exit and passes its cause to the core.
pub(super) fn spawn(shutdown: Shutdown, inputs: Inputs) {
    tokio::spawn(async move {
        shutdown.requested().await;
        let evidence = Evidence {
            jobs: ask(&["list-jobs", "--plain", "--no-legend", "--no-pager"]).await,
            manager: ask(&["is-system-running"]).await,
            first_process: std::fs::read_to_string("/proc/1/cmdline").unwrap_or_default(),
            // The file is deleted when it is found, because it concerns only this exit.
            removed: std::fs::remove_file(REMOVED).is_ok(),
        };
        let cause = exit_cause(&evidence);
        tracing::info!(?cause, "received a request to stop");
        // Sending fails only once the loop has ended.
        let _ = inputs.send(Input::Shutdown(cause));
    });
}

/// Returns the output of systemctl for any exit status; `None` if no service manager answers.
async fn ask(words: &[&str]) -> Option<String> {
    for _ in 0..ATTEMPTS {
        let answer = Command::new("systemctl").args(words).kill_on_drop(true).output();
        match tokio::time::timeout(ANSWER_WITHIN, answer).await {
            Ok(Ok(output)) => return Some(String::from_utf8_lossy(&output.stdout).into_owned()),
            Ok(Err(error)) => {
                tracing::debug!(%error, "cannot run systemctl");
                return None;
            }
            Err(_) => {
                tracing::warn!(
                    "cannot determine from systemd whether this machine is shutting down, retrying"
                );
            }
        }
    }
    None
}
