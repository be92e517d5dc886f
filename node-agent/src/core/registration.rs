//! Registration: stopping the services of earlier registrations, and requesting an epoch (FENCING, section 3).

use super::commits::CommitPurpose;
use super::effect::{CommitUrgency, Level};
use super::service::{KillReason, Presence, Service, Step};
use super::service_machine::is_killing;
use super::session::{RETRY_DELAY_MS, ReadPurpose, Requesting, Session};
use super::{AgentCore, Now};
use ha_api_types::id::{Epoch, ResourceName, Revision};
use ha_api_types::record::{FenceState, MachineComparison, MachineIds, Mode, NodeReport, NotStopped};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use ha_store::{Guard, Outcome, Transaction};
use std::collections::BTreeSet;

/// Number of kills and probes of a service before an unarmed node registers with it as not stopped.
const MAX_REGISTRATION_TRIES: u32 = 5;
/// Interval at which the agent checks whether another machine of this name still runs.
const DUPLICATE_RETRY_DELAY_MS: Millis = 5_000;

impl AgentCore {
    /// Adds an entry for every service that may concern this node: begun here, desired, assigned or reported here.
    pub(super) fn seed_services(&mut self) {
        let mut names: BTreeSet<ResourceName> = self.journal.services.keys().cloned().collect();
        names.extend(self.view.resources.iter().map(|(name, _)| name.clone()));
        names.extend(self.view.assignments.iter().map(|(name, _)| name.clone()));
        names.extend(self.view.reports.iter().map(|(name, _)| name.clone()));
        for name in names {
            self.seed_service(&name);
        }
    }

    /// Adds an entry for a service, unless there is one or its definition is not known.
    pub(super) fn seed_service(&mut self, name: &ResourceName) {
        if !self.services.contains_key(name)
            && let Some(definition) = self.definition_of(name)
        {
            self.add_service(definition);
        }
    }

    /// Returns the definition of the service: as started here, else as assigned, else as in the spec.
    pub(super) fn definition_of(&self, name: &ResourceName) -> Option<ServiceDefinition> {
        if let Some(entry) = self.journal.services.get(name) {
            return Some(entry.definition.clone());
        }
        if let Some(assignment) = self.view.assignments.value(name)
            && assignment.definition.name == *name
        {
            return Some(assignment.definition.clone());
        }
        self.view.resources.value(name).map(ServiceDefinition::of)
    }

    /// Returns every definition under which a copy of the service may run here: those of the journal, the assignment
    /// and the spec (FENCING, R3.7).
    fn definitions_of(&self, name: &ResourceName) -> Vec<ServiceDefinition> {
        let journal = self.journal.services.get(name).map(|entry| entry.definition.clone());
        let assigned = self.view.assignments.value(name).map(|assignment| assignment.definition.clone());
        let desired = self.view.resources.value(name).map(ServiceDefinition::of);
        [journal, assigned, desired]
            .into_iter()
            .flatten()
            .filter(|definition| definition.name == *name)
            .collect()
    }

    /// Returns a definition whose identity has not been verified stopped since clearing began.
    fn next_definition_to_clear(&self, service: &Service) -> Option<ServiceDefinition> {
        self.definitions_of(service.name()).into_iter().find(|definition| {
            !service.cleared_definitions.iter().any(|cleared| cleared.has_same_identity(definition))
        })
    }

    /// Continues with the next definition that has not been verified stopped.
    pub(super) fn clear_next_definition(&mut self, service: &mut Service) {
        let Some(definition) = self.next_definition_to_clear(service) else { return };
        service.definition = definition;
        service.presence = Presence::Unprobed;
        service.transition_to(Step::KillVerify { kill_reason: KillReason::Clearing, attempts: 0 });
        self.changed = true;
    }

