//! From a permit to a running service: journal, start, failures, crashes, restarts in place (FENCING 6;
//! docs/services.md, Start failures).

use super::command::{CommandResult, DriverFailure};
use super::effect::JournalWriteId;
use super::role::Role;
use super::service::{Presence, Service, Step};
use super::{AgentCore, JournalEntry, Now, Reception};
use ha_api_types::id::ActionUid;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, FailureClass, Phase};
use ha_api_types::time::Millis;

/// Back-off after the first attempt; doubles with each further attempt.
const INITIAL_BACKOFF_MS: Millis = 500;
/// Longest back-off between attempts.
const MAX_BACKOFF_MS: Millis = 30_000;

impl AgentCore {
    /// Returns `true` if the journal on disk names this action as begun, by this process or an earlier one.
    pub(super) fn is_begun_in_journal(&self, service: &Service, uid: &ActionUid) -> bool {
        self.journal.services.get(service.name()).is_some_and(|entry| entry.begun_action == *uid)
    }

    /// Returns `true` if this action is spent (not begun again): its service was killed before a deadline (FENCING 4).
    pub(super) fn is_spent(&self, service: &Service, uid: &ActionUid) -> bool {
        self.journal
            .services
            .get(service.name())
            .is_some_and(|entry| entry.begun_action == *uid && entry.was_killed)
    }

    /// Returns `true` if the action was begun, by this process or an earlier one.
    pub(super) fn was_begun(&self, service: &Service, uid: &ActionUid) -> bool {
        service.begun_action.as_ref() == Some(uid) || self.is_begun_in_journal(service, uid)
    }

    /// Continues under a committed permit with the step that precedes or begins the action.
    pub(super) fn on_permitted(&mut self, now: &Now, service: &mut Service, uid: &ActionUid, phase: Phase) {
        let name = service.name().to_owned();
        let role = self.role(&name);
        let is_target = matches!(role, Role::Target { .. });
        let (Role::Act { assignment } | Role::Target { assignment }) = role else {
            service.transition_to(Step::Idle);
            return;
        };
        let Some(assignment) = assignment.value else { return };
        let uid = uid.clone();
        self.changed = true;
        // A service that arrived and failed here is started again in place.
        let resumes = phase == Phase::Starting && is_target && service.stopped_for.as_ref() != Some(&uid);
        if resumes && self.is_begun_in_journal(service, &uid) {
            service.begun_action = Some(uid.clone());
        }
        if service.begun_action.as_ref() == Some(&uid) {
            service.transition_to(match phase {
                Phase::Receiving => Step::Prepare { uid },
                Phase::HandingOver => match AgentCore::migration_target(&assignment) {
                    Some(target) => return self.check_target(now, service, &uid, target),
                    None => Step::Idle,
                },
                Phase::Starting if resumes => self.resume_step(service.name(), &assignment),
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
                | Phase::MoveFailed => Step::Start { uid },
            });
            return;
        }
        if matches!(phase, Phase::Starting | Phase::Receiving)
            && let Some(failure) = self.start_refusal(&assignment.definition)
        {
            service.transition_to(Step::Unwind { uid, failure });
            return;
        }
        if phase == Phase::Starting
            && !resumes
            && service.presence != Presence::Stopped
            && service.stopped_for.as_ref() != Some(&uid)
        {
            let driver_differs = service.definition.driver != assignment.definition.driver;
            if assignment.action == Action::Restart || driver_differs {
                service.transition_to(Step::StopFirst { uid });
                return;
            }
            if service.presence == Presence::Unclear {
                service.transition_to(Step::Clean { uid });
                return;
            }
        }
        if phase != Phase::HandingOver {
            service.definition = assignment.definition.clone();
        }
        service.transition_to(Step::Journal { uid, pending_write: None });
    }

