//! Signals as inputs: SIGTERM alone is a restart of the agent; together with a shutdown job the machine leaves.

use super::Inputs;
use crate::core::{Input, Shutdown as Told};
use ha_api_types::record::Leave;
use ha_runtime::shutdown::Shutdown;
use std::time::Duration;
use tokio::process::Command;

/// Waits for the request to end and tells the core why.
pub(super) fn spawn(shutdown: Shutdown, inputs: Inputs) {
    tokio::spawn(async move {
        shutdown.requested().await;
        let told = match machine_leaves().await {
            Some(leave) => Told::Leave(leave),
            None => Told::Restart,
        };
        tracing::info!(?told, "told to end");
        // The loop may have ended by itself.
        let _ = inputs.send(Input::Shutdown(told));
    });
}

/// Whether the service manager has a job that ends this machine, and which; without one that can be asked: no.
async fn machine_leaves() -> Option<Leave> {
    let jobs = Command::new("systemctl").args(["list-jobs", "--plain", "--no-legend", "--no-pager"]).output();
    let output = tokio::time::timeout(Duration::from_secs(2), jobs).await.ok()?.ok()?;
    leave_of(&String::from_utf8_lossy(&output.stdout))
}

fn leave_of(jobs: &str) -> Option<Leave> {
    jobs.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        match (words.next()?, words.next()?) {
            ("reboot.target" | "kexec.target" | "soft-reboot.target", "start") => Some(Leave::Reboot),
            ("poweroff.target" | "halt.target", "start") => Some(Leave::Poweroff),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(jobs: &str, expected: Option<Leave>) {
        assert_eq!(leave_of(jobs), expected, "{jobs}");
    }

    #[test]
    fn a_shutdown_is_told_from_a_restart_by_the_jobs() {
        check("", None);
        check("12 ha-node-agent.service restart running\n", None);
        check("12 a.service stop running\n13 reboot.target start waiting\n", Some(Leave::Reboot));
        check("13 poweroff.target start waiting\n", Some(Leave::Poweroff));
    }
}
