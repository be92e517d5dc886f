//! A world that continues a dumped cluster: etcd with the dumped keys, and the machines as their agents reported them.

use super::World;
use super::event::Event;
use super::machine::{Activity, ServiceCopy};
use crate::dump::Dump;
use crate::vocabulary::explain_service;
use ha_api_types::id::{Epoch, NodeName, ResourceName, Revision};
use ha_api_types::keys::Key;
use ha_api_types::record::{Assignment, Phase, ServiceReport};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::MonotonicTime;
use ha_api_types::view::{Explanation, StateDump};
use ha_controller::core::world::{ClusterView as Stored, Versioned};
use ha_node_agent::core::{Journal, JournalEntry};
use ha_store::Change;
use ha_store::memory_state::MemoryState;
use std::path::Path;

/// Lifetime of the leases of the dump. Each agent that starts again replaces its lease in a shorter time.
const LEASE_SECONDS: i64 = 30;

impl World {
    /// Creates the world of a dumped cluster, with the steps and expectations of a scenario.
    ///
    /// Guarantees: etcd has the content of the dump at its revision. A machine whose node sent heartbeats is on, runs
    /// the services in its reports, and has the journal of an agent that was killed at that time.
    ///
    /// Assumptions: a start in progress has been successful. A live migration in progress has not arrived.
    ///
    /// Errors: the scenario is invalid, or has machines or objects of its own.
    pub fn of_dump(dump: &Dump, name: &str, text: &str, directory: &Path) -> Result<World, String> {
        let mut world = World::before_start(dump.scenario(name, text, directory)?);
        world.store = MemoryState::with_entries(
            dump.entries.iter().cloned(),
            dump.revision,
            MonotonicTime(0),
            LEASE_SECONDS,
        );
        world.schedule_expiry();
        world.begun_at = Some(0);
        let nodes: Vec<NodeName> = world.machines.keys().cloned().collect();
        for node in nodes {
            let Some(machine) = world.machines.get_mut(&node) else { continue };
            machine.clock.set_wall(dump.wall_ms);
            machine.boot = 1;
            if dump.is_on(&node) {
                machine.journal = journal(&dump.cluster_view, &node, dump.revision);
                machine.services = running_services(&dump.cluster_view, &node)
                    .map(|(name, _, definition)| {
                        (name.clone(), ServiceCopy { definition, activity: Activity::Runs })
                    })
                    .collect();
                world.on_booted(&node, 1);
            }
        }
        let changes: Vec<Change> = dump.entries.iter().cloned().map(Change::Put).collect();
        world.check_store_changes(&changes);
        world.queue.push(0, Event::Step);
        world.queue.push(super::COMPACT_INTERVAL_MS, Event::Compact(world.store.revision()));
        Ok(world)
    }

    /// Returns the state of etcd as a controller dumps it.
    pub fn dump(&self) -> StateDump {
        let heartbeat_age_ms = |key: &str| match self.keys.parse(key) {
            Some(Key::Alive(node)) => self.last_heartbeat_at.get(&node).map(|at| self.now - at),
            Some(_) | None => None,
        };
        let reading = self.store.list(self.keys.root());
        let keys =
            reading.entries.iter().map(|entry| entry.to_dump(self.keys.root(), heartbeat_age_ms(&entry.key)));
        StateDump {
            at: self.timestamp(),
            revision: reading.revision,
            keys: keys.collect(),
            ..StateDump::default()
        }
    }

    /// Returns the explanation that `hactl why` prints for a service now; `None` if the resource does not exist.
    pub fn explain(&self, resource: &ResourceName) -> Option<Explanation> {
        let reading = self.store.list(self.keys.root());
        let mut stored = Stored::new(self.keys.clone());
        stored.replace(reading.entries, reading.revision, MonotonicTime(0));
        explain_service(&stored, resource)
    }
}

/// Returns the reports of a node about services that run there under its current registration.
fn reports<'a>(
    stored: &'a Stored,
    node: &'a NodeName,
) -> impl Iterator<Item = (&'a ResourceName, &'a ServiceReport)> {
    let epoch = stored.fences.get(node).map(|fence| fence.value.epoch);
    stored.service_reports.iter().filter_map(move |(name, reports)| {
        let report = &reports.get(node)?.value;
        (Some(report.epoch) == epoch && runs(report.phase)).then_some((name, report))
    })
}

/// Returns `true` if a service in this phase runs on the node, or is about to start there.
fn runs(phase: Phase) -> bool {
    phase == Phase::ProbedRunning || phase.is_permitted() && phase != Phase::Receiving
}

fn assigned<'a>(stored: &'a Stored, name: &ResourceName, node: &NodeName) -> Option<&'a Assignment> {
    let assignment: &Versioned<Assignment> = stored.assignments.get(name)?;
    (assignment.value.node == *node).then_some(&assignment.value)
}

/// Returns the services that run on a node, each with its report and the definition with which it was started.
fn running_services<'a>(
    stored: &'a Stored,
    node: &'a NodeName,
) -> impl Iterator<Item = (&'a ResourceName, &'a ServiceReport, ServiceDefinition)> {
    reports(stored, node).filter_map(move |(name, report)| {
        let reported = report.definition.as_deref().cloned();
        let assigned = || assigned(stored, name, node).map(|assignment| assignment.definition.clone());
        let requested = || stored.resources.get(name).map(|resource| ServiceDefinition::of(&resource.value));
        Some((name, report, reported.or_else(assigned).or_else(requested)?))
    })
}

/// Returns the journal that the agent of the node had.
fn journal(stored: &Stored, node: &NodeName, revision: Revision) -> Journal {
    let report = stored.node_reports.get(node).map(|report| &report.value);
    let fence = stored.fences.get(node).map(|fence| &fence.value);
    let services = running_services(stored, node).map(|(name, report, definition)| {
        let begun = report.action_uid.clone().unwrap_or_default();
        (name.clone(), JournalEntry { definition, begun_action: begun, was_killed: false })
    });
    Journal {
        boot_id: report.map(|report| report.boot_id.clone()).unwrap_or_default(),
        request: fence.and_then(|fence| fence.request),
        epoch: fence.map_or(Epoch(0), |fence| fence.epoch),
        revision,
        incarnation: stored.incarnation.as_ref().map(|incarnation| incarnation.value.value.clone()),
        timings: report.map(|report| report.timings),
        services: services.collect(),
        ..Journal::default()
    }
}
