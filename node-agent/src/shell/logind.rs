//! Shutdown announcements of systemd-logind: received before the shutdown begins, and delayed until this node has left
//! the cluster.
//!
//! `systemd-inhibit` holds the delay lock, for at most `InhibitDelayMaxSec`. After that time, and on a machine without
//! systemd-logind, only the unit's own ordering and stop timeout apply.

use super::shutdown_cause::{Announcement, parse_announcement};
use super::{Inputs, inhibitor};
use crate::core::{Input, Shutdown as ShutdownRequest};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;

/// Time within which the kind of a shutdown may follow its announcement.
const KIND_TIMEOUT: Duration = Duration::from_millis(500);
/// Time from the end of the delay within which the service manager stops the agent.
const STOP_TIMEOUT: Duration = Duration::from_secs(90);
/// Delay before a watch that ended is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(10);

/// The state of an announced shutdown, and the means to end its delay.
#[derive(Clone, Debug)]
pub(super) struct ShutdownDelay {
    /// `true` while the node leaves and holds the delay lock, which is released once the node has left.
    is_leaving: watch::Receiver<bool>,
    release: watch::Sender<bool>,
}

impl ShutdownDelay {
    /// Starts to watch for announcements, with the lock held, if this machine runs systemd-logind.
    pub(super) fn spawn(inputs: Inputs) -> ShutdownDelay {
        let (announced_sender, is_leaving) = watch::channel(false);
        let (release, released) = watch::channel(false);
        if inhibitor::is_available() {
            tokio::spawn(watch_shutdown_announcements(inputs, announced_sender, released));
        }
        ShutdownDelay { is_leaving, release }
    }

    /// Lets the shutdown continue after the agent's core has ended. An agent that left because of the announcement
    /// waits until the service manager stops it. If the agent exited earlier, the service manager would restart it.
    pub(super) async fn finish(self, requested: impl Future<Output = ()>) {
        let was_leaving = *self.is_leaving.borrow();
        // Sending fails if no watch is running.
        let _ = self.release.send(true);
        if was_leaving && tokio::time::timeout(STOP_TIMEOUT, requested).await.is_err() {
            tracing::warn!("announced shutdown did not happen, restarting the agent");
        }
    }
}

async fn watch_shutdown_announcements(
    inputs: Inputs,
    announced_sender: watch::Sender<bool>,
    mut released: watch::Receiver<bool>,
) {
    loop {
        if let Err(error) = watch_once(&inputs, &announced_sender, &mut released).await {
            tracing::debug!(%error, "cannot watch systemd-logind");
        }
        if *announced_sender.borrow() || *released.borrow() {
            return;
        }
        tokio::time::sleep(RESTART_DELAY).await;
    }
}

/// Holds the lock and watches until a shutdown was announced and this node has left, or until the watch ends.
async fn watch_once(
    inputs: &Inputs,
    announced_sender: &watch::Sender<bool>,
    released: &mut watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut monitor = monitor()?;
    let Some(output) = monitor.stdout.take() else { return Ok(()) };
    let lock = inhibitor::acquire("shutdown", "delay", "moving or stopping the services of this node")?;
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await? {
        let announcement = match parse_announcement(&line) {
            Some(Announcement::ShutsDownForUnknownReason) => wait_for_kind(&mut lines).await,
            other => other,
        };
        match announcement {
            Some(Announcement::ShutsDown(shutdown_kind)) => {
                tracing::info!(
                    ?shutdown_kind,
                    "delaying the announced shutdown of this machine until this node has left the cluster"
                );
                announced_sender.send_replace(true);
                // Sending fails only once the loop has ended.
                let _ = inputs.send(Input::Shutdown(ShutdownRequest::Machine(shutdown_kind)));
                // An error means that the agent has ended, so no wait is necessary.
                let _ = released.wait_for(|released| *released).await;
                break;
            }
            Some(Announcement::ShutsDownForUnknownReason) => {
                tracing::info!(
                    "detected an announced shutdown of this machine, waiting to determine power-off or reboot"
                );
                break;
            }
            Some(Announcement::Canceled) | None => {}
        }
    }
    drop(lock);
    Ok(())
}

/// Waits for the kind of the shutdown. If systemd-logind reports the kind, the report follows immediately.
async fn wait_for_kind(lines: &mut tokio::io::Lines<BufReader<ChildStdout>>) -> Option<Announcement> {
    let next = tokio::time::timeout(KIND_TIMEOUT, lines.next_line()).await;
    let followed = next.ok().and_then(Result::ok).flatten();
    followed.and_then(|line| parse_announcement(&line)).or(Some(Announcement::ShutsDownForUnknownReason))
}

fn monitor() -> std::io::Result<Child> {
    Command::new("busctl")
        .args(["--system", "monitor", "--json=short", "--match"])
        .arg("type='signal',interface='org.freedesktop.login1.Manager'")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
}
