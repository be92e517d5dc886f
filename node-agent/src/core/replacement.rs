//! Replacement of the secondary of a replicated service while it runs: a command in parallel to the service's own,
//! under the service's permit.
//!
//! *Begun* is committed, under every guard of a permit, before the driver is asked, so no request is begun twice. If
//! another process began a request, this process ends the remains of the replacement and answers Failed. A replacement
//! must not outlast the run of the service here: before any other action on the service, the replacement has ended and
//! is answered.

use super::command::{Command, CommandId, CommandResult};
use super::commits::CommitPurpose;
use super::effect::{CommitUrgency, Effect};
use super::role::Role;
use super::service::{Presence, Service, Step};
use super::service_machine::PROBE_RETRY_MS;
use super::{AgentCore, Now};
use ha_api_types::id::{ReplacementUid, ResourceName};
use ha_api_types::reason::Reason;
use ha_api_types::record::{
    Action, Assignment, Phase, Replacement, ReplacementPhase, ReplacementReport, ServiceReport,
};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::MonotonicTime;

/// Progress of a replacement in this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum ReplacementStep {
    /// No replacement is in progress.
    #[default]
    Idle,
    /// The agent has not yet committed that the replacement begins.
    Begin { uid: ReplacementUid },
    /// The driver is replacing the secondary.
    Run { replacement: Box<Replacement>, running_command: CommandId },
    /// The replacement has ended without success. Its remains are removed before it is answered.
    Clear(Box<ReplacementCleanup>),
}

/// The removal of data that a replacement left.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReplacementCleanup {
    definition: ServiceDefinition,
    /// The answer after the removal.
    answer: ReplacementReport,
    /// The driver's canceled command that has not ended yet.
    canceled: Option<CommandId>,
    /// The command that removes the remains.
    running_command: Option<CommandId>,
    not_before: Option<MonotonicTime>,
}

impl ReplacementStep {
    /// Returns `true` if a command of the replacement may be running.
    pub(super) fn is_busy(&self) -> bool {
        match self {
            ReplacementStep::Idle | ReplacementStep::Begin { .. } => false,
            ReplacementStep::Run { .. } | ReplacementStep::Clear(_) => true,
        }
    }

    /// Returns when the replacement must be advanced again.
    pub(super) fn due_at(&self) -> Option<MonotonicTime> {
        match self {
            ReplacementStep::Idle | ReplacementStep::Begin { .. } | ReplacementStep::Run { .. } => None,
            ReplacementStep::Clear(clearing) => clearing.not_before,
        }
    }
}

fn replacement_report(
    uid: &ReplacementUid,
    phase: ReplacementPhase,
    reason: Reason,
    message: &str,
) -> ReplacementReport {
    ReplacementReport { uid: uid.to_owned(), phase, reason, message: message.to_owned() }
}

impl AgentCore {
    /// Returns the replacement that the assignment requests in addition to its action.
    fn requested_replacement(&self, name: &ResourceName) -> Option<Replacement> {
        match self.role(name) {
            Role::Act { assignment } => assignment.value?.replacement.clone(),
            Role::Target { .. }
            | Role::Outdated
            | Role::Elsewhere { .. }
            | Role::Unreadable
            | Role::Unassigned => None,
        }
    }

    /// Returns the answer so far to the requested replacement. Every report of the service carries it.
    pub(super) fn known_replacement_answer(&self, service: &Service) -> Option<ReplacementReport> {
        let requested = self.requested_replacement(service.name())?;
        let epoch = self.registration()?.epoch;
        let stored = self.view.reports.value(service.name());
        let stored = stored.filter(|report| report.epoch == epoch && report.boot_id == self.config.boot_id);
        let local_answer = service.replacement_answer.as_ref();
        [local_answer, stored.and_then(|report| report.replacement.as_ref())]
            .into_iter()
            .flatten()
            .find(|known_answer| known_answer.uid == requested.uid)
            .cloned()
    }

