//! `hactl node test-watchdog`: lets the watchdog reset this machine, and records the reset.
//!
//! The test is in the journal, durably on disk, before the device is armed. If a later boot finds the test there, the
//! machine was reset, and its driver counts as tested on this machine. If a process still runs long after the latest
//! time at which the device must have fired, the device has failed.
//!
//! # Guarantees
//! - A test begins only for an operation that the leader has allowed and that names this boot. The node must be in
//!   maintenance with no active service. No service is started during a test. An agent that receives a request to exit
//!   ends the test and releases the device.
//! - The device is armed as for a service, with a deadline that nothing renews. The daemon knows that this is a test,
//!   and leaves the reset to the device.

use super::effect::{JournalWriteId, Level};
use super::journal::{Journal, ShutdownRecord, TestedWatchdog, WatchdogTrial};
use super::{AgentCore, Config, Now};
use crate::watchdog::DualClockTime;
use crate::watchdog::protocol::{Arm, Purpose, Request, State};
use ha_api_types::id::OperationName;
use ha_api_types::operation::{OperationAction, OperationPhase};
use ha_api_types::record::WatchdogTest as Passed;
use ha_api_types::time::{Millis, MonotonicTime};
use ha_api_types::timing::{fencing_delay_ms, watchdog_worst_ms};
use std::collections::BTreeSet;

/// The deadline of a test, milliseconds: more than any driver's smallest timeout, and at most the validity of a
/// heartbeat.
const DEADLINE_MS: Millis = 3_000;
/// Additional wait, after the longest possible time to a reset, before a test counts as failed.
const RESET_GRACE_MS: Millis = 5_000;
/// Interval at which the test records that the machine still runs.
const PROGRESS_INTERVAL_MS: Millis = 500;

/// The test in progress, and the tests that have ended in this process.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchdogTest {
    stage: Option<Stage>,
    ended_tests: BTreeSet<OperationName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The journal is being written.
    JournalWrites(JournalWriteId),
    /// The device is being armed, with a deadline that is not renewed.
    Arming,
    /// The device is armed, and its reset of the machine is expected.
    Waiting { since: MonotonicTime, recorded_at: MonotonicTime, deadline: MonotonicTime },
}

