//! Computation of the score after a change without making the change, several times faster than making and reverting it.

use super::State;
use crate::balance::columns::SHARE_UNIT;
use crate::balance::problem::Placement;

/// An evaluator for changes of one placement. After each change of the placement, [`Probe::refresh`] must be called.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    /// Weight, mean, sum of squared distances from the mean, and part of the score, for each column. The last column is
    /// reserved memory.
    columns: Vec<Column>,
    /// Score of the placement; `counted` is the part of it that consists of counts.
    score: f64,
    counted: i64,
    /// Difference that the last evaluated change makes to `counted`.
    counted_delta: i64,
    /// Nodes that the change affects. `deltas` contains the change of their columns, at `index * columns + column`.
    affected_hosts: Vec<AffectedHost>,
    deltas: Vec<i64>,
    /// Changes of the memory that a peer would send to a node.
    reservation_changes: Vec<ReservationChange>,
    /// The same changes for one node, by peer.
    peers: Vec<(usize, i64)>,
    /// Exclusion tags that are added to a node or a failure domain (1) or removed from it (−1).
    tags: Vec<TagChange>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Column {
    weight: f64,
    mean: f64,
    squares: f64,
    part: f64,
    /// Change of the sum of shares by the evaluated change. `squares_delta` is that of the sum of squared distances.
    sum_delta: f64,
    squares_delta: f64,
    changed: bool,
}

#[derive(Clone, Copy, Debug)]
struct AffectedHost {
    host: usize,
    memory_free: i64,
    instances: i64,
}

