//! A scripted node. It follows the FENCING protocol as far as the leader can observe it, and simulates faults on
//! request.

use super::replacements::ReplacementOutcome;
use ha_api_types::cluster::OnEtcdLoss;
use ha_api_types::id::{
    ActionUid, BootId, Epoch, MachineId, NodeName, OperationName, ProductId, ResourceName, Revision,
};
use ha_api_types::keys::Keys;
use ha_api_types::node_policy::NodePolicy;
use ha_api_types::protocol::Protocol;
use ha_api_types::reason::Reason;
use ha_api_types::record::{
    Action, Alive, Assignment, FailureClass, Fence, FenceState, Mode, NodeReport, NotStopped, Phase,
    ServiceReport, SleepProtection, WatchdogKind, WatchdogReport, WatchdogTest,
};
use ha_api_types::resource::{RequestedState, Resource};
use ha_api_types::time::{Millis, MonotonicTime};
use ha_api_types::timing::Timings;
use ha_store::memory_state::MemoryState;
use ha_store::{Entry, Guard, LeaseId, Outcome, Transaction};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};

/// Faults of a node.
#[allow(clippy::struct_excessive_bools, reason = "each is a separate fault that a test turns on or off")]
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// Services whose starts fail.
    pub(super) fails_start: BTreeMap<ResourceName, FailureClass>,
    /// Services whose stops fail.
    pub(super) fails_stop: BTreeSet<ResourceName>,
    /// `true` if the agent does not answer probes.
    pub(super) ignores_probes: bool,
    /// `true` if outgoing migrations fail.
    pub(super) fails_migrate: bool,
    /// Outcome of replacements of secondaries.
    pub(super) replacement_outcome: ReplacementOutcome,
    /// `true` if the agent commits only heartbeats and ignores assignments.
    pub(super) ignores_assignments: bool,
    /// `true` if the agent reports that the watchdog daemon does not run.
    pub(super) daemon_gone: bool,
}

/// A machine and its agent.
#[allow(clippy::struct_excessive_bools, reason = "each is a separate fault that a test turns on or off")]
#[derive(Clone, Debug)]
pub(super) struct Agent {
    pub(super) name: NodeName,
    pub(super) machine_id: MachineId,
    pub(super) boot: u32,
    pub(super) is_powered_on: bool,
    /// `true` if the node cannot reach the store.
    pub(super) isolated: bool,
    pub(super) armed: bool,
    pub(super) kind: WatchdogKind,
    /// Name of the test operation that the node's watchdog has passed.
    pub(super) tested: Option<OperationName>,
    pub(super) is_virtual: bool,
    /// `true` if the watchdog refuses pets.
    pub(super) watchdog_failed: bool,
    pub(super) sleep_protection: Option<SleepProtection>,
    pub(super) product_id: Option<ProductId>,
    pub(super) policy: Option<NodePolicy>,
    pub(super) faults: Faults,
    pub(super) timings: Timings,
    pub(super) protocol: Protocol,
    /// Newest candidate key that the agent has read; `None` if it does not ask controllers for hold.
    pub(super) hold: Option<Revision>,
    /// Names of resources whose services really run here.
    pub(super) running: BTreeSet<ResourceName>,
    /// Uid of the resource under which each service was started.
    uids: BTreeMap<ResourceName, String>,
    pub(super) mode: Option<Mode>,
    begun: BTreeSet<ActionUid>,
    lease: Option<LeaseId>,
    request: Option<Revision>,
    sequence: u64,
    last_heartbeat_at: MonotonicTime,
    last_contact_at: MonotonicTime,
    /// Services that were probed since the last `probe_again`.
    probed: BTreeSet<ResourceName>,
}

pub(super) struct Read<T> {
    pub(super) value: T,
    mod_revision: Revision,
    create_revision: Revision,
}

pub(super) fn read<T: DeserializeOwned>(state: &MemoryState, key: &str) -> Option<Read<T>> {
    let Entry { value, mod_revision, create_revision, .. } = state.get(key).entries.into_iter().next()?;
    let value = serde_json::from_slice(&value).unwrap();
    Some(Read { value, mod_revision, create_revision })
}

