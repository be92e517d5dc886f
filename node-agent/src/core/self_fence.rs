//! Stop, then stay: from D − Ts, kill and verify exclusive services, then stay. Defines *active* and *empty* (FENCING,
//! section 4).

use super::effect::{Effect, Level};
use super::migration::report_after_kill;
use super::replacement::ReplacementStep;
use super::role::Role;
use super::service::{KillReason, Presence, ResetCause, Service, Step};
use super::session::Session;
use super::{AgentCore, Now};
use ha_api_types::id::Epoch;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Mode, Phase, ServiceReport};
use ha_api_types::time::{Millis, MonotonicTime};

/// Delay before an incomplete kill is repeated while a deadline is near.
const KILL_RETRY_DELAY_MS: Millis = 200;
/// Longest delay between kills without a near deadline.
const MAX_KILL_RETRY_DELAY_MS: Millis = 30_000;
/// Number of failed kills of a service after which the agent reports that it cannot be killed.
const FAILED_KILLS_TO_REPORT: u32 = 3;

impl AgentCore {
    /// Returns `true` if a copy may be here: it runs, is unclear, was begun and not probed, or has a worker.
    pub(super) fn may_have_copy(&self, service: &Service) -> bool {
        let is_present =
            match service.presence {
                Presence::Running | Presence::Unclear => true,
                Presence::Stopped => false,
                Presence::Unprobed => {
                    self.journal.services.contains_key(service.name())
                        || self.view.reports.value(service.name()).is_some_and(|report| {
                            report.boot_id == self.config.boot_id && report.phase.may_run()
                        })
                }
            };
        is_present
            || !service.canceling.is_empty()
            || (service.running_command.is_some() && !matches!(service.step, Step::Probe { .. }))
    }

    /// Returns `true` unless the service is confirmed stopped, unmanaged, or `exclusive: false`. A permit in progress
    /// counts as active (FENCING 4).
    pub(super) fn is_active(&self, service: &Service) -> bool {
        let is_step_in_progress = match &service.step {
            Step::Idle | Step::Probe { .. } => false,
            Step::Permit { .. }
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
            | Step::CloseReception { .. } => true,
        };
        let epoch = self.registration().map_or(Epoch::default(), |registered| registered.epoch);
        let reports_running = |report: &ServiceReport| {
            report.epoch == epoch && report.boot_id == self.config.boot_id && report.phase.may_run()
        };
        let may_run = is_step_in_progress
            || self.may_have_copy(service)
            || service.replacing != ReplacementStep::Idle
            || service.pending_write.is_some() && service.permit.is_some()
            || service.desired_report.as_ref().is_some_and(reports_running)
            || self.view.reports.value(service.name()).is_some_and(reports_running);
        may_run && self.is_guarded(service)
    }

    /// Returns `true` if the watchdog should be armed: only while an exclusive service is active.
    pub(super) fn needs_watchdog(&self) -> bool {
        if self.registration().is_none() || self.is_disarming() || self.leave_commit.is_some() {
            return false;
        }
        if self.is_restart_requested() {
            return false;
        }
        self.services.values().any(|service| self.is_active(service))
    }

    /// Returns `true` if no exclusive service and no worker of an exclusive service remains on this node.
    fn is_empty(&self) -> bool {
        self.services.values().all(|service| {
            !(self.may_have_copy(service) || service.replacing.is_busy()) || !self.is_guarded(service)
        })
    }

    /// Returns `true` if the daemon may pet without a deadline. This requires that the margin has passed or the epoch
    /// is lost, that the node is empty, and that no reception is open (R4.40).
    pub(super) fn may_pet_without_deadline(&self, now: &Now) -> bool {
        if self.has_open_reception() {
            return false;
        }
        let is_margin_reached = || {
            self.remaining_ms(now).is_some_and(|time_ms| time_ms <= self.effective_timings().stop_margin_ms)
        };
        match &self.session {
            Session::Registered(_) => is_margin_reached() && self.is_empty(),
            // Only the journal shows which services may be here, so it must be of this boot.
            Session::Waiting => {
                is_margin_reached() && self.journal.boot_id == self.config.boot_id && self.is_empty()
            }
            Session::Clearing => self.is_cleared(),
            // Everything was cleared before the request began.
            Session::Requesting(requesting) => requesting.request.is_none(),
            Session::Ended => false,
        }
    }

