//! Signals as inputs: SIGTERM alone is a restart of the agent; while the machine ends, or the agent is removed, it leaves.

use super::Inputs;
use super::machine_end::{Evidence, why};
use crate::core::Input;
use ha_runtime::shutdown::Shutdown;
use std::time::Duration;
use tokio::process::Command;

/// How long the service manager may take to answer, once.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How often it is asked.
const ATTEMPTS: usize = 3;
/// The package's script makes it before it stops an agent that is being removed.
const REMOVED: &str = "/run/hactl/agent-removed";

/// Waits for the request to end and tells the core why.
pub(super) fn spawn(shutdown: Shutdown, inputs: Inputs) {
    tokio::spawn(async move {
        shutdown.requested().await;
        let evidence = Evidence {
            jobs: ask(&["list-jobs", "--plain", "--no-legend", "--no-pager"]).await,
            manager: ask(&["is-system-running"]).await,
            first_process: std::fs::read_to_string("/proc/1/cmdline").unwrap_or_default(),
            // Taken away as it is seen: it is about this end alone.
            removed: std::fs::remove_file(REMOVED).is_ok(),
        };
        let told = why(&evidence);
        tracing::info!(?told, "told to end");
        // The loop may have ended by itself.
        let _ = inputs.send(Input::Shutdown(told));
    });
}

/// What systemctl prints, whatever its status; `None` when there is no service manager that answers.
async fn ask(words: &[&str]) -> Option<String> {
    for _ in 0..ATTEMPTS {
        let answer = Command::new("systemctl").args(words).kill_on_drop(true).output();
        match tokio::time::timeout(ANSWER_WITHIN, answer).await {
            Ok(Ok(output)) => return Some(String::from_utf8_lossy(&output.stdout).into_owned()),
            Ok(Err(error)) => {
                tracing::debug!(%error, "systemctl cannot be run");
                return None;
            }
            Err(_) => {
                tracing::warn!("the service manager does not say whether this machine ends; asking again");
            }
        }
    }
    None
}
