//! `hactl node test-watchdog`: lets the watchdog reset this machine, and remembers that it did.
//!
//! The test is in the journal, on disk for certain, before the device is armed. A later boot that finds it there was reset, and
//! its driver counts as proven on this machine from then on. A process that is still there long after the last moment at which
//! the device must have fired has seen it fail.
//!
//! # Guarantees
//! - Nothing is begun but for an operation that the leader let go ahead, that names this boot, on a node in maintenance with
//!   nothing active; nothing is started while it lasts; an agent that is told to end gives it up and releases the device.
//! - No request of its own goes to the daemon: the device is armed as for a service, by a deadline that nothing renews.

use super::effect::{JournalWriteId, Level};
use super::journal::{Journal, LastWords, Proven, Trial};
use super::{AgentCore, Config, Now};
use crate::watchdog::Moment;
use crate::watchdog::protocol::{Arm, Request, State};
use ha_api_types::operation::{OperationAction, OperationPhase};
use ha_api_types::record::WatchdogTest as Passed;
use ha_api_types::time::{Millis, Mono};
use ha_api_types::timing::{wait_ms, watchdog_worst_ms};
use std::collections::BTreeSet;

/// The deadline of a test: more than any driver's smallest timeout, and no longer than a heartbeat is good for.
const DEADLINE_MS: Millis = 3_000;
/// How much longer than the longest wait for a reset a machine that still runs is waited for.
const GRACE_MS: Millis = 5_000;
/// How often it is noted that the machine is still there.
const NOTE_MS: Millis = 500;

/// The test under way, and those that this process has seen end.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchdogTest {
    stage: Option<Stage>,
    over: BTreeSet<String>,
}

/// How far a test is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The journal is being written.
    Journaling(JournalWriteId),
    /// The device is being armed, with a deadline that nothing renews.
    Arming,
    /// The reset is waited for.
    Waiting { since: Mono, noted: Mono, until: Mono },
}

/// What the journal tells of a test that was begun: another boot than the one to be reset means that it was passed. Says
/// whether the journal has changed. A test that was cut short by the end of the agent alone begins anew.
pub(super) fn settle(config: &Config, journal: &mut Journal) -> bool {
    let Some(trial) = journal.trial.take() else { return false };
    if trial.boot_id != config.boot_id && trial.machine_id == config.machine_id {
        journal.failed = None;
        journal.proven = Some(Proven {
            machine_id: trial.machine_id,
            identity: trial.identity,
            test: Passed {
                operation: trial.operation,
                at: trial.at,
                boot_id: trial.boot_id,
                next_boot_id: config.boot_id.clone(),
                timeout_ms: trial.timeout_ms,
                lasted_ms: trial.lasted_ms,
            },
        });
    }
    true
}

/// How a boot ended that was to be reset in a test.
pub(super) fn last_words(trial: &Trial) -> LastWords {
    LastWords {
        boot_id: trial.boot_id.clone(),
        message: format!("hactl node test-watchdog let {} reset it", trial.identity),
        at: trial.at.clone(),
    }
}

impl WatchdogTest {
    /// Whether nothing may start, and nothing else be asked of the daemon.
    pub(super) fn is_under_way(&self) -> bool {
        self.stage.is_some()
    }

    pub(super) fn due(&self) -> Option<Mono> {
        match self.stage {
            Some(Stage::Waiting { noted, until, .. }) => Some(until.min(noted + NOTE_MS)),
            Some(Stage::Journaling(_) | Stage::Arming) | None => None,
        }
    }
}

impl AgentCore {
    /// Begins a test that the leader let go ahead, and follows it.
    pub(super) fn watchdog_test_step(&mut self, now: &Now) {
        match self.watchdog_test.stage {
            None => self.begin_test(now),
            Some(_) if self.is_ending() => self.end_test("the agent was told to end"),
            Some(Stage::Journaling(write)) => match self.journal_result(write) {
                None => {}
                Some(Ok(())) if self.may_be_tested() => self.watchdog_test.stage = Some(Stage::Arming),
                Some(Ok(())) => self.end_test("the node is not idle in maintenance any more"),
                Some(Err(message)) => self.end_test(&format!("the journal cannot be written: {message}")),
            },
            Some(Stage::Arming) => match self.watchdog.daemon_status().state {
                State::Armed { .. } | State::Expired { .. } => {
                    let timings = self.in_force;
                    let report = self.watchdog.report(timings.watchdog_timeout_ms);
                    let worst_ms = wait_ms(&timings, &report.bounds())
                        + watchdog_worst_ms(&timings, report.timeout_ms)
                        + GRACE_MS;
                    let since = now.raw;
                    self.watchdog_test.stage =
                        Some(Stage::Waiting { since, noted: since, until: since + worst_ms });
                }
                State::Released | State::Staying if !self.watchdog.problem.is_empty() => {
                    let problem = self.watchdog.problem.clone();
                    self.end_test(&format!("the watchdog cannot be armed: {problem}"));
                }
                State::Released | State::Staying => {}
            },
            Some(Stage::Waiting { until, .. }) if now.raw >= until => {
                self.journal.failed = self.journal.trial.clone();
                self.journal.proven = None;
                self.know_tested();
                self.end_test("the watchdog did not reset this machine");
            }
            Some(Stage::Waiting { since, noted, until }) if now.raw.since(noted) >= NOTE_MS => {
                if let Some(trial) = &mut self.journal.trial {
                    trial.lasted_ms = now.raw.since(since);
                }
                self.watchdog_test.stage = Some(Stage::Waiting { since, noted: now.raw, until });
                self.journal_changed();
            }
            Some(Stage::Waiting { .. }) => {}
        }
    }

