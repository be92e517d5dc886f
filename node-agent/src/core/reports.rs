//! A service's report: its desired content, and the writes to etcd (FENCING, section 6).

use super::commits::CommitPurpose;
use super::effect::{CommitUrgency, Effect};
use super::role::Role;
use super::service::{Service, Step};
use super::{AgentCore, Now};
use ha_api_types::event::{Event, EventType};
use ha_api_types::id::{ActionUid, Epoch, Revision};
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Phase, ServiceReport};
use ha_api_types::time::Timestamp;
use ha_store::{Guard, Transaction};

impl AgentCore {
    /// Builds a report of a service under the current epoch.
    pub(super) fn report(
        &self,
        now: &Now,
        service: &Service,
        uid: Option<&ActionUid>,
        phase: Phase,
        reason: Reason,
        message: &str,
    ) -> ServiceReport {
        ServiceReport {
            uid: service.definition.uid.clone(),
            action_uid: uid.cloned(),
            epoch: self.registration().map_or(Epoch(0), |registered| registered.epoch),
            boot_id: self.config.boot_id.clone(),
            probed_generation: 0,
            probed_arming: 0,
            probed_fence: Revision(0),
            exclusive: self.is_exclusive(service),
            identity: service.definition.identity(),
            definition: None,
            external_change: false,
            phase,
            restarts: service.restarts,
            reason,
            message: message.to_owned(),
            failure: None,
            never_began: false,
            replacement: self.known_replacement_answer(service),
            definition_requests: service.definition_requests,
            at: now.timestamp(),
        }
    }

    /// Sets the desired report. Nothing is written if etcd already has the same content.
    pub(super) fn set_desired(&mut self, service: &mut Service, report: ServiceReport) {
        let is_stored = self.view.reports.value(service.name()).is_some_and(|stored_report| {
            ServiceReport { at: Timestamp::default(), ..stored_report.clone() }
                == ServiceReport { at: Timestamp::default(), ..report.clone() }
        });
        // A write in progress may change the stored report. An equal report is therefore skipped only if no write is in
        // progress.
        service.desired_report = (!is_stored || service.pending_write.is_some()).then_some(report);
        self.changed = true;
    }

    /// Writes the desired report: level-triggered, one write at a time for each key.
    pub(super) fn write_report(&mut self, now: &Now, service: &mut Service) {
        let Some(desired) = &service.desired_report else { return };
        if service.pending_write.is_some()
            || service.needs_reread
            || service.write_not_before.is_some_and(|at| now.monotonic_raw < at)
        {
            return;
        }
        let Some((epoch, create_revision)) = self.active_registration() else { return };
        let name = service.name().to_owned();
        if self.view.reports.value(&name) == Some(desired) {
            service.desired_report = None;
            self.changed = true;
            return;
        }
        if desired.epoch != epoch {
            // The report belongs to a closed epoch, so no process needs the report.
            service.desired_report = None;
            return;
        }
        if desired.phase == Phase::Stopped && self.is_daemon_loss_uncommitted() {
            return;
        }
        let Ok(value) = serde_json::to_vec(desired) else { return };
        let node = &self.config.node;
        let keys = &self.config.keys;
        let transaction = Transaction::new()
            .put(keys.service_report(node, &name), self.view.reports.guard(&name), value)
            .guard(keys.alive(node), Guard::Created(create_revision))
            .guard(keys.fence(node), self.fence_guard());
        let report = desired.clone();
        service.pending_write =
            Some(self.commit(transaction, CommitUrgency::Ordinary, CommitPurpose::Service { name, report }));
    }

    /// Removes the report and the journal entry of a resource that is deleted or no longer managed. The service itself
    /// is left unchanged.
    pub(super) fn delete_report(&mut self, now: &Now, service: &mut Service) {
        if service.running_command.is_some()
            || !service.canceling.is_empty()
            || service.pending_write.is_some()
            || service.needs_reread
            || service.step != Step::Idle
            || service.replacing.is_busy()
        {
            return;
        }
        if service.write_not_before.is_some_and(|at| now.monotonic_raw < at) {
            return;
        }
        let Some((_, create_revision)) = self.active_registration() else { return };
        let name = service.name().to_owned();
        if self.view.reports.get(&name).is_some() {
            let node = &self.config.node;
            let keys = &self.config.keys;
            let transaction = Transaction::new()
                .delete(keys.service_report(node, &name), self.view.reports.guard(&name))
                .guard(keys.alive(node), Guard::Created(create_revision))
                .guard(keys.fence(node), self.fence_guard());
            service.desired_report = None;
            service.pending_write =
                Some(self.commit(transaction, CommitUrgency::Ordinary, CommitPurpose::DeleteReport { name }));
            return;
        }
        let was_journaled = self.journal.services.remove(&name).is_some();
        if self.journal.receptions.remove(&name).is_some() || was_journaled {
            self.mark_journal_changed();
        }
        service.desired_report = None;
        service.permit = None;
        service.begun_action = None;
        service.is_unmanaged =
            self.role(&name) == Role::Unassigned && self.view.resources.get(&name).is_none();
    }

    pub(super) fn emit_event(
        &mut self,
        now: &Now,
        service: &Service,
        warning: bool,
        reason: Reason,
        message: &str,
    ) {
        let action_uid = service.step.uid().cloned();
        let event = Event {
            kind: Kind::Resource,
            name: service.name().to_string(),
            uid: service.definition.uid.clone(),
            event_type: if warning { EventType::Warning } else { EventType::Normal },
            reason,
            message: message.to_owned(),
            source: format!("agent/{}", self.config.node),
            node: Some(self.config.node.clone()),
            action_uid: action_uid.or_else(|| self.current_report(service)?.action_uid),
            operation: None,
            epoch: self.registration().map(|registered| registered.epoch),
            at: now.precise_timestamp(),
        };
        self.effects.push_back(Effect::Event(event));
    }
}
