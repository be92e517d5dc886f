//! Live migration, on the source and on the target (FENCING, section 8).

use super::command::{CommandResult, DriverFailure};
use super::role::Role;
use super::service::{KillReason, Presence, ProbePurpose, Service, Step};
use super::service_machine::PROBE_RETRY_MS;
use super::session::ReadPurpose;
use super::view::peer_report_key;
use super::{AgentCore, Now};
use ha_api_types::id::{ActionUid, Epoch, NodeName, ResourceName, Revision};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Assignment, FailureClass, FenceState, Observed, Phase, ServiceReport};
use ha_api_types::time::Millis;

/// Interval at which the other side's report is read while it is awaited.
const PEER_READ_INTERVAL_MS: Millis = 200;

impl AgentCore {
    /// Advances the source: waits for the target to be ready, hands over, migrates, and reports the state of the copy
    /// on this node.
    pub(super) fn advance_migration_source(
        &mut self,
        now: &Now,
        service: &mut Service,
        assignment: &Assignment,
    ) {
        let uid = &assignment.action_uid;
        let Action::Migrate { target, .. } = &assignment.action else { return };
        let current = self.current_report(service).filter(|report| report.action_uid.as_ref() == Some(uid));
        if let Some(report) = current {
            match report.phase {
                Phase::HandingOver => {
                    // R8.12: after a restart or a kill that failed, the agent does not begin the driver, and ends a
                    // driver that may have begun.
                    if self.was_begun(service, uid) {
                        let failure =
                            interruption("a restart of the agent or a kill interrupted the migration");
                        service
                            .transition_to(Step::EndMigration { uid: uid.clone(), failure: Some(failure) });
                        self.changed = true;
                    } else {
                        let text = "agent restarted before the driver started the migration";
                        self.report_never_began(now, service, uid, text);
                    }
                }
                Phase::HandedOver => {
                    if service.presence == Presence::Running {
                        self.kill(now, service, KillReason::AssignedElsewhere);
                    }
                }
                Phase::ProbedRunning
                | Phase::ProbedStopped
                | Phase::ProbedUnknown
                | Phase::Starting
                | Phase::Running
                | Phase::Stopping
                | Phase::Stopped
                | Phase::Failed
                | Phase::StopFailed
                | Phase::Receiving
                | Phase::MoveFailed => {}
            }
            return;
        }
        match service.presence {
            Presence::Unprobed | Presence::Unclear => {
                service.transition_to(Step::Probe { purpose: ProbePurpose::Presence });
            }
            Presence::Stopped => {
                let failure = interruption("service does not run on this node, so it cannot be migrated");
                service.transition_to(Step::Unwind { uid: uid.clone(), failure });
                self.changed = true;
            }
            Presence::Running => {
                if self.target_is_ready(service.name(), assignment) {
                    service.transition_to(Step::Permit { uid: uid.clone(), phase: Phase::HandingOver });
                    self.changed = true;
                } else if let Some(message) = self.target_gave_up(service.name(), assignment) {
                    let report =
                        self.report(now, service, Some(uid), Phase::MoveFailed, Reason::MoveFailed, &message);
                    // After this report, the agent commits no HandingOver for this action.
                    self.set_desired(service, ServiceReport { never_began: true, ..report });
                    self.changed = true;
                } else {
                    self.read_peer_report(now, service, target);
                }
            }
        }
    }

    /// Returns `true` if the target has committed Receiving for this action under its epoch, and is prepared.
    pub(super) fn target_is_ready(&self, name: &ResourceName, assignment: &Assignment) -> bool {
        let Action::Migrate { target, target_epoch, target_boot_id } = &assignment.action else {
            return false;
        };
        let receives = self.view.peer_reports.value(&peer_report_key(target, name)).is_some_and(|report| {
            report.phase == Phase::Receiving
                && report.reason == Reason::Migrating
                && report.action_uid.as_ref() == Some(&assignment.action_uid)
                && report.epoch == *target_epoch
                && report.boot_id == *target_boot_id
        });
        let open = self
            .view
            .fences
            .value(target)
            .is_some_and(|fence| fence.state == FenceState::Open && fence.epoch == *target_epoch);
        receives && open
    }

    fn target_gave_up(&self, name: &ResourceName, assignment: &Assignment) -> Option<String> {
        let target = AgentCore::migration_target(assignment)?;
        let report = self.view.peer_reports.value(&peer_report_key(&target, name))?;
        let ended = matches!(report.phase, Phase::Failed | Phase::Stopped | Phase::StopFailed);
        (ended && report.action_uid.as_ref() == Some(&assignment.action_uid))
            .then(|| format!("{target} cannot receive the service: {}", report.message))
    }