    /// Waits until the action is in the journal on disk, before it is begun (FENCING 6).
    pub(super) fn advance_journal_step(
        &mut self,
        now: &Now,
        service: &mut Service,
        uid: &ActionUid,
        pending_write: Option<JournalWriteId>,
    ) {
        if let Some(write) = pending_write {
            match self.journal_result(write) {
                None => {}
                Some(Ok(())) => {
                    service.begun_action = Some(uid.clone());
                    let phase = self.current_report(service).map(|report| report.phase);
                    self.on_permitted(now, service, uid, phase.unwrap_or(Phase::Starting));
                }
                Some(Err(message)) if service.has_worker => {
                    let text = format!("cannot write the journal: {message}");
                    self.report_never_began(now, service, uid, &text);
                }
                Some(Err(message)) => {
                    let failure = DriverFailure {
                        class: FailureClass::TryElsewhere,
                        reason: Reason::JournalFailed,
                        message: format!(
                            "cannot write the journal, so no service is started on this node: {message}"
                        ),
                    };
                    service.transition_to(Step::Unwind { uid: uid.clone(), failure });
                    self.changed = true;
                }
            }
            return;
        }
        let phase = self.current_report(service).map(|report| report.phase);
        if phase == Some(Phase::Receiving) {
            let reception = Reception { action_uid: uid.clone(), exclusive: service.definition.exclusive };
            self.journal.receptions.insert(service.name().to_owned(), reception);
        }
        let entry = JournalEntry {
            definition: service.definition.clone(),
            begun_action: uid.clone(),
            was_killed: false,
        };
        self.journal.services.insert(service.name().to_owned(), entry);
        self.mark_journal_changed();
        let write = self.journal_next_write();
        service.step = Step::Journal { uid: uid.clone(), pending_write: Some(write) };
        self.changed = true;
    }

    pub(super) fn on_started(
        &mut self,
        now: &Now,
        service: &mut Service,
        uid: &ActionUid,
        result: CommandResult,
    ) {
        match result {
            CommandResult::Done | CommandResult::Observed(_) => {
                service.presence = Presence::Running;
                service.started_at = Some(now.monotonic_raw);
                service.needs_recheck = false;
                service.unexpected_exit = None;
                let (reason, message) = if service.restarts > 0 {
                    (Reason::Restarted, service.message.clone())
                } else {
                    (Reason::Running, String::new())
                };
                // Each start emits one event. An adopted copy that was already reported emits none.
                let is_already_reported = self.current_report(service).is_some_and(|report| {
                    report.phase == Phase::Running && report.action_uid.as_ref() == Some(uid)
                });
                if !is_already_reported {
                    self.emit_event(now, service, false, reason, "Service running");
                }
                self.set_desired(
                    service,
                    self.report(now, service, Some(uid), Phase::Running, reason, &message),
                );
                service.transition_to(Step::Idle);
            }
            CommandResult::Failed(failure) => self.on_start_failed(now, service, uid, failure),
            CommandResult::Canceled => {
                service.presence = Presence::Unclear;
                service.transition_to(Step::Idle);
            }
        }
        self.changed = true;
    }

    /// Handles a failed start. A node makes `maxRestart + 1` attempts with a back-off; some failures allow only one
    /// attempt.
    pub(super) fn on_start_failed(
        &mut self,
        now: &Now,
        service: &mut Service,
        uid: &ActionUid,
        failure: DriverFailure,
    ) {
        service.presence = Presence::Unclear;
        service.failed_starts += 1;
        service.message.clone_from(&failure.message);
        self.emit_event(now, service, true, Reason::StartFailed, &failure.message);
        let may_retry_here = match failure.class {
            FailureClass::RetryHere => service.failed_starts <= service.definition.max_restart,
            FailureClass::TryElsewhere | FailureClass::NeverHere | FailureClass::ConfigurationWrong => false,
        };
        if may_retry_here {
            let report =
                self.report(now, service, Some(uid), Phase::Starting, Reason::StartFailed, &failure.message);
            self.set_desired(service, report);
            service.not_before = Some(now.monotonic_raw + backoff_ms(service.failed_starts));
            service.transition_to(Step::Clean { uid: uid.clone() });
        } else {
            service.transition_to(Step::Unwind { uid: uid.clone(), failure });
        }
        self.changed = true;
    }

