//! Shutdown of a process: SIGTERM and SIGINT as an awaitable state, and the effect of a second signal.

use std::io;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Running,
    Requested,
    Forced,
}

/// Receiver of the process's shutdown requests. Clones are cheap and share the same state.
///
/// ```
/// use ha_runtime::shutdown::Shutdown;
///
/// let (trigger, shutdown) = Shutdown::manual();
/// let of_a_task = shutdown.clone();
/// assert!(!of_a_task.is_requested());
/// trigger.request();
/// assert!(of_a_task.is_requested());
/// ```
#[derive(Clone, Debug)]
pub struct Shutdown {
    stage: watch::Receiver<Stage>,
    /// Keeps the channel open in processes that have dropped their own trigger.
    stage_sender: Arc<watch::Sender<Stage>>,
}

/// Trigger of a shutdown from inside the process, such as from a task that cannot continue, or from a test.
#[derive(Clone, Debug)]
pub struct ShutdownTrigger {
    stage: Arc<watch::Sender<Stage>>,
}

impl Shutdown {
    /// Returns a shutdown that only its trigger can start.
    pub fn manual() -> (ShutdownTrigger, Shutdown) {
        let (sender, stage) = watch::channel(Stage::Running);
        let sender = Arc::new(sender);
        (ShutdownTrigger { stage: Arc::clone(&sender) }, Shutdown { stage, stage_sender: sender })
    }

    /// Handles SIGTERM and SIGINT: the first signal requests the shutdown, a second signal of either kind forces it.
    ///
    /// # Errors
    /// Fails if the handlers cannot be installed.
    pub fn on_signals() -> io::Result<(ShutdownTrigger, Shutdown)> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (trigger, shutdown) = Shutdown::manual();
        let listener = trigger.clone();
        tokio::spawn(async move {
            let name = first_signal(&mut terminate, &mut interrupt).await;
            tracing::info!(signal = name, "received a signal, stopping; a second signal exits immediately");
            listener.request();
            let name = first_signal(&mut terminate, &mut interrupt).await;
            tracing::warn!(signal = name, "received a second signal, exiting immediately");
            listener.force();
        });
        Ok((trigger, shutdown))
    }

    /// Waits until the shutdown is requested or forced.
    pub async fn wait_for_request(&self) {
        self.wait_for_stage(Stage::Requested).await;
    }

    /// Waits until the shutdown is forced. After that, no task may delay the exit of the process.
    pub async fn wait_for_force(&self) {
        self.wait_for_stage(Stage::Forced).await;
    }

    /// Returns `true` if the shutdown was requested or forced.
    pub fn is_requested(&self) -> bool {
        *self.stage.borrow() >= Stage::Requested
    }

    /// Returns a trigger with which another task requests or forces this shutdown.
    pub fn trigger(&self) -> ShutdownTrigger {
        ShutdownTrigger { stage: Arc::clone(&self.stage_sender) }
    }

    async fn wait_for_stage(&self, stage: Stage) {
        let mut receiver = self.stage.clone();
        // `self` keeps the sender, so waiting cannot fail.
        let _ = receiver.wait_for(|current| *current >= stage).await;
    }
}

impl ShutdownTrigger {
    /// Requests the shutdown: [`Shutdown::is_requested`] becomes `true`.
    pub fn request(&self) {
        self.raise_stage(Stage::Requested);
    }

    /// Forces the shutdown.
    pub fn force(&self) {
        self.raise_stage(Stage::Forced);
    }

    fn raise_stage(&self, to: Stage) {
        self.stage.send_if_modified(|current| {
            let has_advanced = *current < to;
            if has_advanced {
                *current = to;
            }
            has_advanced
        });
    }
}

async fn first_signal(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn shutdown_requests_reach_every_clone() {
        let (trigger, shutdown) = Shutdown::manual();
        let other = shutdown.clone();
        assert!(!shutdown.is_requested());
        trigger.request();
        other.wait_for_request().await;
        assert!(shutdown.is_requested());
        let forced = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.wait_for_force().await }
        });
        shutdown.trigger().force();
        forced.await.unwrap();
        trigger.request();
        shutdown.wait_for_force().await;
    }

    #[tokio::test]
    async fn first_signal_requests_and_second_forces_shutdown() {
        let (_trigger, shutdown) = Shutdown::on_signals().unwrap();
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM).unwrap();
        shutdown.wait_for_request().await;
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGINT).unwrap();
        shutdown.wait_for_force().await;
    }
}