    /// Reads the other side's report at intervals.
    fn read_peer_report(&mut self, now: &Now, service: &mut Service, node: &NodeName) {
        if service.peer_check_at.is_some_and(|at| now.monotonic_raw < at) {
            return;
        }
        let purpose = ReadPurpose::Peer(service.name().to_owned());
        if self.is_reading(&purpose) {
            return;
        }
        service.peer_check_at = Some(now.monotonic_raw + PEER_READ_INTERVAL_MS);
        let keys = vec![self.config.keys.service_report(node, service.name()), self.config.keys.fence(node)];
        self.read(purpose, keys);
    }

    pub(super) fn on_migrated(&mut self, service: &mut Service, uid: &ActionUid, result: CommandResult) {
        let failure = match result {
            CommandResult::Done | CommandResult::Observed(_) => None,
            CommandResult::Failed(failure) => Some(failure),
            CommandResult::Canceled => Some(interruption("migration canceled")),
        };
        service.presence = Presence::Unclear;
        service.guarded_target = None;
        service.peer_check_at = None;
        let uid = uid.clone();
        service.transition_to(match failure {
            None => Step::MigrateProbe { uid, failure },
            Some(_) => Step::EndMigration { uid, failure },
        });
        self.changed = true;
    }

    /// Handles the probe of the source after its driver. FENCING 8: the source reports HandedOver only if no part of
    /// the service remains on its node.
    pub(super) fn on_migration_probed(
        &mut self,
        now: &Now,
        service: &mut Service,
        uid: &ActionUid,
        failure: Option<DriverFailure>,
        observed: Observed,
    ) {
        match observed {
            Observed::NotRunning => {
                service.presence = Presence::Stopped;
                service.permit = None;
                service.begun_action = None;
                self.set_desired(
                    service,
                    self.report(now, service, Some(uid), Phase::HandedOver, Reason::Moved, ""),
                );
                service.transition_to(Step::Idle);
            }
            Observed::Running => {
                service.presence = Presence::Running;
                service.begun_action = None;
                let message = failure.map_or_else(
                    || "migration succeeded, but the service still runs on the source node".to_owned(),
                    |failure| failure.message,
                );
                self.emit_event(now, service, true, Reason::MoveFailed, &message);
                self.set_desired(
                    service,
                    self.report(now, service, Some(uid), Phase::MoveFailed, Reason::MoveFailed, &message),
                );
                service.transition_to(Step::Idle);
            }
            // The remnant cannot run, and the target has all data that could be transferred.
            Observed::Remnant(message) => {
                service.presence = Presence::Unclear;
                self.emit_event(now, service, true, Reason::MoveFailed, &message);
                self.kill(now, service, KillReason::MigrationRemnant);
            }
            Observed::Unknown(message) => {
                service.presence = Presence::Unclear;
                service.message = message;
                service.not_before = Some(now.monotonic_raw + PROBE_RETRY_MS);
            }
        }
        self.changed = true;
    }

