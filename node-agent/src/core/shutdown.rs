//! The agent's exit: a restart of the agent alone, or the machine's shutdown (FENCING, sections 5 (d) and 10).

use super::commits::CommitPurpose;
use super::effect::{CommitUrgency, Exit, Level};
use super::service::{Presence, Service, Step};
use super::session::Session;
use super::{AgentCore, Now, Shutdown};
use ha_api_types::id::ResourceName;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Mode, NodeReport, Phase};
use ha_api_types::time::Millis;
use ha_store::{Guard, Outcome, Transaction};
use std::collections::BTreeSet;

/// Time for which a restart waits for commands in progress.
pub(super) const RESTART_MAX_WAIT_MS: Millis = 5_000;

impl AgentCore {
    pub(super) fn shut_down(&mut self, now: &Now, shutdown: Shutdown) {
        // The machine's shutdown takes precedence over a restart of the agent, and cannot be withdrawn.
        match (self.shutdown, shutdown) {
            (None, _) | (Some(Shutdown::Restart), Shutdown::Machine(_)) => {
                self.shutdown = Some(shutdown);
                self.shutdown_at = Some(now.monotonic_raw);
                self.update_awaiting_moves();
                self.changed = true;
                let text = match shutdown {
                    Shutdown::Restart => {
                        "agent is stopping without a machine shutdown: services keep running".to_owned()
                    }
                    Shutdown::Machine(_) if self.awaits_moves() => {
                        "machine is shutting down: waiting for services to move away".to_owned()
                    }
                    Shutdown::Machine(_) => {
                        "machine is shutting down: stopping all services, then leaving the cluster".to_owned()
                    }
                };
                self.log(Level::Info, text);
            }
            (Some(Shutdown::Restart | Shutdown::Machine(_)), Shutdown::Restart | Shutdown::Machine(_)) => {}
        }
    }

    pub(super) fn is_leaving(&self) -> bool {
        match self.shutdown {
            Some(Shutdown::Machine(_)) => true,
            Some(Shutdown::Restart) | None => false,
        }
    }

    /// Returns `true` if the agent must commit mode Restart now: no command is in progress, or the time limit of the
    /// wait has passed.
    pub(super) fn is_ready_to_restart(&self) -> bool {
        self.is_restart_ready
    }

    pub(super) fn is_restart_requested(&self) -> bool {
        self.shutdown == Some(Shutdown::Restart) && self.is_restart_ready
    }

    /// Stops a service because the machine shuts down, regardless of its assignment.
    pub(super) fn stop_for_shutdown(&mut self, now: &Now, service: &mut Service) {
        if service.not_before.is_some_and(|at| now.monotonic_raw < at) {
            return;
        }
        let current = self.current_report(service);
        let may_run = current.as_ref().is_some_and(|report| report.phase.may_run());
        if !self.may_have_copy(service) && !may_run {
            return;
        }
        if self.must_stop_later(service) {
            return;
        }
        let uid = current.and_then(|report| report.action_uid);
        let graceful_ms = service.definition.timeouts.stop_ms();
        self.set_desired(
            service,
            self.report(
                now,
                service,
                uid.as_ref(),
                Phase::Stopping,
                Reason::ShutdownComplete,
                "Stopping because the node is shutting down",
            ),
        );
        service.permit = None;
        service.transition_to(Step::Stop { uid, graceful_ms });
        self.changed = true;
    }

    /// Returns `true` if a service that depends on this one must still stop here first. The wait excludes a service
    /// that could not be stopped, or that is also a dependency of this one.
    fn must_stop_later(&self, service: &Service) -> bool {
        self.services.values().any(|other| {
            other.definition.depends_on.iter().any(|dependency| dependency == service.name())
                && self.may_have_copy(other)
                && !self.is_unmanaged(other.name())
                && !self.reports_stop_failed(other)
                && !self.depends_transitively_on(service, other.name())
        })
    }

