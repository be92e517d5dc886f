//! Additions with the limits and refusals of Ganeti's programs, for results that equal theirs.

use super::super::problem::Placement;
use super::State;
use crate::balance::columns::{
    FORTHCOMING_MEMORY, FORTHCOMING_SPINDLES, FORTHCOMING_STORAGE, FORTHCOMING_VCPUS, FREE_STORAGE,
};
use crate::balance::model::Cluster;
use std::collections::BTreeSet;

/// The reason why Ganeti's programs refuse a node for an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailMode {
    /// Too little memory, also for the failure of a peer.
    Memory,
    /// Too little disk, or a disk outside the policy.
    Disk,
    /// Too many virtual cpus.
    Cpu,
    /// A failed node could no longer be evacuated.
    NPlusOne,
    /// An instance with the same exclusion tag is on the node.
    Tags,
    /// The tags of the nodes forbid a migration.
    Migration,
    /// A number of disks outside the policy.
    DiskCount,
    /// Too few spindles, or no spindles given although they are exclusive.
    Spindles,
}

impl FailMode {
    /// Every mode in its order, with its word.
    pub const WORDS: [(FailMode, &str); 8] = [
        (FailMode::Memory, "FailMem"),
        (FailMode::Disk, "FailDisk"),
        (FailMode::Cpu, "FailCPU"),
        (FailMode::NPlusOne, "FailN1"),
        (FailMode::Tags, "FailTags"),
        (FailMode::Migration, "FailMig"),
        (FailMode::DiskCount, "FailDiskCount"),
        (FailMode::Spindles, "FailSpindles"),
    ];

    /// Returns the word of the mode in the output.
    pub fn name(self) -> &'static str {
        FailMode::WORDS.iter().find(|(mode, _)| *mode == self).map_or("", |(_, word)| word)
    }
}

/// The checks of an addition that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a parameter of its own in Ganeti's programs")]
pub struct Checks {
    /// `true` if the soft limits of the primary do not count: N+1, the ratio of virtual cpus, shared spindles, the minimum
    /// of free disk, and exclusion tags.
    pub forces_primary: bool,
    /// `true` if the soft limits of the secondary do not count.
    pub forces_secondary: bool,
    /// `true` if the secondary needs no free disk, because it is the failed node of the instance.
    pub ignores_secondary_disk: bool,
    /// `true` if the reason against the secondary counts before that against the primary.
    pub checks_secondary_first: bool,
}

/// A node with an instance that was just added.
#[derive(Clone, Copy)]
struct Added {
    service: usize,
    node: usize,
    failed_before: bool,
    memory_before: i64,
    clashes: bool,
}

/// A node whose N+1 result, as read from the input, differs from the result after its first change.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadedNode {
    node: usize,
    memory_free: i64,
    instances: i64,
    failed: bool,
}