    /// Advances the target: commits a permit, prepares, and waits for the source's report.
    pub(super) fn advance_migration_target(
        &mut self,
        now: &Now,
        service: &mut Service,
        assignment: &Assignment,
    ) {
        let uid = &assignment.action_uid;
        let current = self.current_report(service).filter(|report| report.action_uid.as_ref() == Some(uid));
        let Some(report) = current else {
            if self.is_begun_in_journal(service, uid) {
                let failure = interruption("agent restarted while it received the service");
                service.transition_to(Step::Unwind { uid: uid.clone(), failure });
                self.changed = true;
                return;
            }
            return self.request_permit(service, assignment, Phase::Receiving);
        };
        match report.phase {
            Phase::Receiving if report.reason == Reason::Migrating => {
                self.advance_receiving(now, service, assignment);
            }
            Phase::Receiving => {
                if self.was_begun(service, uid) {
                    let failure = interruption("agent restarted while it prepared to receive the service");
                    service.transition_to(Step::Unwind { uid: uid.clone(), failure });
                } else {
                    self.on_permitted(now, service, uid, Phase::Receiving);
                }
                self.changed = true;
            }
            Phase::Running => self.keep_running(now, service, uid),
            // Without another kill, the migration would never end.
            Phase::StopFailed => self.kill(now, service, KillReason::NotReceived),
            // R8.5: the service may be resumed, and the agent was restarted after that permit.
            Phase::Starting if report.reason == Reason::Migrating => {
                let source = &assignment.node;
                let reported = self.view.peer_reports.value(&peer_report_key(source, service.name()));
                let is_already_reported =
                    reported.is_some_and(|report| report.action_uid.as_ref() == Some(uid));
                if is_already_reported || self.is_proven_gone(source, assignment.epoch) {
                    self.on_permitted(now, service, uid, Phase::Starting);
                } else {
                    self.read_peer_report(now, service, source);
                }
            }
            // The service had arrived, ended, and was being restarted in place when the agent was restarted.
            Phase::Starting => {
                service
                    .transition_to(Step::Probe { purpose: ProbePurpose::Interrupted { uid: uid.clone() } });
                self.changed = true;
            }
            Phase::Stopping => {
                let graceful_ms = service.definition.timeouts.stop_ms();
                service.transition_to(Step::Stop { uid: Some(uid.clone()), graceful_ms });
                self.changed = true;
            }
            Phase::ProbedRunning
            | Phase::ProbedStopped
            | Phase::ProbedUnknown
            | Phase::Stopped
            | Phase::Failed
            | Phase::HandingOver
            | Phase::HandedOver
            | Phase::MoveFailed => {}
        }
    }

    fn advance_receiving(&mut self, now: &Now, service: &mut Service, assignment: &Assignment) {
        let uid = &assignment.action_uid;
        let source = &assignment.node;
        let reported = self
            .view
            .peer_reports
            .value(&peer_report_key(source, service.name()))
            .filter(|report| report.action_uid.as_ref() == Some(uid))
            .map(|report| report.phase);
        match reported {
            Some(Phase::HandedOver) => self.ask_to_resume(service, uid),
            // The service stays on the source, or has ended there, so no copy may remain here.
            Some(Phase::MoveFailed | Phase::Failed | Phase::Stopped | Phase::StopFailed) => {
                self.kill(now, service, KillReason::NotReceived);
            }
            Some(
                Phase::ProbedRunning
                | Phase::ProbedStopped
                | Phase::ProbedUnknown
                | Phase::Starting
                | Phase::Running
                | Phase::Stopping
                | Phase::Receiving
                | Phase::HandingOver,
            )
            | None => {
                // R8.20: a lost source sends no further report. Once it is proven gone, an active copy here is kept and
                // a paused one is killed. The source may have continued to run the service, so a paused copy's memory
                // may be older than its data. The source may have handed over before it was lost, so its last report is
                // read at a revision at which its epoch was closed.
                if self.is_proven_gone(source, assignment.epoch)
                    && self.has_read_last_report(source, service.name())
                {
                    if service.definition.driver.waits_for_resume_permit() {
                        let failure = interruption("source node failed before the cutover");
                        service.transition_to(Step::Unwind { uid: uid.clone(), failure });
                        self.changed = true;
                    } else {
                        self.ask_to_resume(service, uid);
                    }
                } else {
                    self.read_peer_report(now, service, source);
                }
            }
        }
    }

    /// Returns `true` if the report of a lost node was read after the proof that closed its epoch.
    fn has_read_last_report(&self, node: &NodeName, name: &ResourceName) -> bool {
        let gone_at = self.view.fences.get(node).map_or(Revision::default(), |stored| stored.mod_revision);
        self.view.peer_reports.as_of(&peer_report_key(node, name)) >= gone_at
    }

    /// Requests a permit to resume, because a service that has arrived runs only under this permit (R8.5).
    fn ask_to_resume(&mut self, service: &mut Service, uid: &ActionUid) {
        service.transition_to(Step::Permit { uid: uid.clone(), phase: Phase::Starting });
        self.changed = true;
    }

    /// Returns the target's step under its permit to resume.
    pub(super) fn resume_step(&self, name: &ResourceName, assignment: &Assignment) -> Step {
        let uid = assignment.action_uid.clone();
        let source = assignment.node.clone();
        let reported = self.view.peer_reports.value(&peer_report_key(&source, name));
        let handed_over = reported.is_some_and(|report| {
            report.phase == Phase::HandedOver && report.action_uid.as_ref() == Some(&uid)
        });
        if handed_over && assignment.definition.driver.has_arrival() {
            Step::Arrive { uid, source }
        } else {
            Step::Probe { purpose: ProbePurpose::Received { uid } }
        }
    }

