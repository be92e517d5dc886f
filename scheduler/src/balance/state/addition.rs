//! Additional instances without a placement, which are added to nodes and removed again.

use super::super::problem::Placement;
use super::State;
use std::fmt;
use std::ops::Add;

/// The shortage of a node for an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockingReason {
    /// The node is offline or being emptied.
    Offline,
    /// Too little memory.
    Memory,
    /// Too little disk beyond the part that must stay free.
    Disk,
    /// Too few uses of spindles within the ratio.
    Spindles,
    /// Too few virtual cpus within the ratio.
    Cpus,
    /// The node would no longer survive the failure of a peer.
    Reserve,
    /// An instance with the same exclusion tag is on the node.
    ExclusionTag,
    /// Storage, a rule or the state of the node excludes the instance.
    Forbidden,
}

impl fmt::Display for BlockingReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            BlockingReason::Offline => "offline or being drained",
            BlockingReason::Memory => "too little memory",
            BlockingReason::Disk => "too little disk",
            BlockingReason::Spindles => "too few spindles within the ratio",
            BlockingReason::Cpus => "too few CPUs within the ratio",
            BlockingReason::Reserve => "N+1 would fail",
            BlockingReason::ExclusionTag => "service with the same exclusion tag on the node",
            BlockingReason::Forbidden => "excluded by storage, a rule or the node itself",
        })
    }
}

/// Amounts of memory, disk and virtual cpus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Memory in MiB.
    pub memory: i64,
    /// Disk in MiB, of both copies if there are two.
    pub disk: i64,
    /// Number of virtual cpus.
    pub vcpus: i64,
}

impl Add for Amount {
    type Output = Amount;

    fn add(self, other: Amount) -> Amount {
        Amount {
            memory: self.memory + other.memory,
            disk: self.disk + other.disk,
            vcpus: self.vcpus + other.vcpus,
        }
    }
}

/// The limits that must hold for an additional instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredLimits {
    /// Memory, disk, cpus and exclusion tags.
    Limits,
    /// The same as `Limits`, and none of the instance's nodes may fail N+1.
    NPlusOne,
}

impl State<'_> {
    /// Adds one more copy of an instance of the problem to nodes, if the limits then hold. The state keeps no
    /// placement for the copy, so copies can be added repeatedly.
    ///
    /// # Errors
    /// Returns the shortage that prevents it; the state is then unchanged.
    pub fn try_add(
        &mut self,
        service: usize,
        placement: Placement,
        required: RequiredLimits,
    ) -> Result<(), BlockingReason> {
        if self.would_clash(service, placement.primary) {
            return Err(BlockingReason::ExclusionTag);
        }
        self.add_or_remove(service, placement, 1);
        let fails = |state: &Self| {
            let fails = placement.nodes().any(|node| state.fails_n1(node));
            (required == RequiredLimits::NPlusOne && fails).then_some(BlockingReason::Reserve)
        };
        match self.blocking_reason(service, placement, None, false).or_else(|| fails(self)) {
            None => Ok(()),
            Some(reason) => {
                self.add_or_remove(service, placement, -1);
                Err(reason)
            }
        }
    }

    /// Removes an instance that was added by [`State::try_add`] or [`State::add_unchecked`].
    pub fn remove_added(&mut self, service: usize, placement: Placement) {
        self.add_or_remove(service, placement, -1);
    }

    /// Adds an instance to nodes without a check of limits.
    pub fn add_unchecked(&mut self, service: usize, placement: Placement) {
        self.add_or_remove(service, placement, 1);
    }

    /// Returns the memory of a node that is neither used nor reserved for peers, as a share of its total.
    pub fn spare_memory_share(&self, node: usize) -> f64 {
        let node_state = &self.node_states[node];
        (node_state.memory_free - node_state.memory_reserved) as f64 / self.problem.nodes[node].memory_total
    }

    /// Returns the free memory of a node in MiB.
    pub fn memory_free(&self, node: usize) -> i64 {
        self.node_states[node].memory_free
    }

    /// Returns the free amounts of a node within its limits.
    pub fn free(&self, node: usize) -> Amount {
        let (problem_node, node_state) = (&self.problem.nodes[node], &self.node_states[node]);
        Amount {
            memory: node_state.memory_free,
            disk: node_state.disk_free - problem_node.disk_min,
            vcpus: problem_node.vcpus_max - node_state.vcpus,
        }
    }
}
