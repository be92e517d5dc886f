//! Workers: which commands run now, and the handling of their results.

use super::command::{Command, CommandId, CommandResult};
use super::effect::Effect;
use super::migration::interruption;
use super::service::{KillReason, Presence, ProbePurpose, Service, Step, UnexpectedExit};
use super::service_machine::PROBE_RETRY_MS;
use super::{AgentCore, JournalEntry, Now};
use ha_api_types::id::{ActionUid, ResourceName, Revision};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Observed, Phase};
use ha_api_types::resource::ServiceDefinition;
use std::cmp::Reverse;

/// Largest number of parallel verifications while the node is cleared or killed.
const MAX_VERIFIERS: usize = 16;

/// A service's request to the workers.
enum DesiredCommand {
    Run(Command),
    /// A worker that is reserved for the hand-over.
    Worker,
}

impl AgentCore {
    fn max_workers(&self) -> usize {
        let node_limit = self.view.nodes.value(&self.config.node).and_then(|node| node.spec.max_workers);
        let cluster = self.view.cluster().map(|cluster| cluster.spec.max_workers);
        node_limit.or(cluster).unwrap_or(4).max(1) as usize
    }

    /// Begins the commands that may begin: kills immediately, others up to `maxWorkers`, by priority, then by fewest
    /// failures.
    pub(super) fn dispatch(&mut self, now: &Now) {
        let mut workers = 0;
        let mut verifiers = 0;
        let mut waiting = Vec::new();
        for (name, service) in &self.services {
            if service.running_command.is_some() {
                match &service.step {
                    Step::Kill { .. } => {}
                    Step::KillVerify { .. } | Step::CloseReception { .. } => verifiers += 1,
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
                    | Step::MigrateProbe { .. } => workers += 1,
                }
                continue;
            }
            if service.has_worker {
                workers += 1;
            }
            let request = if self.needs_worker(now, service) {
                DesiredCommand::Worker
            } else {
                let Some(command) = self.command_of(now, service) else { continue };
                DesiredCommand::Run(command)
            };
            let class = match &service.step {
                Step::Kill { .. } => 0,
                // The worker for this step is already counted.
                Step::Migrate { .. } if service.has_worker => 0,
                Step::KillVerify { .. } | Step::CloseReception { .. } => 1,
                Step::Probe { purpose: ProbePurpose::Presence | ProbePurpose::Unassigned { .. } } => 3,
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
                | Step::MigrateProbe { .. } => 2,
            };
            waiting.push((
                class,
                Reverse(service.definition.priority),
                service.failed_starts,
                name.clone(),
                request,
            ));
        }
        waiting.sort_by(|a, b| (a.0, a.1, a.2, &a.3).cmp(&(b.0, b.1, b.2, &b.3)));
        let limit = self.max_workers();
        for (class, _, _, name, request) in waiting {
            match class {
                0 => {}
                1 if verifiers < MAX_VERIFIERS => verifiers += 1,
                2 | 3 if workers < limit => workers += 1,
                _ => continue,
            }
            match request {
                DesiredCommand::Run(command) => self.run(&name, command),
                DesiredCommand::Worker => {
                    if let Some(service) = self.services.get_mut(&name) {
                        service.has_worker = true;
                        self.changed = true;
                    }
                }
            }
        }
    }

    /// Returns `true` if a hand-over could be committed and only waits for a worker.
    fn needs_worker(&self, now: &Now, service: &Service) -> bool {
        matches!(&service.step, Step::Permit { phase: Phase::HandingOver, .. })
            && !service.has_worker
            && service.pending_write.is_none()
            && !service.needs_reread
            && service.write_not_before.is_none_or(|at| now.monotonic_raw >= at)
            && self.permit_waits_for(now, service.definition.exclusive, Phase::HandingOver).is_none()
    }