    /// Takes over what the journal knows of tests on this machine.
    pub(super) fn know_tested(&mut self) {
        let machine = &self.config.machine_id;
        self.watchdog.proven = self.journal.proven.clone().filter(|proven| proven.machine_id == *machine);
        self.watchdog.failed = self.journal.failed.clone().filter(|trial| trial.machine_id == *machine);
    }

    fn begin_test(&mut self, now: &Now) {
        if !self.may_be_tested() {
            return;
        }
        let Some(operation) = self.test_let_go() else { return };
        let watchdog = self.watchdog.report(self.in_force.watchdog_timeout_ms);
        if watchdog.identity.is_empty() {
            return;
        }
        self.log(Level::Error, format!("operation {operation}: the watchdog is about to reset this machine"));
        self.journal.trial = Some(Trial {
            operation,
            machine_id: self.config.machine_id.clone(),
            boot_id: self.config.boot_id.clone(),
            identity: watchdog.identity,
            timeout_ms: self.arming_timings().watchdog_timeout_ms,
            at: now.timestamp(),
            lasted_ms: 0,
        });
        // What an earlier test has shown is looked at anew.
        self.journal.failed = None;
        self.know_tested();
        self.watchdog_test.stage = Some(Stage::Journaling(self.journal_next_write()));
        self.journal_changed();
    }

    /// A test of this boot that the leader let go ahead and that has not ended yet.
    fn test_let_go(&self) -> Option<String> {
        let has_failed =
            |name: &str| self.journal.failed.as_ref().is_some_and(|trial| trial.operation == name);
        let of_this_boot = |name: &str| {
            self.view.operations.value(name).is_some_and(|operation| {
                let spec = &operation.spec;
                spec.action == OperationAction::TestWatchdog
                    && spec.node.as_deref() == Some(self.config.node.as_str())
                    && spec.boot_id.as_deref() == Some(self.config.boot_id.as_str())
            })
        };
        let found = self.view.operation_statuses.iter().find(|(name, stored)| {
            let runs = stored.value.as_ref().is_some_and(|status| status.phase == OperationPhase::Running);
            runs && of_this_boot(name) && !self.watchdog_test.over.contains(*name) && !has_failed(name)
        });
        found.map(|(name, _)| name.clone())
    }

    /// The node is in maintenance, nothing exclusive is active here, nothing is committed as armed, and the device is at rest.
    fn may_be_tested(&self) -> bool {
        self.active().is_some()
            && self.view.nodes.value(&self.config.node).is_some_and(|node| node.spec.maintenance)
            && !self.wants_watchdog()
            && !self.may_be_committed_armed()
            && !self.is_ending()
            && !self.is_disarmed()
            && self.watchdog.problem.is_empty()
            && !self.watchdog.is_away()
            && !self.watchdog.is_running()
    }

    /// What is asked of the daemon during a test: to arm once, with a deadline that nothing renews.
    pub(super) fn test_request(&self, now: &Now) -> Option<Request> {
        match self.watchdog_test.stage {
            Some(Stage::Arming) if !self.watchdog.is_running() => {
                let deadline = Moment::from(now).plus_ms(DEADLINE_MS.min(self.in_force.heartbeat_valid_ms));
                Some(Request::Arm(Arm::of_timings(&self.arming_timings(), Some(deadline))))
            }
            Some(Stage::Journaling(_) | Stage::Arming | Stage::Waiting { .. }) | None => None,
        }
    }

    pub(super) fn end_test(&mut self, why: &str) {
        if let Some(trial) = self.journal.trial.take() {
            self.log(Level::Error, format!("operation {}: {why}", trial.operation));
            self.watchdog_test.over.insert(trial.operation);
        }
        self.watchdog_test.stage = None;
        self.journal_changed();
    }
}