impl State<'_> {
    /// Applies the N+1 rule of Ganeti's programs to the nodes that have not changed since they were read. Such a node
    /// fails if it reports less free memory than it reserves, while one with equal amounts fails after the first
    /// change.
    pub fn load_as_ganeti(&mut self, cluster: &Cluster, changed_nodes: &BTreeSet<usize>) {
        let nodes = self.problem.nodes.iter().zip(&self.node_states).enumerate();
        let unchanged = nodes.filter(|(_, (node, _))| !changed_nodes.contains(&node.cluster_node));
        let loaded = unchanged.map(|(index, (node, node_state))| LoadedNode {
            node: index,
            memory_free: node_state.memory_free,
            instances: node_state.instances,
            failed: cluster.nodes[node.cluster_node].memory_free < node_state.memory_reserved,
        });
        let differs = |loaded: &LoadedNode| loaded.failed != self.node_states[loaded.node].fails_n1();
        self.loaded_nodes = loaded.filter(differs).collect();
    }

    fn is_unchanged(&self, loaded: &LoadedNode) -> bool {
        let node_state = &self.node_states[loaded.node];
        loaded.memory_free == node_state.memory_free && loaded.instances == node_state.instances
    }

    /// Returns the number of instances that the unchanged nodes add to the score or remove from it.
    pub(super) fn loaded_difference(&self) -> i64 {
        let unchanged = self.loaded_nodes.iter().filter(|loaded| self.is_unchanged(loaded));
        let online = unchanged.filter(|loaded| !self.problem.nodes[loaded.node].is_offline);
        online.map(|loaded| if loaded.failed { loaded.instances } else { -loaded.instances }).sum()
    }

    /// Returns `true` if a node fails N+1 for Ganeti's programs.
    fn failed_before(&self, node: usize) -> bool {
        let loaded = self.loaded_nodes.iter().find(|loaded| loaded.node == node);
        match loaded.filter(|loaded| self.is_unchanged(loaded)) {
            Some(loaded) => loaded.failed,
            None => self.node_states[node].fails_n1(),
        }
    }

    /// Adds an instance to nodes if they accept it, with the checks of Ganeti's programs in the same order.
    ///
    /// # Errors
    /// Returns the first reason against one of the nodes; the state is then unchanged.
    pub fn add_checked(
        &mut self,
        service: usize,
        placement: Placement,
        checks: Checks,
    ) -> Result<(), FailMode> {
        let before = |node: usize| Added {
            service,
            node,
            failed_before: self.failed_before(node),
            memory_before: self.node_states[node].memory_free,
            clashes: node == placement.primary && self.has_exclusion_tag(service, node),
        };
        let (primary, secondary) = (before(placement.primary), placement.secondary.map(before));
        self.add_or_remove(service, placement, 1);
        let on_primary = || self.refusal_of_primary(primary, checks.forces_primary);
        let on_secondary = || secondary.and_then(|secondary| self.refusal_of_secondary(secondary, checks));
        let refusal = if checks.checks_secondary_first {
            on_secondary().or_else(on_primary)
        } else {
            on_primary().or_else(on_secondary)
        };
        match refusal {
            None => Ok(()),
            Some(mode) => {
                self.add_or_remove(service, placement, -1);
                Err(mode)
            }
        }
    }

    fn refusal_of_primary(&self, added: Added, is_forced: bool) -> Option<FailMode> {
        let (node, node_state) = (&self.problem.nodes[added.node], &self.node_states[added.node]);
        let service = &self.problem.services[added.service];
        if service.is_created {
            if node_state.memory_free <= 0 {
                return Some(FailMode::Memory);
            }
            if let Some(mode) = self.storage_refusal(added, is_forced, false) {
                return Some(mode);
            }
            if !is_forced && !added.failed_before && node_state.fails_n1() {
                return Some(FailMode::Memory);
            }
            if !is_forced && node_state.vcpus > node.vcpus_max {
                return Some(FailMode::Cpu);
            }
            if !is_forced && added.clashes {
                return Some(FailMode::Tags);
            }
        }
        let lacks_memory = !is_forced && self.amount(added.node, FORTHCOMING_MEMORY) <= 0;
        let lacks_cpus = !is_forced && self.amount(added.node, FORTHCOMING_VCPUS) > node.vcpus_max;
        lacks_memory
            .then_some(FailMode::Memory)
            .or_else(|| self.forthcoming_storage_refusal(added, is_forced))
            .or(lacks_cpus.then_some(FailMode::Cpu))
    }

    fn refusal_of_secondary(&self, added: Added, checks: Checks) -> Option<FailMode> {
        let service = &self.problem.services[added.service];
        let is_forced = checks.forces_secondary;
        if service.is_created {
            let ignores_disk = checks.ignores_secondary_disk;
            if let Some(mode) = self.storage_refusal(added, is_forced, ignores_disk) {
                return Some(mode);
            }
            let lacks_memory = service.memory_reserved >= added.memory_before
                || (!added.failed_before && self.node_states[added.node].fails_n1());
            if !is_forced && lacks_memory {
                return Some(FailMode::Memory);
            }
        }
        self.forthcoming_storage_refusal(added, is_forced).or_else(|| {
            // The memory of forthcoming instances on the node before, which the addition of a secondary does not change.
            let lacks_memory = service.memory_reserved >= self.amount(added.node, FORTHCOMING_MEMORY);
            (!is_forced && lacks_memory).then_some(FailMode::Memory)
        })
    }

    /// Returns the reason for which disks or spindles of a node do not suffice.
    fn storage_refusal(&self, added: Added, is_forced: bool, ignores_disk: bool) -> Option<FailMode> {
        let (node, node_state) = (&self.problem.nodes[added.node], &self.node_states[added.node]);
        let service = &self.problem.services[added.service];
        if !service.template.uses_node_disk() {
            return None;
        }
        let lacks_disk = (!ignores_disk && node_state.disk_free <= 0)
            || (!is_forced && node_state.disk_free < node.disk_min);
        if lacks_disk {
            return Some(FailMode::Disk);
        }
        let free_spindles = || self.amount(added.node, FREE_STORAGE);
        if node.has_exclusive_spindles && (service.own_spindles.is_none() || free_spindles() < 0) {
            return Some(FailMode::Spindles);
        }
        (!is_forced && node.lacks_spindles(node_state.spindles)).then_some(FailMode::Disk)
    }

    /// Returns the reason for which disks or spindles of a node do not suffice once all forthcoming instances exist.
    fn forthcoming_storage_refusal(&self, added: Added, is_forced: bool) -> Option<FailMode> {
        let node = &self.problem.nodes[added.node];
        let service = &self.problem.services[added.service];
        if is_forced || !service.template.uses_node_disk() {
            return None;
        }
        if node.has_exclusive_spindles {
            let lacks_spindles =
                service.own_spindles.is_none() || self.amount(added.node, FORTHCOMING_STORAGE) < 0;
            return lacks_spindles.then_some(FailMode::Spindles);
        }
        let disk_free = self.amount(added.node, FORTHCOMING_STORAGE);
        let lacks_disk = disk_free <= 0
            || disk_free < node.disk_min
            || node.lacks_spindles(self.amount(added.node, FORTHCOMING_SPINDLES));
        lacks_disk.then_some(FailMode::Disk)
    }

    fn amount(&self, node: usize, column: usize) -> i64 {
        self.amounts[node * self.columns.len() + self.columns.merged[column]]
    }

    /// Returns the free disk of a node in MiB, without the part that must stay free.
    pub fn disk_free(&self, node: usize) -> i64 {
        self.node_states[node].disk_free
    }
}
