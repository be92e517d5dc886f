//! The actions of a user of the interactive simulator in a running world, and the state of its machines.

use super::World;
use super::event::Event as WorldEvent;
use super::process::{Core, Process};
use crate::scenario::Step;
use crate::scenario::action::LinkEnd;
use ha_api_types::event::{EVENT_TTL_SECONDS, Event};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::keys::Key;
use ha_api_types::time::{Millis, MonotonicTime};
use ha_api_types::view::EtcdMember;
use ha_store::memory_state::MemoryState;
use ha_store::{Guard, LeaseId, Outcome, Transaction, Write};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A transaction of the API that a step writes.
#[derive(Debug)]
pub(super) struct UserCommit {
    transaction: Transaction,
    /// Outcome; `None` until the step was executed.
    outcome: Option<Outcome>,
}

/// The events of the cluster, apart from etcd, so that a run does not depend on whether a user reads them.
#[derive(Debug)]
pub(super) struct StoredEvents {
    state: MemoryState,
    /// Lease of new events, and the time until which it is used.
    lease: (LeaseId, Millis),
    count: u64,
}

/// State of an agent or a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ProcessState {
    /// The process runs.
    Running,
    /// The process is paused (SIGSTOP).
    Hung,
    /// The process does not run.
    Stopped,
}

/// The switches, processes and services of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::struct_excessive_bools, reason = "each is a separate switch")]
pub struct MachineState {
    /// Name of the node.
    pub name: NodeName,
    /// `true` if the machine has power: it is up or booting.
    pub has_power: bool,
    /// `true` if the machine is booted.
    pub is_up: bool,
    /// `true` if the machine is suspended.
    pub is_suspended: bool,
    /// `true` if the machine is connected to etcd and its peers.
    pub has_network: bool,
    /// `true` if the link to etcd works.
    pub reaches_etcd: bool,
    /// `true` if the links to the other machines work.
    pub reaches_peers: bool,
    /// `true` if the network of live migrations works.
    pub has_migration_network: bool,
    /// State of the agent.
    pub agent: ProcessState,
    /// State of the controller; `None` if the machine has none.
    pub controller: Option<ProcessState>,
    /// `true` if the controller is the leader.
    pub is_leader: bool,
    /// `true` if the watchdog daemon runs.
    pub has_watchdog_daemon: bool,
    /// Milliseconds until the watchdog resets the machine unless it is petted; `None`: no countdown.
    pub watchdog_ms: Option<Millis>,
    /// Number of resets by the watchdog.
    pub resets: usize,
    /// Services that run on the machine.
    pub services: Vec<ResourceName>,
}

impl World {
    /// Returns the content of etcd.
    pub fn store(&self) -> &MemoryState {
        &self.store
    }

    /// Returns the events under their keys, with revisions of their own; `None` if they are not kept.
    pub fn events(&self) -> Option<&MemoryState> {
        self.events.as_ref().map(|events| &events.state)
    }

    /// Keeps events from now on.
    pub(crate) fn keep_events(&mut self) {
        self.events =
            Some(StoredEvents { state: MemoryState::default(), lease: (LeaseId::NONE, 0), count: 0 });
    }

    /// Stores an event as its writer does, with a lease.
    pub(super) fn store_event(&mut self, writer: &str, event: &Event) {
        let now = self.now;
        let Some(events) = &mut self.events else { return };
        events.state.expire(MonotonicTime(now));
        if now >= events.lease.1 {
            let lease = events.state.grant_lease(MonotonicTime(now), EVENT_TTL_SECONDS);
            events.lease = (lease, now + EVENT_TTL_SECONDS.unsigned_abs() * 1000 / 2);
        }
        events.count += 1;
        let key = self.keys.event(writer, &events.count.to_string());
        // The project's types can always be serialized.
        let value = serde_json::to_vec(event).unwrap_or_default();
        events.state.commit(&Transaction::new().put_leased(key, Guard::Absent, value, events.lease.0));
    }

    /// Returns `true` if etcd answers.
    pub fn is_etcd_available(&self) -> bool {
        self.is_store_available()
    }

    /// Returns the members of etcd; empty if etcd runs outside the nodes.
    pub fn etcd_members(&self) -> Vec<EtcdMember> {
        let member = |node: &NodeName| EtcdMember {
            name: node.to_string(),
            url: format!("http://{node}:2379"),
            healthy: self.can_member_serve(node),
            leader: self.store_leader.as_ref() == Some(node),
            ..EtcdMember::default()
        };
        self.scenario.store.iter().map(member).collect()
    }