    /// Restarts a service that ended without a command, in place and under its permit.
    pub(super) fn on_crashed(&mut self, now: &Now, service: &mut Service, uid: &ActionUid) {
        let exit = service.unexpected_exit.take();
        let stopped_externally = exit.as_ref().is_some_and(|exit| exit.stopped_externally);
        let message = exit.map_or_else(|| "service was found not running".to_owned(), |exit| exit.message);
        if stopped_externally && self.accepts_external_stop(service) {
            return self.accept_external_stop(now, service, uid, message);
        }
        let stable = service.started_at.is_none_or(|started_at| {
            now.monotonic_raw.since(started_at) >= service.definition.timeouts.stable_ms()
        });
        let reason = if stopped_externally { Reason::StoppedExternally } else { Reason::Crashed };
        // A crash within the stable time counts as a failed start only if it follows another crash.
        if stable || stopped_externally {
            service.failed_starts = 0;
        } else if service.has_crashed_before {
            service.failed_starts += 1;
        }
        service.has_crashed_before = !stopped_externally;
        service.restarts += 1;
        service.message.clone_from(&message);
        let text = if stopped_externally {
            format!(
                "Service was stopped outside hactl ({message}) and is started again: to stop it, run hactl stop {}",
                service.name()
            )
        } else {
            format!("Service exited: {message}")
        };
        self.emit_event(now, service, true, reason, &text);
        if service.failed_starts > service.definition.max_restart {
            let failure = DriverFailure { class: FailureClass::RetryHere, reason, message };
            service.transition_to(Step::Unwind { uid: uid.clone(), failure });
            self.changed = true;
            return;
        }
        if service.failed_starts > 0 {
            service.not_before = Some(now.monotonic_raw + backoff_ms(service.failed_starts));
        }
        if self.is_begun_in_journal(service, uid) {
            service.begun_action = Some(uid.clone());
        }
        self.set_desired(service, self.report(now, service, Some(uid), Phase::Starting, reason, &message));
        service.transition_to(Step::Clean { uid: uid.clone() });
        self.changed = true;
    }

    /// Continues under the permit once the remains of an earlier attempt are removed.
    pub(super) fn on_cleaned(
        &mut self,
        now: &Now,
        service: &mut Service,
        uid: &ActionUid,
        result: CommandResult,
    ) {
        match result {
            CommandResult::Done | CommandResult::Observed(_) => {
                service.presence = Presence::Stopped;
                service.stopped_for = Some(uid.clone());
                self.on_permitted(now, service, uid, Phase::Starting);
            }
            CommandResult::Failed(failure) => {
                let message = failure.message;
                self.on_stop_failed(now, service, Some(uid), &message);
            }
            CommandResult::Canceled => {
                service.presence = Presence::Unclear;
                service.transition_to(Step::Idle);
            }
        }
        self.changed = true;
    }

    /// Reports Failed only if no part of the service still runs, otherwise StopFailed (FENCING 6).
    pub(super) fn on_unwound(
        &mut self,
        now: &Now,
        service: &mut Service,
        uid: &ActionUid,
        failure: DriverFailure,
        result: CommandResult,
    ) {
        match result {
            CommandResult::Done | CommandResult::Observed(_) => {
                service.transition_to(Step::Verify { uid: uid.clone(), failure });
            }
            CommandResult::Failed(stop) => {
                let message = format!(
                    "{}; stopping the remaining processes also failed: {}",
                    failure.message, stop.message
                );
                self.on_stop_failed(now, service, Some(uid), &message);
            }
            CommandResult::Canceled => {
                service.not_before = Some(now.monotonic_raw + INITIAL_BACKOFF_MS);
            }
        }
        self.changed = true;
    }

    pub(super) fn on_failed(
        &mut self,
        now: &Now,
        service: &mut Service,
        uid: &ActionUid,
        failure: &DriverFailure,
    ) {
        service.permit = None;
        service.begun_action = None;
        self.emit_event(now, service, true, failure.reason, &failure.message);
        let mut report =
            self.report(now, service, Some(uid), Phase::Failed, failure.reason, &failure.message);
        report.failure = Some(failure.class);
        self.set_desired(service, report);
        // Another attempt here is delayed.
        service.not_before = Some(now.monotonic_raw + backoff_ms(service.failed_starts.max(1)));
        service.transition_to(Step::Idle);
        self.changed = true;
    }
}

fn backoff_ms(failures: u32) -> Millis {
    (INITIAL_BACKOFF_MS << failures.saturating_sub(1).min(8)).min(MAX_BACKOFF_MS)
}
