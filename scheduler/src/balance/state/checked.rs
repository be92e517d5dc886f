//! Additions with the limits and refusals of Ganeti's programs, for results that equal theirs.

use super::super::problem::Placement;
use super::State;

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
    /// A number of disks outside the policy.
    DiskCount,
    /// Too few spindles, or no spindles given although they are exclusive.
    Spindles,
}

impl FailMode {
    /// Every mode in its order, with its word.
    pub const WORDS: [(FailMode, &str); 7] = [
        (FailMode::Memory, "FailMem"),
        (FailMode::Disk, "FailDisk"),
        (FailMode::Cpu, "FailCPU"),
        (FailMode::NPlusOne, "FailN1"),
        (FailMode::Tags, "FailTags"),
        (FailMode::DiskCount, "FailDiskCount"),
        (FailMode::Spindles, "FailSpindles"),
    ];

    /// Returns the word of the mode in the output.
    pub fn word(self) -> &'static str {
        FailMode::WORDS.iter().find(|(mode, _)| *mode == self).map_or("", |(_, word)| word)
    }
}

impl State<'_> {
    /// Adds an instance to nodes if they accept it, with the checks of Ganeti's programs in the same order. With
    /// `is_forced`, the soft limits do not count: N+1, the ratio of virtual cpus, spindles, the minimum of free disk, and
    /// exclusion tags.
    ///
    /// # Errors
    /// Returns the first reason against the primary, or else against the secondary; the state is then unchanged.
    pub fn add_checked(
        &mut self,
        service: usize,
        placement: Placement,
        is_forced: bool,
    ) -> Result<(), FailMode> {
        let clashes = self.would_clash(service, placement.primary);
        let failed_before: Vec<bool> =
            placement.nodes().map(|node| self.node_states[node].fails_n1()).collect();
        let free_before = placement.secondary.map(|node| self.node_states[node].memory_free);
        self.add_or_remove(service, placement, 1);
        let refusal = placement.nodes().zip(failed_before).find_map(|(node, failed_before)| {
            let is_primary = node == placement.primary;
            self.refusal(service, node, is_primary, is_forced, failed_before, free_before)
        });
        let refusal = refusal.or((clashes && !is_forced).then_some(FailMode::Tags));
        match refusal {
            None => Ok(()),
            Some(mode) => {
                self.add_or_remove(service, placement, -1);
                Err(mode)
            }
        }
    }

    /// Returns the first reason against a node with an instance that was just added.
    fn refusal(
        &self,
        service: usize,
        node: usize,
        is_primary: bool,
        is_forced: bool,
        failed_before: bool,
        free_before: Option<i64>,
    ) -> Option<FailMode> {
        let problem_service = &self.problem.services[service];
        let (problem_node, node_state) = (&self.problem.nodes[node], &self.node_states[node]);
        let lacks_memory = if is_primary {
            problem_service.memory_used > 0 && node_state.memory_free <= 0
        } else {
            problem_service.memory_reserved > 0
                && free_before.is_some_and(|free| free <= problem_service.memory_reserved)
        };
        if lacks_memory {
            return Some(FailMode::Memory);
        }
        let uses_disk = problem_service.disk_forthcoming > 0;
        if uses_disk
            && (node_state.disk_free <= 0 || (!is_forced && node_state.disk_free < problem_node.disk_min))
        {
            return Some(FailMode::Disk);
        }
        if uses_disk && problem_node.has_exclusive_spindles && problem_service.spindles[1] == 0 {
            return Some(FailMode::Spindles);
        }
        if uses_disk && !is_forced && problem_node.lacks_spindles(node_state.spindles) {
            return Some(FailMode::Disk);
        }
        if !is_forced && !failed_before && node_state.fails_n1() {
            return Some(FailMode::Memory);
        }
        if is_primary && !is_forced && problem_service.vcpus != 0 && node_state.vcpus > problem_node.vcpus_max
        {
            return Some(FailMode::Cpu);
        }
        None
    }
}
