//! Partitions: a storage mode and pool, and the groups that reach it. Instances change groups only inside one.
//!
//! A file names no pools. There the template stands for it: a group reaches what its policy permits, and a shared or replicated
//! instance goes only where the networks of its group are connected too. On the live cluster every service says which nodes it may
//! come to, by placement's own conditions.

use crate::balance::model::{Allocation, Cluster, Reach, Template};
use std::fmt;

/// A storage mode and pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// How far it reaches.
    pub reach: Reach,
    /// The pool: on files the name of the template.
    pub pool: String,
    /// The groups that reach it, by position.
    pub groups: Vec<usize>,
}

/// Why an instance may not go to a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Barrier {
    /// Its disk is on one node only.
    Local,
    /// The group's policy does not permit the template.
    Template(&'static str),
    /// Networks of its group that the other is not connected to.
    Networks(Vec<String>),
    /// The group takes nothing.
    Unallocable,
    /// Nothing changes groups.
    InterGroupMoves,
    /// It is not moved at all, in words.
    Stays(&'static str),
    /// Its disk cannot be copied by a command.
    Copies,
    /// Storage, a rule, or what they are keeps it from all nodes of the group.
    Nodes,
}

impl fmt::Display for Barrier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Barrier::Local => formatter.write_str("its disk is on one node only"),
            Barrier::Template(template) => write!(formatter, "the group's policy does not permit {template}"),
            Barrier::Networks(networks) => {
                write!(formatter, "the group is not connected to {}", networks.join(", "))
            }
            Barrier::Unallocable => formatter.write_str("the group is unallocable"),
            Barrier::Stays(why) => formatter.write_str(why),
            Barrier::Copies => formatter.write_str("its disk is not copied by a move"),
            Barrier::Nodes => formatter.write_str("storage or a rule keeps it from every node there"),
            Barrier::InterGroupMoves => formatter.write_str("moves between groups are switched off"),
        }
    }
}

/// The word of a template.
pub fn word(template: Template) -> &'static str {
    Template::WORDS.iter().find(|(known, _)| *known == template).map_or("", |(_, word)| *word)
}

/// The group reaches what a template needs.
pub(super) fn permits(cluster: &Cluster, group: usize, template: Template) -> bool {
    // A policy that names no template says nothing about them.
    let named = cluster.policy(group).map(|policy| &policy.templates).filter(|named| !named.is_empty());
    named.is_none_or(|named| named.contains(&template))
}

/// The partitions of what lives in a cluster, in the order of templates; local storage is in none.
pub fn partitions(cluster: &Cluster) -> Vec<Partition> {
    let used = Template::WORDS.iter().filter(|(template, _)| {
        template.reach() != Reach::Local
            && cluster.instances.iter().any(|instance| instance.template == *template)
    });
    used.map(|&(template, word)| Partition {
        reach: template.reach(),
        pool: word.to_owned(),
        groups: populated(cluster).filter(|&group| permits(cluster, group, template)).collect(),
    })
    .collect()
}

/// Groups that have nodes.
pub fn populated(cluster: &Cluster) -> impl Iterator<Item = usize> {
    (0..cluster.groups.len()).filter(|&group| cluster.nodes.iter().any(|node| node.group == group))
}

/// Whether the storage and the networks of an instance reach another group.
///
/// # Errors
/// What keeps it from there.
pub fn reaches(cluster: &Cluster, index: usize, group: usize) -> Result<(), Barrier> {
    let instance = &cluster.instances[index];
    if let Some(binding) = cluster.bindings.get(&index) {
        if let Some(why) = binding.stays {
            return Err(Barrier::Stays(why));
        }
        if instance.template.reach() == Reach::Replicated && !binding.copies {
            return Err(Barrier::Copies);
        }
        if !binding.nodes.iter().any(|&node| cluster.nodes[node].group == group) {
            return Err(Barrier::Nodes);
        }
    }
    if instance.template.reach() == Reach::Local {
        return Err(Barrier::Local);
    }
    if !permits(cluster, group, instance.template) {
        return Err(Barrier::Template(word(instance.template)));
    }
    let connected = &cluster.groups[group].networks;
    let own = &cluster.groups[cluster.nodes[instance.primary].group].networks;
    let missing: Vec<String> = own.iter().filter(|network| !connected.contains(network)).cloned().collect();
    if missing.is_empty() { Ok(()) } else { Err(Barrier::Networks(missing)) }
}

/// Whether an instance may go to another group at all.
///
/// # Errors
/// What keeps it from there.
pub fn admits(cluster: &Cluster, index: usize, group: usize) -> Result<(), Barrier> {
    reaches(cluster, index, group)?;
    if cluster.groups[group].allocation == Allocation::Unallocable {
        return Err(Barrier::Unallocable);
    }
    Ok(())
}

/// The other groups that share a partition with something that lives in a group, or could take it from there.
pub fn neighbours(cluster: &Cluster, group: usize) -> Vec<usize> {
    let here = |index: &usize| cluster.nodes[cluster.instances[*index].primary].group == group;
    let living: Vec<usize> = (0..cluster.instances.len()).filter(here).collect();
    populated(cluster)
        .filter(|&other| other != group && living.iter().any(|&index| reaches(cluster, index, other).is_ok()))
        .collect()
}
