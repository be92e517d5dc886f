//! A placement that can be changed and scored incrementally: the cost of a change does not depend on the numbers of nodes
//! and instances.

mod addition;
pub mod checked;

pub use addition::{Amount, BlockingReason, RequiredLimits};

use super::columns::{Columns, SHARE_UNIT};
use super::problem::{Placement, Problem};

mod change_evaluator;

pub use change_evaluator::ChangeEvaluator;

/// A placement with all aggregates for scores and limits.
#[derive(Clone, Debug)]
pub struct State<'a> {
    problem: &'a Problem,
    columns: Columns,
    placements: Vec<Placement>,
    node_states: Vec<NodeState>,
    /// Amounts of each node, at `node * columns + column`; `shares` has the same layout.
    amounts: Vec<i64>,
    shares: Vec<i64>,
    sums: Vec<Sums>,
    reserved: Sums,
    online_count: i64,
    counts: Counts,
    /// Number of primaries with an exclusion tag in a failure domain, at `location * tags + tag`.
    primaries_in_domain: Vec<u32>,
    /// Nodes whose N+1 result in Ganeti's programs differs until the node changes. Empty unless the decisions must
    /// equal those of Ganeti.
    loaded_nodes: Vec<checked::LoadedNode>,
}

#[derive(Clone, Debug, Default)]
struct NodeState {
    memory_free: i64,
    disk_free: i64,
    vcpus: i64,
    /// Number of uses of shared spindles.
    spindles: i64,
    instances: i64,
    /// Memory that the failure of each peer would bring to this node.
    peers: Vec<(usize, i64)>,
    memory_reserved: i64,
    reserved_share: i64,
    /// Number of primaries per exclusion tag.
    tags: Vec<(usize, u32)>,
}

impl NodeState {
    fn fails_n1(&self) -> bool {
        self.memory_free <= self.memory_reserved
    }
}

/// The values of the score that are counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    on_failing: i64,
    on_offline: i64,
    primaries_on_offline: i64,
    clashes: i64,
    location_clashes: i64,
    misplaced: i64,
}

impl Counts {
    /// Returns the weighted sum of the counts.
    fn weighted(self) -> i64 {
        self.on_failing
            + 4 * self.on_offline
            + 16 * self.primaries_on_offline
            + 2 * self.clashes
            + self.misplaced
            + self.location_clashes
    }
}

/// The exact sums and sums of squares of one column over the nodes that are not offline. Deviations follow from them
/// without a loop over nodes.
///
/// Shares are below 2^50, so that with 2^13 nodes the products below stay inside 126 bits.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    sum: i64,
    squares: i128,
}

impl Sums {
    fn new(shares: impl Iterator<Item = i64>) -> Sums {
        let mut sums = Sums::default();
        for share in shares {
            sums.replace(0, share);
        }
        sums
    }

    fn replace(&mut self, old: i64, new: i64) {
        self.sum += new - old;
        // The difference of two squares, in one multiplication.
        self.squares += i128::from(new - old) * i128::from(new + old);
    }

    /// Returns the population standard deviation: √(n·Σx² − (Σx)²) / n, exact up to the root.
    fn deviation(&self, count: i64) -> f64 {
        let variance = i128::from(count) * self.squares - i128::from(self.sum) * i128::from(self.sum);
        #[expect(clippy::cast_precision_loss, reason = "one rounding at the end is enough")]
        let variance = variance as f64;
        variance.sqrt() / (count as f64 * SHARE_UNIT)
    }

    fn total(&self) -> f64 {
        self.sum as f64 / SHARE_UNIT
    }
}

