//! Commits in progress: the purpose of each, and the handling of its outcome (FENCING, section 1).

use super::effect::{CommitId, CommitUrgency, Effect, Level};
use super::heartbeat::PendingHeartbeat;
use super::session::{RETRY_DELAY_MS, ReadPurpose};
use super::{AgentCore, Now};
use ha_api_types::id::ResourceName;
use ha_api_types::reason::Reason;
use ha_api_types::record::{DoctorReport, NodeReport, Phase, ServiceReport, UsageReport};
use ha_api_types::time::Millis;
use ha_store::{Outcome, Transaction};

/// Delay before a service's report is written again after a conflict.
const REWRITE_DELAY_MS: Millis = 50;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum CommitPurpose {
    /// The node's report in mode Registering.
    Request { report: NodeReport },
    /// Deletion of the `alive` key of an earlier process.
    DeleteAlive,
    /// A heartbeat, or the creation of `alive`.
    Heartbeat(PendingHeartbeat),
    /// A service's report: an answer, a probe or a permit.
    Service { name: ResourceName, report: ServiceReport },
    /// Deletion of the report of a deleted resource.
    DeleteReport { name: ResourceName },
    /// The doctor's report about the machine.
    Doctor { report: DoctorReport },
    /// The report of measured usage.
    Usage { report: UsageReport },
    /// The report of a clean leave.
    CleanShutdownReport { report: NodeReport },
}

impl CommitPurpose {
    /// Returns the heartbeat that the commit carries; `None` for any other commit.
    pub(super) fn heartbeat(&self) -> Option<&PendingHeartbeat> {
        match self {
            CommitPurpose::Heartbeat(heartbeat) => Some(heartbeat),
            CommitPurpose::Request { .. }
            | CommitPurpose::DeleteAlive
            | CommitPurpose::Service { .. }
            | CommitPurpose::DeleteReport { .. }
            | CommitPurpose::Doctor { .. }
            | CommitPurpose::Usage { .. }
            | CommitPurpose::CleanShutdownReport { .. } => None,
        }
    }
}

/// Returns the delay before a write that was not applied is retried. The delay is longer after a refusal by etcd, such
/// as for lack of space.
fn rewrite_delay_ms(outcome: &Outcome) -> Millis {
    match outcome {
        Outcome::Refused(_) => RETRY_DELAY_MS,
        Outcome::Applied(_) | Outcome::Conflict(_) | Outcome::LeaseNotFound | Outcome::Unknown(_) => {
            REWRITE_DELAY_MS
        }
    }
}

impl AgentCore {
    pub(super) fn commit(
        &mut self,
        transaction: Transaction,
        urgency: CommitUrgency,
        purpose: CommitPurpose,
    ) -> CommitId {
        let id = CommitId(self.next_id());
        self.commits.insert(id, purpose);
        self.effects.push_back(Effect::Commit { id, transaction, urgency });
        id
    }

    pub(super) fn on_committed(&mut self, now: &Now, id: CommitId, outcome: &Outcome) {
        let Some(purpose) = self.commits.remove(&id) else { return };
        if let Some(revision) = outcome.applied() {
            self.highest_revision = self.highest_revision.max(revision);
            self.journal.revision = self.journal.revision.max(revision);
        }
        match purpose {
            CommitPurpose::Request { report } => self.on_registration_committed(now, report, outcome),
            CommitPurpose::DeleteAlive => self.on_alive_deleted(now, outcome),
            CommitPurpose::Heartbeat(heartbeat) => self.on_heartbeat_committed(now, heartbeat, outcome),
            CommitPurpose::Service { name, report } => {
                self.on_service_report_committed(now, id, &name, report, outcome);
            }
            CommitPurpose::DeleteReport { name } => self.on_report_deleted(now, id, &name, outcome),
            CommitPurpose::Doctor { report } => self.on_doctor_report_committed(report, outcome),
            CommitPurpose::Usage { report } => self.on_usage_committed(now, report, outcome),
            CommitPurpose::CleanShutdownReport { report } => {
                self.on_clean_shutdown_committed(now, report, outcome);
            }
        }
    }

