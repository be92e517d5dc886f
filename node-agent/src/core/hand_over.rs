//! The gap between a committed HandingOver and its driver: the driver begins only after another read of the target
//! (R8.10 to R8.12).

use super::command::{CommandResult, DriverFailure};
use super::service::{GuardedTarget, Service, Step};
use super::service_machine::PROBE_RETRY_MS;
use super::session::ReadPurpose;
use super::view::{Stored, peer_report_key};
use super::{AgentCore, Now};
use ha_api_types::id::{ActionUid, NodeName, ResourceName, Revision};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Assignment, Phase, ServiceReport};
use ha_api_types::time::MonotonicTime;
use std::sync::Arc;

impl AgentCore {
    /// Returns the target's revisions that a HandingOver sent now guards.
    pub(super) fn guarded_target(
        &self,
        name: &ResourceName,
        assignment: &Stored<Arc<Assignment>>,
    ) -> Option<GuardedTarget> {
        let target = AgentCore::migration_target(assignment.value.as_ref()?)?;
        let report = self.view.peer_reports.get(&peer_report_key(&target, name))?.mod_revision;
        let fence = self.view.fences.get(&target)?.mod_revision;
        Some(GuardedTarget { report, fence })
    }

    /// Reads the target again, linearizably, before the driver begins. HandingOver is committed and in the journal
    /// (R8.10).
    pub(super) fn check_target(
        &mut self,
        now: &Now,
        service: &mut Service,
        uid: &ActionUid,
        target: NodeName,
    ) {
        let keys = &self.config.keys;
        let keys_to_read = vec![keys.service_report(&target, service.name()), keys.fence(&target)];
        let purpose = ReadPurpose::Target { name: service.name().to_owned(), uid: uid.clone() };
        self.read(purpose, keys_to_read);
        service.transition_to(Step::CheckTarget { uid: uid.clone(), target, sent: now.monotonic_raw });
        service.peer_check_at = Some(now.monotonic_raw + self.effective_timings().stop_margin_ms);
        self.changed = true;
    }

    /// Starts the driver only if the target's report and fence have the guarded revisions, and only in time (R8.11).
    /// `read_revisions` contains the revisions that were read.
    pub(super) fn on_target_read(
        &mut self,
        now: &Now,
        name: &ResourceName,
        uid: &ActionUid,
        read_revisions: Option<&[Revision]>,
    ) {
        let limit_ms = self.effective_timings().stop_margin_ms;
        self.with_service(name, |core, service| {
            let Step::CheckTarget { uid: checked, target, sent } = service.step.clone() else { return };
            if checked != *uid {
                return;
            }
            let guarded = service.guarded_target.map(|guarded| [guarded.report, guarded.fence]);
            let deadline = sent + limit_ms;
            if guarded.as_ref().map(<[Revision; 2]>::as_slice) == read_revisions
                && now.monotonic_raw < deadline
            {
                service.transition_to(Step::Migrate { uid: checked, target, deadline });
                core.changed = true;
            } else {
                let text = format!("State of {target} changed before the driver started the migration");
                core.report_never_began(now, service, &checked, &text);
            }
        });
    }

    /// Abandons a hand-over whose read was not answered in time. Its driver never begins (R8.12).
    pub(super) fn abandon_late_hand_over(
        &mut self,
        now: &Now,
        service: &mut Service,
        uid: &ActionUid,
        sent: MonotonicTime,
    ) {
        if now.monotonic_raw >= sent + self.effective_timings().stop_margin_ms {
            self.report_never_began(
                now,
                service,
                uid,
                "etcd did not respond before the driver started the migration",
            );
        }
    }

    /// Reports that the driver of a committed hand-over did not begin, and that no later process begins it (R8.12).
    pub(super) fn report_never_began(
        &mut self,
        now: &Now,
        service: &mut Service,
        uid: &ActionUid,
        cause: &str,
    ) {
        service.begun_action = None;
        service.guarded_target = None;
        service.peer_check_at = None;
        self.emit_event(now, service, true, Reason::MoveFailed, cause);
        let report = self.report(now, service, Some(uid), Phase::MoveFailed, Reason::MoveFailed, cause);
        self.set_desired(service, ServiceReport { never_began: true, ..report });
        service.transition_to(Step::Idle);
        self.changed = true;
    }

    /// Handles the driver's answer to the end of a migration; a failed attempt is repeated until it succeeds.
    pub(super) fn on_migration_ended(
        &mut self,
        now: &Now,
        service: &mut Service,
        uid: ActionUid,
        failure: Option<DriverFailure>,
        result: CommandResult,
    ) {
        match result {
            CommandResult::Done | CommandResult::Observed(_) => {
                service.transition_to(Step::MigrateProbe { uid, failure });
            }
            CommandResult::Failed(cause) => {
                service.message = cause.message;
                service.not_before = Some(now.monotonic_raw + PROBE_RETRY_MS);
            }
            CommandResult::Canceled => service.not_before = Some(now.monotonic_raw + PROBE_RETRY_MS),
        }
        self.changed = true;
    }
}
