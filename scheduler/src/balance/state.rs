//! A placement that can be changed and scored incrementally: the cost of a change does not depend on the numbers of nodes
//! and instances.

mod addition;

pub use addition::{Amount, BlockingReason, RequiredLimits};

use super::columns::{Columns, SHARE_UNIT};
use super::problem::{Placement, Problem};

mod probe;

pub use probe::Probe;

/// A placement with all aggregates for scores and limits.
#[derive(Clone, Debug)]
pub struct State<'a> {
    problem: &'a Problem,
    columns: Columns,
    placements: Vec<Placement>,
    host_states: Vec<HostState>,
    /// Amounts of each node, at `node * columns + column`; `shares` has the same layout.
    amounts: Vec<i64>,
    shares: Vec<i64>,
    sums: Vec<Sums>,
    reserved: Sums,
    online: i64,
    counts: Counts,
    /// Number of primaries with an exclusion tag in a failure domain, at `location * tags + tag`.
    in_domain: Vec<u32>,
}

/// Current state of a node.
#[derive(Clone, Debug, Default)]
struct HostState {
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

impl HostState {
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
    /// Computes the sums of these shares.
    fn new(shares: impl Iterator<Item = i64>) -> Sums {
        let mut sums = Sums::default();
        for share in shares {
            sums.replace(0, share);
        }
        sums
    }

    /// Replaces one share with another.
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

    /// Returns the sum of all shares.
    fn total(&self) -> f64 {
        self.sum as f64 / SHARE_UNIT
    }
}

impl<'a> State<'a> {
    /// Builds the state of a placement.
    pub fn new(problem: &'a Problem, placements: &[Placement]) -> State<'a> {
        let columns = Columns::new(problem);
        let host_states = problem.hosts.iter().map(|host| HostState {
            memory_free: host.memory_base,
            disk_free: host.disk_base,
            vcpus: host.cpus_own,
            ..HostState::default()
        });
        let host_states: Vec<HostState> = host_states.collect();
        let online: Vec<usize> =
            (0..problem.hosts.len()).filter(|&host| !problem.hosts[host].offline).collect();
        let amounts = columns.base.clone();
        let share = |position: usize| {
            columns.share(position / columns.len(), position % columns.len(), amounts[position])
        };
        let shares: Vec<i64> = (0..amounts.len()).map(share).collect();
        let sums = |shares: &[i64]| -> Vec<Sums> {
            let count = columns.len();
            (0..count)
                .map(|column| Sums::new(online.iter().map(|host| shares[host * count + column])))
                .collect()
        };
        let mut state = State {
            problem,
            placements: placements.to_vec(),
            host_states,
            sums: sums(&shares),
            reserved: Sums::new(online.iter().map(|_| 0)),
            amounts,
            shares,
            online: i64::try_from(online.len().max(1)).unwrap_or(i64::MAX),
            counts: Counts::default(),
            in_domain: vec![0; problem.locations * problem.exclusion_tags],
            columns: columns.clone(),
        };
        for host in 0..state.host_states.len() {
            state.count_failing(host, 1);
        }
        for (guest, placement) in placements.iter().enumerate() {
            state.add_or_remove(guest, *placement, 1);
        }
        state
    }

    /// Returns the problem.
    pub fn problem(&self) -> &'a Problem {
        self.problem
    }

    /// Returns the placements of all instances.
    pub fn placements(&self) -> &[Placement] {
        &self.placements
    }

    /// Returns the placement of an instance.
    pub fn placement(&self, guest: usize) -> Placement {
        self.placements[guest]
    }

    /// Returns the score, equal to [`super::score::score`] except for rounding.
    pub fn score(&self) -> f64 {
        self.smooth_score() + self.counts.weighted() as f64
    }

    /// Returns the part of the score without the counts: deviations and shares.
    pub fn smooth_score(&self) -> f64 {
        let deviations = self.sums.iter().zip(&self.columns.weights);
        deviations.map(|(sums, weight)| weight * sums.deviation(self.online)).sum::<f64>()
            + self.reserved.deviation(self.online)
            + 0.25 * self.reserved.total()
    }

    /// Returns `true` if the node is not offline and does not survive the failure of a peer.
    pub fn fails_n1(&self, host: usize) -> bool {
        !self.problem.hosts[host].offline && self.host_states[host].fails_n1()
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
        let before: Vec<Placement> = changes.iter().map(|&(guest, _)| self.placements[guest]).collect();
        let forced: Vec<bool> = before.iter().map(|old| self.problem.must_leave(*old)).collect();
        self.change_from(changes, &before, &forced)
    }

    /// Makes one operation of a step that began on `from`: an instance that had to leave at the beginning is not held back
    /// halfway. Returns `false` and changes nothing if a hard limit then does not hold.
    pub fn change_within(&mut self, guest: usize, placement: Placement, from: Placement) -> bool {
        let forced = self.problem.must_leave(from) || self.problem.must_leave(self.placements[guest]);
        self.change_from(&[(guest, placement)], &[self.placements[guest]], &[forced]).is_ok()
    }

