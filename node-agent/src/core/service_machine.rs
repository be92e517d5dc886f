//! The next step of an idle service, and the conditions under which a step in progress is abandoned.

use super::command::{CommandResult, DriverFailure};
use super::effect::Level;
use super::role::Role;
use super::service::{KillReason, Presence, ProbeBasis, ProbePurpose, Service, Step};
use super::{AgentCore, Now};
use ha_api_types::cluster::Disarmed;
use ha_api_types::id::{ActionUid, Revision};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Assignment, FailureClass, Phase, ServiceReport};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;

/// Delay before a failed stop is tried again under the same action.
const STOP_RETRY_MS: Millis = 30_000;
/// Delay before an inconclusive probe is repeated.
pub(super) const PROBE_RETRY_MS: Millis = 2_000;
/// Delay before an inconclusive probe that the leader requested is repeated.
const UNKNOWN_RETRY_MS: Millis = 30_000;

/// Returns `true` while a service is being killed.
pub(super) fn is_killing(step: &Step) -> bool {
    matches!(step, Step::Kill { .. } | Step::KillVerify { .. } | Step::CloseReception { .. })
}

impl AgentCore {
    /// Advances a service as far as possible without waiting.
    pub(super) fn advance(&mut self, now: &Now, service: &mut Service) {
        self.end_finished_reception(service.name());
        if self.registration().is_none() {
            return;
        }
        if is_killing(&service.step) {
            if self.is_unmanaged(service.name()) {
                // An operator takes the service over as soon as its report is deleted (R7.19).
                self.interrupt(service);
            } else {
                self.end_failing_kill(now, service);
            }
            if is_killing(&service.step) {
                return;
            }
        }
        self.abandon_superseded_step(now, service);
        self.adopt_confirmed_definition(now, service);
        match service.step.clone() {
            Step::Idle => self.advance_idle(now, service),
            Step::CheckTarget { uid, sent: since, .. } => {
                self.abandon_late_hand_over(now, service, &uid, since);
            }
            Step::Migrate { uid, deadline, .. }
                if service.running_command.is_none() && now.monotonic_raw >= deadline =>
            {
                self.report_never_began(now, service, &uid, "the driver could not start in time");
            }
            Step::Permit { uid, phase } => self.advance_permit(now, service, &uid, phase),
            Step::Journal { uid, pending_write } => {
                self.advance_journal_step(now, service, &uid, pending_write);
            }
            Step::Probe { .. }
            | Step::StopFirst { .. }
            | Step::Clean { .. }
            | Step::Start { .. }
            | Step::Unwind { .. }
            | Step::Verify { .. }
            | Step::Stop { .. }
            | Step::Prepare { .. }
            | Step::Arrive { .. }
            | Step::Migrate { .. }
            | Step::EndMigration { .. }
            | Step::MigrateProbe { .. }
            | Step::Kill { .. }
            | Step::KillVerify { .. }
            | Step::CloseReception { .. } => {}
        }
    }

