//! Determines from podman's events whether a container was stopped by hand.
//!
//! `podman kill`, `restart` and `rm` create an event before the container's end. `podman stop` also does, but up to
//! podman 4 only if it detects the end before podman's own cleanup does. Otherwise, only one fact distinguishes the
//! stop from a crash: the container is cleaned up twice, once for its end and once by `podman stop`.

use super::container::Exit;
use ha_api_types::time::Millis;

/// Maximum time from a request to the end of the container that it caused; podman's own graceful stop takes up to 10
/// s.
const ASKED_WITHIN_MS: Millis = 15_000;
/// Time after an end during which an event may still show that it was requested.
pub(super) const SIGN_WITHIN_MS: Millis = 1_000;

/// Events of one container's run, with times in milliseconds of the driver's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hints {
    asked_at: Option<Millis>,
    /// Number of cleanups since the container died; `None` before that.
    cleaned: Option<u32>,
}

/// Cause of a container's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    ByItself,
    ByHand,
    /// A later event may still show a request.
    Unclear,
}

impl Hints {
    /// Records an event.
    pub(super) fn record(&mut self, action: &str, at: Millis) {
        match action {
            "start" => *self = Hints::default(),
            "kill" | "stop" | "restart" | "remove" => self.asked_at = Some(at),
            "died" => self.cleaned = Some(0),
            "cleanup" => {
                if let Some(cleaned) = &mut self.cleaned {
                    *cleaned += 1;
                }
            }
            _ => {}
        }
    }

    /// Returns the cause of the end of a container that was first seen ended at `seen_at`, as far as known at `now`.
    pub(super) fn judge(&self, exit: &Exit, seen_at: Millis, now: Millis) -> Ended {
        let asked = self.asked_at.is_some_and(|asked_at| seen_at.saturating_sub(asked_at) <= ASKED_WITHIN_MS);
        if exit.stopped_by_user || asked || self.cleaned.is_some_and(|cleaned| cleaned > 1) {
            Ended::ByHand
        } else if is_like_a_stop(exit) && now.saturating_sub(seen_at) < SIGN_WITHIN_MS {
            Ended::Unclear
        } else {
            Ended::ByItself
        }
    }
}

/// Returns `true` if a stop can cause this exit: a normal exit, or one of the signals that request an end.
fn is_like_a_stop(exit: &Exit) -> bool {
    !exit.oom_killed && matches!(exit.code, 0 | 129 | 130 | 131 | 137 | 143)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the cause for events at 1000 ms, when the end is first seen (2000 ms) and one second later.
    fn check(events: &[&str], code: i32, expected: (Ended, Ended)) {
        let mut hints = Hints::default();
        for event in events {
            hints.record(event, 1000);
        }
        let exit = Exit { code, ..Exit::default() };
        let told = (hints.judge(&exit, 2000, 2000), hints.judge(&exit, 2000, 3000));
        assert_eq!(told, expected, "{events:?} {code}");
    }

    #[test]
    fn signs_tell_a_stop_from_a_crash() {
        use Ended::{ByHand, ByItself, Unclear};
        // Sequences of events as recorded with podman 4.3.
        check(&["start", "died", "cleanup"], 137, (Unclear, ByItself));
        check(&["start", "died", "cleanup"], 1, (ByItself, ByItself));
        check(&["start", "stop", "died", "cleanup", "cleanup"], 0, (ByHand, ByHand));
        check(&["start", "died", "cleanup", "cleanup"], 0, (ByHand, ByHand));
        check(&["start", "kill", "died", "cleanup"], 137, (ByHand, ByHand));
        check(&["start", "restart", "died"], 0, (ByHand, ByHand));
        check(&["kill", "died", "cleanup", "init", "start"], 139, (ByItself, ByItself));
        check(&["cleanup", "cleanup"], 0, (Unclear, ByItself));
        check(&[], 0, (Unclear, ByItself));
        check(&["remove"], 0, (ByHand, ByHand));
    }

    #[test]
    fn a_signal_of_long_ago_ended_nothing() {
        let mut hints = Hints::default();
        hints.record("kill", 1000);
        let exit = Exit { code: 1, ..Exit::default() };
        assert_eq!(hints.judge(&exit, 16_000, 16_000), Ended::ByHand);
        assert_eq!(
            hints.judge(&exit, 16_001, 16_001),
            Ended::ByItself,
            "it was told to read its settings again"
        );
    }

    #[test]
    fn what_podman_says_itself_counts() {
        let exit = Exit { code: 1, stopped_by_user: true, ..Exit::default() };
        assert_eq!(Hints::default().judge(&exit, 0, 0), Ended::ByHand);
        let oom = Exit { code: 137, oom_killed: true, ..Exit::default() };
        assert_eq!(Hints::default().judge(&oom, 0, 0), Ended::ByItself);
    }
}