    fn on_service_report_committed(
        &mut self,
        now: &Now,
        id: CommitId,
        name: &ResourceName,
        report: ServiceReport,
        outcome: &Outcome,
    ) {
        let applied = outcome.applied();
        let phase = report.phase;
        self.dirty_services.insert(name.clone());
        if let Some(revision) = applied {
            self.view.reports.record_write(name.clone(), report, revision);
        }
        let Some(service) = self.services.get_mut(name) else { return };
        if service.pending_write != Some(id) {
            return;
        }
        service.pending_write = None;
        let write_name = format!("report of {name}");
        if applied.is_some() {
            self.log_outcome(&write_name, outcome);
        } else {
            // After a conflict or an unknown outcome, only another read is permitted.
            service.needs_reread = true;
            service.has_worker = false;
            service.write_not_before = Some(now.monotonic_raw + rewrite_delay_ms(outcome));
            self.log_outcome(&write_name, outcome);
            self.emit_permit_refused(now, name, phase, outcome);
        }
        self.changed = true;
    }

    /// Emits an event for a permit that conflicted: the preconditions had changed when the write reached etcd.
    fn emit_permit_refused(&mut self, now: &Now, name: &ResourceName, phase: Phase, outcome: &Outcome) {
        let is_permit_request = matches!(phase, Phase::Starting | Phase::Receiving | Phase::HandingOver);
        if let (true, Outcome::Conflict(_), Some(service)) =
            (is_permit_request, outcome, self.services.get(name))
        {
            let message =
                "Start authorization rejected because the state changed; the agent reads the state again";
            self.emit_event(now, &service.clone(), false, Reason::PermitRefused, message);
        }
    }

    fn on_report_deleted(&mut self, now: &Now, id: CommitId, name: &ResourceName, outcome: &Outcome) {
        self.dirty_services.insert(name.clone());
        if let Some(revision) = outcome.applied() {
            self.view.reports.on_deleted(name.clone(), revision);
        }
        if let Some(service) = self.services.get_mut(name)
            && service.pending_write == Some(id)
        {
            service.pending_write = None;
            if outcome.applied().is_none() {
                service.needs_reread = true;
                service.write_not_before = Some(now.monotonic_raw + rewrite_delay_ms(outcome));
            }
        }
        self.changed = true;
    }

    /// Reads the keys of every service whose last write was not applied.
    pub(super) fn reread_services(&mut self, now: &Now) {
        let due: Vec<ResourceName> = self
            .services
            .iter()
            .filter(|(name, service)| {
                service.needs_reread
                    && service.write_not_before.is_none_or(|at| now.monotonic_raw >= at)
                    && !self.is_reading(&ReadPurpose::Service((*name).clone()))
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            let keys = &self.config.keys;
            let node = &self.config.node;
            let mut keys_to_read = vec![
                keys.service_report(node, &name),
                keys.assignment(&name),
                keys.node_report(node),
                keys.fence(node),
            ];
            if let Some(target) = self
                .view
                .assignments
                .value(&name)
                .and_then(|assignment| AgentCore::migration_target(assignment))
            {
                keys_to_read.push(keys.service_report(&target, &name));
                keys_to_read.push(keys.fence(&target));
            }
            keys_to_read.sort();
            keys_to_read.dedup();
            self.read(ReadPurpose::Service(name), keys_to_read);
        }
    }

    /// Logs a write that was not applied. The same failure is logged again only after such a write was applied, or has
    /// failed for another reason.
    pub(super) fn log_outcome(&mut self, write_name: &str, outcome: &Outcome) {
        let (cause, message) = match outcome {
            Outcome::Applied(_) => {
                if self.failed_writes.remove(write_name).is_some() {
                    self.log(Level::Info, format!("{write_name} is committed again"));
                }
                return;
            }
            Outcome::Conflict(revision) => {
                return self.log(
                    Level::Debug,
                    format!("{write_name} conflicts with a change up to revision {revision}, reading again"),
                );
            }
            Outcome::LeaseNotFound => {
                ("no lease", format!("{write_name} was not committed: the lease no longer exists"))
            }
            Outcome::Refused(text) => (text.as_str(), format!("{write_name} was rejected by etcd: {text}")),
            Outcome::Unknown(text) => {
                ("unknown", format!("{write_name} may not have been committed: {text}"))
            }
        };
        // While heartbeats fail, the message about heartbeats is sufficient.
        if self.heartbeats_failing_since.is_some() {
            return self.log(Level::Debug, message);
        }
        let previous_cause = self.failed_writes.insert(write_name.to_owned(), cause.to_owned());
        let level = if previous_cause.as_deref() == Some(cause) { Level::Debug } else { Level::Warning };
        self.log(level, message);
    }
}