    /// Abandons a step that the assignment no longer requires.
    fn abandon_superseded_step(&mut self, now: &Now, service: &mut Service) {
        let role = self.role(service.name());
        if self.must_not_run_here(service, &role)
            && self.may_have_copy(service)
            && !self.is_ignored(service.name())
        {
            self.log(
                Level::Warning,
                format!("killing {}, which must not run here: it is assigned to another node, or this node registered again", service.name()),
            );
            self.kill(now, service, KillReason::AssignedElsewhere);
            return;
        }
        let superseded = match (service.step.uid(), &role) {
            (Some(uid), Role::Act { assignment } | Role::Target { assignment }) => assignment
                .value
                .as_ref()
                .is_some_and(|value| value.action_uid != *uid && value.action != Action::DoNothing),
            (Some(_), Role::Outdated | Role::Elsewhere { .. }) => self.must_not_run_here(service, &role),
            (None, _) | (Some(_), Role::Unreadable | Role::Unassigned) => false,
        };
        let is_stopping_for_shutdown = self.is_leaving() && !self.awaits_moves();
        match &service.step {
            Step::Start { .. }
            | Step::StopFirst { .. }
            | Step::Clean { .. }
            | Step::Prepare { .. }
            | Step::Arrive { .. }
            | Step::Journal { .. }
                if superseded || is_stopping_for_shutdown =>
            {
                self.interrupt(service);
            }
            Step::Permit { .. } if is_stopping_for_shutdown => self.interrupt(service),
            Step::CheckTarget { uid, .. } if superseded || is_stopping_for_shutdown => {
                let uid = uid.clone();
                self.report_never_began(
                    now,
                    service,
                    &uid,
                    "migration canceled before the driver started it",
                );
            }
            Step::Probe { .. } if superseded => self.interrupt(service),
            Step::Migrate { uid, .. } if superseded => {
                let uid = uid.clone();
                self.interrupt(service);
                let failure = DriverFailure {
                    class: FailureClass::RetryHere,
                    reason: Reason::Interrupted,
                    message: "the leader canceled the migration".to_owned(),
                };
                service.transition_to(Step::EndMigration { uid, failure: Some(failure) });
            }
            Step::Stop { graceful_ms, .. } if superseded => {
                // The new stop has a shorter grace period than the stop in progress.
                let sooner = self
                    .desired_stop_ms(service, &role)
                    .is_some_and(|desired_stop_ms| desired_stop_ms < *graceful_ms);
                if sooner {
                    self.interrupt(service);
                }
            }
            Step::Idle
            | Step::Probe { .. }
            | Step::Permit { .. }
            | Step::Journal { .. }
            | Step::StopFirst { .. }
            | Step::Clean { .. }
            | Step::Start { .. }
            | Step::Unwind { .. }
            | Step::Verify { .. }
            | Step::Stop { .. }
            | Step::Prepare { .. }
            | Step::Arrive { .. }
            | Step::CheckTarget { .. }
            | Step::Migrate { .. }
            | Step::EndMigration { .. }
            | Step::MigrateProbe { .. }
            | Step::Kill { .. }
            | Step::KillVerify { .. }
            | Step::CloseReception { .. } => {}
        }
    }

    fn desired_stop_ms(&self, service: &Service, role: &Role) -> Option<Millis> {
        let _ = self;
        match role {
            Role::Act { assignment } => match &assignment.value.as_ref()?.action {
                Action::Stop { timeout_ms } => {
                    Some(timeout_ms.unwrap_or_else(|| service.definition.timeouts.stop_ms()))
                }
                Action::Start | Action::Restart | Action::Migrate { .. } | Action::DoNothing => None,
            },
            Role::Target { .. }
            | Role::Outdated
            | Role::Elsewhere { .. }
            | Role::Unreadable
            | Role::Unassigned => None,
        }
    }

    /// Returns `true` if another node acts for the service by an assignment that is newer than this node's report. For
    /// a service that may run twice, the age of the assignment does not matter (FENCING 10). Also returns `true` if
    /// this node's assignment is of an earlier epoch, under which no exclusive service may continue.
    fn must_not_run_here(&self, service: &Service, role: &Role) -> bool {
        match role {
            Role::Elsewhere { mod_revision } => {
                // The leader evaluates a newer answer to a probe. A service that ran by an action of this node has
                // ended. A service that may run twice was not cleared before registering, so its report is always newer
                // than the assignment.
                !service.definition.exclusive
                    || self.view.reports.get(service.name()).is_none_or(|stored| {
                        stored.mod_revision < *mod_revision
                            || stored.value.as_ref().is_none_or(|report| report.action_uid.is_some())
                    })
            }
            Role::Outdated => self.is_exclusive(service),
            Role::Act { .. } | Role::Target { .. } | Role::Unreadable | Role::Unassigned => false,
        }
    }

    /// Returns the report that etcd has, or is about to have, for the service under the current epoch and boot.
    pub(super) fn current_report(&self, service: &Service) -> Option<ServiceReport> {
        let report = service.desired_report.as_ref().or_else(|| self.view.reports.value(service.name()))?;
        let epoch = self.registration()?.epoch;
        (report.epoch == epoch && report.boot_id == self.config.boot_id).then(|| report.clone())
    }

