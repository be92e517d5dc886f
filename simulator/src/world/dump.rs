//! A world that continues a dumped cluster: etcd with the dumped keys, and the machines as their agents reported them.

use super::World;
use super::event::Event;
use super::machine::{Doing, Present};
use crate::dump::Dump;
use crate::vocabulary::why;
use ha_api_types::keys::Key;
use ha_api_types::record::{Assignment, Phase, ServiceReport};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Mono, Timestamp};
use ha_api_types::view::{Explanation, StateDump, StoredKey};
use ha_controller::core::world::{Versioned, World as Stored};
use ha_node_agent::core::{Journal, JournalEntry};
use ha_store::Change;
use ha_store::memory_state::MemoryState;
use std::path::Path;

/// Lifetime of the leases of the dump. Each agent that starts again replaces its own in less.
const LEASE_SECONDS: i64 = 30;

impl World {
    /// Creates the world of a dumped cluster, with the steps and expectations of a scenario.
    ///
    /// Guarantees: etcd has the content of the dump at its revision. A machine whose node was heard is on, runs what
    /// its reports say, and has the journal of an agent that was killed then.
    ///
    /// Assumptions: a start in progress has been successful. A live migration in progress has not arrived.
    ///
    /// Errors: the scenario is invalid, or has machines or objects of its own.
    pub fn of_dump(dump: &Dump, name: &str, text: &str, folder: &Path) -> Result<World, String> {
        let mut world = World::unformed(dump.scenario(name, text, folder)?);
        world.store =
            MemoryState::with_entries(dump.entries.iter().cloned(), dump.revision, Mono(0), LEASE_SECONDS);
        world.schedule_expiry();
        world.began = Some(0);
        let nodes: Vec<String> = world.machines.keys().cloned().collect();
        for node in nodes {
            let Some(machine) = world.machines.get_mut(&node) else { continue };
            machine.clock.set_wall(dump.wall_ms);
            machine.boot = 1;
            if dump.is_on(&node) {
                machine.journal = journal(&dump.stored, &node, dump.revision);
                machine.services = running(&dump.stored, &node)
                    .map(|(name, definition)| (name, Present { definition, doing: Doing::Runs }))
                    .collect();
                world.booted(&node, 1);
            }
        }
        let known: Vec<Change> = dump.entries.iter().cloned().map(Change::Put).collect();
        world.check_store_changes(&known);
        world.queue.push(0, Event::Step);
        world.queue.push(super::COMPACT_MS, Event::Compact(world.store.revision()));
        Ok(world)
    }

    /// Returns the state of etcd as a controller dumps it.
    pub fn dump(&self) -> StateDump {
        let clock = self.machines.values().next().map(|machine| machine.clock.read(self.now));
        let reading = self.store.list(self.keys.root());
        let silent_ms = |key: &str| match self.keys.parse(key) {
            Some(Key::Alive(node)) => self.last_heartbeat.get(node).map(|at| self.now - at),
            Some(_) | None => None,
        };
        let keys = reading.entries.into_iter().map(|entry| StoredKey {
            silent_ms: silent_ms(&entry.key),
            key: entry.key.strip_prefix(self.keys.root()).unwrap_or(&entry.key).to_owned(),
            value: serde_json::from_slice(&entry.value).unwrap_or_default(),
            created: entry.create_revision,
            modified: entry.mod_revision,
            leased: entry.lease != 0,
        });
        StateDump {
            at: Timestamp::from_unix_ms(clock.map_or(0, |now| now.wall_unix_ms)),
            revision: reading.revision,
            keys: keys.collect(),
        }
    }

    /// Returns the explanation that `hactl why` prints for a service now; `None` if the resource does not exist.
    pub fn why(&self, resource: &str) -> Option<Explanation> {
        why(&self.stored(), resource)
    }

    /// Returns the typed view of etcd's content.
    pub(super) fn stored(&self) -> Stored {
        let reading = self.store.list(self.keys.root());
        let mut stored = Stored::new(self.keys.clone());
        stored.replace(reading.entries, reading.revision, Mono(0));
        stored
    }
}

/// Returns the reports of a node about services that run there under its present registration.
fn reports<'a>(stored: &'a Stored, node: &'a str) -> impl Iterator<Item = (&'a String, &'a ServiceReport)> {
    let epoch = stored.fences.get(node).map(|fence| fence.value.epoch);
    stored.service_reports.iter().filter_map(move |(name, reports)| {
        let report = &reports.get(node)?.value;
        (Some(report.epoch) == epoch && runs(report.phase)).then_some((name, report))
    })
}

/// Returns `true` if a service in this phase runs on the node, or is about to.
fn runs(phase: Phase) -> bool {
    match phase {
        Phase::ProbedRunning
        | Phase::Starting
        | Phase::Running
        | Phase::Stopping
        | Phase::StopFailed
        | Phase::HandingOver
        | Phase::MoveFailed => true,
        Phase::ProbedStopped
        | Phase::ProbedUnknown
        | Phase::Stopped
        | Phase::Failed
        | Phase::Receiving
        | Phase::HandedOver => false,
    }
}

fn assigned<'a>(stored: &'a Stored, name: &str, node: &str) -> Option<&'a Assignment> {
    let assignment: &Versioned<Assignment> = stored.assignments.get(name)?;
    (assignment.value.node == node).then_some(&assignment.value)
}

fn running<'a>(stored: &'a Stored, node: &'a str) -> impl Iterator<Item = (String, ServiceDefinition)> + 'a {
    reports(stored, node).filter_map(move |(name, report)| {
        let reported = report.definition.as_deref().cloned();
        let assigned = || assigned(stored, name, node).map(|assignment| assignment.definition.clone());
        let wanted = || stored.resources.get(name).map(|resource| ServiceDefinition::of(&resource.value));
        Some((name.clone(), reported.or_else(assigned).or_else(wanted)?))
    })
}

/// Returns the journal that the agent of the node had.
fn journal(stored: &Stored, node: &str, revision: i64) -> Journal {
    let report = stored.node_reports.get(node).map(|report| &report.value);
    let fence = stored.fences.get(node).map(|fence| &fence.value);
    let begun: Vec<(&String, &ServiceReport)> = reports(stored, node).collect();
    let entry = |(name, definition): (String, ServiceDefinition)| {
        let report = begun.iter().find(|(known, _)| **known == name);
        let begun = report.and_then(|(_, report)| report.action_uid.clone()).unwrap_or_default();
        (name, JournalEntry { definition, begun, spent: false })
    };
    Journal {
        boot_id: report.map(|report| report.boot_id.clone()).unwrap_or_default(),
        request: fence.and_then(|fence| fence.request),
        epoch: fence.map_or(0, |fence| fence.epoch),
        revision,
        incarnation: stored.incarnation.as_ref().map(|incarnation| incarnation.value.value.clone()),
        timings: report.map(|report| report.timings),
        services: running(stored, node).map(entry).collect(),
        ..Journal::default()
    }
}
