//! Start permits: the right to start a service, granted only by a commit under every guard (FENCING, sections 6 and 8).

use super::commits::CommitPurpose;
use super::effect::CommitUrgency;
use super::role::Role;
use super::service::{Service, Step};
use super::view::{Stored, peer_report_key};
use super::{AgentCore, Now, pets};
use ha_api_types::id::{ActionUid, BootId, Epoch, ResourceName, Revision};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Phase, ServiceReport};
use ha_store::{Guard, Transaction};

/// The right to start a service under an action, while the epoch lasts.
///
/// Guarantees: a permit is created only from a report that is committed for this action under this epoch and boot, in a
/// phase that permits. The commit of that report had every guard of FENCING, section 6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Permit {
    uid: ActionUid,
    epoch: Epoch,
    /// `true` if the permit allows only reception: a service that arrives must not run (R8.5).
    receive_only: bool,
}

impl Permit {
    /// Returns the permit that a report stored in etcd grants; `None` if it grants none.
    pub(super) fn of_committed(report: &ServiceReport, epoch: Epoch, boot_id: &BootId) -> Option<Permit> {
        let permits = match report.phase {
            Phase::Starting | Phase::Running | Phase::Receiving => true,
            Phase::ProbedRunning
            | Phase::ProbedStopped
            | Phase::ProbedUnknown
            | Phase::Stopping
            | Phase::Stopped
            | Phase::Failed
            | Phase::StopFailed
            | Phase::HandingOver
            | Phase::HandedOver
            | Phase::MoveFailed => false,
        };
        let uid = report.action_uid.clone()?;
        let receive_only = report.phase == Phase::Receiving;
        (permits && report.epoch == epoch && report.boot_id == *boot_id).then_some(Permit {
            uid,
            epoch,
            receive_only,
        })
    }

    /// Returns `true` if the permit covers this action under this epoch.
    pub(super) fn permits(&self, uid: &ActionUid, epoch: Epoch) -> bool {
        self.uid == *uid && self.epoch == epoch
    }

    /// Returns `true` if the permit allows the service to run, not only to be received.
    pub(super) fn permits_to_run(&self) -> bool {
        !self.receive_only
    }
}