impl<'a> State<'a> {
    /// Computes all aggregates of a placement.
    pub fn new(problem: &'a Problem, placements: &[Placement]) -> State<'a> {
        let columns = Columns::new(problem);
        let node_states = problem.nodes.iter().map(|node| NodeState {
            memory_free: node.memory_base,
            disk_free: node.disk_base,
            vcpus: node.cpus_own,
            ..NodeState::default()
        });
        let node_states: Vec<NodeState> = node_states.collect();
        let online: Vec<usize> =
            (0..problem.nodes.len()).filter(|&node| !problem.nodes[node].is_offline).collect();
        let amounts = columns.base.clone();
        let share = |position: usize| {
            columns.share(position / columns.len(), position % columns.len(), amounts[position])
        };
        let shares: Vec<i64> = (0..amounts.len()).map(share).collect();
        let sums = |shares: &[i64]| -> Vec<Sums> {
            let count = columns.len();
            (0..count)
                .map(|column| Sums::new(online.iter().map(|node| shares[node * count + column])))
                .collect()
        };
        let mut state = State {
            problem,
            placements: placements.to_vec(),
            node_states,
            sums: sums(&shares),
            reserved: Sums::new(online.iter().map(|_| 0)),
            amounts,
            shares,
            online_count: i64::try_from(online.len().max(1)).unwrap_or(i64::MAX),
            counts: Counts::default(),
            primaries_in_domain: vec![0; problem.locations * problem.exclusion_tags],
            columns: columns.clone(),
            loaded_nodes: Vec::new(),
        };
        for node in 0..state.node_states.len() {
            state.update_failing_count(node, 1);
        }
        for (service, placement) in placements.iter().enumerate() {
            state.add_or_remove(service, *placement, 1);
        }
        state
    }

    /// Returns the problem, whose constants the state uses.
    pub fn problem(&self) -> &'a Problem {
        self.problem
    }

    /// Returns the placements of all instances, by position in the problem.
    pub fn placements(&self) -> &[Placement] {
        &self.placements
    }

    /// Returns the placement of an instance.
    pub fn placement(&self, service: usize) -> Placement {
        self.placements[service]
    }

    /// Returns the score, equal to [`super::score::score`] except for rounding.
    pub fn score(&self) -> f64 {
        self.smooth_score() + (self.counts.weighted() + self.loaded_difference()) as f64
    }

    /// Returns the part of the score without the counts: deviations and shares.
    pub fn smooth_score(&self) -> f64 {
        let deviations = self.sums.iter().zip(&self.columns.weights);
        deviations.map(|(sums, weight)| weight * sums.deviation(self.online_count)).sum::<f64>()
            + self.reserved.deviation(self.online_count)
            + 0.25 * self.reserved.total()
    }

    /// Returns `true` if the node is not offline and does not survive the failure of a peer.
    pub fn fails_n1(&self, node: usize) -> bool {
        !self.problem.nodes[node].is_offline && self.node_states[node].fails_n1()
    }

    /// Moves instances if every hard limit then holds. Returns `false` and changes nothing otherwise.
    pub fn change(&mut self, changes: &[(usize, Placement)]) -> bool {
        self.try_change(changes).is_ok()
    }

    /// Moves instances if every hard limit then holds.
    ///
    /// # Errors
    /// Returns the shortage on the target of an instance; the placement is then unchanged.
    pub fn try_change(&mut self, changes: &[(usize, Placement)]) -> Result<(), BlockingReason> {
        let before: Vec<Placement> = changes.iter().map(|&(service, _)| self.placements[service]).collect();
        let forced: Vec<bool> = before.iter().map(|old| self.problem.must_leave(*old)).collect();
        self.change_from(changes, &before, &forced)
    }

    /// Makes one operation of a step that began on `from`: an instance that had to leave at the beginning is not held back
    /// halfway. Returns `false` and changes nothing if a hard limit then does not hold.
    pub fn change_within(&mut self, service: usize, placement: Placement, from: Placement) -> bool {
        let forced = self.problem.must_leave(from) || self.problem.must_leave(self.placements[service]);
        self.change_from(&[(service, placement)], &[self.placements[service]], &[forced]).is_ok()
    }

