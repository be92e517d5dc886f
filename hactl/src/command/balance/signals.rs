//! The signals that end the execution of a plan: SIGINT after the current job set, SIGTERM immediately.

use crate::failure::Failure;
use crate::session::Session;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Handlers of the two signals.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    is_interrupted: bool,
    is_terminated: bool,
}

/// Marker that SIGTERM has arrived.
pub(super) struct Terminated;

impl Signals {
    /// Installs the handlers, so that the signals no longer end the process.
    pub(super) fn install() -> Result<Signals, Failure> {
        let install_handler =
            |kind| signal(kind).map_err(|error| Failure::failed(format!("cannot wait for signals: {error}")));
        Ok(Signals {
            interrupt: install_handler(SignalKind::interrupt())?,
            terminate: install_handler(SignalKind::terminate())?,
            is_interrupted: false,
            is_terminated: false,
        })
    }

    /// Returns `true` if SIGTERM has ended some work.
    pub(super) fn is_terminated(&self) -> bool {
        self.is_terminated
    }

    /// Returns `true` if SIGINT has arrived during any work so far.
    pub(super) fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// Runs some work to its end. At the first SIGINT, prints `interrupt_effect`, which states when the execution stops.
    ///
    /// # Errors
    /// Fails if SIGTERM arrives; the work is then incomplete.
    pub(super) async fn run_to_end<T>(
        &mut self,
        session: &Session,
        interrupt_effect: &str,
        work: impl Future<Output = T>,
    ) -> Result<T, Terminated> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                _ = self.terminate.recv() => {
                    self.is_terminated = true;
                    return Err(Terminated);
                }
                _ = self.interrupt.recv() => {
                    if !self.is_interrupted {
                        session.terminal().notice(&format!("interrupted: {interrupt_effect}"));
                    }
                    self.is_interrupted = true;
                }
                outcome = &mut work => return Ok(outcome),
            }
        }
    }
}