    /// Returns `true` if a device that an earlier process left armed may be released, provided that no service is
    /// active.
    pub(super) fn may_release_inherited(&self) -> bool {
        match &self.session {
            Session::Registered(registered) => {
                registered.create_revision.is_some() || self.leave_commit.is_some()
            }
            Session::Requesting(requesting) => requesting.request.is_some(),
            Session::Waiting | Session::Clearing => {
                self.watchdog.followed_deadline().is_none() && self.watchdog.was_opened_to_identify()
            }
            Session::Ended => false,
        }
    }

    /// Returns `true` if the device may be opened without a deadline, to identify it. The device may not be opened
    /// while an earlier process may have left *armed: true* committed, or services running: the running device covers
    /// those services until their deadline.
    pub(super) fn may_identify_device(&self) -> bool {
        match &self.session {
            Session::Registered(registered) => registered.create_revision.is_some(),
            Session::Requesting(_) => self.is_cleared(),
            Session::Waiting | Session::Clearing | Session::Ended => false,
        }
    }

    /// Returns `true` if this node has acknowledged that the cluster is disarmed, so no deadline counts.
    pub(super) fn has_acknowledged_disarm(&self) -> bool {
        self.node_report().is_some_and(|report| {
            report.instance == self.config.instance
                && !report.armed
                && match report.mode {
                    Mode::Disarmed | Mode::Restart | Mode::Left(_) => true,
                    Mode::Registering | Mode::Active | Mode::Maintenance | Mode::Shutdown(_) => false,
                }
        })
    }

    /// Kills every exclusive service and its workers from D − Ts on, or when the watchdog is no longer petted.
    pub(super) fn advance_self_fence(&mut self, now: &Now) {
        match &self.session {
            Session::Registered(_) | Session::Waiting => {}
            Session::Clearing | Session::Requesting(_) | Session::Ended => return,
        }
        if self.has_acknowledged_disarm() {
            return;
        }
        let margin_ms = self.effective_timings().stop_margin_ms;
        let cause = match self.remaining_ms(now) {
            Some(remaining_ms) if remaining_ms <= margin_ms => ResetCause::LeaseLost,
            Some(_) | None if self.is_unpetted(now) => ResetCause::Unpetted,
            Some(_) => return self.remove_shutdown_record(),
            None => return,
        };
        let mut killed = 0;
        for name in self.service_names() {
            self.with_service(&name, |core, service| {
                let is_guarded = core.is_guarded(service);
                let is_being_killed = matches!(
                    service.step,
                    Step::Kill { kill_reason: KillReason::BeforeReset(_), .. }
                        | Step::KillVerify { kill_reason: KillReason::BeforeReset(_), .. }
                        | Step::CloseReception { kill_reason: KillReason::BeforeReset(_), .. }
                );
                if is_guarded && !is_being_killed {
                    if core.may_have_copy(service) {
                        killed += 1;
                        core.kill(now, service, KillReason::BeforeReset(cause));
                    } else if matches!(
                        service.step,
                        Step::Permit { .. }
                            | Step::Journal { .. }
                            | Step::Start { .. }
                            | Step::CheckTarget { .. }
                    ) {
                        // The action has not begun, and waits for a heartbeat as every other action does.
                        service.transition_to(Step::Idle);
                    }
                }
            });
        }
        if killed > 0 {
            self.log(Level::Error, format!("{}: killing exclusive services ({killed})", cause.clause()));
        }
        if killed > 0 || self.journal.shutdown_record.is_some() {
            self.record_remaining_services(now, cause.clause());
        }
    }

    /// Returns `true` if the running watchdog has been without its daemon for too long: it will reset this machine.
    pub(super) fn is_unpetted(&self, now: &Now) -> bool {
        self.watchdog.is_running() && self.watchdog.is_assumed_ended(now)
    }

    /// Writes a shutdown record that names the services that have not ended.
    fn record_remaining_services(&mut self, now: &Now, cause: &str) {
        let is_remaining = |service: &&Service| self.is_guarded(service) && self.may_have_copy(service);
        let remaining_services: Vec<&str> = self
            .services
            .values()
            .map(Box::as_ref)
            .filter(is_remaining)
            .map(|service| service.name().as_str())
            .collect();
        let message = if remaining_services.is_empty() {
            format!("{cause}, and all exclusive services were stopped")
        } else {
            format!(
                "{cause}, and {} had not stopped yet: the watchdog resets the machine at its deadline",
                remaining_services.join(", ")
            )
        };
        self.write_shutdown_record(now, message);
    }

