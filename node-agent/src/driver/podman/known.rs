//! The known state of a watched service, and its changes after each query of the container.

use super::container::{Exit, Run};
use super::hints::{Ended, Hints, SIGN_WITHIN_MS};
use ha_api_types::time::Millis;

/// Known state of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// A command of the agent is in progress; its result sets the state.
    Busy,
    /// The service does not run.
    Stopped,
    /// The service runs.
    Running(Run),
    /// The service has ended, first seen at `seen_at` of the driver's clock; the cause is not clear yet.
    Ended { run: Run, seen_at: Millis },
}

/// Result of a query of the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Runs(Run),
    /// The container has ended; with its last output.
    Ended(Exit, String),
    /// The container does not exist.
    Nothing,
    /// The state is currently unknown.
    Unclear,
}

/// A change that is reported to the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Noticed {
    Exited { message: String, by_hand: bool },
    Appeared,
}

impl Known {
    /// Returns the run to which events may belong.
    pub(super) fn run(&self) -> Option<&Run> {
        match self {
            Known::Running(run) | Known::Ended { run, .. } => Some(run),
            Known::Busy | Known::Stopped => None,
        }
    }

    /// Returns the time until the next query, in milliseconds; `None` if only an event requires one.
    pub(super) fn look_after(&self, now: Millis) -> Option<Millis> {
        match self {
            Known::Ended { seen_at, .. } => Some((seen_at + SIGN_WITHIN_MS).saturating_sub(now)),
            Known::Busy | Known::Stopped | Known::Running(_) => None,
        }
    }

    /// Records the result of a query at `now`. Returns the change to report, if any.
    pub(super) fn observe(&mut self, seen: Seen, hints: &Hints, now: Millis) -> Option<Noticed> {
        match (self.clone(), seen) {
            (Known::Busy, _) | (_, Seen::Unclear) | (Known::Stopped, Seen::Ended(..) | Seen::Nothing) => None,
            (Known::Stopped, Seen::Runs(run)) => {
                *self = Known::Running(run);
                Some(Noticed::Appeared)
            }
            // A restart by hand begins another run.
            (Known::Running(_) | Known::Ended { .. }, Seen::Runs(run)) => {
                *self = Known::Running(run);
                None
            }
            (Known::Running(_) | Known::Ended { .. }, Seen::Nothing) => {
                *self = Known::Stopped;
                let message = "container was removed".to_owned();
                Some(Noticed::Exited { message, by_hand: true })
            }
            (Known::Running(run), Seen::Ended(exit, said)) => self.ended(run, now, &exit, &said, hints, now),
            (Known::Ended { run, seen_at }, Seen::Ended(exit, said)) => {
                self.ended(run, seen_at, &exit, &said, hints, now)
            }
        }
    }

    fn ended(
        &mut self,
        run: Run,
        seen_at: Millis,
        exit: &Exit,
        said: &str,
        hints: &Hints,
        now: Millis,
    ) -> Option<Noticed> {
        let by_hand = match hints.judge(exit, seen_at, now) {
            Ended::Unclear => {
                *self = Known::Ended { run, seen_at };
                return None;
            }
            Ended::ByHand => true,
            Ended::ByItself => false,
        };
        *self = Known::Stopped;
        Some(Noticed::Exited { message: format!("{}{said}", exit.describe()), by_hand })
    }
}

#[cfg(test)]
mod tests {
    use super::super::container::tests::container;
    use super::super::container::{Process, Standing};
    use super::*;
    use serde_json::json;

    fn run(started: &str) -> Run {
        match container(&json!({"Status": "running", "StartedAt": started})).standing(Process::Alive) {
            Standing::Runs(run) => run,
            other @ (Standing::Ended(_) | Standing::Changing(_)) => panic!("{other:?}"),
        }
    }

    fn exit(code: i32) -> Seen {
        Seen::Ended(Exit { code, ..Exit::default() }, ": bye".into())
    }

    fn exited(message: &str, by_hand: bool) -> Noticed {
        Noticed::Exited { message: message.into(), by_hand }
    }

    fn check(mut known: Known, seen: Seen, now: Millis, told: impl Into<Option<Noticed>>, after: &Known) {
        let case = format!("{known:?} {seen:?} {now}");
        assert_eq!(known.observe(seen, &Hints::default(), now), told.into(), "{case}");
        assert_eq!(&known, after, "{case}");
    }

    #[test]
    fn what_is_seen_is_told_once() {
        let running = || Known::Running(run("t1"));
        let ended = || Known::Ended { run: run("t1"), seen_at: 100 };
        check(Known::Busy, exit(1), 100, None, &Known::Busy);
        check(Known::Busy, Seen::Runs(run("t1")), 100, None, &Known::Busy);
        check(Known::Stopped, exit(1), 100, None, &Known::Stopped);
        check(Known::Stopped, Seen::Nothing, 100, None, &Known::Stopped);
        check(Known::Stopped, Seen::Runs(run("t1")), 100, Noticed::Appeared, &running());
        check(running(), Seen::Runs(run("t1")), 100, None, &running());
        check(running(), Seen::Runs(run("t2")), 100, None, &Known::Running(run("t2")));
        check(running(), Seen::Unclear, 100, None, &running());
        check(running(), Seen::Nothing, 100, exited("container was removed", true), &Known::Stopped);
        check(running(), exit(1), 100, exited("exit status 1: bye", false), &Known::Stopped);
        check(running(), exit(0), 100, None, &ended());
        check(ended(), exit(0), 500, None, &ended());
        check(ended(), exit(0), 1100, exited("exit status 0: bye", false), &Known::Stopped);
        check(ended(), Seen::Runs(run("t2")), 500, None, &Known::Running(run("t2")));
        assert_eq!(ended().look_after(600), Some(500));
        assert_eq!(running().look_after(600), None);
    }

    #[test]
    fn a_sign_ends_the_wait() {
        let mut known = Known::Ended { run: run("t1"), seen_at: 100 };
        let mut hints = Hints::default();
        for action in ["died", "cleanup", "cleanup"] {
            hints.record(action, 150);
        }
        assert_eq!(known.observe(exit(0), &hints, 150), Some(exited("exit status 0: bye", true)));
    }
}