/// Evaluates a test that the journal contains as begun. If this boot is not the boot that the watchdog had to reset,
/// the test has passed. A test that was interrupted only by the agent's exit begins again. Returns `true` if the
/// journal has changed.
pub(super) fn evaluate_begun_test(config: &Config, journal: &mut Journal) -> bool {
    let Some(trial) = journal.active_trial.take() else { return false };
    if trial.boot_id != config.boot_id && trial.machine_id == config.machine_id {
        journal.failed_trial = None;
        journal.tested_watchdog = Some(TestedWatchdog {
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

/// Returns the shutdown record of a boot that a test was to reset.
pub(super) fn shutdown_record_of(trial: &WatchdogTrial) -> ShutdownRecord {
    ShutdownRecord {
        boot_id: trial.boot_id.clone(),
        message: format!("Reset by watchdog {} in a test (hactl node test-watchdog)", trial.identity),
        at: trial.at.clone(),
    }
}

impl WatchdogTest {
    /// Returns `true` if no service may start and no other request may go to the daemon.
    pub(super) fn is_under_way(&self) -> bool {
        self.stage.is_some()
    }

    pub(super) fn due_at(&self) -> Option<MonotonicTime> {
        match self.stage {
            Some(Stage::Waiting { recorded_at, deadline, .. }) => {
                Some(deadline.min(recorded_at + PROGRESS_INTERVAL_MS))
            }
            Some(Stage::JournalWrites(_) | Stage::Arming) | None => None,
        }
    }
}

impl AgentCore {
    /// Begins a test that the leader has allowed, and follows it.
    pub(super) fn advance_watchdog_test(&mut self, now: &Now) {
        match self.watchdog_test.stage {
            None => self.begin_test(now),
            Some(_) if self.is_ending() => self.end_test("the agent was stopped"),
            Some(Stage::JournalWrites(write)) => match self.journal_result(write) {
                None => {}
                Some(Ok(())) if self.may_be_tested() => self.watchdog_test.stage = Some(Stage::Arming),
                Some(Ok(())) => self.end_test("the node is no longer idle in maintenance"),
                Some(Err(message)) => self.end_test(&format!("cannot write the journal: {message}")),
            },
            Some(Stage::Arming) => match self.watchdog.daemon_status().state {
                State::Armed { .. } | State::Expired { .. } => {
                    let timings = self.active_timings;
                    let report = self.watchdog.report(timings.watchdog_timeout_ms);
                    let worst_ms = fencing_delay_ms(&timings, &report.bounds())
                        + watchdog_worst_ms(&timings, report.timeout_ms)
                        + RESET_GRACE_MS;
                    let since = now.monotonic_raw;
                    self.watchdog_test.stage =
                        Some(Stage::Waiting { since, recorded_at: since, deadline: since + worst_ms });
                }
                State::Released | State::Staying if !self.watchdog.problem.is_empty() => {
                    let problem = self.watchdog.problem.clone();
                    self.end_test(&format!("cannot arm the watchdog: {problem}"));
                }
                State::Released | State::Staying => {}
            },
            Some(Stage::Waiting { deadline, .. }) if now.monotonic_raw >= deadline => {
                self.journal.failed_trial = self.journal.active_trial.clone();
                self.journal.tested_watchdog = None;
                self.load_watchdog_test_results();
                self.end_test("the watchdog did not reset this machine");
            }
            Some(Stage::Waiting { since, recorded_at, deadline })
                if now.monotonic_raw.since(recorded_at) >= PROGRESS_INTERVAL_MS =>
            {
                if let Some(trial) = &mut self.journal.active_trial {
                    trial.lasted_ms = now.monotonic_raw.since(since);
                }
                self.watchdog_test.stage =
                    Some(Stage::Waiting { since, recorded_at: now.monotonic_raw, deadline });
                self.mark_journal_changed();
            }
            Some(Stage::Waiting { .. }) => {}
        }
    }

    /// Loads the journal's results of tests on this machine.
    pub(super) fn load_watchdog_test_results(&mut self) {
        let machine = &self.config.machine_id;
        self.watchdog.passed_test =
            self.journal.tested_watchdog.clone().filter(|proven| proven.machine_id == *machine);
        self.watchdog.failed_trial =
            self.journal.failed_trial.clone().filter(|trial| trial.machine_id == *machine);
    }

    fn begin_test(&mut self, now: &Now) {
        if !self.may_be_tested() {
            return;
        }
        let Some(operation) = self.allowed_test() else { return };
        let watchdog = self.watchdog.report(self.active_timings.watchdog_timeout_ms);
        if watchdog.identity.is_empty() {
            return;
        }
        self.log(Level::Error, format!("operation {operation}: the watchdog is about to reset this machine"));
        self.journal.active_trial = Some(WatchdogTrial {
            operation,
            machine_id: self.config.machine_id.clone(),
            boot_id: self.config.boot_id.clone(),
            identity: watchdog.identity,
            timeout_ms: self.arming_timings().watchdog_timeout_ms,
            at: now.timestamp(),
            lasted_ms: 0,
        });
        // The result of an earlier test no longer counts.
        self.journal.failed_trial = None;
        self.load_watchdog_test_results();
        self.watchdog_test.stage = Some(Stage::JournalWrites(self.journal_next_write()));
        self.mark_journal_changed();
    }

    /// Returns the operation of a test of this boot that the leader has allowed and that has not ended.
    fn allowed_test(&self) -> Option<OperationName> {
        let has_failed = |name: &OperationName| {
            self.journal.failed_trial.as_ref().is_some_and(|trial| trial.operation == *name)
        };
        let of_this_boot = |name: &OperationName| {
            self.view.operations.value(name).is_some_and(|operation| {
                let spec = &operation.spec;
                spec.action == OperationAction::TestWatchdog
                    && spec.node.as_ref() == Some(&self.config.node)
                    && spec.boot_id.as_ref() == Some(&self.config.boot_id)
            })
        };
        let allowed = self.view.operation_statuses.iter().find(|(name, stored)| {
            let runs = stored.value.as_ref().is_some_and(|status| status.phase == OperationPhase::Running);
            runs && of_this_boot(name) && !self.watchdog_test.ended_tests.contains(*name) && !has_failed(name)
        });
        allowed.map(|(name, _)| name.clone())
    }

    /// Returns `true` if the node is in maintenance, no exclusive service is active, no report is committed as armed,
    /// and the device is released.
    fn may_be_tested(&self) -> bool {
        self.active_registration().is_some()
            && self.view.nodes.value(&self.config.node).is_some_and(|node| node.spec.maintenance)
            && !self.needs_watchdog()
            && !self.may_be_committed_armed()
            && !self.is_ending()
            && !self.is_disarmed()
            && self.watchdog.problem.is_empty()
            && !self.watchdog.is_disconnected()
            && !self.watchdog.is_running()
    }

    /// Returns the test's request to the daemon: arm once, with a deadline that is not renewed.
    pub(super) fn test_request(&self, now: &Now) -> Option<Request> {
        match self.watchdog_test.stage {
            Some(Stage::Arming) if !self.watchdog.is_running() => {
                let deadline =
                    DualClockTime::from(now).plus_ms(DEADLINE_MS.min(self.active_timings.heartbeat_valid_ms));
                let arm = Arm::of_timings(&self.arming_timings(), Some(deadline));
                Some(Request::Arm(Arm { purpose: Purpose::Test, ..arm }))
            }
            Some(Stage::JournalWrites(_) | Stage::Arming | Stage::Waiting { .. }) | None => None,
        }
    }

    pub(super) fn end_test(&mut self, cause: &str) {
        if let Some(trial) = self.journal.active_trial.take() {
            self.log(Level::Error, format!("operation {}: {cause}", trial.operation));
            self.watchdog_test.ended_tests.insert(trial.operation);
        }
        self.watchdog_test.stage = None;
        self.mark_journal_changed();
    }
}