fn guard<T>(read: Option<&Read<T>>) -> Guard {
    read.map_or(Guard::Absent, |read| Guard::Unchanged(read.mod_revision))
}

fn json<T: serde::Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap()
}

impl Agent {
    pub(super) fn new(name: &str) -> Agent {
        Agent {
            name: name.into(),
            machine_id: format!("machine-{name}").into(),
            boot: 1,
            is_powered_on: true,
            isolated: false,
            armed: true,
            policy: None,
            kind: WatchdogKind::Kernel,
            tested: None,
            is_virtual: false,
            watchdog_failed: false,
            sleep_protection: None,
            product_id: None,
            faults: Faults::default(),
            hold: None,
            timings: Timings::default(),
            protocol: Protocol::default(),
            running: BTreeSet::new(),
            uids: BTreeMap::new(),
            mode: None,
            begun: BTreeSet::new(),
            lease: None,
            request: None,
            sequence: 0,
            last_heartbeat_at: MonotonicTime::default(),
            last_contact_at: MonotonicTime::default(),
            probed: BTreeSet::new(),
        }
    }

    fn boot_id(&self) -> BootId {
        format!("{}-boot{}", self.name, self.boot).into()
    }

    /// Powers the machine off: all of its services end.
    pub(super) fn power_off(&mut self) {
        self.is_powered_on = false;
        self.running.clear();
    }

    /// Powers the machine on with a new boot id.
    pub(super) fn boot_again(&mut self) {
        self.is_powered_on = true;
        self.isolated = false;
        self.boot += 1;
        self.lose_state();
    }

    /// Restarts the agent in the same boot, without the journal of its registration.
    pub(super) fn lose_journal(&mut self) {
        self.lose_state();
    }

    /// Makes the agent probe all services again, as after a new copy has appeared.
    pub(super) fn probe_again(&mut self) {
        self.probed.clear();
    }

    fn lose_state(&mut self) {
        self.lease = None;
        self.request = None;
        self.begun.clear();
        self.probed.clear();
        self.mode = None;
    }

    fn report(&self, epoch: Epoch, mode: Mode) -> NodeReport {
        NodeReport {
            instance: self.boot_id().to_string().into(),
            machine_id: self.machine_id.clone(),
            boot_id: self.boot_id(),
            epoch,
            mode,
            armed: self.armed && mode == Mode::Active,
            watchdog: WatchdogReport {
                kind: self.kind,
                timeout_ms: self.timings.watchdog_timeout_ms,
                sliding: true,
                descriptor_retained: true,
                tested: self.tested.is_some(),
                last_test: self
                    .tested
                    .clone()
                    .map(|operation| WatchdogTest { operation, ..WatchdogTest::default() }),
                problem: if self.faults.daemon_gone { "it is gone".to_owned() } else { String::new() },
                reason: self.faults.daemon_gone.then_some(Reason::WatchdogMissing),
                ..WatchdogReport::default()
            },
            timings: self.timings,
            is_virtual: self.is_virtual,
            watchdog_failed: self.watchdog_failed,
            sleep_protection: self.sleep_protection,
            product_id: self.product_id.clone(),
            policy: self.policy.clone(),
            candidate_generation: self.hold.unwrap_or_default(),
            on_etcd_loss: if self.hold.is_some() { OnEtcdLoss::Hold } else { OnEtcdLoss::Stop },
            protocol: self.protocol,
            not_stopped: if mode == Mode::Registering { self.not_stopped() } else { Vec::new() },
            ..NodeReport::default()
        }
    }

    fn not_stopped(&self) -> Vec<NotStopped> {
        self.running
            .iter()
            .map(|name| NotStopped {
                name: name.clone(),
                uid: self.uids.get(name).cloned().unwrap_or_else(|| format!("uid-{name}")).into(),
                message: "it hangs".to_owned(),
            })
            .collect()
    }