    pub(super) fn advance_clearing(&mut self, now: &Now) {
        // Services that became desired, assigned or managed after clearing began are probed and killed like the rest.
        for name in self.service_names() {
            self.with_service(&name, |core, service| {
                if !core.is_guarded(service) || is_killing(&service.step) {
                    return;
                }
                if service.is_gone() {
                    core.clear_next_definition(service);
                } else {
                    core.kill(now, service, KillReason::Clearing);
                }
            });
        }
        let mut all_done = true;
        let mut not_stopped = Vec::new();
        for service in self.services.values() {
            if !self.is_guarded(service) {
                continue;
            }
            if service.kill_attempts() >= MAX_REGISTRATION_TRIES {
                not_stopped.push(NotStopped {
                    name: service.definition.name.clone(),
                    uid: service.definition.uid.clone(),
                    message: service.message.clone(),
                });
            } else if !service.is_gone() {
                all_done = false;
            }
        }
        if !all_done {
            return;
        }
        // An armed node that cannot verify the stops does not register, and is reset. If the daemon already stays, no
        // managed service remained on this node, and no reset follows. The remaining services were started by hand, and
        // are reported.
        let may_be_armed = (self.watchdog.is_running() && !self.watchdog.is_staying())
            || (self.watchdog.is_disconnected()
                && self
                    .node_report()
                    .is_some_and(|report| report.armed && report.boot_id == self.config.boot_id));
        if !not_stopped.is_empty() && may_be_armed {
            return;
        }
        if self.watchdog.is_armed() && !self.watchdog.is_staying() {
            // The node is empty. The daemon first receives the order to stay, so the registration may take any time.
            return;
        }
        self.not_stopped = not_stopped;
        self.session = Session::Requesting(Requesting::default());
        self.changed = true;
    }

    /// Returns `true` if every exclusive service is confirmed to have ended since clearing began.
    pub(super) fn is_cleared(&self) -> bool {
        self.services.values().all(|service| !self.is_guarded(service) || service.is_gone())
    }

    fn registering_report(&self) -> NodeReport {
        NodeReport {
            mode: Mode::Registering,
            armed: false,
            epoch: self.fence().map_or(Epoch(0), |fence| fence.epoch),
            not_stopped: self.not_stopped.clone(),
            ..self.base_report()
        }
    }

    pub(super) fn advance_registration_request(&mut self, now: &Now) {
        let Session::Requesting(requesting) = &self.session else { return };
        if requesting.pending_write.is_some() {
            return;
        }
        let node = self.config.node.clone();
        if let Some(request) = requesting.request {
            let is_stored =
                self.view.node_reports.get(&node).is_some_and(|stored| stored.mod_revision == request);
            let opened = self.fence().filter(|fence| {
                fence.state == FenceState::Open
                    && fence.request == Some(request)
                    && fence.boot_id == self.config.boot_id
                    && fence.machine_id == self.config.machine_id
            });
            if let Some(fence) = opened {
                let epoch = fence.epoch;
                self.log(Level::Info, format!("registered this node (registration {epoch})"));
                self.on_opened(now, epoch, request);
                return;
            }
            let lapsed = self
                .fence()
                .is_some_and(|fence| fence.state != FenceState::Open && fence.request == Some(request));
            if is_stored && lapsed {
                // The request was admitted and closed again before the first heartbeat. The leader needs a new request
                // after another verification of the stops.
                return self.on_epoch_closed(now, "registration of this node expired");
            }
            if is_stored {
                return;
            }
            // Another process has written the report since and may have acted here, so the verification no longer
            // counts.
            return self.on_epoch_closed(now, "registration of this node was overwritten");
        }
        if requesting.request.is_none() && self.stored_request().is_some() {
            // A request with an unknown outcome has arrived late. Another request would close this epoch needlessly.
            return self.adopt_stored_request();
        }
        if requesting.retry_at.is_some_and(|retry_at| now.monotonic_raw < retry_at)
            || self.is_reading(&ReadPurpose::Own)
        {
            return;
        }
        // A running device can be released only under an epoch, so the request is still needed.
        if self.is_ending() && !self.watchdog.is_running() {
            return;
        }
        if self.is_duplicate() {
            let has_warned = requesting.has_warned;
            if let Session::Requesting(requesting) = &mut self.session {
                requesting.has_warned = true;
                requesting.retry_at = Some(now.monotonic_raw + DUPLICATE_RETRY_DELAY_MS);
            }
            if !has_warned {
                self.log(Level::Error, format!("another machine is registered as {node}: set another name for this machine with --node"));
            }
            self.read_own_keys();
            return;
        }
        let report = self.registering_report();
        let Ok(value) = serde_json::to_vec(&report) else { return };
        let fence_key = self.config.keys.fence(&node);
        let transaction = Transaction::new()
            .put(self.config.keys.node_report(&node), self.view.node_reports.guard(&node), value)
            .guard(fence_key, self.view.fences.guard(&node));
        let id = self.commit(transaction, CommitUrgency::Ordinary, CommitPurpose::Request { report });
        if let Session::Requesting(requesting) = &mut self.session {
            requesting.pending_write = Some(id);
            requesting.request = None;
        }
    }

