//! A plan: steps in an executable order, with the score after each.

use super::model::Cluster;
use super::moves::{StepKind, execute};
use super::problem::{Placement, Problem};
use super::state::State;
use std::collections::BTreeSet;

/// The move of one instance from one placement to another, with the score after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Index of the instance in the problem.
    pub service: usize,
    /// Placement before the step.
    pub from: Placement,
    /// Placement after the step.
    pub to: Placement,
    /// The operations of which the step consists.
    pub kind: StepKind,
    /// Score after the step.
    pub score: f64,
}

/// Steps from the start of a problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Score before the first step.
    pub start_score: f64,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Returns the score after the last step, or that at the start if there is no step.
    pub fn end_score(&self) -> f64 {
        self.steps.last().map_or(self.start_score, |step| step.score)
    }

    /// Returns the number of copied disks.
    pub fn copies(&self) -> usize {
        self.steps.iter().map(|step| step.kind.copies()).sum()
    }

    /// Returns the number of migrations, or of failovers for stopped instances.
    pub fn migrations(&self) -> usize {
        self.steps.iter().map(|step| step.kind.migrations()).sum()
    }

    /// Returns the amount of copied disk data in MiB.
    pub fn copied_mib(&self, problem: &Problem) -> i64 {
        let copied_by = |step: &Step| match step.kind.copies() {
            0 => 0,
            _ => problem.services[step.service].disk_used,
        };
        self.steps.iter().map(copied_by).sum()
    }

    /// Returns the cluster after the plan, with the new placements of instances and the free amounts of nodes.
    pub fn applied(&self, cluster: &Cluster, problem: &Problem) -> Cluster {
        let mut cluster = cluster.clone();
        let cluster_node = |problem_node: usize| problem.nodes[problem_node].cluster_node;
        for step in &self.steps {
            let service = &problem.services[step.service];
            for index in service.instances() {
                let instance = &mut cluster.instances[index];
                let memory =
                    if instance.status.is_running() && !instance.forthcoming { instance.memory } else { 0 };
                instance.primary = cluster_node(step.to.primary);
                instance.secondary = step.to.secondary.map(cluster_node);
                for (placement, sign) in [(step.from, 1), (step.to, -1)] {
                    cluster.nodes[cluster_node(placement.primary)].memory_free += memory * sign;
                }
            }
            for (placement, sign) in [(step.from, 1), (step.to, -1)] {
                for problem_node in placement.nodes() {
                    let node = &mut cluster.nodes[cluster_node(problem_node)];
                    node.disk_free += service.disk_used * sign;
                    if node.exclusive_storage && service.is_created {
                        node.spindles_free += service.spindles[1] * sign;
                    }
                }
            }
        }
        cluster
    }

    /// Returns the placements of all instances after the plan.
    pub fn placements(&self, problem: &Problem) -> Vec<Placement> {
        let mut placements = problem.start_placements.clone();
        for step in &self.steps {
            placements[step.service] = step.to;
        }
        placements
    }
}

/// Makes a step and returns its record; `None` if a hard limit prohibits it.
pub(super) fn make_step(state: &mut State<'_>, service: usize, to: Placement) -> Option<Step> {
    let from = state.placement(service);
    let kind = execute(state, service, to)?;
    Some(Step { service, from, to, kind, score: state.score() })
}

/// Splits the steps into job sets, in their order: the steps of a set share no node, so that they can be executed in
/// parallel. A set ends before the first step that uses a node of an earlier step in the set.
pub fn job_sets(steps: &[Step]) -> Vec<Vec<Step>> {
    let mut sets: Vec<Vec<Step>> = Vec::new();
    let mut used_nodes = BTreeSet::new();
    for step in steps {
        let nodes = nodes(step);
        if sets.is_empty() || nodes.iter().any(|node| used_nodes.contains(node)) {
            sets.push(Vec::new());
            used_nodes.clear();
        }
        used_nodes.extend(nodes);
        if let Some(set) = sets.last_mut() {
            set.push(*step);
        }
    }
    sets
}

/// Returns the nodes that a step reads from or writes to.
fn nodes(step: &Step) -> BTreeSet<usize> {
    step.from.nodes().chain(step.to.nodes()).collect()
}