    /// Returns `true` if a service depends on another one, directly or indirectly, by the definitions that run here.
    fn depends_transitively_on(&self, service: &Service, dependency: &ResourceName) -> bool {
        let mut visited: BTreeSet<&ResourceName> = BTreeSet::new();
        let mut names: Vec<&ResourceName> = service.definition.depends_on.iter().collect();
        while let Some(name) = names.pop() {
            if name == dependency {
                return true;
            }
            if visited.insert(name)
                && let Some(next) = self.services.get(name)
            {
                names.extend(next.definition.depends_on.iter());
            }
        }
        false
    }

    fn reports_stop_failed(&self, service: &Service) -> bool {
        let report = self.current_report(service);
        service.running_command.is_none() && report.is_some_and(|report| report.phase == Phase::StopFailed)
    }

    pub(super) fn advance_shutdown(&mut self, now: &Now) {
        let Some(shutdown) = self.shutdown else { return };
        if matches!(self.session, Session::Ended) {
            return;
        }
        if self.registration().is_none() {
            // This node has no service under an epoch. A device that still runs covers services whose end is not
            // confirmed. If every service is cleared, the daemon may continue to pet without a deadline.
            let cleared = match &self.session {
                Session::Requesting(_) => self.watchdog.is_staying() || self.watchdog.is_disconnected(),
                Session::Waiting => self.watchdog.is_staying(),
                Session::Clearing | Session::Registered(_) | Session::Ended => false,
            };
            if !self.watchdog.is_running() || cleared {
                self.exit_with(exit_of(shutdown));
            }
            return;
        }
        match shutdown {
            Shutdown::Restart => self.advance_restart(now),
            Shutdown::Machine(shutdown_kind) => {
                if self.has_left() {
                    if !self.watchdog.is_running() || self.watchdog.is_disconnected() {
                        self.exit_with(Exit::Left);
                    }
                    return;
                }
                if self.leave_commit.is_some() {
                    return;
                }
                self.advance_moves();
                if !self.awaits_moves() {
                    self.commit_clean_shutdown(shutdown_kind);
                    self.give_up_stopping(now);
                }
            }
        }
    }

    /// Ends a shutdown that services with failed stops would block indefinitely. The node is armed and does not leave
    /// cleanly, so silence proves it dead. The services that did stop here are then also recovered elsewhere.
    fn give_up_stopping(&mut self, now: &Now) {
        let in_time = self.moves_deadline().is_none_or(|deadline| now.monotonic_raw < deadline);
        if in_time || self.leave_commit.is_some() {
            return;
        }
        let active: Vec<&Service> =
            self.services.values().map(Box::as_ref).filter(|service| self.is_active(service)).collect();
        if active.is_empty() || !active.iter().all(|service| self.reports_stop_failed(service)) {
            return;
        }
        let names: Vec<&str> = active.into_iter().map(|service| service.name().as_str()).collect();
        let text = format!(
            "shutdown continues although {} cannot be stopped: the watchdog stays armed, and this node will be fenced",
            names.join(", ")
        );
        self.log(Level::Error, text);
        self.exit_with(Exit::Left);
    }

    fn advance_restart(&mut self, now: &Now) {
        if !self.is_restart_ready {
            let waited =
                self.shutdown_at.is_some_and(|at| now.monotonic_raw.since(at) >= RESTART_MAX_WAIT_MS);
            let quiet = self.services.values().all(|service| {
                service.running_command.is_none()
                    && service.canceling.is_empty()
                    && !service.replacing.is_busy()
            });
            if quiet || waited {
                self.is_restart_ready = true;
                self.changed = true;
            }
            return;
        }
        if self.heartbeats_failing_since.is_some() && !self.has_logged_exit_delay {
            self.has_logged_exit_delay = true;
            let text = "agent cannot stop yet: etcd has not stored that the agent is restarting, so this node would be fenced and \
                        reset. The agent stops when etcd confirms it";
            self.log(Level::Error, text.to_owned());
        }
        let committed = self.node_report().is_some_and(|report| {
            report.mode == Mode::Restart && !report.armed && report.instance == self.config.instance
        });
        if committed
            && !self.may_be_committed_armed()
            && (!self.watchdog.is_running() || self.watchdog.is_disconnected())
        {
            self.exit_with(Exit::Restart);
        }
    }

