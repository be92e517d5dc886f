//! A service that does not exist yet: its size and storage, and the check against the policy of a group.

use super::partition::{self, EntryBarrier};
use crate::balance::live_constraints::LiveConstraints;
use crate::balance::model::{
    Allocation, Cluster, DEFAULT_LOAD, Instance, Policy, Specification, Status, Template,
};
use crate::balance::problem::{Problem, Settings};
use std::collections::BTreeSet;
use std::fmt;

/// Size, storage and tags of a service that does not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewService {
    /// Memory in MiB.
    pub memory: i64,
    /// Disk in MiB.
    pub disk: i64,
    /// Virtual cpus; thousandths on a live cluster.
    pub vcpus: i64,
    /// Storage of the service's disk.
    pub template: Template,
    /// Number of spindles that the service uses.
    pub spindle_use: i64,
    /// Tags of the service; those with an exclusion prefix keep it off nodes with an instance of the same tag.
    pub tags: Vec<String>,
    /// Eligible nodes on a live cluster, by position; `None` for clusters from files.
    pub nodes: Option<BTreeSet<usize>>,
}

/// The reason why a group cannot accept a new service, regardless of its free capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRefusal {
    /// The group accepts nothing, or does not reach the storage.
    EntryBarrier(EntryBarrier),
    /// The policy of the group requires another size.
    Size {
        /// The dimension outside the range: memory, disk, or cpus.
        amount_name: &'static str,
        /// Size of the service in this dimension.
        requested: i64,
        /// Minimum permitted size.
        minimum: i64,
        /// Maximum permitted size.
        maximum: i64,
    },
}

impl fmt::Display for GroupRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupRefusal::EntryBarrier(barrier) => write!(formatter, "{barrier}"),
            GroupRefusal::Size { amount_name, requested, minimum, maximum } => {
                write!(
                    formatter,
                    "policy of the group requires {amount_name} from {minimum} to {maximum}, got {requested}"
                )
            }
        }
    }
}

impl NewService {
    /// Builds the problem of a group, with this service after its own services.
    pub(super) fn build_problem(&self, cluster: &Cluster, group: usize, settings: &Settings) -> Problem {
        let somewhere = cluster.nodes.iter().position(|node| node.group == group).unwrap_or(0);
        let instance = self.instance(String::new(), (somewhere, None));
        let constraints = self.constraints();
        Problem::with_new_instance(cluster, &[group], settings, Some((&instance, constraints.as_ref())))
    }

    /// Adds the service to a cluster, on these nodes.
    pub fn add_to(&self, cluster: &mut Cluster, placement: (usize, Option<usize>)) {
        let name = format!("new-{}", cluster.instances.len());
        let instance = self.instance(name, placement);
        cluster.nodes[placement.0].memory_free -= self.memory;
        // The disk request of a live service counts on its node, wherever its data is stored.
        if self.nodes.is_some() && !self.template.uses_node_disk() {
            cluster.nodes[placement.0].disk_free -= self.disk;
        }
        if let Some(constraints) = self.constraints() {
            cluster.live_constraints.insert(cluster.instances.len(), constraints);
        }
        if self.template.uses_node_disk() {
            for node in [Some(placement.0), placement.1].into_iter().flatten() {
                cluster.nodes[node].disk_free -= self.disk;
            }
        }
        cluster.instances.push(instance);
    }

    fn constraints(&self) -> Option<LiveConstraints> {
        self.nodes.clone().map(|nodes| LiveConstraints { nodes, ..LiveConstraints::default() })
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

    /// Checks whether a group may accept the service at all.
    ///
    /// # Errors
    /// Returns the reason why the group cannot accept the service.
    pub fn check_policy(&self, cluster: &Cluster, group: usize) -> Result<(), GroupRefusal> {
        if cluster.groups[group].allocation == Allocation::Unallocable {
            return Err(GroupRefusal::EntryBarrier(EntryBarrier::Unallocable));
        }
        if !partition::permits(cluster, group, self.template) {
            return Err(GroupRefusal::EntryBarrier(EntryBarrier::Template(partition::template_name(
                self.template,
            ))));
        }
        cluster.policy(group).map_or(Ok(()), |policy| self.check_size(policy))
    }

    /// Checks whether one of the ranges of a policy contains the size. The error refers to the first range.
    fn check_size(&self, policy: &Policy) -> Result<(), GroupRefusal> {
        let size_refusal = |(lower, upper): &(Specification, Specification)| {
            let diskless = self.template == Template::Diskless;
            let sizes = [
                ("memory", self.memory, lower.memory, upper.memory),
                ("disk", self.disk, lower.disk, upper.disk),
                ("cpus", self.vcpus, lower.cpus, upper.cpus),
            ];
            let mut sizes = sizes.into_iter().filter(|(amount_name, ..)| !diskless || *amount_name != "disk");
            sizes.find(|(_, requested, lower, upper)| requested < lower || requested > upper).map(
                |(amount_name, requested, lower, upper)| GroupRefusal::Size {
                    amount_name,
                    requested,
                    minimum: lower,
                    maximum: upper,
                },
            )
        };
        let range_refusals: Vec<Option<GroupRefusal>> = policy.ranges.iter().map(size_refusal).collect();
        if range_refusals.iter().any(Option::is_none) {
            return Ok(());
        }
        range_refusals.into_iter().flatten().next().map_or(Ok(()), Err)
    }
}
