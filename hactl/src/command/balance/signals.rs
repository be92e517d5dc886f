//! The signals that end a plan that is carried out: SIGINT between two job sets, SIGTERM at once.

use crate::failure::Failure;
use crate::session::Session;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals, from now on.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    interrupted: bool,
}

/// SIGTERM has come.
pub(super) struct Terminated;

impl Signals {
    /// From now on they do not end the process.
    pub(super) fn catch() -> Result<Signals, Failure> {
        let catch = |kind| {
            signal(kind).map_err(|error| Failure::refused(format!("signals cannot be waited for: {error}")))
        };
        Ok(Signals {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            interrupted: false,
        })
    }

    /// SIGINT has come during any work so far.
    pub(super) fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// Does some work to its end; the first interrupt is answered by telling how far it will go.
    ///
    /// # Errors
    /// When it is to end at once; the work is left undone.
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