    /// Advances the agent by one step of 100 ms.
    pub(super) fn step(&mut self, state: &mut MemoryState, keys: &Keys, now: MonotonicTime) {
        if !self.is_powered_on {
            return;
        }
        if self.isolated {
            // The watchdog resets the machine, so its services end before they can start on another node.
            let stops = self.timings.heartbeat_valid_ms - self.timings.stop_margin_ms;
            if self.armed && now.since(self.last_contact_at) >= stops {
                self.running.clear();
            }
            return;
        }
        let fence: Option<Read<Fence>> = read(state, &keys.fence(&self.name));
        let open_fence = fence.as_ref().filter(|fence| {
            fence.value.state == FenceState::Open
                && fence.value.boot_id == self.boot_id()
                && fence.value.machine_id == self.machine_id
                && fence.value.request.is_some()
                && fence.value.request == self.request
        });
        match open_fence {
            None => self.register(state, keys, fence.as_ref()),
            Some(fence) => {
                if now.since(self.last_heartbeat_at) >= self.timings.heartbeat_interval_ms
                    || self.lease.is_none()
                {
                    self.send_heartbeat(state, keys, fence, now);
                }
                if self.lease.is_some() && self.mode.is_none_or(|mode| mode == Mode::Active) {
                    self.probe(state, keys, fence);
                    if !self.faults.ignores_assignments {
                        self.execute_assignments(state, keys, fence);
                    }
                }
            }
        }
    }

    fn register(&mut self, state: &mut MemoryState, keys: &Keys, fence: Option<&Read<Fence>>) {
        self.lease = None;
        self.probed.clear();
        let failing = &self.faults.fails_stop;
        self.running.retain(|name| failing.contains(name));
        let key = keys.node_report(&self.name);
        let stored_report: Option<Read<NodeReport>> = read(state, &key);
        let stands = stored_report.as_ref().is_some_and(|stored_report| {
            Some(stored_report.mod_revision) == self.request
                && fence.is_none_or(|fence| fence.value.request != self.request)
        });
        if stands {
            return;
        }
        let report = self.report(fence.map_or(Epoch(0), |fence| fence.value.epoch), Mode::Registering);
        let transaction = Transaction::new()
            .put(key, guard(stored_report.as_ref()), json(&report))
            .guard(keys.fence(&self.name), guard(fence));
        if let Outcome::Applied(revision) = state.commit(&transaction) {
            self.request = Some(revision);
        }
    }

    fn send_heartbeat(
        &mut self,
        state: &mut MemoryState,
        keys: &Keys,
        fence: &Read<Fence>,
        now: MonotonicTime,
    ) {
        let alive_key = keys.alive(&self.name);
        let report_key = keys.node_report(&self.name);
        let alive: Option<Read<Alive>> = read(state, &alive_key);
        let report: Option<Read<NodeReport>> = read(state, &report_key);
        if self.lease.is_none() && alive.is_some() {
            let transaction = Transaction::new().delete(alive_key, guard(alive.as_ref()));
            state.commit(&transaction);
            return;
        }
        let lease = *self.lease.get_or_insert_with(|| state.grant_lease(now, 40));
        let _ = state.keep_alive(now, lease);
        self.sequence += 1;
        let value = Alive {
            instance: self.boot_id().to_string().into(),
            epoch: fence.value.epoch,
            sequence: self.sequence,
        };
        let alive_guard = alive.as_ref().map_or(Guard::Absent, |alive| Guard::Created(alive.create_revision));
        let mut transaction = Transaction::new()
            .put_leased(alive_key, alive_guard, json(&value), lease)
            .guard(keys.fence(&self.name), Guard::Unchanged(fence.mod_revision))
            .guard(report_key.clone(), guard(report.as_ref()));
        let new_report = self.report(fence.value.epoch, self.mode.unwrap_or(Mode::Active));
        if report.as_ref().is_none_or(|report| report.value != new_report) {
            transaction = transaction.put(report_key, guard(report.as_ref()), json(&new_report));
        }
        if state.commit(&transaction).applied().is_some() {
            self.last_heartbeat_at = now;
            self.last_contact_at = now;
        }
    }

