//! Whether a container that ended was stopped by hand: podman's events around its end, put together.
//!
//! `podman kill`, `restart` and `rm` make an event of their own before the container's end. `podman stop` makes one too, but up to
//! podman 4 only if it notices the end before podman's own clearing-up does; else all that tells it from a crash is that the
//! container is cleaned up twice: for its end, and by who stopped it.

use super::container::Exit;
use ha_api_types::time::Millis;

/// How long before an end somebody may have asked for it: podman's own time for a graceful stop is ten seconds.
const ASKED_WITHIN_MS: Millis = 15_000;
/// How long after an end a sign may come that it was asked for.
pub(super) const SIGN_WITHIN_MS: Millis = 1_000;

/// The signs of one container's run, by this process's clock in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hints {
    asked_at: Option<Millis>,
    /// How often it was cleaned up since it died.
    cleaned: Option<u32>,
}

/// Who ended a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    ByItself,
    ByHand,
    /// A sign may yet come.
    Unclear,
}

impl Hints {
    /// Takes an event in.
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

    /// Who ended a container that was first seen ended at `seen_at`, as far as can be told at `now`.
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

/// Whether a stop can end a program so: by itself, or by the signals that ask for it.
fn is_like_a_stop(exit: &Exit) -> bool {
    !exit.oom_killed && matches!(exit.code, 0 | 129 | 130 | 131 | 137 | 143)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events at 1000 ms and after, and what is said at the first sight of the end (2000 ms) and a second later.
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
        // As podman 4.3 was seen to send them.
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
