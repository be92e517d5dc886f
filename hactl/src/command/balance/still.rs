//! Checks whether the cluster still matches a plan.

use super::apply::Conditions;
use super::planned::{Planned, Source};
use crate::failure::Failure;
use crate::session::Session;
use ha_scheduler::balance::model::{Cluster, Node, Role};
use ha_scheduler::balance::plan::Step;
use std::collections::{BTreeMap, BTreeSet};

/// Primary and secondary node.
type Place = (String, Option<String>);

/// Assumptions of a plan: the nodes of services, and the nodes that take part.
pub(super) struct Expected {
    /// Command that makes a new plan.
    command: &'static str,
    /// Primary and secondary of each service of the planned groups.
    services: BTreeMap<String, Place>,
    /// Nodes of these groups, and whether they are online and accept services.
    nodes: BTreeMap<String, Takes>,
}

/// Whether a node accepts services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Services,
    NoneAsDrained,
    NoneAsOffline,
}

impl Takes {
    fn word(self) -> &'static str {
        match self {
            Takes::Services => "online",
            Takes::NoneAsDrained => "in maintenance or not schedulable",
            Takes::NoneAsOffline => "not online",
        }
    }
}

impl Expected {
    /// Records the cluster for which the plans were made, without nodes that options treat as offline.
    pub(super) fn new(source: &Source, conditions: Conditions<'_>, plans: &[Planned]) -> Expected {
        let cluster = &source.cluster;
        let hosts = plans.iter().flat_map(|planned| &planned.problem.hosts);
        let groups: BTreeSet<usize> = hosts.map(|host| cluster.nodes[host.node].group).collect();
        let nodes = cluster.nodes.iter().filter(|node| groups.contains(&node.group));
        Expected {
            command: conditions.command,
            services: places(cluster, |node| groups.contains(&cluster.nodes[node].group)),
            nodes: nodes
                .filter(|node| !conditions.offline.contains(&node.name))
                .map(|node| (node.name.clone(), takes(source, node)))
                .collect(),
        }
    }

    /// Records that a step is done.
    pub(super) fn note(&mut self, source: &Source, planned: &Planned, step: &Step) {
        let node = |host: usize| source.node(&planned.problem, host).to_owned();
        for at in planned.problem.guests[step.guest].instances() {
            let place = (node(step.to.primary), step.to.secondary.map(node));
            self.services.insert(source.cluster.instances[at].name.clone(), place);
        }
    }

    /// Compares the live cluster with the plan, and checks whether these services can be moved.
    ///
    /// # Errors
    /// Fails with the first difference, as a sentence.
    pub(super) async fn check(&self, session: &Session, moving: &[&str]) -> Result<(), Failure> {
        let now = Source::observed(session.client()?).await?;
        self.compare(&now, moving).map_err(|what| {
            Failure::refused(format!("the cluster has changed since the plan: {what}"))
                .help(format!("run \"{}\" to plan again", self.command))
        })
    }

    fn compare(&self, now: &Source, moving: &[&str]) -> Result<(), String> {
        for (name, expected) in &self.nodes {
            let Some(found) = now.cluster.nodes.iter().find(|node| node.name == *name) else {
                return Err(format!("node {name} not found"));
            };
            let found = takes(now, found);
            if found != *expected {
                return Err(format!("node {name} is {}, was {}", found.word(), expected.word()));
            }
        }
        let found = places(&now.cluster, |_| true);
        for (name, expected) in &self.services {
            let Some(found) = found.get(name) else { return Err(format!("{name} not found")) };
            if found != expected {
                return Err(format!("{name} is on {}, not on {}", shown(found), shown(expected)));
            }
        }
        for (at, instance) in now.cluster.instances.iter().enumerate() {
            if moving.contains(&instance.name.as_str())
                && let Some(why) = now.cluster.bindings.get(&at).and_then(|binding| binding.stays)
            {
                return Err(format!("cannot move {} now: {why}", instance.name));
            }
        }
        Ok(())
    }
}

fn takes(source: &Source, node: &Node) -> Takes {
    if node.role == Role::Offline {
        Takes::NoneAsOffline
    } else if source.drained.contains(&node.name) {
        Takes::NoneAsDrained
    } else {
        Takes::Services
    }
}

/// Returns the nodes of each service whose primary node is chosen.
fn places(cluster: &Cluster, chosen: impl Fn(usize) -> bool) -> BTreeMap<String, Place> {
    let name = |node: usize| cluster.nodes[node].name.clone();
    let instances = cluster.instances.iter().filter(|instance| chosen(instance.primary));
    instances
        .map(|instance| (instance.name.clone(), (name(instance.primary), instance.secondary.map(name))))
        .collect()
}

fn shown((primary, secondary): &Place) -> String {
    match secondary {
        Some(secondary) => format!("{primary}:{secondary}"),
        None => primary.clone(),
    }
}
