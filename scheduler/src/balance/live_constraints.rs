//! Constraints of instances on a live cluster that the text format cannot express.

use super::model::Instance;
use super::problem::{Placement, Problem, ProblemService};
use std::collections::{BTreeMap, BTreeSet};

/// The constraints of one instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveConstraints {
    /// Eligible nodes, by position in the cluster, without regard to other instances on them.
    pub nodes: BTreeSet<usize>,
    /// Further eligible nodes, which the instance prefers less than its current one. They count only if that node is to be
    /// emptied.
    pub less_preferred: BTreeSet<usize>,
    /// Reason why the instance is not moved; `None` if it may be moved.
    pub immovable_reason: Option<&'static str>,
    /// Number of the unit; instances of one unit move as one.
    pub unit: Option<usize>,
    /// Number of the strict affinity set; a move of one of its instances also moves the others.
    pub affinity_set: Option<usize>,
    /// `true` if the instance can be live-migrated.
    pub can_live_migrate: bool,
    /// `true` if a command can copy the disk of the instance to another node.
    pub can_copy_disk: bool,
}

impl LiveConstraints {
    /// Applies the constraints to a service. `nodes` are the positions of the problem's nodes in the cluster. `is_leaving`
    /// is `true` if the plan empties the node of the service.
    pub(super) fn apply_to(
        &self,
        service: &mut ProblemService,
        instance: &Instance,
        nodes: impl Iterator<Item = usize>,
        is_leaving: bool,
    ) {
        let is_eligible =
            |node: &usize| self.nodes.contains(node) || (is_leaving && self.less_preferred.contains(node));
        service.eligible_nodes = Some(nodes.map(|node| is_eligible(&node)).collect());
        service.is_movable &= self.immovable_reason.is_none();
        service.can_copy_disk = self.can_copy_disk;
        // The disk request of a service counts on its node, wherever its data is stored.
        if instance.status.is_running() && !instance.forthcoming {
            service.disk_used = instance.disk;
            service.disk_forthcoming = instance.disk;
        }
    }
}

impl Problem {
    /// Merges the members of each unit into one service. A unit stays on its nodes if not all members are movable, or if
    /// they differ in placement or eligible nodes.
    pub(super) fn merge_units(&mut self, live_constraints: &BTreeMap<usize, LiveConstraints>) {
        let mut units: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (position, service) in self.services.iter().enumerate() {
            if let Some(unit) =
                live_constraints.get(&service.instance).and_then(|constraints| constraints.unit)
            {
                units.entry(unit).or_default().push(position);
            }
        }
        let mut merged = vec![false; self.services.len()];
        for members in units.values() {
            let [first, others @ ..] = members.as_slice() else { continue };
            let placement_and_reach =
                |index: usize| (self.start_placements[index], self.services[index].reach);
            let can_move_as_one = members.iter().all(|&index| {
                self.services[index].is_movable && placement_and_reach(index) == placement_and_reach(*first)
            });
            if !can_move_as_one {
                for &member in members {
                    self.services[member].is_movable = false;
                }
                continue;
            }
            for &other in others {
                let partner = self.services[other].clone();
                self.services[*first].merge(&partner);
                merged[other] = true;
            }
        }
        if !merged.contains(&true) {
            return;
        }
        let services =
            std::mem::take(&mut self.services).into_iter().zip(std::mem::take(&mut self.start_placements));
        let remaining: Vec<(ProblemService, Placement)> =
            services.zip(merged).filter(|(_, merged)| !merged).map(|(service, _)| service).collect();
        (self.services, self.start_placements) = remaining.into_iter().unzip();
    }
}

impl ProblemService {
    /// Merges the constraints of a service that moves together with this service.
    fn merge(&mut self, other: &ProblemService) {
        self.memory += other.memory;
        self.memory_used += other.memory_used;
        self.memory_forthcoming += other.memory_forthcoming;
        self.memory_reserved += other.memory_reserved;
        self.disk_used += other.disk_used;
        self.disk_forthcoming += other.disk_forthcoming;
        self.vcpus += other.vcpus;
        self.vcpus_forthcoming += other.vcpus_forthcoming;
        for (sum, part) in self.spindles.iter_mut().zip(other.spindles) {
            *sum += part;
        }
        for (sum, part) in self.load.iter_mut().zip(other.load) {
            *sum += part;
        }
        // A tag shared within the unit stays together in any case, so duplicates do not count.
        self.exclusion.extend(&other.exclusion);
        self.exclusion.sort_unstable();
        self.exclusion.dedup();
        self.desired.extend(&other.desired);
        self.can_copy_disk &= other.can_copy_disk;
        if let (Some(eligible_here), Some(eligible_there)) = (&mut self.eligible_nodes, &other.eligible_nodes)
        {
            eligible_here
                .iter_mut()
                .zip(eligible_there)
                .for_each(|(is_eligible, other)| *is_eligible &= other);
        }
        self.partners.push(other.instance);
        self.partners.extend(&other.partners);
    }
}