    /// Returns the command of the service's step, if the command may begin now.
    pub(super) fn command_of(&self, now: &Now, service: &Service) -> Option<Command> {
        if service.not_before.is_some_and(|at| now.monotonic_raw < at) {
            return None;
        }
        let is_kill = matches!(service.step, Step::Kill { .. } | Step::CloseReception { .. });
        if !is_kill && !service.canceling.is_empty() {
            return None;
        }
        // Any command other than a probe must wait until the replacement of the secondary has ended.
        let is_probe = matches!(service.step, Step::Probe { .. });
        if !is_kill && !is_probe && service.replacing.is_busy() {
            return None;
        }
        match &service.step {
            Step::Idle | Step::Permit { .. } | Step::Journal { .. } | Step::CheckTarget { .. } => None,
            Step::Probe { .. }
            | Step::Verify { .. }
            | Step::MigrateProbe { .. }
            | Step::KillVerify { .. } => Some(Command::Probe),
            Step::StopFirst { .. } | Step::Unwind { .. } => {
                Some(Command::Stop { graceful_ms: service.definition.timeouts.stop_ms() })
            }
            Step::Stop { graceful_ms, .. } => Some(Command::Stop { graceful_ms: *graceful_ms }),
            Step::Clean { .. } | Step::Kill { .. } => Some(Command::Kill),
            Step::Start { uid } => self.may_start(now, service, uid).then_some(Command::Start),
            Step::Prepare { uid } => self.may_receive(now, service, uid).then_some(Command::Receive),
            Step::Arrive { uid, source } => {
                self.may_start(now, service, uid).then(|| Command::Arrive { source: source.clone() })
            }
            // R8.11: the driver begins only in time.
            Step::Migrate { target, deadline, .. } => (self.is_before_margin(now)
                && now.monotonic_raw < *deadline)
                .then(|| Command::Migrate { target: target.clone() }),
            Step::EndMigration { .. } => Some(Command::EndMigration),
            Step::CloseReception { .. } => Some(Command::CloseReception),
        }
    }

    fn run(&mut self, name: &ResourceName, command: Command) {
        let id = CommandId(self.next_id());
        let Some(service) = self.services.get_mut(name) else { return };
        service.running_command = Some(id);
        service.not_before = None;
        match &command {
            // From this point on, the service may be running, even if the command fails.
            Command::Start | Command::Arrive { .. } => service.presence = Presence::Unclear,
            Command::Receive => {
                service.presence = Presence::Unclear;
                service.may_have_incoming_copy = true;
            }
            Command::Probe
            | Command::Stop { .. }
            | Command::Kill
            | Command::Migrate { .. }
            | Command::EndMigration
            | Command::CloseReception
            | Command::ReplaceSecondary { .. }
            | Command::EndReplacement => {}
        }
        self.commands.insert(id, name.clone());
        let definition = service.definition.clone();
        self.push_command(id, command, definition);
    }

    /// Sends a command to its driver, or answers it if the node's policy forbids it.
    pub(super) fn push_command(&mut self, id: CommandId, command: Command, definition: ServiceDefinition) {
        let effect = match self.refused_result(&command, &definition) {
            Some(result) => Effect::Refuse { id, result },
            None => Effect::Run { id, command, service: Box::new(definition) },
        };
        self.effects.push_back(effect);
    }

    pub(super) fn on_ended(&mut self, now: &Now, id: CommandId, result: CommandResult) {
        let Some(name) = self.commands.remove(&id) else { return };
        self.changed = true;
        self.dirty_services.insert(name.clone());
        // Other services may have waited for this one to stop.
        self.are_all_dirty |= self.is_leaving();
        self.with_service(&name, |core, service| {
            if core.on_replacement_ended(now, service, id, &result) || service.canceling.remove(&id) {
                return;
            }
            if service.running_command != Some(id) {
                return;
            }
            service.running_command = None;
            core.handle_step_result(now, service, result);
        });
    }

