//! Usage of services and of the machine: when it is read, and when a reading is written to etcd.
//!
//! These figures have a key of their own, because permits and the leader's guards depend on the other keys. The agent
//! writes the figures when one of them has changed enough, otherwise rarely. All figures are written together, so that
//! those of the machine and of its services are of the same time and can be subtracted.

use super::commits::CommitPurpose;
use super::effect::{CommitId, CommitUrgency, Effect, UsageReadId};
use super::service::Presence;
use super::usage::{History, RATE_WINDOW_MS, Sample, has_changed_enough};
use super::{AgentCore, Now};
use ha_api_types::id::{ObjectUid, ResourceName};
use ha_api_types::record::{ServiceUsage, UsageReport};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, MonotonicTime};
use ha_api_types::usage::Usage;
use ha_store::{Guard, Outcome, Transaction};
use std::collections::BTreeMap;

/// Interval between readings.
const READ_INTERVAL_MS: Millis = 15_000;
/// Time limit of a reading. After it, the agent no longer waits for the reading, and discards earlier readings.
const READ_TIMEOUT_MS: Millis = 60_000;
/// Shortest time between two writes, unless the set of services has changed.
const MIN_WRITE_INTERVAL_MS: Millis = 30_000;
/// Time after which figures are written even if they have changed little.
const MAX_WRITE_INTERVAL_MS: Millis = 600_000;

/// State of the usage measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct UsageMeasurement {
    pending: Option<PendingReading>,
    requested_at: Option<MonotonicTime>,
    machine: History,
    /// Readings by resource, each with the uid that was read. The running services that could not be read have none.
    services: BTreeMap<ResourceName, (ObjectUid, History)>,
    /// Time of the first reading with the present set of running services.
    services_changed_at: Option<MonotonicTime>,
    pending_write: Option<CommitId>,
    written_at: Option<MonotonicTime>,
    /// Time before which a write that was not applied is not tried again.
    write_not_before: Option<MonotonicTime>,
}

/// A reading in progress.
#[derive(Clone, Debug)]
struct PendingReading {
    id: UsageReadId,
    uids: BTreeMap<ResourceName, ObjectUid>,
}

/// The readings of one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageReadings {
    /// The machine's reading; `None` if it could not be read.
    pub machine: Option<Sample>,
    /// Readings by resource, of the services that could be read.
    pub services: BTreeMap<ResourceName, Sample>,
}

impl AgentCore {
    /// Applies a reading. Returns `true` if it leads to a write.
    pub(super) fn record_measurement(&mut self, now: &Now, id: UsageReadId, measured: UsageReadings) -> bool {
        let Some(pending) = self.usage_measurement.pending.take_if(|pending| pending.id == id) else {
            return false;
        };
        match measured.machine {
            Some(sample) => self.usage_measurement.machine.push(sample),
            None => self.usage_measurement.machine = History::default(),
        }
        let known_uids = self.usage_measurement.services.iter().map(|(name, (uid, _))| (name, uid));
        if !known_uids.eq(&pending.uids) {
            self.usage_measurement.services_changed_at = Some(now.monotonic_raw);
        }
        let mut previous_services = std::mem::take(&mut self.usage_measurement.services);
        let mut samples = measured.services;
        for (name, uid) in pending.uids {
            let previous = previous_services.remove(&name).filter(|(previous_uid, _)| *previous_uid == uid);
            // The history of a service that could not be read is empty.
            let mut history = History::default();
            if let Some(sample) = samples.remove(&name) {
                history = previous.map(|(_, previous_history)| previous_history).unwrap_or_default();
                history.push(sample);
            }
            self.usage_measurement.services.insert(name, (uid, history));
        }
        self.due_usage_report(now).is_some()
    }

    /// Requests the next reading when it is due, and writes significant changes. This step has no deadline of its own:
    /// an active node runs every step at each heartbeat.
    pub(super) fn advance_usage_measurement(&mut self, now: &Now) {
        let Some((_, create_revision)) = self.active_registration() else { return };
        if self
            .usage_measurement
            .requested_at
            .is_none_or(|at| now.monotonic_raw.since(at) >= READ_INTERVAL_MS)
        {
            self.request_reading(now);
        }
        let is_write_in_progress =
            self.usage_measurement.pending_write.is_some_and(|id| self.commits.contains_key(&id));
        let Some(report) = self.due_usage_report(now).filter(|_| !is_write_in_progress) else { return };
        let Ok(value) = serde_json::to_vec(&report) else { return };
        let (keys, node) = (&self.config.keys, &self.config.node);
        let transaction = Transaction::new()
            .put(keys.usage_report(node), self.view.usage_reports.guard(node), value)
            .guard(keys.alive(node), Guard::Created(create_revision))
            .guard(keys.fence(node), self.fence_guard());
        self.usage_measurement.written_at = Some(now.monotonic_raw);
        self.usage_measurement.pending_write =
            Some(self.commit(transaction, CommitUrgency::Ordinary, CommitPurpose::Usage { report }));
    }