    fn advance_idle(&mut self, now: &Now, service: &mut Service) {
        let Some((epoch, _)) = self.active_registration() else { return };
        let name = service.name().to_owned();
        let role = self.role(&name);
        if role == Role::Unassigned && (self.is_ignored(&name) || self.view.resources.get(&name).is_none()) {
            return self.delete_report(now, service);
        }
        let stops_for_shutdown = self.is_leaving() && !self.awaits_moves();
        if self.is_ignored(&name) && !stops_for_shutdown {
            return;
        }
        if self.is_exclusive(service) && !self.is_before_margin(now) && !self.has_acknowledged_disarm() {
            // From D − Ts on, exclusive services here are killed, and no other action begins.
            return;
        }
        if stops_for_shutdown {
            return self.stop_for_shutdown(now, service);
        }
        if self.disarm_mode() == Some(Disarmed::Ignore) {
            service.needs_recheck = true;
            service.presence = Presence::Unprobed;
        }
        if self.is_quiescing() || service.not_before.is_some_and(|at| now.monotonic_raw < at) {
            return;
        }
        service.not_before = None;
        if service.permit.is_none() {
            let committed = self.view.reports.value(&name);
            service.permit = committed
                .filter(|_| service.desired_report.is_none())
                .and_then(|report| super::permit::Permit::of_committed(report, epoch, &self.config.boot_id));
        }
        match role {
            Role::Act { assignment } => {
                let Some(assignment) = assignment.value else { return };
                match &assignment.action {
                    Action::Start | Action::Restart => self.advance_start(now, service, &assignment),
                    Action::Stop { timeout_ms } => {
                        let graceful_ms = timeout_ms.unwrap_or_else(|| service.definition.timeouts.stop_ms());
                        self.advance_stop(now, service, &assignment.action_uid, graceful_ms);
                    }
                    Action::Migrate { .. } => self.advance_migration_source(now, service, &assignment),
                    Action::DoNothing => {}
                }
            }
            Role::Target { assignment } => {
                if let Some(assignment) = assignment.value {
                    self.advance_migration_target(now, service, &assignment);
                }
            }
            Role::Outdated | Role::Elsewhere { .. } | Role::Unassigned => {
                self.advance_unassigned(now, service, role == Role::Unassigned);
            }
            Role::Unreadable => {}
        }
    }

    /// Advances Start and Restart.
    fn advance_start(&mut self, now: &Now, service: &mut Service, assignment: &Assignment) {
        let uid = &assignment.action_uid;
        let current = self.current_report(service).filter(|report| report.action_uid.as_ref() == Some(uid));
        match current {
            Some(report) => match report.phase {
                Phase::Starting => {
                    if self.was_begun(service, uid) {
                        service.transition_to(Step::Probe {
                            purpose: ProbePurpose::Interrupted { uid: uid.clone() },
                        });
                    } else {
                        self.on_permitted(now, service, uid, Phase::Starting);
                    }
                }
                Phase::Running => self.keep_running(now, service, uid),
                Phase::Stopping => {
                    let graceful_ms = service.definition.timeouts.stop_ms();
                    service.transition_to(Step::Stop { uid: Some(uid.clone()), graceful_ms });
                }
                Phase::Stopped | Phase::Failed | Phase::HandedOver => self.keep_stopped(now, service, uid),
                Phase::StopFailed
                | Phase::ProbedRunning
                | Phase::ProbedStopped
                | Phase::ProbedUnknown
                | Phase::Receiving
                | Phase::HandingOver
                | Phase::MoveFailed => {}
            },
            None if self.is_begun_in_journal(service, uid) => {
                service
                    .transition_to(Step::Probe { purpose: ProbePurpose::Interrupted { uid: uid.clone() } });
            }
            // FENCING 8: an active copy is kept after its migration lost the source.
            None if matches!(service.presence, Presence::Unclear | Presence::Unprobed)
                && self.current_report(service).is_some_and(|report| report.phase == Phase::Receiving) =>
            {
                let assignment = Box::new(assignment.clone());
                service.transition_to(Step::Probe { purpose: ProbePurpose::TakeOver { assignment } });
            }
            None => self.request_permit(service, assignment, Phase::Starting),
        }
    }

    /// Requests a permit for a new action.
    pub(super) fn request_permit(&mut self, service: &mut Service, assignment: &Assignment, phase: Phase) {
        if self.is_leaving() {
            // The agent only waits for the services here to move away.
            return;
        }
        if self.refuse_without_watchdog(service, &assignment.action_uid, assignment.definition.exclusive) {
            return;
        }
        service.failed_starts = 0;
        service.restarts = 0;
        service.has_crashed_before = false;
        service.unexpected_exit = None;
        service.external_stop = None;
        service.stopped_for = None;
        service.transition_to(Step::Permit { uid: assignment.action_uid.clone(), phase });
        self.changed = true;
    }