    /// Advances the replacement as far as possible without waiting.
    pub(super) fn advance_replacement(&mut self, now: &Now, service: &mut Service) {
        let requested = self.requested_replacement(service.name());
        match service.replacing.clone() {
            ReplacementStep::Idle => {
                let Some(requested) = requested else { return };
                match self.known_replacement_answer(service).map(|known_answer| known_answer.phase) {
                    Some(ReplacementPhase::Done | ReplacementPhase::Failed) => return,
                    // An earlier process began the replacement, or the replacement was canceled before this process
                    // learned that the beginning was committed.
                    Some(ReplacementPhase::Begun) => {
                        let text = "agent stopped while the secondary was being replaced";
                        let failed = replacement_report(
                            &requested.uid,
                            ReplacementPhase::Failed,
                            Reason::Interrupted,
                            text,
                        );
                        begin_cleanup(service, requested.definition, failed, None);
                    }
                    None if requested.is_canceled => {
                        let text = "replacement canceled before it started";
                        let failed = replacement_report(
                            &requested.uid,
                            ReplacementPhase::Failed,
                            Reason::Interrupted,
                            text,
                        );
                        self.answer_replacement(now, service, failed);
                    }
                    None => service.replacing = ReplacementStep::Begin { uid: requested.uid },
                }
                self.changed = true;
            }
            ReplacementStep::Begin { uid } => {
                if let Some(requested) =
                    requested.filter(|requested| requested.uid == uid && !requested.is_canceled)
                {
                    self.begin_replacement(now, service, requested);
                } else {
                    service.replacing = ReplacementStep::Idle;
                    self.changed = true;
                }
            }
            ReplacementStep::Run { replacement, .. } => {
                let is_requested = requested
                    .is_some_and(|requested| requested.uid == replacement.uid && !requested.is_canceled);
                if let Some(cause) = self.replacement_must_end(now, service, is_requested) {
                    self.end_replacement(service, cause);
                }
            }
            ReplacementStep::Clear(clearing) => self.advance_clearing_command(now, service, &clearing),
        }
    }

    /// Commits the beginning once the service runs and every condition holds; then orders the driver to begin.
    fn begin_replacement(&mut self, now: &Now, service: &mut Service, requested: Replacement) {
        let name = service.name().clone();
        let Role::Act { assignment } = self.role(&name) else { return };
        let Some(value) = &assignment.value else { return };
        let is_report_written =
            service.pending_write.is_none() && service.desired_report.is_none() && !service.needs_reread;
        let must_wait = service.write_not_before.is_some_and(|at| now.monotonic_raw < at);
        let exclusive = self.is_exclusive(service);
        if !is_report_written
            || must_wait
            || !self.keeps_running(now, service)
            || self.permit_waits_for(now, exclusive, Phase::Starting).is_some()
        {
            return;
        }
        let Some(report) =
            self.current_report(service).filter(|report| reports_running_as_assigned(report, value))
        else {
            return;
        };
        if report.replacement.as_ref().is_some_and(|known_answer| known_answer.uid == requested.uid) {
            let id = CommandId(self.next_id());
            self.commands.insert(id, name);
            let command = Command::ReplaceSecondary {
                current_secondary: requested.current_secondary.clone(),
                node: requested.node.clone(),
            };
            self.push_command(id, command, requested.definition.clone());
            service.replacing =
                ReplacementStep::Run { replacement: Box::new(requested), running_command: id };
            self.changed = true;
            return;
        }
        let Some((_, create_revision)) = self.active_registration() else { return };
        let text = format!("Replacing the secondary with {}", requested.node);
        let begin_answer =
            replacement_report(&requested.uid, ReplacementPhase::Begun, Reason::ReplacingSecondary, &text);
        let report = ServiceReport { replacement: Some(begin_answer), at: now.timestamp(), ..report };
        let transaction = self.permit_transaction(&name, &report, &assignment, create_revision, exclusive);
        if let Some(transaction) = transaction {
            service.pending_write = Some(self.commit(
                transaction,
                CommitUrgency::Ordinary,
                CommitPurpose::Service { name, report },
            ));
            self.changed = true;
        }
    }

    /// Returns `true` if the service runs here, and this process is not about to end it.
    fn keeps_running(&self, now: &Now, service: &Service) -> bool {
        let steps = match &service.step {
            Step::Idle | Step::Probe { .. } => true,
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
            | Step::CloseReception { .. } => false,
        };
        steps
            && service.presence == Presence::Running
            && service.unexpected_exit.is_none()
            && self.is_before_margin(now)
            && !self.is_ending()
            && !self.is_ignored(service.name())
    }