    fn change_from(
        &mut self,
        changes: &[(usize, Placement)],
        before: &[Placement],
        forced: &[bool],
    ) -> Result<(), BlockingReason> {
        let touched = || {
            changes
                .iter()
                .map(|(_, placement)| placement)
                .chain(before)
                .flat_map(|placement| placement.nodes())
        };
        let mut may_fail: Vec<usize> = touched().filter(|&host| self.fails_n1(host)).collect();
        for ((_, placement), forced) in changes.iter().zip(forced) {
            if *forced {
                may_fail.extend(placement.nodes());
            }
        }
        // A clash is checked after all leaving instances have been removed, so that an exchange is possible.
        for (&(guest, _), old) in changes.iter().zip(before) {
            self.add_or_remove(guest, *old, -1);
        }
        let mut blocked = None;
        for (&(guest, placement), old) in changes.iter().zip(before) {
            if placement.primary != old.primary && self.would_clash(guest, placement.primary) {
                blocked = Some(BlockingReason::ExclusionTag);
            }
            self.add_or_remove(guest, placement, 1);
            self.placements[guest] = placement;
        }
        let newly_failing = |state: &State<'_>| {
            // As in hbal, a node that already failed N+1 must at least have room for each new secondary alone.
            let mut each = changes.iter().zip(before).zip(forced);
            let lacks_room = each.any(|((&(guest, placement), old), forced)| {
                let needed = state.problem.guests[guest].memory_reserved;
                let is_full = |host| !old.contains(host) && state.host_states[host].memory_free <= needed;
                !forced && needed > 0 && placement.secondary.is_some_and(is_full)
            });
            let fails = lacks_room || touched().any(|host| state.fails_n1(host) && !may_fail.contains(&host));
            (fails && !state.problem.settings.ignore_soft_errors).then_some(BlockingReason::Reserve)
        };
        let blocked = blocked
            .or_else(|| {
                let mut each = changes.iter().zip(before).zip(forced);
                each.find_map(|((&(guest, placement), old), forced)| {
                    self.blocking_reason(guest, placement, Some(*old), *forced)
                })
            })
            .or_else(|| newly_failing(self));
        if blocked.is_some() {
            for (&(guest, placement), old) in changes.iter().zip(before) {
                self.add_or_remove(guest, placement, -1);
                self.add_or_remove(guest, *old, 1);
                self.placements[guest] = *old;
            }
        }
        blocked.map_or(Ok(()), Err)
    }

    /// Moves an instance without a check of limits, to revert a change.
    pub fn restore(&mut self, guest: usize, placement: Placement) {
        self.add_or_remove(guest, self.placements[guest], -1);
        self.add_or_remove(guest, placement, 1);
        self.placements[guest] = placement;
    }

    /// Returns `true` if a node already has an instance with an exclusion tag of this one.
    fn would_clash(&self, guest: usize, host: usize) -> bool {
        let tags = &self.host_states[host].tags;
        self.problem.guests[guest].exclusion.iter().any(|tag| tags.iter().any(|(known, _)| known == tag))
    }

    /// Returns the shortage on the nodes to which an instance has moved.
    fn blocking_reason(
        &self,
        guest: usize,
        placement: Placement,
        old: Option<Placement>,
        is_forced: bool,
    ) -> Option<BlockingReason> {
        let facts = &self.problem.guests[guest];
        let newly = |host: &usize| old.is_none_or(|old| !old.contains(*host));
        let newly_primary = old.is_none_or(|old| placement.primary != old.primary);
        let ignores_soft_limits = is_forced || self.problem.settings.ignore_soft_errors;
        if newly_primary && !facts.is_eligible_on(placement.primary) {
            return Some(BlockingReason::Forbidden);
        }
        if newly_primary {
            let (host, host_state) =
                (&self.problem.hosts[placement.primary], &self.host_states[placement.primary]);
            if host.offline {
                return Some(BlockingReason::Offline);
            }
            if facts.memory_used > 0 && host_state.memory_free <= 0 {
                return Some(BlockingReason::Memory);
            }
            if host_state.vcpus > host.vcpus_most && facts.vcpus != 0 && !ignores_soft_limits {
                return Some(BlockingReason::Cpus);
            }
        }
        // Unlike disk, spindles are checked again on a node of which only the role changes, as in hbal.
        let changed = |host: &usize| match old {
            Some(old) if old.primary == placement.primary => {
                Some(*host) == placement.secondary && old.secondary != placement.secondary
            }
            Some(_) | None => true,
        };
        let lacks_spindles = |host: usize| {
            let host_facts = &self.problem.hosts[host];
            facts.spindles_on(host_facts) > 0 && host_facts.lacks_spindles(self.host_states[host].spindles)
        };
        if !ignores_soft_limits && placement.nodes().filter(changed).any(lacks_spindles) {
            return Some(BlockingReason::Spindles);
        }
        placement.nodes().filter(newly).find_map(|host| {
            let (host_facts, host_state) = (&self.problem.hosts[host], &self.host_states[host]);
            let min_disk_free = if ignores_soft_limits { 0 } else { host_facts.disk_least };
            let disk =
                facts.disk_used == 0 || (host_state.disk_free > 0 && host_state.disk_free >= min_disk_free);
            if host_facts.offline {
                Some(BlockingReason::Offline)
            } else if !disk {
                Some(BlockingReason::Disk)
            } else {
                (!facts.is_eligible_on(host)).then_some(BlockingReason::Forbidden)
            }
        })
    }