    /// Probes an arrived service again whose probe had no result. After the timeout of a migration, the arrival counts as
    /// failed: the agent stops the service or reports that it cannot (R8.14).
    pub(super) fn on_arrival_unclear(
        &mut self,
        now: &Now,
        service: &mut Service,
        uid: ActionUid,
        cause: &str,
    ) {
        if service.arrival_unclear_since.is_none() {
            let text = format!("Service was handed over to this node and cannot be checked: {cause}");
            self.emit_event(now, service, true, Reason::NotProbed, &text);
        }
        let since = *service.arrival_unclear_since.get_or_insert(now.monotonic_raw);
        if now.monotonic_raw.since(since) < service.definition.timeouts.migrate_ms() {
            service.not_before = Some(now.monotonic_raw + PROBE_RETRY_MS);
            return;
        }
        service.arrival_unclear_since = None;
        let failure = DriverFailure {
            class: FailureClass::RetryHere,
            reason: Reason::TimedOut,
            message: format!("arrived service could not be checked in time: {cause}"),
        };
        service.transition_to(Step::Unwind { uid, failure });
    }

    /// Returns `true` if an epoch of another node is closed with a proof: no service of it runs or will run (FENCING,
    /// section 5).
    pub(super) fn is_proven_gone(&self, node: &NodeName, epoch: Epoch) -> bool {
        self.view.fences.value(node).is_some_and(|fence| {
            fence.epoch > epoch
                && match fence.state {
                    FenceState::Open | FenceState::Fenced | FenceState::Closed => true,
                    FenceState::Fencing => false,
                }
        })
    }

    pub(super) fn on_prepared(
        &mut self,
        now: &Now,
        service: &mut Service,
        uid: &ActionUid,
        result: CommandResult,
    ) {
        match result {
            CommandResult::Done | CommandResult::Observed(_) => {
                let report = self.report(
                    now,
                    service,
                    Some(uid),
                    Phase::Receiving,
                    Reason::Migrating,
                    "Ready to receive the service",
                );
                self.set_desired(service, report);
                service.transition_to(Step::Idle);
            }
            CommandResult::Failed(failure) => {
                service.transition_to(Step::Unwind { uid: uid.clone(), failure });
            }
            CommandResult::Canceled => service.transition_to(Step::Idle),
        }
        self.changed = true;
    }

    /// Handles the end of a takeover. A probe verifies success or failure before it is reported.
    pub(super) fn on_arrived(&mut self, service: &mut Service, uid: &ActionUid, result: CommandResult) {
        let uid = uid.clone();
        match result {
            CommandResult::Done | CommandResult::Observed(_) => {
                service.transition_to(Step::Probe { purpose: ProbePurpose::Received { uid } });
            }
            CommandResult::Failed(failure) => service.transition_to(Step::Unwind { uid, failure }),
            CommandResult::Canceled => service.transition_to(Step::Idle),
        }
        self.changed = true;
    }

    /// Returns `true` if the target of a HandingOver that is about to be committed is still ready.
    pub(super) fn may_hand_over(&self, service: &Service) -> bool {
        match self.role(service.name()) {
            Role::Act { assignment } => {
                assignment.value.is_some_and(|assignment| self.target_is_ready(service.name(), &assignment))
            }
            Role::Target { .. }
            | Role::Outdated
            | Role::Elsewhere { .. }
            | Role::Unreadable
            | Role::Unassigned => false,
        }
    }
}

/// Returns the phase and the action to report after a kill: the strongest true statement. `None` if the present report
/// remains correct.
pub(super) fn report_after_kill(report: &ServiceReport) -> Option<(Phase, Option<ActionUid>)> {
    match report.phase {
        Phase::Stopped | Phase::Failed | Phase::HandedOver | Phase::ProbedStopped => None,
        Phase::ProbedRunning | Phase::ProbedUnknown => Some((Phase::ProbedStopped, None)),
        Phase::HandingOver => Some((Phase::HandedOver, report.action_uid.clone())),
        Phase::Starting
        | Phase::Running
        | Phase::Stopping
        | Phase::StopFailed
        | Phase::Receiving
        | Phase::MoveFailed => match &report.action_uid {
            Some(uid) => Some((Phase::Stopped, Some(uid.clone()))),
            None => Some((Phase::ProbedStopped, None)),
        },
    }
}

pub(super) fn interruption(message: &str) -> DriverFailure {
    DriverFailure { class: FailureClass::RetryHere, reason: Reason::Interrupted, message: message.to_owned() }
}