    fn probe(&mut self, state: &mut MemoryState, keys: &Keys, fence: &Read<Fence>) {
        if self.faults.ignores_probes {
            return;
        }
        let prefix = keys.specs_of(ha_api_types::kind::Kind::Resource);
        for entry in state.list(&prefix).entries {
            let Ok(resource) = serde_json::from_slice::<Resource>(&entry.value) else { continue };
            let name = ResourceName::from(resource.metadata.name.as_str());
            let uid = resource.metadata.uid.clone();
            if resource.spec.state == RequestedState::Ignored {
                self.probed.remove(&name);
                self.delete_report(state, keys, fence, &name);
                continue;
            }
            let generation = resource.metadata.generation;
            let assignment = read::<Assignment>(state, &keys.assignment(&name));
            let stored_report = read::<ServiceReport>(state, &keys.service_report(&self.name, &name));
            let answered = stored_report.is_some_and(|stored_report| {
                let current =
                    stored_report.value.uid == uid && stored_report.value.epoch == fence.value.epoch;
                current && (assignment.is_some() || stored_report.value.probed_generation >= generation)
            });
            let is_probed = self.probed.contains(&name);
            if assignment.is_some_and(|assignment| assignment.value.node == self.name)
                || (answered && is_probed)
            {
                continue;
            }
            let phase =
                if self.running.contains(&name) { Phase::ProbedRunning } else { Phase::ProbedStopped };
            let report = ServiceReport {
                uid: uid.clone(),
                epoch: fence.value.epoch,
                probed_generation: generation,
                exclusive: resource.spec.exclusive,
                phase,
                ..ServiceReport::default()
            };
            if self.commit_report(state, keys, fence, &name, &report) {
                self.probed.insert(name);
            }
        }
    }

    /// Deletes the report of an Ignored service whose assignment has ended.
    fn delete_report(&self, state: &mut MemoryState, keys: &Keys, fence: &Read<Fence>, name: &ResourceName) {
        let key = keys.service_report(&self.name, name);
        let Some(report) = read::<ServiceReport>(state, &key) else { return };
        let transaction = Transaction::new()
            .delete(key, Guard::Unchanged(report.mod_revision))
            .guard(keys.fence(&self.name), Guard::Unchanged(fence.mod_revision))
            .guard(keys.assignment(name), Guard::Absent);
        state.commit(&transaction);
    }

    pub(super) fn commit_report(
        &self,
        state: &mut MemoryState,
        keys: &Keys,
        fence: &Read<Fence>,
        name: &str,
        report: &ServiceReport,
    ) -> bool {
        let key = keys.service_report(&self.name, &name.into());
        let stored_report: Option<Read<ServiceReport>> = read(state, &key);
        let Some(alive) = read::<Alive>(state, &keys.alive(&self.name)) else { return false };
        let node: Option<Read<NodeReport>> = read(state, &keys.node_report(&self.name));
        let assignment: Option<Read<Assignment>> = read(state, &keys.assignment(&name.into()));
        let transaction = Transaction::new()
            .put(key, guard(stored_report.as_ref()), json(report))
            .guard(keys.alive(&self.name), Guard::Created(alive.create_revision))
            .guard(keys.fence(&self.name), Guard::Unchanged(fence.mod_revision))
            .guard(keys.node_report(&self.name), guard(node.as_ref()))
            .guard(keys.assignment(&name.into()), guard(assignment.as_ref()));
        state.commit(&transaction).applied().is_some()
    }

    fn execute_assignments(&mut self, state: &mut MemoryState, keys: &Keys, fence: &Read<Fence>) {
        for entry in state.list(&keys.assignments()).entries {
            let assignment: Assignment = serde_json::from_slice(&entry.value).unwrap();
            self.execute(state, keys, fence, &assignment);
        }
    }

