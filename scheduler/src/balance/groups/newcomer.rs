//! A service that is to be created: its size and storage, and what a group's policy says of it.

use super::partition::{self, Barrier};
use crate::balance::binding::Binding;
use crate::balance::model::{
    Allocation, Cluster, DEFAULT_LOAD, Instance, Policy, Specification, Status, Template,
};
use crate::balance::problem::{Problem, Settings};
use std::collections::BTreeSet;
use std::fmt;

/// A new service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newcomer {
    /// Its memory.
    pub memory: i64,
    /// Its disk.
    pub disk: i64,
    /// Its virtual cpus.
    pub vcpus: i64,
    /// How its disk is stored.
    pub template: Template,
    /// How much of a spindle it uses.
    pub spindle_use: i64,
    /// Its tags.
    pub tags: Vec<String>,
    /// On a live cluster: the nodes on which it may run, by position.
    pub nodes: Option<BTreeSet<usize>>,
}

/// Why a group does not take a new service, whatever room there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It takes nothing, or does not reach the storage.
    Barrier(Barrier),
    /// Its policy wants another size: what, how much of it, and the nearest range.
    Size {
        /// Memory, disk, or cpus.
        what: &'static str,
        /// How much the service has.
        asked: i64,
        /// The least that is permitted.
        least: i64,
        /// The most that is permitted.
        most: i64,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Barrier(barrier) => write!(formatter, "{barrier}"),
            Refused::Size { what, asked, least, most } => {
                write!(formatter, "the group's policy wants {what} from {least} to {most}, not {asked}")
            }
        }
    }
}

impl Newcomer {
    /// A group as a problem with this service as the last guest.
    pub(super) fn problem(&self, cluster: &Cluster, group: usize, settings: &Settings) -> Problem {
        let somewhere = cluster.nodes.iter().position(|node| node.group == group).unwrap_or(0);
        let instance = self.instance(String::new(), (somewhere, None));
        let binding = self.binding();
        Problem::with_newcomer(cluster, &[group], settings, Some((&instance, binding.as_ref())))
    }

    /// Adds it to a cluster, on these nodes.
    pub fn add(&self, cluster: &mut Cluster, place: (usize, Option<usize>)) {
        let name = format!("new-{}", cluster.instances.len());
        let instance = self.instance(name, place);
        cluster.nodes[place.0].memory_free -= self.memory;
        // What a live service asks for counts on its node, wherever its data is.
        if self.nodes.is_some() && !self.template.uses_node_disk() {
            cluster.nodes[place.0].disk_free -= self.disk;
        }
        if let Some(binding) = self.binding() {
            cluster.bindings.insert(cluster.instances.len(), binding);
        }
        if self.template.uses_node_disk() {
            for node in [Some(place.0), place.1].into_iter().flatten() {
                cluster.nodes[node].disk_free -= self.disk;
            }
        }
        cluster.instances.push(instance);
    }

    fn binding(&self) -> Option<Binding> {
        self.nodes.clone().map(|nodes| Binding { nodes, ..Binding::default() })
    }

    fn instance(&self, name: String, (primary, secondary): (usize, Option<usize>)) -> Instance {
        Instance {
            name,
            memory: self.memory,
            disk: self.disk,
            vcpus: self.vcpus,
            status: Status::Running,
            auto_balance: true,
            primary,
            secondary,
            template: self.template,
            tags: self.tags.clone(),
            spindle_use: self.spindle_use,
            disk_spindles: None,
            forthcoming: false,
            load: DEFAULT_LOAD,
        }
    }

    /// Whether a group may take it at all.
    ///
    /// # Errors
    /// What speaks against it.
    pub fn permitted(&self, cluster: &Cluster, group: usize) -> Result<(), Refused> {
        if cluster.groups[group].allocation == Allocation::Unallocable {
            return Err(Refused::Barrier(Barrier::Unallocable));
        }
        if !partition::permits(cluster, group, self.template) {
            return Err(Refused::Barrier(Barrier::Template(partition::word(self.template))));
        }
        cluster.policy(group).map_or(Ok(()), |policy| self.within(policy))
    }

    /// Whether one of the ranges of a policy has its size; the error is about the first range.
    fn within(&self, policy: &Policy) -> Result<(), Refused> {
        let outside = |(least, most): &(Specification, Specification)| {
            let diskless = self.template == Template::Diskless;
            let sizes = [
                ("memory", self.memory, least.memory, most.memory),
                ("disk", self.disk, least.disk, most.disk),
                ("cpus", self.vcpus, least.cpus, most.cpus),
            ];
            let mut sizes = sizes.into_iter().filter(|(what, ..)| !diskless || *what != "disk");
            sizes
                .find(|(_, asked, least, most)| asked < least || asked > most)
                .map(|(what, asked, least, most)| Refused::Size { what, asked, least, most })
        };
        let each: Vec<Option<Refused>> = policy.ranges.iter().map(outside).collect();
        if each.iter().any(Option::is_none) {
            return Ok(());
        }
        each.into_iter().flatten().next().map_or(Ok(()), Err)
    }
}