    fn request_reading(&mut self, now: &Now) {
        if self.usage_measurement.pending.is_some() {
            if self
                .usage_measurement
                .requested_at
                .is_some_and(|at| now.monotonic_raw.since(at) < READ_TIMEOUT_MS)
            {
                return;
            }
            // The reader hangs, so its earlier readings are out of date.
            self.usage_measurement.machine = History::default();
            self.usage_measurement.services.clear();
        }
        let running_services = self.services.values().filter(|service| service.presence == Presence::Running);
        let services: Vec<ServiceDefinition> =
            running_services.map(|service| service.definition.clone()).collect();
        let uids = services.iter().map(|service| (service.name.clone(), service.uid.clone())).collect();
        let id = UsageReadId(self.next_id());
        self.usage_measurement.pending = Some(PendingReading { id, uids });
        self.usage_measurement.requested_at = Some(now.monotonic_raw);
        self.effects.push_back(Effect::ReadUsage { id, services });
    }

    /// Returns the report to write, if a write is worthwhile now.
    fn due_usage_report(&self, now: &Now) -> Option<UsageReport> {
        let (epoch, _) = self.active_registration()?;
        if self.usage_measurement.write_not_before.is_some_and(|at| now.monotonic_raw < at) {
            return None;
        }
        let stored = self.view.usage_reports.value(&self.config.node);
        let current_report = stored.filter(|stored_report| {
            stored_report.epoch == epoch && stored_report.boot_id == self.config.boot_id
        });
        let empty = UsageReport::default();
        let reported = current_report.unwrap_or(&empty);
        let node = self.usage_measurement.machine.usage();
        let measured_services = || self.measured_services(&node);
        let reported_services =
            || reported.services.iter().map(|(name, service)| (name, &service.uid, service.usage));
        if node == reported.node && measured_services().eq(reported_services()) {
            return None;
        }
        let since_write_ms = self.usage_measurement.written_at.map(|at| now.monotonic_raw.since(at));
        let written_recently =
            since_write_ms.is_some_and(|since_write_ms| since_write_ms < MIN_WRITE_INTERVAL_MS);
        // The machine's rates include a service that has ended, until their window begins after its end.
        let max_age_ms = match (self.usage_measurement.written_at, self.usage_measurement.services_changed_at)
        {
            (Some(written), Some(changed)) if written.since(changed) < RATE_WINDOW_MS => RATE_WINDOW_MS,
            _ => MAX_WRITE_INTERVAL_MS,
        };
        let is_overdue = since_write_ms.is_some_and(|since_write_ms| since_write_ms >= max_age_ms);
        let has_same_figures = present_amounts(&node) == present_amounts(&reported.node)
            && measured_services()
                .map(with_present_amounts)
                .eq(reported_services().map(with_present_amounts));
        let any_figure_changed_enough = || {
            has_changed_enough(&reported.node, &node)
                || reported_services()
                    .zip(measured_services())
                    .any(|((.., reported), (.., measured))| has_changed_enough(&reported, &measured))
        };
        let should_write =
            !has_same_figures || (!written_recently && (is_overdue || any_figure_changed_enough()));
        should_write.then(|| UsageReport {
            epoch,
            boot_id: self.config.boot_id.clone(),
            node,
            services: measured_services()
                .map(|(name, uid, usage)| (name.clone(), ServiceUsage { uid: uid.clone(), usage }))
                .collect(),
            at: now.timestamp(),
        })
    }

    /// Returns the measured services with their usage, by name. The machine's figures include every running service, so
    /// the leader must know the names of all services as soon as there are figures of the machine.
    fn measured_services(
        &self,
        node: &Usage,
    ) -> impl Iterator<Item = (&ResourceName, &ObjectUid, Usage)> + use<'_> {
        let has_machine_figures = !node.is_empty();
        self.usage_measurement.services.iter().filter_map(move |(name, (uid, history))| {
            let usage = history.usage();
            (!usage.is_empty() || has_machine_figures).then_some((name, uid, usage))
        })
    }

    /// Handles the outcome of a write. A write that was not applied is repeated with a later reading, against etcd's
    /// state then.
    pub(super) fn on_usage_committed(&mut self, now: &Now, report: UsageReport, outcome: &Outcome) {
        if let Some(revision) = outcome.applied() {
            self.view.usage_reports.record_write(self.config.node.clone(), report, revision);
        } else {
            self.usage_measurement.write_not_before = Some(now.monotonic_raw + READ_INTERVAL_MS);
        }
        self.log_outcome("report of usage", outcome);
    }
}

/// Returns which figures are present. A figure that appears or disappears is reported immediately.
fn present_amounts(usage: &Usage) -> [bool; 2] {
    [usage.cpu.is_some(), usage.memory.is_some()]
}

fn with_present_amounts<'a>(
    (name, uid, usage): (&'a ResourceName, &'a ObjectUid, Usage),
) -> (&'a ResourceName, &'a ObjectUid, [bool; 2]) {
    (name, uid, present_amounts(&usage))
}