    /// Reports the start of an exclusive service as failed if the watchdog cannot be armed, so that another node is
    /// tried. Without an armed watchdog, no permit is possible (FENCING 6).
    pub(super) fn refuse_without_watchdog(
        &mut self,
        service: &mut Service,
        uid: &ActionUid,
        exclusive: bool,
    ) -> bool {
        let Some(problem) = self.arming_problem().filter(|_| exclusive) else { return false };
        let failure = DriverFailure {
            class: FailureClass::TryElsewhere,
            reason: self.watchdog.problem_reason.unwrap_or(Reason::WatchdogFailed),
            message: format!("cannot arm the watchdog: {problem}"),
        };
        service.transition_to(Step::Unwind { uid: uid.clone(), failure });
        self.changed = true;
        true
    }

    /// Keeps a service running whose report is Running.
    pub(super) fn keep_running(&mut self, now: &Now, service: &mut Service, uid: &ActionUid) {
        if self.is_spent(service, uid) {
            // An earlier process killed the service before the deadline and could not report that.
            let graceful_ms = service.definition.timeouts.stop_ms();
            service.transition_to(Step::Stop { uid: Some(uid.clone()), graceful_ms });
            self.changed = true;
            return;
        }
        match service.presence {
            Presence::Running => {}
            Presence::Stopped if service.needs_recheck => {
                service.needs_recheck = false;
                service.permit = None;
                let text = "Service was moved or stopped while the cluster was disarmed";
                let report =
                    self.report(now, service, Some(uid), Phase::Stopped, Reason::StoppedExternally, text);
                self.set_desired(service, report);
            }
            Presence::Stopped => self.on_crashed(now, service, uid),
            Presence::Unprobed | Presence::Unclear => {
                service.transition_to(Step::Probe { purpose: ProbePurpose::Adopt { uid: uid.clone() } });
            }
        }
    }

    /// Keeps a service stopped after its report has stated that the service ended here.
    fn keep_stopped(&mut self, now: &Now, service: &mut Service, uid: &ActionUid) {
        match service.presence {
            Presence::Stopped => {}
            Presence::Unprobed => service.transition_to(Step::Probe { purpose: ProbePurpose::Presence }),
            Presence::Running if self.accepts_external_start(service) => {
                self.report_external_start(now, service, uid);
            }
            Presence::Running | Presence::Unclear => {
                self.emit_event(
                    now,
                    service,
                    true,
                    Reason::StartedExternally,
                    "Service was started outside hactl and must not run here: stopping it",
                );
                self.set_desired(
                    service,
                    self.report(now, service, Some(uid), Phase::Stopping, Reason::StartedExternally, ""),
                );
                let graceful_ms = service.definition.timeouts.stop_ms();
                service.transition_to(Step::Stop { uid: Some(uid.clone()), graceful_ms });
                self.changed = true;
            }
        }
    }

    fn advance_stop(&mut self, now: &Now, service: &mut Service, uid: &ActionUid, graceful_ms: Millis) {
        let current = self.current_report(service).filter(|report| report.action_uid.as_ref() == Some(uid));
        match current.map(|report| report.phase) {
            Some(Phase::Stopped) => return self.keep_stopped(now, service, uid),
            // The leader has not yet assigned the start.
            Some(Phase::ProbedRunning)
                if service.presence == Presence::Running && self.accepts_external_start(service) =>
            {
                return;
            }
            Some(
                Phase::Stopping
                | Phase::StopFailed
                | Phase::ProbedRunning
                | Phase::ProbedStopped
                | Phase::ProbedUnknown
                | Phase::Starting
                | Phase::Running
                | Phase::Failed
                | Phase::Receiving
                | Phase::HandingOver
                | Phase::HandedOver
                | Phase::MoveFailed,
            )
            | None => {}
        }
        service.permit = None;
        let may_have_arrived =
            service.definition.driver.can_migrate() && !service.definition.driver.waits_for_resume_permit();
        if service.presence == Presence::Stopped && service.unexpected_exit.is_none() && !may_have_arrived {
            // The stop is already confirmed, such as for a new assigned node. If Stopping were reported, the service
            // would count as running until a command ends.
            return self.on_stopped(now, service, Some(uid), CommandResult::Done);
        }
        self.set_desired(
            service,
            self.report(now, service, Some(uid), Phase::Stopping, Reason::Stopping, ""),
        );
        service.transition_to(Step::Stop { uid: Some(uid.clone()), graceful_ms });
        self.changed = true;
    }