    fn handle_step_result(&mut self, now: &Now, service: &mut Service, result: CommandResult) {
        // The service runs here, or its copy has ended, so no received copy is waiting to take over.
        let ends_incoming_copy = !matches!(service.step, Step::Prepare { .. } | Step::EndMigration { .. });
        if matches!(result, CommandResult::Observed(Observed::Running))
            || (result == CommandResult::Done && ends_incoming_copy)
        {
            service.may_have_incoming_copy = false;
        }
        match service.step.clone() {
            Step::Idle | Step::Permit { .. } | Step::Journal { .. } | Step::CheckTarget { .. } => {}
            Step::Probe { purpose } => self.on_probed(now, service, purpose, to_observed(result)),
            Step::Start { uid } => self.on_started(now, service, &uid, result),
            Step::StopFirst { uid } | Step::Clean { uid } => self.on_cleaned(now, service, &uid, result),
            Step::Unwind { uid, failure } => self.on_unwound(now, service, &uid, failure, result),
            Step::Verify { uid, failure } => match to_observed(result) {
                Observed::NotRunning => {
                    service.presence = Presence::Stopped;
                    self.on_failed(now, service, &uid, &failure);
                }
                Observed::Running => {
                    let message =
                        format!("{}; the stop succeeded, but the service still runs", failure.message);
                    self.on_stop_failed(now, service, Some(&uid), &message);
                }
                Observed::Remnant(text) => {
                    let message = format!("{}; the service was stopped, but {text}", failure.message);
                    self.on_stop_failed(now, service, Some(&uid), &message);
                }
                Observed::Unknown(text) => {
                    let message =
                        format!("{}; remaining processes cannot be checked: {text}", failure.message);
                    self.on_stop_failed(now, service, Some(&uid), &message);
                }
            },
            Step::Stop { uid, .. } => self.on_stopped(now, service, uid.as_ref(), result),
            Step::Prepare { uid } => self.on_prepared(now, service, &uid, result),
            Step::Arrive { uid, .. } => self.on_arrived(service, &uid, result),
            Step::Migrate { uid, .. } => self.on_migrated(service, &uid, result),
            Step::EndMigration { uid, failure } => {
                self.on_migration_ended(now, service, uid, failure, result);
            }
            Step::MigrateProbe { uid, failure } => {
                self.on_migration_probed(now, service, &uid, failure, to_observed(result));
            }
            Step::Kill { kill_reason, attempts } => {
                let attempts = attempts.saturating_add(1);
                let failed = match result {
                    CommandResult::Done => None,
                    CommandResult::Failed(failure) => Some(failure.message),
                    CommandResult::Observed(_) | CommandResult::Canceled => Some(String::new()),
                };
                match failed {
                    Some(message) if self.may_wait_to_be_received(service) => {
                        self.retry_kill(now, service, kill_reason, attempts, message);
                    }
                    Some(message) => {
                        service.message = message;
                        service.transition_to(Step::KillVerify { kill_reason, attempts });
                    }
                    None => service.transition_to(Step::KillVerify { kill_reason, attempts }),
                }
            }
            Step::KillVerify { kill_reason, attempts } => match to_observed(result) {
                Observed::NotRunning => self.on_kill_verified(now, service, kill_reason),
                Observed::Running => self.retry_kill(now, service, kill_reason, attempts, String::new()),
                Observed::Remnant(message) | Observed::Unknown(message) => {
                    self.retry_kill(now, service, kill_reason, attempts, message);
                }
            },
            Step::CloseReception { kill_reason, attempts } => {
                self.on_reception_closed(now, service, kill_reason, attempts, result);
            }
        }
    }

    pub(super) fn on_stopped(
        &mut self,
        now: &Now,
        service: &mut Service,
        uid: Option<&ActionUid>,
        result: CommandResult,
    ) {
        match result {
            CommandResult::Done | CommandResult::Observed(_) => {
                service.presence = Presence::Stopped;
                service.permit = None;
                service.begun_action = None;
                service.unexpected_exit = None;
                let (phase, reason) = match uid {
                    Some(_) => (
                        Phase::Stopped,
                        if self.is_leaving() { Reason::ShutdownComplete } else { Reason::Stopped },
                    ),
                    None => (Phase::ProbedStopped, Reason::Stopped),
                };
                let report = self.report(now, service, uid, phase, reason, "");
                let report = self.with_external_stop(service, report);
                self.set_desired(service, report);
                service.transition_to(Step::Idle);
            }
            CommandResult::Failed(failure) => self.on_stop_failed(now, service, uid, &failure.message),
            CommandResult::Canceled => {
                service.presence = Presence::Unclear;
                service.transition_to(Step::Idle);
            }
        }
    }

