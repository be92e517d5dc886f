//! The recording of a run, step by step, for comparison with the model of the protocol.

use super::World;
use super::machine::Activity;
use super::process::Generation;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::keys::Keys;
use ha_api_types::time::Millis;
use ha_node_agent::watchdog::protocol::Request;
use ha_store::Transaction;
use std::collections::BTreeMap;

/// A step of one process, machine or device.
#[derive(Clone, Debug)]
pub enum Step {
    /// etcd applied a transaction of an agent or a controller.
    Committed(Transaction),
    /// A machine lost its power.
    PowerLost {
        /// `true` if the machine's own watchdog caused the loss.
        by_watchdog: bool,
    },
    /// An agent's process started.
    AgentStarts,
    /// An agent's process ended while its machine kept running.
    AgentEnds,
    /// A controller's process started.
    ControllerStarts,
    /// The watchdog daemon's process died.
    DaemonEnds,
    /// The watchdog device was opened.
    DeviceOpens,
    /// The watchdog device was closed, which ends its countdown.
    DeviceCloses,
    /// The watchdog device was petted.
    Pets,
    /// The agent sent a deadline to the watchdog daemon.
    Deadline {
        /// Time from the request to the deadline, in milliseconds.
        left_ms: Millis,
    },
    /// The agent reported to the watchdog daemon that the node is empty.
    Stays,
    /// A service began to run: from now on it may touch its data.
    ServiceStarts(ResourceName),
    /// A service was prepared to be received.
    ServiceReceives(ResourceName),
    /// A service, or the preparation to receive it, ended completely.
    ServiceEnds(ResourceName),
    /// A service arrived from another machine, where it no longer runs.
    ServiceArrives {
        /// Name of the service.
        service: ResourceName,
        /// Source machine.
        from: NodeName,
    },
    /// The agent sent a linearizable read of these keys.
    Reads(Vec<String>),
    /// The driver began to migrate a service away.
    MigrationBegins(ResourceName),
    /// The agent asked every controller to hold its node.
    RequestsHold,
    /// A controller on this node granted a request of another node's agent.
    Grants {
        /// Node for which hold was granted.
        node: NodeName,
    },
}

/// A step with its time.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Virtual time of the step, in milliseconds.
    pub at: Millis,
    /// Machine of the step; empty for a transaction.
    pub node: NodeName,
    /// Recorded step.
    pub step: Step,
}

/// Recorded steps, and the state of the machines after the last event.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    steps: Vec<Recorded>,
    snapshots: BTreeMap<NodeName, MachineSnapshot>,
}

/// State of a machine that is compared after each event.
#[derive(Clone, Debug, Default)]
struct MachineSnapshot {
    boot: u64,
    is_up: bool,
    resets: usize,
    agent: Option<Generation>,
    controller: Option<Generation>,
    has_daemon_exited: bool,
    is_open: bool,
    services: BTreeMap<ResourceName, Activity>,
}

impl World {
    /// Starts to record every step: applied transactions, and the steps of machines and devices.
    pub fn record_steps(&mut self) {
        let snapshots = self.machine_snapshots();
        self.recorded = Some(Box::new(Recording { steps: Vec::new(), snapshots }));
    }

    /// Returns the steps since [`World::record_steps`], in order.
    pub fn recorded_steps(&self) -> &[Recorded] {
        self.recorded.as_ref().map_or(&[], |recording| &recording.steps)
    }