    /// Cancels the command in progress for a service. The driver answers it later.
    pub(super) fn interrupt(&mut self, service: &mut Service) {
        if let Some(command) = service.running_command.take() {
            service.canceling.insert(command);
            self.effects.push_back(Effect::Cancel(command));
            if !matches!(
                service.step,
                Step::Probe { .. }
                    | Step::Verify { .. }
                    | Step::KillVerify { .. }
                    | Step::CloseReception { .. }
                    | Step::EndMigration { .. }
                    | Step::MigrateProbe { .. }
            ) {
                service.presence = Presence::Unclear;
            }
        }
        service.transition_to(Step::Idle);
        service.not_before = None;
        self.changed = true;
    }

    /// Begins to kill a service. A service with unknown presence is probed first, unless an action was begun for it. In
    /// that case, a paused copy may wait to be received. A probe does not detect such a copy, but a kill removes it.
    pub(super) fn kill(&mut self, now: &Now, service: &mut Service, kill_reason: KillReason) {
        if let Step::Kill { kill_reason: step_reason, attempts }
        | Step::KillVerify { kill_reason: step_reason, attempts } = &mut service.step
        {
            *step_reason = kill_reason;
            *attempts = 0;
            service.not_before = None;
            return;
        }
        self.interrupt(service);
        self.end_replacement(service, "the service was killed");
        service.permit = None;
        service.unexpected_exit = None;
        let _ = now;
        match service.presence {
            Presence::Stopped if service.canceling.is_empty() => {}
            Presence::Unprobed if self.may_be_received(service) => {
                service.transition_to(Step::Kill { kill_reason, attempts: 0 });
            }
            Presence::Unprobed | Presence::Stopped => {
                service.transition_to(Step::KillVerify { kill_reason, attempts: 0 });
            }
            Presence::Running | Presence::Unclear => {
                service.transition_to(Step::Kill { kill_reason, attempts: 0 });
            }
        }
        self.changed = true;
    }

    /// Returns `true` if an earlier process of this boot may have begun to receive a service.
    fn may_be_received(&self, service: &Service) -> bool {
        let entry = self.journal.services.get(service.name());
        let has_journaled_start = self.journal.boot_id == self.config.boot_id
            && entry.is_some_and(|entry| !entry.begun_action.is_empty());
        has_journaled_start || self.may_wait_to_be_received(service)
    }

    /// Returns `true` if a copy that waits to be received may be here: this process began the reception, or an earlier
    /// process reported it.
    pub(super) fn may_wait_to_be_received(&self, service: &Service) -> bool {
        service.may_have_incoming_copy
            || self.view.reports.value(service.name()).is_some_and(|report| {
                report.phase == Phase::Receiving && report.boot_id == self.config.boot_id
            })
    }

    pub(super) fn retry_kill(
        &mut self,
        now: &Now,
        service: &mut Service,
        kill_reason: KillReason,
        attempts: u32,
        message: String,
    ) {
        service.presence = Presence::Unclear;
        if !message.is_empty() {
            service.message = message;
        }
        let wait_ms = match kill_reason {
            // So far the service was only probed.
            _ if attempts == 0 => 0,
            KillReason::BeforeReset(_) => KILL_RETRY_DELAY_MS,
            KillReason::Clearing
            | KillReason::AssignedElsewhere
            | KillReason::NotReceived
            | KillReason::MigrationRemnant => {
                (KILL_RETRY_DELAY_MS << attempts.min(10)).min(MAX_KILL_RETRY_DELAY_MS)
            }
        };
        if attempts == FAILED_KILLS_TO_REPORT {
            let text = format!("Service cannot be killed: {}", service.message);
            self.emit_event(now, service, true, Reason::StopFailed, &text);
        }
        service.not_before = (wait_ms > 0).then(|| now.monotonic_raw + wait_ms);
        service.transition_to(Step::Kill { kill_reason, attempts });
        self.changed = true;
    }