#[derive(Clone, Copy, Debug)]
struct ReservationChange {
    to: usize,
    from: usize,
    memory: i64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct TagChange {
    scope: TagScope,
    tag: usize,
    sign: i64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum TagScope {
    Host(usize),
    Location(usize),
}

impl Probe {
    /// Builds the probe of a placement.
    pub fn new(state: &State<'_>) -> Probe {
        let weights = state.columns.weights.iter().copied().chain([1.0]);
        let columns = weights.map(|weight| Column { weight, ..Column::default() }).collect();
        let mut probe = Probe { columns, ..Probe::default() };
        probe.refresh(state);
        probe
    }

    /// Updates the probe after a change of the placement.
    pub fn refresh(&mut self, state: &State<'_>) {
        let count = state.online as f64;
        for (column, sums) in self.columns.iter_mut().zip(state.sums.iter().chain([&state.reserved])) {
            let deviation = sums.deviation(state.online);
            column.mean = sums.total() * SHARE_UNIT / count;
            column.squares = (deviation * SHARE_UNIT).powi(2) * count;
            column.part = column.weight * deviation * SHARE_UNIT;
        }
        self.score = state.score();
        self.counted = state.counts.weighted();
    }

    /// Returns the score of the placement.
    pub fn score(&self) -> f64 {
        self.score
    }

    /// Returns the change of the counts in the score by the last evaluated change.
    pub(crate) fn counted_delta(&self) -> i64 {
        self.counted_delta
    }

    /// Returns the score after a change, except for rounding, without a check of limits. `changes` must contain each
    /// instance at most once.
    pub fn score_after(&mut self, state: &State<'_>, changes: &[(usize, Placement)]) -> f64 {
        self.affected_hosts.clear();
        self.reservation_changes.clear();
        self.tags.clear();
        let mut counted = self.counted;
        for &(guest, to) in changes {
            counted += self.record_change(state, guest, to);
        }
        let mut tags = std::mem::take(&mut self.tags);
        for index in 0..tags.len() {
            let (earlier, remaining) = tags.split_at(index);
            counted += clashes(state, earlier, remaining[0]);
        }
        tags.clear();
        self.tags = tags;
        for index in 0..self.affected_hosts.len() {
            counted += self.apply_affected(state, index);
        }
        self.counted_delta = counted - self.counted;
        let (count, share) = (state.online as f64, 1.0 / state.online as f64);
        let reserved = self.columns.last().map_or(0.0, |column| column.mean * count + column.sum_delta);
        let mut deviations = 0.0;
        for column in &mut self.columns {
            deviations += if column.changed {
                let squares =
                    column.squares + column.squares_delta - column.sum_delta * column.sum_delta * share;
                (column.sum_delta, column.squares_delta, column.changed) = (0.0, 0.0, false);
                column.weight * (squares.max(0.0) * share).sqrt()
            } else {
                column.part
            };
        }
        (deviations + 0.25 * reserved) * (1.0 / SHARE_UNIT) + counted as f64
    }

    /// Records the effects of one instance's change on nodes. Returns the change of the counts that does not depend on
    /// other changes.
    fn record_change(&mut self, state: &State<'_>, guest: usize, to: Placement) -> i64 {
        let (problem, from) = (state.problem, state.placement(guest));
        let facts = &problem.guests[guest];
        let present = i64::try_from(facts.count()).unwrap_or(i64::MAX);
        let mut counted = 0;
        if from.primary != to.primary {
            for (host, sign) in [(from.primary, -1), (to.primary, 1)] {
                let affected = self.affected_index(state, host);
                self.add(state, affected, guest, true, sign);
                self.affected_hosts[affected].memory_free -= facts.memory_used * sign;
                self.affected_hosts[affected].instances += present * sign;
                counted += if problem.hosts[host].offline { 20 * present * sign } else { 0 };
                if !facts.exclusion.is_empty() && !problem.hosts[host].offline {
                    self.record_tags(state, guest, host, sign);
                }
            }
        }
        if from.secondary != to.secondary {
            for (host, sign) in [(from.secondary, -1), (to.secondary, 1)] {
                let Some(host) = host else { continue };
                let affected = self.affected_index(state, host);
                self.add(state, affected, guest, false, sign);
                self.affected_hosts[affected].instances += present * sign;
                counted += if problem.hosts[host].offline { 4 * present * sign } else { 0 };
            }
        }
        if facts.memory_reserved > 0 && from != to {
            for (placement, sign) in [(from, -1), (to, 1)] {
                let Some(secondary) = placement.secondary else { continue };
                self.affected_index(state, secondary);
                self.reservation_changes.push(ReservationChange {
                    to: secondary,
                    from: placement.primary,
                    memory: facts.memory_reserved * sign,
                });
            }
        }
        if problem.locations > 0 || !facts.desired.is_empty() {
            counted += state.misplaced(guest, to) - state.misplaced(guest, from);
        }
        counted
    }

    /// Returns the index of a node among the affected ones, and adds the node if necessary.
    fn affected_index(&mut self, state: &State<'_>, host: usize) -> usize {
        if let Some(existing_index) = self.affected_hosts.iter().position(|affected| affected.host == host) {
            return existing_index;
        }
        let next = self.affected_hosts.len();
        let row = next * state.columns.len()..(next + 1) * state.columns.len();
        match self.deltas.get_mut(row.clone()) {
            Some(row) => row.fill(0),
            None => self.deltas.resize(row.end, 0),
        }
        self.affected_hosts.push(AffectedHost { host, memory_free: 0, instances: 0 });
        next
    }

    fn add(&mut self, state: &State<'_>, affected: usize, guest: usize, primary: bool, sign: i64) {
        let count = state.columns.len();
        let exclusive = state.problem.hosts[self.affected_hosts[affected].host].exclusive;
        let added = state.columns.added(guest, primary, exclusive);
        for (delta, added) in self.deltas[affected * count..(affected + 1) * count].iter_mut().zip(added) {
            *delta += added * sign;
        }
    }

    fn record_tags(&mut self, state: &State<'_>, guest: usize, host: usize, sign: i64) {
        for &tag in &state.problem.guests[guest].exclusion {
            self.tags.push(TagChange { scope: TagScope::Host(host), tag, sign });
            for &location in &state.problem.hosts[host].locations {
                self.tags.push(TagChange { scope: TagScope::Location(location), tag, sign });
            }
        }
    }

    /// Adds the changes of an affected node to the columns, and returns the change of its counts.
    fn apply_affected(&mut self, state: &State<'_>, index: usize) -> i64 {
        let affected = self.affected_hosts[index];
        if state.problem.hosts[affected.host].offline {
            return 0;
        }
        let count = state.columns.len();
        let row = affected.host * count;
        let deltas = &self.deltas[index * count..(index + 1) * count];
        let shares_and_amounts = state.shares[row..row + count].iter().zip(&state.amounts[row..row + count]);
        let scales = state.columns.scales(affected.host);
        for (((column, delta), (share, amount)), scale) in
            self.columns.iter_mut().zip(deltas).zip(shares_and_amounts).zip(scales)
        {
            if *delta != 0 {
                column.replace(*share as f64, (amount + delta) as f64 * scale);
            }
        }
        let host_state = &state.host_states[affected.host];
        let mut memory_reserved = host_state.memory_reserved;
        if let Some(reserved_memory) = self.reserved(state, affected.host) {
            memory_reserved = reserved_memory;
            let old = host_state.reserved_share as f64;
            let new = memory_reserved as f64 * SHARE_UNIT / state.problem.hosts[affected.host].memory_total;
            self.columns[count].replace(old, new);
        }
        let before = if host_state.fails_n1() { host_state.instances } else { 0 };
        let fails = host_state.memory_free + affected.memory_free <= memory_reserved;
        (if fails { host_state.instances + affected.instances } else { 0 }) - before
    }

    /// Returns the most memory that one peer would send to a node after the change; `None` if the change does not
    /// affect it.
    fn reserved(&mut self, state: &State<'_>, host: usize) -> Option<i64> {
        self.peers.clear();
        for change in self.reservation_changes.iter().filter(|change| change.to == host) {
            match self.peers.iter_mut().find(|(peer, _)| *peer == change.from) {
                Some((_, memory)) => *memory += change.memory,
                None => self.peers.push((change.from, change.memory)),
            }
        }
        if self.peers.is_empty() {
            return None;
        }
        let mut max_memory = 0;
        for &(peer, memory) in &state.host_states[host].peers {
            let added_memory = self.peers.iter_mut().find(|(known, _)| *known == peer);
            // `take` clears the change of a known peer, so that it does not count again below.
            let added_memory = added_memory.map_or(0, |(_, added_memory)| std::mem::take(added_memory));
            max_memory = max_memory.max(memory + added_memory);
        }
        Some(self.peers.iter().map(|(_, memory)| *memory).fold(max_memory, i64::max))
    }
}

impl Column {
    fn replace(&mut self, old: f64, new: f64) {
        let difference = new - old;
        self.sum_delta += difference;
        self.squares_delta += difference * (new + old - 2.0 * self.mean);
        self.changed = true;
    }
}

/// Returns the change of the weighted clashes by one tag that is added or removed, after the earlier ones of the same
/// change.
fn clashes(state: &State<'_>, earlier: &[TagChange], change: TagChange) -> i64 {
    let TagChange { scope, tag, sign } = change;
    let (present, weight) = match scope {
        TagScope::Host(host) => {
            let tags = &state.host_states[host].tags;
            (tags.iter().find(|(known, _)| *known == tag).map_or(0, |(_, count)| *count), 2)
        }
        TagScope::Location(location) => (state.in_domain[location * state.problem.exclusion_tags + tag], 1),
    };
    let moved = earlier.iter().filter(|other| other.scope == scope && other.tag == tag);
    let present = i64::from(present) + moved.map(|other| other.sign).sum::<i64>();
    if sign > 0 { weight * i64::from(present > 0) } else { -weight * i64::from(present > 1) }
}
