//! Partitions: a storage mode and pool, and the groups that reach it. Instances move between groups only inside a
//! partition.
//!
//! A file names no pools, so the template takes their place. A group reaches the templates that its policy permits. A
//! shared or replicated instance moves only to groups with all networks of its own group. On a live cluster, the
//! scheduler's conditions determine the eligible nodes of each service.

use crate::balance::model::{Allocation, Cluster, StorageReach, Template};
use std::fmt;

/// A storage mode and pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Range of nodes that can access the storage.
    pub reach: StorageReach,
    /// Name of the pool; on files the name of the template.
    pub pool: String,
    /// The groups that reach the storage, by position in the cluster.
    pub groups: Vec<usize>,
}

/// The reason why an instance may not move to a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryBarrier {
    /// The disk of the instance is on one node only.
    Local,
    /// The group's policy does not permit the template.
    Template(&'static str),
    /// Networks of the instance's group to which the other group is not connected.
    Networks(Vec<String>),
    /// The group accepts no instances.
    Unallocable,
    /// Moves between groups are switched off.
    InterGroupMoves,
    /// The instance must not move at all, with the reason.
    Immovable(&'static str),
    /// No command can copy the disk of the instance.
    Copies,
    /// Storage, a rule or the state of the nodes excludes all nodes of the group.
    Nodes,
}

impl fmt::Display for EntryBarrier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntryBarrier::Local => formatter.write_str("disk is on one node only"),
            EntryBarrier::Template(template) => {
                write!(formatter, "policy of the group does not permit {template}")
            }
            EntryBarrier::Networks(networks) => {
                write!(formatter, "group is not connected to {}", networks.join(", "))
            }
            EntryBarrier::Unallocable => formatter.write_str("group is unallocable"),
            EntryBarrier::Immovable(reason) => formatter.write_str(reason),
            EntryBarrier::Copies => formatter.write_str("no command can copy the disk to another node"),
            EntryBarrier::Nodes => formatter.write_str("storage or a rule excludes every node of the group"),
            EntryBarrier::InterGroupMoves => formatter.write_str("moves between groups are disabled"),
        }
    }
}

/// Returns the word for a template in the text format.
pub fn template_name(template: Template) -> &'static str {
    Template::WORDS.iter().find(|(listed, _)| *listed == template).map_or("", |(_, word)| *word)
}

/// Returns `true` if the policy of a group permits a template.
pub(super) fn permits(cluster: &Cluster, group: usize, template: Template) -> bool {
    // A policy that lists no templates does not limit them.
    let listed_templates = cluster
        .policy(group)
        .map(|policy| &policy.templates)
        .filter(|listed_templates| !listed_templates.is_empty());
    listed_templates.is_none_or(|listed_templates| listed_templates.contains(&template))
}

/// Returns the partitions of all instances of a cluster, in the order of templates. Local storage is in no partition.
pub fn partitions(cluster: &Cluster) -> Vec<Partition> {
    let used_templates = Template::WORDS.iter().filter(|(template, _)| {
        template.reach() != StorageReach::Local
            && cluster.instances.iter().any(|instance| instance.template == *template)
    });
    used_templates
        .map(|&(template, word)| Partition {
            reach: template.reach(),
            pool: word.to_owned(),
            groups: populated_groups(cluster).filter(|&group| permits(cluster, group, template)).collect(),
        })
        .collect()
}

/// Returns the groups that have nodes.
pub fn populated_groups(cluster: &Cluster) -> impl Iterator<Item = usize> {
    (0..cluster.groups.len()).filter(|&group| cluster.nodes.iter().any(|node| node.group == group))
}

/// Checks whether the storage and the networks of an instance reach another group.
///
/// # Errors
/// Returns the barrier that prevents it.
pub fn check_reach(cluster: &Cluster, index: usize, group: usize) -> Result<(), EntryBarrier> {
    let instance = &cluster.instances[index];
    if let Some(constraints) = cluster.live_constraints.get(&index) {
        if let Some(reason) = constraints.immovable_reason {
            return Err(EntryBarrier::Immovable(reason));
        }
        if instance.template.reach() == StorageReach::Replicated && !constraints.can_copy_disk {
            return Err(EntryBarrier::Copies);
        }
        if !constraints.nodes.iter().any(|&node| cluster.nodes[node].group == group) {
            return Err(EntryBarrier::Nodes);
        }
    }
    if instance.template.reach() == StorageReach::Local {
        return Err(EntryBarrier::Local);
    }
    if !permits(cluster, group, instance.template) {
        return Err(EntryBarrier::Template(template_name(instance.template)));
    }
    let connected = &cluster.groups[group].networks;
    let group_networks = &cluster.groups[cluster.nodes[instance.primary].group].networks;
    let missing: Vec<String> =
        group_networks.iter().filter(|network| !connected.contains(network)).cloned().collect();
    if missing.is_empty() { Ok(()) } else { Err(EntryBarrier::Networks(missing)) }
}

/// Checks whether an instance may move to another group.
///
/// # Errors
/// Returns the barrier that prevents it.
pub fn check_move(cluster: &Cluster, index: usize, group: usize) -> Result<(), EntryBarrier> {
    check_reach(cluster, index, group)?;
    if cluster.groups[group].allocation == Allocation::Unallocable {
        return Err(EntryBarrier::Unallocable);
    }
    Ok(())
}

/// Returns the other groups that the storage and networks of some instance of a group reach.
pub fn connected_groups(cluster: &Cluster, group: usize) -> Vec<usize> {
    let is_in_group = |index: &usize| cluster.nodes[cluster.instances[*index].primary].group == group;
    let group_instances: Vec<usize> = (0..cluster.instances.len()).filter(is_in_group).collect();
    populated_groups(cluster)
        .filter(|&other| {
            other != group && group_instances.iter().any(|&index| check_reach(cluster, index, other).is_ok())
        })
        .collect()
}