    /// Reports a failed stop. The stop is tried again after a delay for as long as it is required.
    pub(super) fn on_stop_failed(
        &mut self,
        now: &Now,
        service: &mut Service,
        uid: Option<&ActionUid>,
        message: &str,
    ) {
        service.presence = Presence::Unclear;
        service.permit = None;
        self.emit_event(now, service, true, Reason::StopFailed, message);
        self.set_desired(
            service,
            self.report(now, service, uid, Phase::StopFailed, Reason::StopFailed, message),
        );
        service.not_before = Some(now.monotonic_raw + STOP_RETRY_MS);
        service.transition_to(Step::Idle);
        self.changed = true;
    }

    /// Answers for a service that is not assigned here, and keeps the service stopped if another node is assigned.
    fn advance_unassigned(&mut self, now: &Now, service: &mut Service, unassigned: bool) {
        let Some(resource) = self.view.resources.value(service.name()) else { return };
        let (uid, generation) = (resource.metadata.uid.clone(), resource.metadata.generation);
        let arming = self.armed_generation();
        let fence = if service.definition.exclusive { self.probe_order_revision() } else { Revision(0) };
        let probe = Step::Probe {
            purpose: ProbePurpose::Unassigned { basis: ProbeBasis { generation, arming, fence } },
        };
        let current = self.current_report(service).filter(|report| report.uid == uid);
        let Some(report) = current else {
            service.transition_to(probe);
            return;
        };
        // An answer about another identity does not count for this one.
        let another = report.identity.is_some()
            && report.identity != service.definition.identity()
            && service.presence != Presence::Running;
        let older = report.probed_generation < generation || report.probed_arming < arming;
        let ordered = report.probed_fence < fence;
        if ordered {
            // An observation from before the order does not answer it.
            service.desired_report = None;
        }
        let outdated = ordered
            || another
            || (unassigned && older)
            || (service.presence == Presence::Unprobed && self.may_have_copy(service));
        if outdated || report.phase == Phase::ProbedUnknown {
            service.transition_to(probe);
            return;
        }
        let reports_running = report.phase.may_run();
        let differs = match service.presence {
            Presence::Running => !reports_running,
            Presence::Stopped => reports_running,
            Presence::Unprobed | Presence::Unclear => false,
        };
        if differs {
            let basis = ProbeBasis {
                generation: report.probed_generation,
                arming: report.probed_arming,
                fence: report.probed_fence,
            };
            self.answer_probe(now, service, basis, "");
        }
    }

    /// Writes the observed state of an unassigned service into its report.
    pub(super) fn answer_probe(
        &mut self,
        now: &Now,
        service: &mut Service,
        basis: ProbeBasis,
        message: &str,
    ) {
        let phase = match service.presence {
            Presence::Running => Phase::ProbedRunning,
            Presence::Stopped => Phase::ProbedStopped,
            Presence::Unprobed | Presence::Unclear => {
                service.not_before = Some(now.monotonic_raw + UNKNOWN_RETRY_MS);
                Phase::ProbedUnknown
            }
        };
        service.permit = None;
        let desired_definition = self.view.resources.value(service.name()).map(ServiceDefinition::of);
        let report = self.report(now, service, None, phase, Reason::NotProbed, message);
        let uid = desired_definition
            .as_ref()
            .map_or(report.uid.clone(), |desired_definition| desired_definition.uid.clone());
        // R6.11: reports the running copy to the leader, which then orders a stop under the definition of its start.
        let another = phase == Phase::ProbedRunning
            && desired_definition
                .is_some_and(|desired_definition| !desired_definition.has_same_identity(&service.definition));
        let report = ServiceReport {
            definition: another
                .then(|| Box::new(ServiceDefinition { uid: uid.clone(), ..service.definition.clone() })),
            uid,
            probed_generation: basis.generation,
            probed_arming: basis.arming,
            probed_fence: basis.fence,
            reason: if phase == Phase::ProbedStopped { Reason::Stopped } else { Reason::Running },
            ..report
        };
        let report = if phase == Phase::ProbedUnknown {
            ServiceReport { reason: Reason::NotProbed, ..report }
        } else {
            report
        };
        self.set_desired(service, report);
        service.transition_to(Step::Idle);
        self.changed = true;
    }
}