    fn change_from(
        &mut self,
        changes: &[(usize, Placement)],
        before: &[Placement],
        forced: &[bool],
    ) -> Result<(), BlockingReason> {
        let used_nodes = || {
            changes
                .iter()
                .map(|(_, placement)| placement)
                .chain(before)
                .flat_map(|placement| placement.nodes())
        };
        let mut may_fail_n1: Vec<usize> = used_nodes().filter(|&node| self.fails_n1(node)).collect();
        for ((_, placement), forced) in changes.iter().zip(forced) {
            if *forced {
                may_fail_n1.extend(placement.nodes());
            }
        }
        // A clash is checked after all leaving instances have been removed, so that an exchange is possible.
        for (&(service, _), old) in changes.iter().zip(before) {
            self.add_or_remove(service, *old, -1);
        }
        let mut blocked = None;
        for (&(service, placement), old) in changes.iter().zip(before) {
            if placement.primary != old.primary && self.would_clash(service, placement.primary) {
                blocked = Some(BlockingReason::ExclusionTag);
            }
            self.add_or_remove(service, placement, 1);
            self.placements[service] = placement;
        }
        let newly_failing = |state: &State<'_>| {
            // As in hbal, a node that already failed N+1 must at least have capacity for each new secondary alone.
            let mut each = changes.iter().zip(before).zip(forced);
            let lacks_room = each.any(|((&(service, placement), old), forced)| {
                let needed_memory = state.problem.services[service].memory_reserved;
                let is_full =
                    |node| !old.contains(node) && state.node_states[node].memory_free <= needed_memory;
                !forced && needed_memory > 0 && placement.secondary.is_some_and(is_full)
            });
            let fails =
                lacks_room || used_nodes().any(|node| state.fails_n1(node) && !may_fail_n1.contains(&node));
            (fails && !state.problem.settings.ignore_soft_errors).then_some(BlockingReason::Reserve)
        };
        let blocked = blocked
            .or_else(|| {
                let mut each = changes.iter().zip(before).zip(forced);
                each.find_map(|((&(service, placement), old), forced)| {
                    self.blocking_reason(service, placement, Some(*old), *forced)
                })
            })
            .or_else(|| newly_failing(self));
        if blocked.is_some() {
            for (&(service, placement), old) in changes.iter().zip(before) {
                self.add_or_remove(service, placement, -1);
                self.add_or_remove(service, *old, 1);
                self.placements[service] = *old;
            }
        }
        blocked.map_or(Ok(()), Err)
    }

    /// Moves an instance without a check of limits, to revert a change.
    pub fn restore(&mut self, service: usize, placement: Placement) {
        self.add_or_remove(service, self.placements[service], -1);
        self.add_or_remove(service, placement, 1);
        self.placements[service] = placement;
    }

    /// Returns `true` if an online node already has an instance with an exclusion tag of this one.
    fn would_clash(&self, service: usize, node: usize) -> bool {
        !self.problem.nodes[node].is_offline && self.has_exclusion_tag(service, node)
    }

    /// Returns `true` if a node already has an instance with an exclusion tag of this one.
    fn has_exclusion_tag(&self, service: usize, node: usize) -> bool {
        let tags = &self.node_states[node].tags;
        self.problem.services[service].exclusion.iter().any(|tag| tags.iter().any(|(other, _)| other == tag))
    }

    /// Returns the shortage on the nodes to which an instance has moved.
    fn blocking_reason(
        &self,
        service: usize,
        placement: Placement,
        old: Option<Placement>,
        is_forced: bool,
    ) -> Option<BlockingReason> {
        let problem_service = &self.problem.services[service];
        let is_new_node = |node: &usize| old.is_none_or(|old| !old.contains(*node));
        let is_new_primary = old.is_none_or(|old| placement.primary != old.primary);
        let ignores_soft_limits = is_forced || self.problem.settings.ignore_soft_errors;
        if is_new_primary && !problem_service.is_eligible_on(placement.primary) {
            return Some(BlockingReason::Forbidden);
        }
        if is_new_primary {
            let (node, node_state) =
                (&self.problem.nodes[placement.primary], &self.node_states[placement.primary]);
            if node.is_offline {
                return Some(BlockingReason::Offline);
            }
            if problem_service.memory_used > 0 && node_state.memory_free <= 0 {
                return Some(BlockingReason::Memory);
            }
            if node_state.vcpus > node.vcpus_max && problem_service.vcpus != 0 && !ignores_soft_limits {
                return Some(BlockingReason::Cpus);
            }
        }
        // Unlike disk, spindles are checked again on a node of which only the role changes, as in hbal.
        let is_changed_node = |node: &usize| match old {
            Some(old) if old.primary == placement.primary => {
                Some(*node) == placement.secondary && old.secondary != placement.secondary
            }
            Some(_) | None => true,
        };
        let lacks_spindles = |node: usize| {
            let problem_node = &self.problem.nodes[node];
            problem_service.spindles_on(problem_node) > 0
                && problem_node.lacks_spindles(self.node_states[node].spindles)
        };
        if !ignores_soft_limits && placement.nodes().filter(is_changed_node).any(lacks_spindles) {
            return Some(BlockingReason::Spindles);
        }
        placement.nodes().filter(is_new_node).find_map(|node| {
            let (problem_node, node_state) = (&self.problem.nodes[node], &self.node_states[node]);
            let min_disk_free = if ignores_soft_limits { 0 } else { problem_node.disk_min };
            let has_disk = problem_service.disk_used == 0
                || (node_state.disk_free > 0 && node_state.disk_free >= min_disk_free);
            if problem_node.is_offline {
                Some(BlockingReason::Offline)
            } else if !has_disk {
                Some(BlockingReason::Disk)
            } else {
                (!problem_service.is_eligible_on(node)).then_some(BlockingReason::Forbidden)
            }
        })
    }

    /// Adds an instance to the nodes of a placement (`sign` 1), or removes it (−1).
    fn add_or_remove(&mut self, service: usize, placement: Placement, sign: i64) {
        let problem = self.problem;
        let problem_service = &problem.services[service];
        let present = i64::try_from(problem_service.count()).unwrap_or(i64::MAX) * sign;
        self.update_columns(service, placement.primary, true, sign);
        self.update_failing_count(placement.primary, -1);
        let node_state = &mut self.node_states[placement.primary];
        node_state.memory_free -= problem_service.memory_used * sign;
        node_state.disk_free -= problem_service.disk_used * sign;
        node_state.spindles += problem_service.spindles[0] * i64::from(problem_service.is_created) * sign;
        node_state.vcpus += problem_service.vcpus * sign;
        node_state.instances += present;
        self.update_failing_count(placement.primary, 1);
        self.update_clash_counts(service, placement.primary, sign);
        if problem.nodes[placement.primary].is_offline {
            self.counts.primaries_on_offline += present;
            self.counts.on_offline += present;
        }
        if let Some(secondary) = placement.secondary {
            self.update_columns(service, secondary, false, sign);
            self.update_failing_count(secondary, -1);
            let node_state = &mut self.node_states[secondary];
            node_state.disk_free -= problem_service.disk_used * sign;
            node_state.spindles += problem_service.spindles[0] * i64::from(problem_service.is_created) * sign;
            node_state.instances += present;
            node_state.reserve(placement.primary, problem_service.memory_reserved * sign);
            self.update_reserved(secondary);
            self.update_failing_count(secondary, 1);
            if problem.nodes[secondary].is_offline {
                self.counts.on_offline += present;
            }
        }
        if problem.locations > 0 || !problem_service.desired.is_empty() {
            self.counts.misplaced += self.count_misplaced(service, placement) * sign;
        }
    }

    /// Updates the sums of all columns for a node to which an instance is added or from which it is removed.
    fn update_columns(&mut self, service: usize, node: usize, is_primary: bool, sign: i64) {
        let problem_node = &self.problem.nodes[node];
        let count = self.columns.len();
        for (column, &added) in
            self.columns.added(service, is_primary, problem_node.has_exclusive_spindles).iter().enumerate()
        {
            if added == 0 {
                continue;
            }
            let position = node * count + column;
            self.amounts[position] += added * sign;
            let share = self.columns.share(node, column, self.amounts[position]);
            if !problem_node.is_offline {
                self.sums[column].replace(self.shares[position], share);
            }
            self.shares[position] = share;
        }
    }

    /// Updates the sums of reserved memory for a node whose peers changed.
    #[expect(clippy::cast_possible_truncation, reason = "sizes are bounded where they are read")]
    fn update_reserved(&mut self, node: usize) {
        let problem_node = &self.problem.nodes[node];
        let node_state = &mut self.node_states[node];
        let share =
            (node_state.memory_reserved as f64 * SHARE_UNIT / problem_node.memory_total).min(1e15) as i64;
        if !problem_node.is_offline {
            self.reserved.replace(node_state.reserved_share, share);
        }
        node_state.reserved_share = share;
    }

    /// Adds the instances of a node that fails N+1 to the count (`sign` 1), or subtracts them (−1).
    fn update_failing_count(&mut self, node: usize, sign: i64) {
        if self.fails_n1(node) {
            self.counts.on_failing += self.node_states[node].instances * sign;
        }
    }

    /// Updates the clashes of exclusion tags for a primary that is added or removed.
    fn update_clash_counts(&mut self, service: usize, node: usize, sign: i64) {
        let problem = self.problem;
        let problem_node = &problem.nodes[node];
        for &tag in &problem.services[service].exclusion {
            let clashes = self.node_states[node].update_tag_count(tag, sign);
            // The tags of an offline node matter only to `add_checked`.
            if problem_node.is_offline {
                continue;
            }
            self.counts.clashes += clashes;
            for &location in &problem_node.locations {
                let count = &mut self.primaries_in_domain[location * problem.exclusion_tags + tag];
                if sign > 0 {
                    self.counts.location_clashes += i64::from(*count > 0);
                    *count += 1;
                } else {
                    *count -= 1;
                    self.counts.location_clashes -= i64::from(*count > 0);
                }
            }
        }
    }

    fn count_misplaced(&self, service: usize, placement: Placement) -> i64 {
        if self.problem.nodes[placement.primary].is_offline {
            return 0;
        }
        let primary = &self.problem.nodes[placement.primary].locations;
        let shared_domains = placement.secondary.map_or(0, |secondary| {
            let secondary = &self.problem.nodes[secondary].locations;
            secondary.iter().filter(|location| primary.contains(location)).count()
        });
        let desired = &self.problem.services[service].desired;
        let missed_domains =
            desired.iter().filter(|domain| !domain.is_some_and(|domain| primary.contains(&domain))).count();
        i64::try_from(shared_domains + missed_domains).unwrap_or(i64::MAX)
    }
}