    /// Returns `true` if the name belongs to another machine whose `alive` key still exists.
    fn is_duplicate(&self) -> bool {
        self.fence().is_some_and(|fence| {
            let machine = MachineIds {
                machine_id: &self.config.machine_id,
                product_id: self.config.product_id.as_ref(),
            };
            fence.state == FenceState::Open
                && fence.machine().compare(machine) == MachineComparison::Different
        }) && self.view.alive.get(&self.config.node).is_some()
    }

    pub(super) fn on_registration_committed(&mut self, now: &Now, report: NodeReport, outcome: &Outcome) {
        let node = self.config.node.clone();
        let Session::Requesting(requesting) = &mut self.session else { return };
        requesting.pending_write = None;
        match outcome {
            Outcome::Applied(revision) => {
                requesting.request = Some(*revision);
                self.view.node_reports.record_write(node, report, *revision);
                // A new agent process finds its own request here and continues.
                self.journal.boot_id.clone_from(&self.config.boot_id);
                self.journal.request = Some(*revision);
                self.journal.epoch = Epoch(0);
                self.mark_journal_changed();
                self.log_outcome("registration", outcome);
            }
            Outcome::Conflict(_) | Outcome::LeaseNotFound | Outcome::Refused(_) | Outcome::Unknown(_) => {
                requesting.retry_at = Some(now.monotonic_raw + RETRY_DELAY_MS);
                self.log_outcome("registration", outcome);
                self.read_own_keys();
            }
        }
    }

    /// Returns the revision of this process's request in etcd. `None` if its content is outdated, or if the leader has
    /// admitted the request and closed the epoch again.
    fn stored_request(&self) -> Option<Revision> {
        let stored = self.view.node_reports.get(&self.config.node)?;
        let report = stored.value.as_ref()?;
        let lapsed = self.fence().is_some_and(|fence| {
            fence.state != FenceState::Open && fence.request == Some(stored.mod_revision)
        });
        let is_of_this_instance = report.instance == self.config.instance && report.mode == Mode::Registering;
        (is_of_this_instance && report.not_stopped == self.not_stopped && !lapsed)
            .then_some(stored.mod_revision)
    }

    /// Adopts a stored request of this process whose outcome was unknown.
    pub(super) fn adopt_stored_request(&mut self) {
        let request_revision = self.stored_request();
        if let Session::Requesting(requesting) = &mut self.session
            && requesting.request.is_none()
            && requesting.pending_write.is_none()
            && let Some(revision) = request_revision
        {
            requesting.request = Some(revision);
            self.journal.boot_id.clone_from(&self.config.boot_id);
            self.journal.request = Some(revision);
            self.journal.epoch = Epoch(0);
            self.mark_journal_changed();
            self.changed = true;
        }
    }

    /// Handles the opening of the epoch for this node's request. Cleared services are known to be stopped under that
    /// epoch.
    fn on_opened(&mut self, now: &Now, epoch: Epoch, request: Revision) {
        let not_stopped: BTreeSet<ResourceName> =
            self.not_stopped.iter().map(|service| service.name.clone()).collect();
        for name in self.service_names() {
            self.with_service(&name, |core, service| {
                if !service.definition.exclusive {
                    service.presence = Presence::Unprobed;
                } else if not_stopped.contains(&name) {
                    let message =
                        format!("Service could not be stopped before the registration: {}", service.message);
                    core.mark_not_stopped(now, service, &message);
                } else {
                    core.journal.services.remove(&name);
                }
            });
        }
        self.register(now, epoch, request);
        self.changed = true;
    }

    /// Returns the guard of `fence` for the agent's own writes.
    pub(super) fn fence_guard(&self) -> Guard {
        self.view.fences.guard(&self.config.node)
    }
}