    fn execute(
        &mut self,
        state: &mut MemoryState,
        keys: &Keys,
        fence: &Read<Fence>,
        assignment: &Assignment,
    ) {
        let name = assignment.definition.name.clone();
        let mut report = ServiceReport {
            uid: assignment.definition.uid.clone(),
            action_uid: Some(assignment.action_uid.clone()),
            epoch: fence.value.epoch,
            boot_id: self.boot_id(),
            exclusive: assignment.definition.exclusive,
            replacement: self.replacement_report(state, keys, assignment),
            ..ServiceReport::default()
        };
        let mut write_report = |agent: &Agent, state: &mut MemoryState, phase: Phase| {
            report.phase = phase;
            let phase_messages = [(Phase::MoveFailed, "the link broke"), (Phase::Stopped, "nothing came")];
            let phase_messages =
                phase_messages.into_iter().find(|(message_phase, _)| *message_phase == phase);
            report.message = phase_messages.map_or_else(String::new, |(_, message)| message.to_owned());
            agent.commit_report(state, keys, fence, &name, &report)
        };
        let answered = |state: &MemoryState, node: &NodeName| {
            read::<ServiceReport>(state, &keys.service_report(node, &name))
                .filter(|report| report.value.action_uid.as_ref() == Some(&assignment.action_uid))
                .map(|report| report.value.phase)
        };
        if let Action::Migrate { target, target_epoch, .. } = &assignment.action
            && *target == self.name
            && *target_epoch == fence.value.epoch
        {
            match (answered(state, &self.name), answered(state, &assignment.node)) {
                (None, _) => {
                    write_report(self, state, Phase::Receiving);
                }
                (Some(Phase::Receiving), Some(Phase::HandedOver)) => {
                    self.running.insert(name.clone());
                    self.uids.insert(name.clone(), assignment.definition.uid.to_string());
                    write_report(self, state, Phase::Running);
                }
                (Some(Phase::Receiving), Some(Phase::MoveFailed)) => {
                    write_report(self, state, Phase::Stopped);
                }
                _ => {}
            }
            return;
        }
        if assignment.node != self.name || assignment.epoch != fence.value.epoch {
            return;
        }
        if self.replace(state, keys, fence, assignment) {
            return;
        }
        match (&assignment.action, answered(state, &self.name)) {
            (Action::Start | Action::Restart, None) => {
                if !self.armed && assignment.definition.exclusive {
                    return;
                }
                if !self.begun.contains(&assignment.action_uid) && write_report(self, state, Phase::Starting)
                {
                    self.begun.insert(assignment.action_uid.clone());
                    let adopts = self.running.contains(&name);
                    if let Some(class) = self.faults.fails_start.get(&name).copied().filter(|_| !adopts) {
                        report.failure = Some(class);
                        report.phase = Phase::Failed;
                        self.commit_report(state, keys, fence, &name, &report);
                    } else {
                        self.running.insert(name.clone());
                        self.uids.insert(name.clone(), assignment.definition.uid.to_string());
                        write_report(self, state, Phase::Running);
                    }
                }
            }
            // The service was killed while the store was unreachable. It must not start again under the same action.
            (Action::Start | Action::Restart, Some(Phase::Running)) if !self.running.contains(&name) => {
                write_report(self, state, Phase::Stopped);
            }
            (Action::Stop { .. }, None) => {
                if self.faults.fails_stop.contains(&name) && self.running.contains(&name) {
                    write_report(self, state, Phase::StopFailed);
                } else {
                    self.running.remove(&name);
                    write_report(self, state, Phase::Stopped);
                }
            }
            (Action::Migrate { target, .. }, phase) => {
                let ready = answered(state, target) == Some(Phase::Receiving);
                match phase {
                    None if ready => {
                        write_report(self, state, Phase::HandingOver);
                    }
                    Some(Phase::HandingOver) if self.faults.fails_migrate => {
                        write_report(self, state, Phase::MoveFailed);
                    }
                    Some(Phase::HandingOver) => {
                        self.running.remove(&name);
                        write_report(self, state, Phase::HandedOver);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Sets the mode that the agent reports.
    pub(super) fn set_mode(&mut self, mode: Mode) {
        self.mode = Some(mode);
    }

    /// Returns W, in milliseconds: the time after which the watchdog has reset this node.
    pub(super) fn fencing_delay_ms(&self) -> Millis {
        self.report(Epoch(1), Mode::Active).fencing_delay_ms()
    }
}