    /// Returns the state of each machine.
    pub fn machine_states(&self) -> Vec<MachineState> {
        let leader = self.leader();
        self.machines
            .iter()
            .map(|(name, machine)| {
                let end = LinkEnd::Node(name.clone());
                MachineState {
                    name: name.clone(),
                    has_power: machine.is_powered,
                    is_up: machine.is_up,
                    is_suspended: machine.is_suspended,
                    has_network: machine.network,
                    reaches_etcd: !self.network.is_cut(&end, &LinkEnd::Store)
                        && !self.network.is_cut(&LinkEnd::Store, &end),
                    reaches_peers: !self.network.is_cut(&end, &LinkEnd::Peers)
                        && !self.network.is_cut(&LinkEnd::Peers, &end),
                    has_migration_network: self.network.has_migration(name),
                    agent: process_state(self.agents.get(name)),
                    controller: machine.has_controller.then(|| process_state(self.controllers.get(name))),
                    is_leader: leader.as_ref() == Some(name),
                    has_watchdog_daemon: machine.is_up && !machine.watchdog.has_exited,
                    watchdog_ms: machine.watchdog.fires_at.map(|at| at.saturating_sub(self.now)),
                    resets: machine.resets.len(),
                    services: machine.services.keys().filter(|name| machine.runs(name)).cloned().collect(),
                }
            })
            .collect()
    }

    /// Handles all events until a time since time 0, while the caller wants to continue. Returns `true` if the time was
    /// reached.
    pub(crate) fn run_until(&mut self, elapsed_ms: Millis, mut may_continue: impl FnMut() -> bool) -> bool {
        let end_ms = self.begun_at.unwrap_or_default() + elapsed_ms;
        while self.advance(end_ms) {
            if !may_continue() {
                return false;
            }
        }
        true
    }

    /// Returns the time of the next event, since time 0; `None` if there is none.
    pub(crate) fn next_event_ms(&self) -> Option<Millis> {
        self.queue.next_time().map(|at| self.elapsed_ms(at))
    }

    /// Returns the number of steps that have been executed.
    pub(crate) fn executed_steps(&self) -> usize {
        self.step
    }

    /// Executes a step one millisecond from now, in place of all steps that remain.
    ///
    /// Guarantees: a run of a scenario with this step at this time handles all events in the same order.
    ///
    /// Errors: the step was refused.
    pub(crate) fn play(&mut self, step: Step) -> Result<(), String> {
        let due_ms = self.now + 1;
        self.scenario.steps.truncate(self.step);
        self.scenario.steps.push(step);
        let position = self.next_step_position.unwrap_or_else(|| self.queue.reserve());
        self.queue.push_at_position(due_ms, position, WorldEvent::Step);
        self.last_refusal = None;
        while self.advance(due_ms) {}
        self.last_refusal.take().map_or(Ok(()), Err)
    }

    /// Executes a step that commits a transaction of the API, like [`World::play`]. A transaction without effect leaves no
    /// step.
    pub(crate) fn play_commit(&mut self, step: Step, transaction: Transaction) -> Outcome {
        let position = self.next_step_position;
        self.user_commit = Some(UserCommit { transaction, outcome: None });
        // Writes are never refused as steps: the outcome of the transaction reports a failure.
        let _ = self.play(step);
        let outcome = self.user_commit.take().and_then(|commit| commit.outcome);
        let outcome = outcome.unwrap_or_else(|| Outcome::Unknown("the simulation ended".to_owned()));
        if outcome.applied().is_none() {
            self.step -= 1;
            self.scenario.steps.truncate(self.step);
            self.next_step_position = position;
        }
        outcome
    }

    /// Writes values as the API does: with the guards of the connected user's transaction or, in a replay, at the current
    /// revisions.
    pub(super) fn write_for_user(&mut self, values: &BTreeMap<String, Option<Value>>) {
        let root = self.keys.root().to_owned();
        let transaction = match &self.user_commit {
            Some(commit) => commit.transaction.clone(),
            None => values.iter().fold(Transaction::new(), |transaction, (key, value)| {
                let key = format!("{root}{key}");
                let guard = self
                    .store
                    .get(&key)
                    .entries
                    .first()
                    .map_or(Guard::Absent, |entry| Guard::Unchanged(entry.mod_revision));
                match value {
                    Some(value) => transaction.put(key, guard, value.to_string().into_bytes()),
                    None => transaction.delete(key, guard),
                }
            }),
        };
        let revision_before = self.store.revision();
        let outcome = if self.is_store_available() {
            self.store.commit(&transaction)
        } else {
            Outcome::Refused("etcd does not answer".to_owned())
        };
        if self.store.revision() != revision_before {
            for (key, write) in transaction.writes() {
                self.acknowledge_write(key, write);
            }
            let keys: Vec<&str> = values.keys().map(String::as_str).collect();
            self.log(&"script".into(), "", &format!("the API writes {}", keys.join(", ")));
            self.handle_commit(revision_before + 1);
        }
        if let Some(commit) = &mut self.user_commit {
            commit.outcome = Some(outcome);
        }
    }

    /// Records what the user knows about an object after its write.
    fn acknowledge_write(&mut self, key: &str, write: &Write) {
        if !matches!(self.keys.parse(key), Some(Key::Spec(..))) {
            return;
        }
        match write {
            Write::Put { value, .. } => {
                if let Ok(value) = serde_json::from_slice(value) {
                    self.acknowledge(key, &value);
                }
            }
            Write::Delete => drop(self.acknowledged.remove(key)),
        }
    }
}

fn process_state<C: Core>(process: Option<&Process<C>>) -> ProcessState {
    match process {
        None => ProcessState::Stopped,
        Some(process) if process.is_hung => ProcessState::Hung,
        Some(_) => ProcessState::Running,
    }
}