    fn on_probed(&mut self, now: &Now, service: &mut Service, purpose: ProbePurpose, observed: Observed) {
        let is_remnant = matches!(observed, Observed::Remnant(_));
        let (presence, message) = match observed {
            Observed::Running => (Presence::Running, String::new()),
            Observed::NotRunning => (Presence::Stopped, String::new()),
            // A remnant counts as running until it is removed.
            Observed::Remnant(message) | Observed::Unknown(message) => (Presence::Unclear, message),
        };
        service.presence = presence;
        let is_unclear = presence == Presence::Unclear && !is_remnant;
        service.arrival_unclear_since = service.arrival_unclear_since.filter(|_| is_unclear);
        self.record_found_service(service);
        service.transition_to(Step::Idle);
        match purpose {
            ProbePurpose::Presence => {
                if service.presence == Presence::Unclear {
                    service.not_before = Some(now.monotonic_raw + PROBE_RETRY_MS);
                }
            }
            ProbePurpose::Unassigned { basis } => {
                if basis.fence > Revision(0)
                    && service.presence == Presence::Running
                    && self.is_assigned_elsewhere(service)
                {
                    // The service was scheduled elsewhere while this node was unreachable, so no copy may stay here.
                    self.kill(now, service, KillReason::AssignedElsewhere);
                    return;
                }
                self.answer_probe(now, service, basis, &message);
            }
            ProbePurpose::Adopt { uid } => match service.presence {
                Presence::Running => self.adopt(service, uid),
                Presence::Stopped => {}
                Presence::Unclear | Presence::Unprobed if is_remnant => {
                    service.unexpected_exit = Some(UnexpectedExit { message, stopped_externally: false });
                    self.on_crashed(now, service, &uid);
                }
                Presence::Unclear | Presence::Unprobed => {
                    service.not_before = Some(now.monotonic_raw + PROBE_RETRY_MS);
                }
            },
            ProbePurpose::Interrupted { uid } => match service.presence {
                Presence::Running if service.permit.is_some() => self.adopt(service, uid),
                Presence::Running | Presence::Stopped | Presence::Unclear | Presence::Unprobed => {
                    let failure = interruption("action interrupted by a restart of the agent");
                    service.transition_to(Step::Unwind { uid, failure });
                }
            },
            ProbePurpose::Received { uid } => match service.presence {
                Presence::Running => self.adopt(service, uid),
                Presence::Unclear | Presence::Unprobed if !is_remnant => {
                    self.on_arrival_unclear(now, service, uid, &message);
                }
                Presence::Stopped | Presence::Unclear | Presence::Unprobed => {
                    let failure = interruption(
                        "the cutover happened on the source node, but the service did not arrive on the target node",
                    );
                    service.transition_to(Step::Unwind { uid, failure });
                }
            },
            ProbePurpose::TakeOver { assignment } => match service.presence {
                Presence::Unclear | Presence::Unprobed if !is_remnant => {
                    service.not_before = Some(now.monotonic_raw + PROBE_RETRY_MS);
                }
                Presence::Running | Presence::Stopped | Presence::Unclear | Presence::Unprobed => {
                    // A copy that a gated driver has not resumed is paused, and its memory may be older than its data
                    // (R8.20).
                    if service.presence == Presence::Running
                        && service.definition.driver.waits_for_resume_permit()
                    {
                        service.presence = Presence::Unclear;
                    }
                    // A probe does not find a copy that waits to be received, so that copy must be removed first.
                    if service.presence == Presence::Stopped && self.may_wait_to_be_received(service) {
                        service.presence = Presence::Unclear;
                    }
                    self.request_permit(service, &assignment, Phase::Starting);
                }
            },
        }
    }

    /// Adds a service that was found running to the journal, because the next process must be able to kill it in time
    /// without etcd.
    fn record_found_service(&mut self, service: &Service) {
        let name = service.name();
        let entry = self.journal.services.get(name);
        match (entry, service.presence) {
            (None, Presence::Running | Presence::Unclear) if self.is_exclusive(service) => {
                let entry =
                    JournalEntry { definition: service.definition.clone(), ..JournalEntry::default() };
                self.journal.services.insert(name.clone(), entry);
                self.mark_journal_changed();
            }
            (Some(entry), Presence::Stopped) if entry.begun_action.is_empty() => {
                self.journal.services.remove(name);
                self.mark_journal_changed();
            }
            (
                None | Some(_),
                Presence::Unprobed | Presence::Running | Presence::Stopped | Presence::Unclear,
            ) => {}
        }
    }

    /// Adopts a running copy under its permit, by the driver's start command.
    fn adopt(&mut self, service: &mut Service, uid: ActionUid) {
        if self.was_begun(service, &uid) {
            service.begun_action = Some(uid.clone());
            service.transition_to(Step::Start { uid });
        } else {
            service.transition_to(Step::Journal { uid, pending_write: None });
        }
        self.changed = true;
    }
}

fn to_observed(result: CommandResult) -> Observed {
    match result {
        CommandResult::Observed(observed) => observed,
        CommandResult::Done => Observed::Unknown("the probe returned no result".to_owned()),
        CommandResult::Failed(failure) => Observed::Unknown(failure.message),
        CommandResult::Canceled => Observed::Unknown("probe canceled".to_owned()),
    }
}
