//! The signals that end the execution of a plan: SIGINT after the current job set, SIGTERM immediately.

use crate::failure::Failure;
use crate::session::Session;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Handlers of the two signals.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    interrupted: bool,
}

/// Marker that SIGTERM has arrived.
pub(super) struct Terminated;

impl Signals {
    /// Installs the handlers, so that the signals no longer end the process.
    pub(super) fn catch() -> Result<Signals, Failure> {
        let catch = |kind| {
            signal(kind).map_err(|error| Failure::refused(format!("cannot wait for signals: {error}")))
        };
        Ok(Signals {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            interrupted: false,
        })
    }

    /// Returns `true` if SIGINT has arrived during any work so far.
    pub(super) fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// Runs some work to its end. At the first SIGINT, prints `how_far`, which states when the execution stops.
    ///
    /// # Errors
    /// Fails if SIGTERM arrives; the work is then incomplete.
    pub(super) async fn during<T>(
        &mut self,
        session: &Session,
        how_far: &str,
        work: impl Future<Output = T>,
    ) -> Result<T, Terminated> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                _ = self.terminate.recv() => return Err(Terminated),
                _ = self.interrupt.recv() => {
                    if !self.interrupted {
                        session.terminal().held_up(&format!("interrupted: {how_far}"));
                    }
                    self.interrupted = true;
                }
                done = &mut work => return Ok(done),
            }
        }
    }
}