    /// Returns the key layout of the simulated cluster.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(super) fn record_step(&mut self, node: &NodeName, step: impl FnOnce() -> Step) {
        if let Some(recording) = &mut self.recorded {
            recording.steps.push(Recorded { at: self.now, node: node.to_owned(), step: step() });
        }
    }

    /// Records a request that the agent sent to the watchdog daemon.
    pub(super) fn record_watchdog_request(&mut self, node: &NodeName, request: &Request) {
        let deadline = match request {
            Request::Deadline(deadline) => deadline,
            Request::PetWithoutDeadline => return self.record_step(node, || Step::Stays),
            // The model arms without a deadline, and the agent sends its deadline in a separate request.
            Request::Arm(_) | Request::Release | Request::Query => return,
        };
        let left_ms =
            (deadline.monotonic_raw_ns / 1_000_000).saturating_sub(self.clock_of(node).monotonic_raw.0);
        self.record_step(node, || Step::Deadline { left_ms });
    }

    /// Records the differences between the machines now and after the previous event.
    pub(super) fn record_machine_changes(&mut self) {
        if self.recorded.is_none() {
            return;
        }
        let current_snapshots = self.machine_snapshots();
        let Some(recording) = &mut self.recorded else { return };
        let previous_snapshots = std::mem::replace(&mut recording.snapshots, current_snapshots.clone());
        let mut steps = Vec::new();
        for (node, after) in &current_snapshots {
            let before = previous_snapshots.get(node).cloned().unwrap_or_default();
            let mut add = |step| steps.push((node.clone(), step));
            let power_lost = before.is_up && (!after.is_up || before.boot != after.boot);
            if power_lost {
                add(Step::PowerLost { by_watchdog: after.resets > before.resets });
            }
            let before = if power_lost { MachineSnapshot::default() } else { before };
            if before.agent.is_some() && before.agent != after.agent {
                add(Step::AgentEnds);
            }
            if after.agent.is_some() && before.agent != after.agent {
                add(Step::AgentStarts);
            }
            if after.controller.is_some() && before.controller != after.controller {
                add(Step::ControllerStarts);
            }
            if after.has_daemon_exited && !before.has_daemon_exited {
                add(Step::DaemonEnds);
            }
            if after.is_open != before.is_open {
                add(if after.is_open { Step::DeviceOpens } else { Step::DeviceCloses });
            }
            for service in before.services.keys().filter(|service| !after.services.contains_key(*service)) {
                let arrived = |other_node: &&NodeName| {
                    let activity_on = |snapshots: &BTreeMap<NodeName, MachineSnapshot>| {
                        snapshots.get(*other_node)?.services.get(service).copied()
                    };
                    matches!(activity_on(&current_snapshots), Some(Activity::Arrived | Activity::Runs))
                        && !matches!(
                            activity_on(&previous_snapshots),
                            Some(Activity::Arrived | Activity::Runs)
                        )
                };
                if !current_snapshots.keys().any(|other_node| arrived(&other_node)) {
                    add(Step::ServiceEnds(service.clone()));
                }
            }
            for (service, activity) in &after.services {
                let previous_activity = before.services.get(service);
                let source = previous_snapshots.iter().find(|(other_node, snapshot)| {
                    *other_node != node
                        && snapshot.services.get(service) == Some(&Activity::Runs)
                        && current_snapshots
                            .get(*other_node)
                            .is_none_or(|snapshot| !snapshot.services.contains_key(service) && snapshot.is_up)
                });
                match (previous_activity, activity, source) {
                    (
                        None | Some(Activity::Receives),
                        Activity::Runs | Activity::Arrived,
                        Some((from, _)),
                    ) => {
                        add(Step::ServiceArrives { service: service.clone(), from: from.clone() });
                    }
                    (None, Activity::Runs | Activity::Arrived, None) => {
                        add(Step::ServiceStarts(service.clone()));
                    }
                    (None, Activity::Receives, _) => add(Step::ServiceReceives(service.clone())),
                    (Some(_), Activity::Runs | Activity::Arrived | Activity::Receives, _) => {}
                }
            }
        }
        for (node, step) in steps {
            self.record_step(&node, || step);
        }
    }

    fn machine_snapshots(&self) -> BTreeMap<NodeName, MachineSnapshot> {
        let named_snapshot = |(node, machine): (&NodeName, &super::machine::Machine)| {
            let snapshot = MachineSnapshot {
                boot: machine.boot,
                is_up: machine.is_up,
                resets: machine.resets.len(),
                agent: self.agents.get(node).map(|process| process.generation),
                controller: self.controllers.get(node).map(|process| process.generation),
                has_daemon_exited: machine.watchdog.has_exited,
                is_open: machine.watchdog.is_open,
                services: machine
                    .services
                    .iter()
                    .map(|(name, present)| (name.clone(), present.activity))
                    .collect(),
            };
            (node.clone(), snapshot)
        };
        self.machines.iter().map(named_snapshot).collect()
    }
}
