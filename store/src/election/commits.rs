//! When this process committed: the measure of whether its silence about others means anything.

use ha_api_types::time::{Millis, Mono};

/// Remembers the pauses between a process's own applied commits.
///
/// While a process cannot commit, nobody may be able to; so what it did not see in that time proves nothing (FENCING,
/// section 5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitClock {
    last: Option<Mono>,
    /// (end, length) of pauses, newest last.
    pauses: Vec<(Mono, Millis)>,
}

/// Pauses shorter than this never matter: Th/2 is longer for every valid timing.
const SHORTEST_PAUSE_MS: Millis = 150;
/// A process that pauses more often than this keeps the newest only, which are those that restart an observation last.
const MOST_PAUSES: usize = 4096;

impl CommitClock {
    /// A commit of this process was applied, as heard at `now`.
    pub fn applied(&mut self, now: Mono) {
        if self.last.is_none() {
            // Until the first commit nothing shows that anybody could commit: what was seen before starts again.
            self.pauses.push((now, Millis::MAX));
        }
        if let Some(last) = self.last {
            let length = now.since(last);
            if length > SHORTEST_PAUSE_MS {
                // A longer pause that ended later says all that a shorter earlier one does.
                while self.pauses.last().is_some_and(|(_, earlier)| *earlier <= length) {
                    self.pauses.pop();
                }
                self.pauses.push((now, length));
                if self.pauses.len() > MOST_PAUSES {
                    self.pauses.remove(0);
                }
            }
        }
        self.last = Some(now);
    }

    /// Where an observation that began at `since` has to start again: the end of the last pause longer than
    /// `longest_ms`. `None`: it stands.
    pub fn restart_of(&self, since: Mono, longest_ms: Millis) -> Option<Mono> {
        self.pauses
            .iter()
            .rev()
            .find(|(end, length)| *length > longest_ms && *end > since)
            .map(|(end, _)| *end)
    }

    /// Whether this process has ever committed.
    pub fn has_committed(&self) -> bool {
        self.last.is_some()
    }

    /// Whether this process has committed within the last `longest_ms`.
    pub fn is_current(&self, now: Mono, longest_ms: Millis) -> bool {
        self.last.is_some_and(|last| now.since(last) <= longest_ms)
    }
}