    fn replacement_must_end(&self, now: &Now, service: &Service, is_requested: bool) -> Option<&'static str> {
        if !is_requested {
            return Some("canceled by the leader");
        }
        if self.is_ending() {
            return Some("the agent of the assigned node is stopping");
        }
        if !self.is_before_margin(now) {
            return Some("the assigned node could not commit heartbeats");
        }
        (!self.keeps_running(now, service)).then_some("the service stopped running")
    }

    /// Ends the replacement in progress. The agent answers once no process of the replacement remains.
    pub(super) fn end_replacement(&mut self, service: &mut Service, cause: &str) {
        let ReplacementStep::Run { replacement, running_command } = service.replacing.clone() else { return };
        self.effects.push_back(Effect::Cancel(running_command));
        let failed =
            replacement_report(&replacement.uid, ReplacementPhase::Failed, Reason::Interrupted, cause);
        begin_cleanup(service, replacement.definition, failed, Some(running_command));
        self.changed = true;
    }

    fn advance_clearing_command(&mut self, now: &Now, service: &mut Service, clearing: &ReplacementCleanup) {
        let must_wait = clearing.not_before.is_some_and(|at| now.monotonic_raw < at);
        if clearing.canceled.is_some() || clearing.running_command.is_some() || must_wait {
            return;
        }
        let id = CommandId(self.next_id());
        self.commands.insert(id, service.name().clone());
        let command = Command::EndReplacement;
        self.push_command(id, command, clearing.definition.clone());
        service.replacing = ReplacementStep::Clear(Box::new(ReplacementCleanup {
            running_command: Some(id),
            not_before: None,
            ..clearing.clone()
        }));
        self.changed = true;
    }

    /// Handles the end of a command. Returns `false` if the command does not belong to a replacement.
    pub(super) fn on_replacement_ended(
        &mut self,
        now: &Now,
        service: &mut Service,
        id: CommandId,
        result: &CommandResult,
    ) -> bool {
        match service.replacing.clone() {
            ReplacementStep::Run { replacement, running_command } if running_command == id => {
                let Replacement { uid, definition, .. } = *replacement;
                match result {
                    CommandResult::Done | CommandResult::Observed(_) => self.on_replaced(now, service, &uid),
                    CommandResult::Failed(failure) => {
                        let failed = replacement_report(
                            &uid,
                            ReplacementPhase::Failed,
                            failure.reason,
                            &failure.message,
                        );
                        begin_cleanup(service, definition, failed, None);
                    }
                    CommandResult::Canceled => {
                        let text = "replacement canceled";
                        let failed =
                            replacement_report(&uid, ReplacementPhase::Failed, Reason::Interrupted, text);
                        begin_cleanup(service, definition, failed, None);
                    }
                }
            }
            ReplacementStep::Clear(clearing) if clearing.canceled == Some(id) => match result {
                // The command had succeeded before it could be canceled.
                CommandResult::Done => self.on_replaced(now, service, &clearing.answer.uid),
                CommandResult::Observed(_) | CommandResult::Failed(_) | CommandResult::Canceled => {
                    service.replacing =
                        ReplacementStep::Clear(Box::new(ReplacementCleanup { canceled: None, ..*clearing }));
                }
            },
            ReplacementStep::Clear(clearing) if clearing.running_command == Some(id) => match result {
                CommandResult::Done | CommandResult::Observed(_) => {
                    service.replacing = ReplacementStep::Idle;
                    self.answer_replacement(now, service, clearing.answer);
                }
                CommandResult::Failed(_) | CommandResult::Canceled => {
                    let not_before = Some(now.monotonic_raw + PROBE_RETRY_MS);
                    let retry = ReplacementCleanup { running_command: None, not_before, ..*clearing };
                    service.replacing = ReplacementStep::Clear(Box::new(retry));
                }
            },
            ReplacementStep::Idle
            | ReplacementStep::Begin { .. }
            | ReplacementStep::Run { .. }
            | ReplacementStep::Clear(_) => {
                return false;
            }
        }
        self.changed = true;
        true
    }

    fn on_replaced(&mut self, now: &Now, service: &mut Service, uid: &ReplacementUid) {
        service.replacing = ReplacementStep::Idle;
        let answer_done = replacement_report(uid, ReplacementPhase::Done, Reason::SecondaryReplaced, "");
        self.answer_replacement(now, service, answer_done);
    }

    /// Stores the answer and adds it to the current report, or to the next one.
    fn answer_replacement(&mut self, now: &Now, service: &mut Service, known_answer: ReplacementReport) {
        service.replacement_answer = Some(known_answer);
        let replacement = self.known_replacement_answer(service);
        if let Some(report) = self.current_report(service) {
            self.set_desired(service, ServiceReport { replacement, at: now.timestamp(), ..report });
        }
        self.changed = true;
    }
}

fn begin_cleanup(
    service: &mut Service,
    definition: ServiceDefinition,
    answer: ReplacementReport,
    canceled: Option<CommandId>,
) {
    let clearing =
        ReplacementCleanup { definition, answer, canceled, running_command: None, not_before: None };
    service.replacing = ReplacementStep::Clear(Box::new(clearing));
}

/// Returns `true` if a report shows that the service runs as the assigned action requires.
fn reports_running_as_assigned(report: &ServiceReport, assignment: &Assignment) -> bool {
    let runs = match &assignment.action {
        Action::Start | Action::Restart => report.phase == Phase::Running,
        Action::Stop { .. } | Action::Migrate { .. } | Action::DoNothing => false,
    };
    runs && report.action_uid.as_ref() == Some(&assignment.action_uid)
}
