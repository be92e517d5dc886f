//! Checks whether the cluster still matches a plan.

use super::apply::ExecutionSettings;
use super::planned::{GroupPlan, Source};
use crate::failure::Failure;
use crate::session::Session;
use ha_scheduler::balance::model::{Cluster, Node, Role};
use ha_scheduler::balance::plan::Step;
use std::collections::{BTreeMap, BTreeSet};

/// Primary and secondary node.
type Placement = (String, Option<String>);

/// Assumptions of a plan: the nodes of services, and the nodes that are part of the plan.
pub(super) struct Expected {
    /// Command that makes a new plan.
    command: &'static str,
    /// Primary and secondary of each service of the planned groups.
    services: BTreeMap<String, Placement>,
    /// State of each node of these groups.
    nodes: BTreeMap<String, Acceptance>,
}

/// State of a node with respect to new services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acceptance {
    Accepts,
    Drained,
    Offline,
}

impl Acceptance {
    fn name(self) -> &'static str {
        match self {
            Acceptance::Accepts => "online",
            Acceptance::Drained => "in maintenance or not schedulable",
            Acceptance::Offline => "not online",
        }
    }
}

impl Expected {
    /// Records the cluster for which the plans were made, without nodes that options treat as offline.
    pub(super) fn new(
        source: &Source,
        execution_settings: ExecutionSettings<'_>,
        plans: &[GroupPlan],
    ) -> Expected {
        let cluster = &source.cluster;
        let problem_nodes = plans.iter().flat_map(|group_plan| &group_plan.problem.nodes);
        let groups: BTreeSet<usize> =
            problem_nodes.map(|problem_node| cluster.nodes[problem_node.cluster_node].group).collect();
        let nodes = cluster.nodes.iter().filter(|node| groups.contains(&node.group));
        Expected {
            command: execution_settings.command,
            services: placements(cluster, |node| groups.contains(&cluster.nodes[node].group)),
            nodes: nodes
                .filter(|node| !execution_settings.offline.contains(&node.name))
                .map(|node| (node.name.clone(), acceptance_of(source, node)))
                .collect(),
        }
    }

    /// Records that a step is done.
    pub(super) fn record_step(&mut self, source: &Source, group_plan: &GroupPlan, step: &Step) {
        let node = |problem_node: usize| source.node_name(&group_plan.problem, problem_node).to_owned();
        for instance_index in group_plan.problem.services[step.service].instances() {
            let placement = (node(step.to.primary), step.to.secondary.map(node));
            self.services.insert(source.cluster.instances[instance_index].name.clone(), placement);
        }
    }

    /// Compares the live cluster with the plan, and checks whether these services can be moved.
    ///
    /// # Errors
    /// Fails with the first difference, as a sentence.
    pub(super) async fn check(&self, session: &Session, moving: &[&str]) -> Result<(), Failure> {
        let current = Source::read_live_cluster(session.client()?).await?;
        self.compare(&current, moving).map_err(|difference| {
            Failure::failed(format!("the cluster has changed since the plan: {difference}"))
                .help(format!("run \"{}\" to plan again", self.command))
        })
    }

    fn compare(&self, current: &Source, moving: &[&str]) -> Result<(), String> {
        for (name, expected) in &self.nodes {
            let Some(node) = current.cluster.nodes.iter().find(|node| node.name == *name) else {
                return Err(format!("node {name} not found"));
            };
            let acceptance = acceptance_of(current, node);
            if acceptance != *expected {
                return Err(format!("node {name} is {}, was {}", acceptance.name(), expected.name()));
            }
        }
        let current_placements = placements(&current.cluster, |_| true);
        for (name, expected) in &self.services {
            let Some(placement) = current_placements.get(name) else {
                return Err(format!("{name} not found"));
            };
            if placement != expected {
                return Err(format!(
                    "{name} is on {}, not on {}",
                    placement_text(placement),
                    placement_text(expected)
                ));
            }
        }
        for (instance_index, instance) in current.cluster.instances.iter().enumerate() {
            if moving.contains(&instance.name.as_str())
                && let Some(reason) = current
                    .cluster
                    .live_constraints
                    .get(&instance_index)
                    .and_then(|constraints| constraints.immovable_reason)
            {
                return Err(format!("cannot move {} now: {reason}", instance.name));
            }
        }
        Ok(())
    }
}

fn acceptance_of(source: &Source, node: &Node) -> Acceptance {
    if node.role == Role::Offline {
        Acceptance::Offline
    } else if source.drained.contains(&node.name) {
        Acceptance::Drained
    } else {
        Acceptance::Accepts
    }
}

/// Returns the nodes of each service whose primary node is chosen.
fn placements(cluster: &Cluster, is_selected: impl Fn(usize) -> bool) -> BTreeMap<String, Placement> {
    let name = |node: usize| cluster.nodes[node].name.clone();
    let instances = cluster.instances.iter().filter(|instance| is_selected(instance.primary));
    instances
        .map(|instance| (instance.name.clone(), (name(instance.primary), instance.secondary.map(name))))
        .collect()
}

fn placement_text((primary, secondary): &Placement) -> String {
    match secondary {
        Some(secondary) => format!("{primary}:{secondary}"),
        None => primary.clone(),
    }
}