    /// Returns the reason why an agent still waits after a request to exit.
    pub(super) fn exit_progress_message(&self) -> Option<String> {
        let names_of_services = |is_included: &dyn Fn(&Service) -> bool| {
            let names = self.services.values().filter(|service| is_included(service));
            let names = names.map(|service| service.name().as_str());
            names.collect::<Vec<&str>>().join(", ")
        };
        match self.shutdown? {
            Shutdown::Restart if self.heartbeats_failing_since.is_some() => Some(
                "agent cannot stop yet: etcd has not stored that the agent is restarting, so this node would be fenced"
                    .to_owned(),
            ),
            Shutdown::Restart => Some("agent is stopping: services of this node keep running unmonitored".to_owned()),
            Shutdown::Machine(_) if self.awaits_moves() => Some(format!(
                "machine is shutting down: waiting for {} to move away",
                names_of_services(&|service| self.may_have_copy(service))
            )),
            Shutdown::Machine(_) => Some(format!(
                "machine is shutting down: stopping {}",
                names_of_services(&|service| self.may_have_copy(service))
            )),
        }
    }

    /// Returns `true` if the clean leave is committed.
    pub(super) fn has_left(&self) -> bool {
        self.node_report().is_some_and(|report| match report.mode {
            Mode::Left(_) => report.instance == self.config.instance,
            Mode::Registering
            | Mode::Active
            | Mode::Maintenance
            | Mode::Shutdown(_)
            | Mode::Restart
            | Mode::Disarmed => false,
        })
    }

    /// Commits mode Left and deletes `alive` in one transaction, after all stops were committed (FENCING 5 (d)).
    fn commit_clean_shutdown(&mut self, shutdown_kind: ha_api_types::record::ShutdownKind) {
        let Some((_, _)) = self.active_registration() else { return };
        let settled = self.services.values().all(|service| {
            let name = service.name();
            let ignored =
                self.is_unmanaged(name) && service.running_command.is_none() && !service.replacing.is_busy();
            let confirmed = service.desired_report.is_none()
                && service.pending_write.is_none()
                && service.canceling.is_empty()
                && service.running_command.is_none()
                && !self.is_active(service);
            let harmless = !self.is_exclusive(service) && service.presence != Presence::Running;
            ignored || confirmed || harmless
        });
        let Some(registered) = self.registration() else { return };
        if !settled || registered.heartbeat.is_some() || registered.needs_reread {
            return;
        }
        let node = self.config.node.clone();
        let Some(alive) = self.view.alive.get(&node) else { return };
        let report = NodeReport { mode: Mode::Left(shutdown_kind), armed: false, ..self.base_report() };
        let Ok(value) = serde_json::to_vec(&report) else { return };
        let keys = &self.config.keys;
        let transaction = Transaction::new()
            .delete(keys.alive(&node), Guard::Unchanged(alive.mod_revision))
            .put(keys.node_report(&node), self.view.node_reports.guard(&node), value)
            .guard(keys.fence(&node), self.fence_guard());
        self.leave_commit = Some(self.commit(
            transaction,
            CommitUrgency::Ordinary,
            CommitPurpose::CleanShutdownReport { report },
        ));
    }

    pub(super) fn on_clean_shutdown_committed(&mut self, now: &Now, report: NodeReport, outcome: &Outcome) {
        let node = self.config.node.clone();
        match outcome {
            Outcome::Applied(revision) => {
                self.view.node_reports.record_write(node.clone(), report, *revision);
                self.view.alive.on_deleted(node, *revision);
                self.unconfirmed_armed = false;
                self.unconfirmed_report = false;
            }
            Outcome::Conflict(_) | Outcome::LeaseNotFound | Outcome::Refused(_) | Outcome::Unknown(_) => {
                self.log_outcome("report of a clean shutdown", outcome);
                self.leave_commit = None;
                if let Some(registered) = self.registered_mut() {
                    registered.needs_reread = true;
                    registered.next_heartbeat_at = now.monotonic_raw;
                }
            }
        }
        self.changed = true;
    }
}

fn exit_of(shutdown: Shutdown) -> Exit {
    match shutdown {
        Shutdown::Restart => Exit::Restart,
        Shutdown::Machine(_) => Exit::Left,
    }
}
