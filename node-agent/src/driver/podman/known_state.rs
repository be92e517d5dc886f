//! The known state of a watched service, and its changes after each query of the container.

use super::container::{Exit, Run};
use super::stop_evidence::{EndCause, STOP_EVIDENCE_WINDOW_MS, StopEvidence};
use ha_api_types::time::Millis;

/// Known state of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KnownState {
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
pub(super) enum QueryResult {
    Runs(Run),
    /// The container has ended. Contains its last output.
    Ended(Exit, String),
    /// The container does not exist.
    Nothing,
    /// The state is currently unknown.
    Unclear,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReportedChange {
    Exited { message: String, stopped_externally: bool },
    Appeared,
}

impl KnownState {
    /// Returns the run to which events may belong.
    pub(super) fn run(&self) -> Option<&Run> {
        match self {
            KnownState::Running(run) | KnownState::Ended { run, .. } => Some(run),
            KnownState::Busy | KnownState::Stopped => None,
        }
    }

    /// Returns the time until the next query, in milliseconds; `None` if only an event requires one.
    pub(super) fn next_query_ms(&self, now: Millis) -> Option<Millis> {
        match self {
            KnownState::Ended { seen_at, .. } => {
                Some((seen_at + STOP_EVIDENCE_WINDOW_MS).saturating_sub(now))
            }
            KnownState::Busy | KnownState::Stopped | KnownState::Running(_) => None,
        }
    }

    /// Records the result of a query at `now`. Returns the change to report, if any.
    pub(super) fn observe(
        &mut self,
        query_result: QueryResult,
        evidence: &StopEvidence,
        now: Millis,
    ) -> Option<ReportedChange> {
        match (self.clone(), query_result) {
            (KnownState::Busy, _)
            | (_, QueryResult::Unclear)
            | (KnownState::Stopped, QueryResult::Ended(..) | QueryResult::Nothing) => None,
            (KnownState::Stopped, QueryResult::Runs(run)) => {
                *self = KnownState::Running(run);
                Some(ReportedChange::Appeared)
            }
            // A restart by hand begins another run.
            (KnownState::Running(_) | KnownState::Ended { .. }, QueryResult::Runs(run)) => {
                *self = KnownState::Running(run);
                None
            }
            (KnownState::Running(_) | KnownState::Ended { .. }, QueryResult::Nothing) => {
                *self = KnownState::Stopped;
                let message = "container was removed".to_owned();
                Some(ReportedChange::Exited { message, stopped_externally: true })
            }
            (KnownState::Running(run), QueryResult::Ended(exit, last_output)) => {
                self.handle_end(run, now, &exit, &last_output, evidence, now)
            }
            (KnownState::Ended { run, seen_at }, QueryResult::Ended(exit, last_output)) => {
                self.handle_end(run, seen_at, &exit, &last_output, evidence, now)
            }
        }
    }

    fn handle_end(
        &mut self,
        run: Run,
        seen_at: Millis,
        exit: &Exit,
        last_output: &str,
        evidence: &StopEvidence,
        now: Millis,
    ) -> Option<ReportedChange> {
        let stopped_externally = match evidence.end_cause(exit, seen_at, now) {
            EndCause::Unclear => {
                *self = KnownState::Ended { run, seen_at };
                return None;
            }
            EndCause::External => true,
            EndCause::Internal => false,
        };
        *self = KnownState::Stopped;
        Some(ReportedChange::Exited {
            message: format!("{}{last_output}", exit.describe()),
            stopped_externally,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::container::tests::container;
    use super::super::container::{ContainerState, Process};
    use super::*;
    use serde_json::json;

    fn run(started: &str) -> Run {
        match container(&json!({"Status": "running", "StartedAt": started})).container_state(Process::Alive) {
            ContainerState::Runs(run) => run,
            other @ (ContainerState::Ended(_) | ContainerState::Changing(_)) => panic!("{other:?}"),
        }
    }

    fn exit(code: i32) -> QueryResult {
        QueryResult::Ended(Exit { code, ..Exit::default() }, ": bye".into())
    }

    fn exited(message: &str, stopped_externally: bool) -> ReportedChange {
        ReportedChange::Exited { message: message.into(), stopped_externally }
    }

    fn check(
        mut state: KnownState,
        query_result: QueryResult,
        now: Millis,
        expected_change: impl Into<Option<ReportedChange>>,
        expected_known: &KnownState,
    ) {
        let case = format!("{state:?} {query_result:?} {now}");
        assert_eq!(
            state.observe(query_result, &StopEvidence::default(), now),
            expected_change.into(),
            "{case}"
        );
        assert_eq!(&state, expected_known, "{case}");
    }

    #[test]
    fn each_container_change_is_reported_once() {
        let running = || KnownState::Running(run("t1"));
        let ended = || KnownState::Ended { run: run("t1"), seen_at: 100 };
        check(KnownState::Busy, exit(1), 100, None, &KnownState::Busy);
        check(KnownState::Busy, QueryResult::Runs(run("t1")), 100, None, &KnownState::Busy);
        check(KnownState::Stopped, exit(1), 100, None, &KnownState::Stopped);
        check(KnownState::Stopped, QueryResult::Nothing, 100, None, &KnownState::Stopped);
        check(KnownState::Stopped, QueryResult::Runs(run("t1")), 100, ReportedChange::Appeared, &running());
        check(running(), QueryResult::Runs(run("t1")), 100, None, &running());
        check(running(), QueryResult::Runs(run("t2")), 100, None, &KnownState::Running(run("t2")));
        check(running(), QueryResult::Unclear, 100, None, &running());
        check(
            running(),
            QueryResult::Nothing,
            100,
            exited("container was removed", true),
            &KnownState::Stopped,
        );
        check(running(), exit(1), 100, exited("exit status 1: bye", false), &KnownState::Stopped);
        check(running(), exit(0), 100, None, &ended());
        check(ended(), exit(0), 500, None, &ended());
        check(ended(), exit(0), 1100, exited("exit status 0: bye", false), &KnownState::Stopped);
        check(ended(), QueryResult::Runs(run("t2")), 500, None, &KnownState::Running(run("t2")));
        assert_eq!(ended().next_query_ms(600), Some(500));
        assert_eq!(running().next_query_ms(600), None);
    }

    #[test]
    fn stop_evidence_ends_the_exit_wait() {
        let mut state = KnownState::Ended { run: run("t1"), seen_at: 100 };
        let mut evidence = StopEvidence::default();
        for action in ["died", "cleanup", "cleanup"] {
            evidence.record(action, 150);
        }
        assert_eq!(state.observe(exit(0), &evidence, 150), Some(exited("exit status 0: bye", true)));
    }
}