impl NodeState {
    /// Changes the memory that a failure of a peer would bring to this node.
    fn reserve(&mut self, peer: usize, memory: i64) {
        if memory == 0 {
            return;
        }
        let sent = match self.peers.iter().position(|(other, _)| *other == peer) {
            None => {
                self.peers.push((peer, memory));
                memory
            }
            Some(position) => {
                let sent = self.peers[position].1 + memory;
                if sent == 0 {
                    self.peers.swap_remove(position);
                } else {
                    self.peers[position].1 = sent;
                }
                sent
            }
        };
        self.memory_reserved = if memory > 0 {
            self.memory_reserved.max(sent)
        } else if sent - memory < self.memory_reserved {
            self.memory_reserved
        } else {
            self.peers.iter().map(|(_, memory)| *memory).max().unwrap_or(0)
        };
    }

    /// Adds or removes one use of a tag, and returns the change in the number of clashes.
    fn update_tag_count(&mut self, tag: usize, sign: i64) -> i64 {
        match self.tags.iter().position(|(other, _)| *other == tag) {
            None => {
                self.tags.push((tag, 1));
                0
            }
            Some(position) if sign > 0 => {
                self.tags[position].1 += 1;
                1
            }
            Some(position) if self.tags[position].1 == 1 => {
                self.tags.swap_remove(position);
                0
            }
            Some(position) => {
                self.tags[position].1 -= 1;
                -1
            }
        }
    }
}
