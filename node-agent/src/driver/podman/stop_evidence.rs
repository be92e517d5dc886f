//! Determines from podman's events whether a container was stopped by hand.
//!
//! `podman kill`, `restart` and `rm` create an event before the container's end. `podman stop` also creates such an
//! event, but up to podman 4 only if it detects the end before podman's own cleanup does. Without the event, only one
//! fact distinguishes the stop from a crash: the container is cleaned up twice, once for its end and once by
//! `podman stop`.

use super::container::Exit;
use ha_api_types::time::Millis;

/// Maximum time between a request and the end of the container for which the request counts as the cause; podman's own
/// graceful stop takes up to 10 s.
const STOP_REQUEST_WINDOW_MS: Millis = 15_000;
/// Time after an end during which an event may still show that the end was requested.
pub(super) const STOP_EVIDENCE_WINDOW_MS: Millis = 1_000;

/// Events of one container's run, with times in milliseconds of the driver's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StopEvidence {
    stop_requested_at: Option<Millis>,
    /// Number of cleanups since the container died; `None` before that.
    cleanups: Option<u32>,
}

/// Cause of a container's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndCause {
    Internal,
    External,
    /// A later event may still show a request.
    Unclear,
}

impl StopEvidence {
    pub(super) fn record(&mut self, action: &str, at: Millis) {
        match action {
            "start" => *self = StopEvidence::default(),
            "kill" | "stop" | "restart" | "remove" => self.stop_requested_at = Some(at),
            "died" => self.cleanups = Some(0),
            "cleanup" => {
                if let Some(cleanups) = &mut self.cleanups {
                    *cleanups += 1;
                }
            }
            _ => {}
        }
    }

    /// Returns the cause of a container's end, as far as known at `now`. The end was first seen at `seen_at`.
    pub(super) fn end_cause(&self, exit: &Exit, seen_at: Millis, now: Millis) -> EndCause {
        let stop_requested = self.stop_requested_at.is_some_and(|stop_requested_at| {
            seen_at.saturating_sub(stop_requested_at) <= STOP_REQUEST_WINDOW_MS
        });
        if exit.stopped_by_user || stop_requested || self.cleanups.is_some_and(|cleanups| cleanups > 1) {
            EndCause::External
        } else if is_like_a_stop(exit) && now.saturating_sub(seen_at) < STOP_EVIDENCE_WINDOW_MS {
            EndCause::Unclear
        } else {
            EndCause::Internal
        }
    }
}

/// Returns `true` if a stop can cause this exit: a normal exit, or a signal that requests an end.
fn is_like_a_stop(exit: &Exit) -> bool {
    !exit.oom_killed && matches!(exit.code, 0 | 129 | 130 | 131 | 137 | 143)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the cause for events at 1000 ms, when the end is first seen (2000 ms) and one second later.
    fn check(events: &[&str], code: i32, expected: (EndCause, EndCause)) {
        let mut evidence = StopEvidence::default();
        for event in events {
            evidence.record(event, 1000);
        }
        let exit = Exit { code, ..Exit::default() };
        let causes = (evidence.end_cause(&exit, 2000, 2000), evidence.end_cause(&exit, 2000, 3000));
        assert_eq!(causes, expected, "{events:?} {code}");
    }

    #[test]
    fn event_sequences_distinguish_stop_from_crash() {
        use EndCause::{External, Internal, Unclear};
        // Sequences of events as recorded with podman 4.3.
        check(&["start", "died", "cleanup"], 137, (Unclear, Internal));
        check(&["start", "died", "cleanup"], 1, (Internal, Internal));
        check(&["start", "stop", "died", "cleanup", "cleanup"], 0, (External, External));
        check(&["start", "died", "cleanup", "cleanup"], 0, (External, External));
        check(&["start", "kill", "died", "cleanup"], 137, (External, External));
        check(&["start", "restart", "died"], 0, (External, External));
        check(&["kill", "died", "cleanup", "init", "start"], 139, (Internal, Internal));
        check(&["cleanup", "cleanup"], 0, (Unclear, Internal));
        check(&[], 0, (Unclear, Internal));
        check(&["remove"], 0, (External, External));
    }

    #[test]
    fn old_signals_do_not_explain_an_exit() {
        let mut evidence = StopEvidence::default();
        evidence.record("kill", 1000);
        let exit = Exit { code: 1, ..Exit::default() };
        assert_eq!(evidence.end_cause(&exit, 16_000, 16_000), EndCause::External);
        assert_eq!(
            evidence.end_cause(&exit, 16_001, 16_001),
            EndCause::Internal,
            "it was told to read its settings again"
        );
    }

    #[test]
    fn podman_exit_flags_determine_the_cause() {
        let exit = Exit { code: 1, stopped_by_user: true, ..Exit::default() };
        assert_eq!(StopEvidence::default().end_cause(&exit, 0, 0), EndCause::External);
        let oom = Exit { code: 137, oom_killed: true, ..Exit::default() };
        assert_eq!(StopEvidence::default().end_cause(&oom, 0, 0), EndCause::Internal);
    }
}