impl AgentCore {
    /// Returns the missing precondition of a permit; `None` if every precondition holds.
    pub(super) fn permit_waits_for(&self, now: &Now, exclusive: bool, phase: Phase) -> Option<&'static str> {
        if self.active_registration().is_none() {
            return Some("a committed heartbeat and a valid registration");
        }
        if self.requires_probes() {
            return Some("the check of resources that were created while this node was unreachable");
        }
        if self.is_ending() && !self.awaits_moves() {
            return Some("the restart of the agent");
        }
        if self.watchdog_test.is_under_way() {
            return Some("the watchdog test to reset this machine");
        }
        if self.is_disarmed() {
            return Some("the cluster to be armed");
        }
        if !self.is_before_margin(now) {
            return Some("a heartbeat that is committed in time");
        }
        if exclusive {
            if let Some(missing) = self.armed_waits_for() {
                return Some(missing);
            }
            // A service that is handed over already runs here, so it may leave a node whose watchdog refuses pets.
            if phase == Phase::HandingOver {
                return None;
            }
            if let Some(missing) = self.pet_recovery_waits_for() {
                return Some(missing);
            }
            if !self.watchdog.is_acknowledged() {
                return Some("ha-watchdogd to acknowledge the deadline");
            }
        }
        None
    }

    /// Returns the missing watchdog precondition; `None` once etcd stores this process's report as armed and no
    /// heartbeat in flight withdraws it.
    fn armed_waits_for(&self) -> Option<&'static str> {
        let armed =
            self.node_report().is_some_and(|report| report.armed && report.instance == self.config.instance);
        if !armed {
            return Some("the watchdog to be armed and reported as armed");
        }
        self.may_be_withdrawing_armed()
            .then_some("etcd to answer a heartbeat that reports the watchdog as not armed")
    }

    /// Returns the missing condition for the acceptance of a watchdog that has refused pets (FENCING R4.19).
    fn pet_recovery_waits_for(&self) -> Option<&'static str> {
        let committed = self.node_report().is_some_and(|report| report.watchdog_failed);
        if !self.watchdog.accepts_pets() {
            return Some("the watchdog to accept renewals again");
        }
        committed.then_some("a committed report that the watchdog accepts renewals again")
    }

    /// Returns why the watchdog cannot be armed, for messages; `None` if that is not known.
    pub(super) fn arming_problem(&self) -> Option<String> {
        // A device that follows a deadline is armed, even if it refuses another timeout.
        let armed = self.watchdog.follows_deadline();
        if !self.watchdog.accepts_pets() {
            return Some(pets::REFUSES_PETS.to_owned());
        }
        (!self.watchdog.problem.is_empty() && !armed).then(|| self.watchdog.problem.clone())
    }

    /// Returns `true` if this service may be started now: the permit allows it to run, the action is in the journal,
    /// and an exclusive service is in time.
    pub(super) fn may_start(&self, now: &Now, service: &Service, uid: &ActionUid) -> bool {
        service.permit.as_ref().is_some_and(Permit::permits_to_run) && self.may_receive(now, service, uid)
    }

    /// Returns `true` if this service may be received now, which a permit to receive also allows.
    pub(super) fn may_receive(&self, now: &Now, service: &Service, uid: &ActionUid) -> bool {
        let Some(registered) = self.registration() else { return false };
        let permitted = service.permit.as_ref().is_some_and(|permit| permit.permits(uid, registered.epoch));
        let is_journaled = service.begun_action.as_ref() == Some(uid);
        let exclusive = self.is_exclusive(service);
        let in_time = self.is_before_margin(now) || (!exclusive && service.restarts > 0);
        // The permit may be older than a stay or a disarmed period. A service would be unguarded if it started while
        // the daemon pets without a deadline, or while silence is not proof.
        let guarded = !exclusive
            || (self.watchdog.follows_deadline()
                && self.armed_waits_for().is_none()
                && self.pet_recovery_waits_for().is_none());
        permitted && is_journaled && in_time && guarded && self.is_own_fence(registered)
    }

    /// Commits the permit of `Step::Permit` once every precondition holds.
    pub(super) fn advance_permit(&mut self, now: &Now, service: &mut Service, uid: &ActionUid, phase: Phase) {
        if service.pending_write.is_some()
            || service.needs_reread
            || service.write_not_before.is_some_and(|at| now.monotonic_raw < at)
        {
            return;
        }
        let name = service.name().to_owned();
        let Some((epoch, create_revision)) = self.active_registration() else { return };
        let role = self.role(&name);
        let committed = self.view.reports.value(&name);
        let granted = committed.is_some_and(|report| {
            report.action_uid.as_ref() == Some(uid)
                && report.phase == phase
                && report.epoch == epoch
                && report.boot_id == self.config.boot_id
        });
        if granted {
            service.permit =
                committed.and_then(|report| Permit::of_committed(report, epoch, &self.config.boot_id));
            service.desired_report = None;
            self.on_permitted(now, service, uid, phase);
            return;
        }
        let (assignment, definition) = match &role {
            Role::Act { assignment } | Role::Target { assignment } => {
                let Some(value) = &assignment.value else { return };
                if value.action_uid != *uid {
                    service.transition_to(Step::Idle);
                    self.changed = true;
                    return;
                }
                (assignment.clone(), value.definition.clone())
            }
            Role::Outdated | Role::Elsewhere { .. } | Role::Unreadable | Role::Unassigned => {
                service.transition_to(Step::Idle);
                self.changed = true;
                return;
            }
        };
        if phase == Phase::HandingOver {
            if !self.may_hand_over(service) {
                service.transition_to(Step::Idle);
                return;
            }
            // The driver must begin directly after the hand-over, so a worker is reserved first.
            if !service.has_worker || service.replacing.is_busy() || !service.canceling.is_empty() {
                return;
            }
        }
        if phase != Phase::HandingOver && self.refuse_without_watchdog(service, uid, definition.exclusive) {
            return;
        }
        if self.permit_waits_for(now, definition.exclusive, phase).is_some() {
            return;
        }
        let report = match phase {
            Phase::HandingOver => self.report(now, service, Some(uid), phase, Reason::Migrating, ""),
            Phase::Receiving => self.report(
                now,
                service,
                Some(uid),
                phase,
                Reason::Waiting,
                "Preparing to receive the service",
            ),
            // R8.5: the permit to resume, after the source has handed the service over.
            Phase::Starting if matches!(role, Role::Target { .. }) => {
                self.report(now, service, Some(uid), phase, Reason::Migrating, "")
            }
            Phase::Starting
            | Phase::ProbedRunning
            | Phase::ProbedStopped
            | Phase::ProbedUnknown
            | Phase::Running
            | Phase::Stopping
            | Phase::Stopped
            | Phase::Failed
            | Phase::StopFailed
            | Phase::HandedOver
            | Phase::MoveFailed => self.report(now, service, Some(uid), phase, Reason::Starting, ""),
        };
        let report = ServiceReport { exclusive: definition.exclusive, uid: definition.uid.clone(), ..report };
        let Some(transaction) =
            self.permit_transaction(&name, &report, &assignment, create_revision, definition.exclusive)
        else {
            return;
        };
        if phase == Phase::HandingOver {
            service.guarded_target = self.guarded_target(&name, &assignment);
        }
        let id = self.commit(transaction, CommitUrgency::Ordinary, CommitPurpose::Service { name, report });
        service.pending_write = Some(id);
    }

    /// Builds a permit's transaction. FENCING 6: it guards its own report key, `Created(alive)`, `Unchanged(fence)` and
    /// `Unchanged(assignment)`. Unless `exclusive: false`, it also guards `Unchanged(report/<node>/node)` at the
    /// revision of a report with the watchdog armed. FENCING 8: HandingOver also guards the target's report and fence.
    pub(super) fn permit_transaction(
        &self,
        name: &ResourceName,
        report: &ServiceReport,
        assignment: &Stored<std::sync::Arc<ha_api_types::record::Assignment>>,
        create_revision: Revision,
        exclusive: bool,
    ) -> Option<Transaction> {
        let keys = &self.config.keys;
        let node = &self.config.node;
        let mut transaction = Transaction::new()
            .put(
                keys.service_report(node, name),
                self.view.reports.guard(name),
                serde_json::to_vec(report).ok()?,
            )
            .guard(keys.alive(node), Guard::Created(create_revision))
            .guard(keys.fence(node), self.fence_guard())
            .guard(keys.assignment(name), Guard::Unchanged(assignment.mod_revision));
        if exclusive {
            transaction = transaction.guard(keys.node_report(node), self.view.node_reports.guard(node));
        }
        if report.phase == Phase::HandingOver {
            let target = AgentCore::migration_target(assignment.value.as_ref()?)?;
            transaction = transaction
                .guard(
                    keys.service_report(&target, name),
                    self.view.peer_reports.guard(&peer_report_key(&target, name)),
                )
                .guard(keys.fence(&target), self.view.fences.guard(&target));
        }
        Some(transaction)
    }
}