    /// Adds an instance to the nodes of a placement (`sign` 1), or removes it (−1).
    fn add_or_remove(&mut self, guest: usize, placement: Placement, sign: i64) {
        let problem = self.problem;
        let facts = &problem.guests[guest];
        let present = i64::try_from(facts.count()).unwrap_or(i64::MAX) * sign;
        self.update_columns(guest, placement.primary, true, sign);
        self.count_failing(placement.primary, -1);
        let host_state = &mut self.host_states[placement.primary];
        host_state.memory_free -= facts.memory_used * sign;
        host_state.disk_free -= facts.disk_used * sign;
        host_state.spindles += facts.spindles[0] * i64::from(facts.present) * sign;
        host_state.vcpus += facts.vcpus * sign;
        host_state.instances += present;
        self.count_failing(placement.primary, 1);
        self.count_primary(guest, placement.primary, sign);
        if problem.hosts[placement.primary].offline {
            self.counts.primaries_on_offline += present;
            self.counts.on_offline += present;
        }
        if let Some(secondary) = placement.secondary {
            self.update_columns(guest, secondary, false, sign);
            self.count_failing(secondary, -1);
            let host_state = &mut self.host_states[secondary];
            host_state.disk_free -= facts.disk_used * sign;
            host_state.spindles += facts.spindles[0] * i64::from(facts.present) * sign;
            host_state.instances += present;
            host_state.reserve(placement.primary, facts.memory_reserved * sign);
            self.update_reserved(secondary);
            self.count_failing(secondary, 1);
            if problem.hosts[secondary].offline {
                self.counts.on_offline += present;
            }
        }
        if problem.locations > 0 || !facts.desired.is_empty() {
            self.counts.misplaced += self.misplaced(guest, placement) * sign;
        }
    }

    /// Updates the sums of all columns for a node to which an instance is added or from which it is removed.
    fn update_columns(&mut self, guest: usize, host: usize, primary: bool, sign: i64) {
        let facts = &self.problem.hosts[host];
        let count = self.columns.len();
        for (column, &added) in self.columns.added(guest, primary, facts.exclusive).iter().enumerate() {
            if added == 0 {
                continue;
            }
            let position = host * count + column;
            self.amounts[position] += added * sign;
            let share = self.columns.share(host, column, self.amounts[position]);
            if !facts.offline {
                self.sums[column].replace(self.shares[position], share);
            }
            self.shares[position] = share;
        }
    }

    /// Updates the sums of reserved memory for a node whose peers changed.
    #[expect(clippy::cast_possible_truncation, reason = "sizes are bounded where they are read")]
    fn update_reserved(&mut self, host: usize) {
        let facts = &self.problem.hosts[host];
        let host_state = &mut self.host_states[host];
        let share = (host_state.memory_reserved as f64 * SHARE_UNIT / facts.memory_total).min(1e15) as i64;
        if !facts.offline {
            self.reserved.replace(host_state.reserved_share, share);
        }
        host_state.reserved_share = share;
    }

    /// Adds the instances of a node that fails N+1 to the count (`sign` 1), or subtracts them (−1).
    fn count_failing(&mut self, host: usize, sign: i64) {
        if self.fails_n1(host) {
            self.counts.on_failing += self.host_states[host].instances * sign;
        }
    }

    /// Updates the clashes of exclusion tags for a primary that is added or removed.
    fn count_primary(&mut self, guest: usize, host: usize, sign: i64) {
        let problem = self.problem;
        let facts = &problem.hosts[host];
        if facts.offline {
            return;
        }
        for &tag in &problem.guests[guest].exclusion {
            self.counts.clashes += self.host_states[host].count_tag(tag, sign);
            for &location in &facts.locations {
                let count = &mut self.in_domain[location * problem.exclusion_tags + tag];
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

    fn misplaced(&self, guest: usize, placement: Placement) -> i64 {
        if self.problem.hosts[placement.primary].offline {
            return 0;
        }
        let primary = &self.problem.hosts[placement.primary].locations;
        let shared = placement.secondary.map_or(0, |secondary| {
            let secondary = &self.problem.hosts[secondary].locations;
            secondary.iter().filter(|location| primary.contains(location)).count()
        });
        let desired = &self.problem.guests[guest].desired;
        let missed = desired.iter().filter(|wish| !wish.is_some_and(|wish| primary.contains(&wish))).count();
        i64::try_from(shared + missed).unwrap_or(i64::MAX)
    }
}

impl HostState {
    /// Changes the memory that a failure of a peer would bring to this node.
    fn reserve(&mut self, peer: usize, memory: i64) {
        if memory == 0 {
            return;
        }
        let sent = match self.peers.iter().position(|(known, _)| *known == peer) {
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
    fn count_tag(&mut self, tag: usize, sign: i64) -> i64 {
        match self.tags.iter().position(|(known, _)| *known == tag) {
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