    /// Ends a kill that has failed repeatedly, and answers the order that this node was given: the stop failed. Without
    /// that answer, the leader would wait for an action that never begins.
    ///
    /// A source that has handed over answers with the result of the migration, as after a restart of its agent: a failed
    /// stop would replace the report of the hand-over, which the leader needs (R8.13).
    pub(super) fn end_failing_kill(&mut self, now: &Now, service: &mut Service) {
        let (Step::Kill { kill_reason, .. } | Step::KillVerify { kill_reason, .. }) = &service.step else {
            return;
        };
        let belongs_to_action = match kill_reason {
            KillReason::NotReceived | KillReason::MigrationRemnant | KillReason::AssignedElsewhere => true,
            // A heartbeat was committed in time, so the leader may order a stop again.
            KillReason::BeforeReset(_) => self.is_before_margin(now),
            KillReason::Clearing => false,
        };
        if !belongs_to_action
            || service.running_command.is_some()
            || service.kill_attempts() < FAILED_KILLS_TO_REPORT
        {
            return;
        }
        let (Role::Act { assignment } | Role::Target { assignment }) = self.role(service.name()) else {
            return;
        };
        let Some(assignment) = assignment.value else { return };
        let uid = &assignment.action_uid;
        let has_handed_over = self.current_report(service).is_some_and(|report| {
            report.action_uid.as_ref() == Some(uid) && report.phase == Phase::HandingOver
        });
        if has_handed_over || assignment.action == Action::DoNothing {
            return self.interrupt(service);
        }
        let message = service.message.clone();
        self.on_stop_failed(now, service, Some(uid), &message);
    }

    /// Handles a confirmed kill. The action under which the service ran cannot be used again.
    pub(super) fn on_killed(&mut self, now: &Now, service: &mut Service, kill_reason: KillReason) {
        service.presence = Presence::Stopped;
        service.permit = None;
        service.begun_action = None;
        service.not_before = None;
        service.transition_to(Step::Idle);
        self.changed = true;
        if matches!(kill_reason, KillReason::BeforeReset(_))
            && let Some(entry) = self.journal.services.get_mut(service.name())
        {
            entry.was_killed = true;
            self.mark_journal_changed();
        }
        let (reason, message) = match kill_reason {
            KillReason::Clearing => {
                service.cleared_definitions.push(service.definition.clone());
                self.clear_next_definition(service);
                return;
            }
            KillReason::BeforeReset(ResetCause::LeaseLost) => (
                Reason::LeaseLost,
                "Killed before the watchdog deadline because no heartbeat was committed in time",
            ),
            KillReason::BeforeReset(ResetCause::Unpetted) => (
                Reason::WatchdogMissing,
                "Killed because the watchdog is not renewed and will reset this machine",
            ),
            KillReason::AssignedElsewhere => {
                (Reason::StartedExternally, "Killed because the service must not run on this node")
            }
            KillReason::NotReceived => (Reason::MoveFailed, "Migration to this node did not take place"),
            KillReason::MigrationRemnant => {
                (Reason::MoveFailed, "Killed the processes that a failed migration left on this node")
            }
        };
        self.emit_event(now, service, kill_reason != KillReason::NotReceived, reason, message);
        let Some(current) = self.current_report(service) else { return };
        if let Some((phase, uid)) = report_after_kill(&current) {
            let report = self.report(now, service, uid.as_ref(), phase, reason, message);
            let probed_generation = current.probed_generation;
            let (probed_arming, probed_fence) = (current.probed_arming, current.probed_fence);
            let report = ServiceReport { probed_generation, probed_arming, probed_fence, ..report };
            self.set_desired(service, report);
        }
    }

    /// Marks a service that could not be stopped before registering as an unconfirmed Error: the service counts as
    /// running.
    pub(super) fn mark_not_stopped(&mut self, now: &Now, service: &mut Service, message: &str) {
        service.presence = Presence::Unclear;
        service.transition_to(Step::Idle);
        self.emit_event(now, service, true, Reason::StopFailed, message);
        message.clone_into(&mut service.message);
        service.not_stopped = true;
    }

    /// Reports such a service as possibly running, once this node is registered.
    pub(super) fn report_not_stopped_services(&mut self, now: &Now, service: &mut Service) {
        if service.not_stopped && self.active_registration().is_some() {
            service.not_stopped = false;
            let message = service.message.clone();
            let report = self.report(now, service, None, Phase::StopFailed, Reason::StopFailed, &message);
            self.set_desired(service, report);
        }
    }

    /// Returns when D − Ts is reached.
    pub(super) fn margin_begins_at(&self, now_raw: MonotonicTime) -> Option<MonotonicTime> {
        let deadline = self.deadline_moment()?;
        let raw =
            MonotonicTime(deadline.monotonic_raw_ns / 1_000_000) - self.effective_timings().stop_margin_ms;
        (raw > now_raw).then_some(raw)
    }
}
