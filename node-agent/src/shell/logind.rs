//! Shutdown announcements of systemd-logind: received before the shutdown begins, and delayed until this node has left
//! (SEMANTICS 7).
//!
//! `systemd-inhibit` holds the delay lock, for at most `InhibitDelayMaxSec`. After that, the unit's own ordering and
//! stop timeout apply. Without systemd-logind, only the unit's ordering and timeout exist.

use super::machine_end::{Announcement, announced};
use super::{Inputs, inhibitor};
use crate::core::{Input, Shutdown as Told};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;

/// Time within which the kind of a shutdown may follow its announcement.
const KIND_WITHIN: Duration = Duration::from_millis(500);
/// Time from the end of the delay within which the service manager stops the agent.
const STOP_WITHIN: Duration = Duration::from_secs(90);
/// Delay before a watch that ended is restarted.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// The state of an announced shutdown, and the means to end its delay.
#[derive(Clone, Debug)]
pub(super) struct ShutdownDelay {
    /// `true` while the node leaves and holds the delay lock, which is released once the node has left.
    leaves: watch::Receiver<bool>,
    release: watch::Sender<bool>,
}

impl ShutdownDelay {
    /// Starts to watch for announcements, with the lock held, if this machine runs systemd-logind.
    pub(super) fn spawn(inputs: Inputs) -> ShutdownDelay {
        let (told, leaves) = watch::channel(false);
        let (release, released) = watch::channel(false);
        if inhibitor::can_be_held() {
            tokio::spawn(keep_watch(inputs, told, released));
        }
        ShutdownDelay { leaves, release }
    }

    /// Lets the shutdown continue after the agent's core has ended. An agent that left because of the announcement
    /// waits until the service manager stops it, because it would be restarted immediately otherwise.
    pub(super) async fn finish(self, requested: impl Future<Output = ()>) {
        let left = *self.leaves.borrow();
        // Sending fails if no watch is running.
        let _ = self.release.send(true);
        if left && tokio::time::timeout(STOP_WITHIN, requested).await.is_err() {
            tracing::warn!("announced shutdown did not happen, restarting the agent");
        }
    }
}

async fn keep_watch(inputs: Inputs, told: watch::Sender<bool>, mut released: watch::Receiver<bool>) {
    loop {
        if let Err(error) = watch_once(&inputs, &told, &mut released).await {
            tracing::debug!(%error, "cannot watch systemd-logind");
        }
        if *told.borrow() || *released.borrow() {
            return;
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

/// Holds the lock and watches until a shutdown was announced and this node has left, or until the watch ends.
async fn watch_once(
    inputs: &Inputs,
    told: &watch::Sender<bool>,
    released: &mut watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut monitor = monitor()?;
    let Some(output) = monitor.stdout.take() else { return Ok(()) };
    let lock = inhibitor::hold("shutdown", "delay", "moving or stopping the services of this node")?;
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await? {
        let announcement = match announced(&line) {
            Some(Announcement::EndsSomehow) => later_kind(&mut lines).await,
            other => other,
        };
        match announcement {
            Some(Announcement::Ends(leave)) => {
                tracing::info!(
                    ?leave,
                    "delaying the announced shutdown of this machine until this node has left the cluster"
                );
                told.send_replace(true);
                // Sending fails only once the loop has ended.
                let _ = inputs.send(Input::Shutdown(Told::Leave(leave)));
                // An error means that the agent is gone, so there is nothing to wait for.
                let _ = released.wait_for(|released| *released).await;
                break;
            }
            Some(Announcement::EndsSomehow) => {
                tracing::info!(
                    "detected an announced shutdown of this machine, waiting to determine power-off or reboot"
                );
                break;
            }
            Some(Announcement::Cancelled) | None => {}
        }
    }
    drop(lock);
    Ok(())
}

/// Waits for the kind of the shutdown, which follows immediately if systemd-logind reports it at all.
async fn later_kind(lines: &mut tokio::io::Lines<BufReader<ChildStdout>>) -> Option<Announcement> {
    let next = tokio::time::timeout(KIND_WITHIN, lines.next_line()).await;
    let followed = next.ok().and_then(Result::ok).flatten();
    followed.and_then(|line| announced(&line)).or(Some(Announcement::EndsSomehow))
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
