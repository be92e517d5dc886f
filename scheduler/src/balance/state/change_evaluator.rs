//! Computation of the score after a change without making the change, several times faster than making and reverting
//! it.

use super::State;
use crate::balance::columns::SHARE_UNIT;
use crate::balance::problem::Placement;

/// An evaluator for changes of one placement. After each change of the placement, [`ChangeEvaluator::refresh`] must be
/// called.
#[derive(Clone, Debug, Default)]
pub struct ChangeEvaluator {
    /// Weight, mean, sum of squared distances from the mean, and part of the score, for each column. The last column is
    /// reserved memory.
    columns: Vec<Column>,
    /// Score of the placement; `count_score` is the part of it that consists of counts.
    score: f64,
    count_score: i64,
    /// Difference that the last evaluated change makes to `count_score`.
    count_score_delta: i64,
    /// Nodes that the change affects. `deltas` contains the change of their columns, at `index * columns + column`.
    affected_nodes: Vec<AffectedNode>,
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
    score_part: f64,
    /// Change of the sum of shares by the evaluated change. `squares_delta` is that of the sum of squared distances.
    sum_delta: f64,
    squares_delta: f64,
    is_changed: bool,
}

#[derive(Clone, Copy, Debug)]
struct AffectedNode {
    node: usize,
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
    Node(usize),
    Location(usize),
}

impl ChangeEvaluator {
    /// Builds the probe of a placement.
    pub fn new(state: &State<'_>) -> ChangeEvaluator {
        let weights = state.columns.weights.iter().copied().chain([1.0]);
        let columns = weights.map(|weight| Column { weight, ..Column::default() }).collect();
        let mut change_evaluator = ChangeEvaluator { columns, ..ChangeEvaluator::default() };
        change_evaluator.refresh(state);
        change_evaluator
    }

    /// Updates the probe after a change of the placement.
    pub fn refresh(&mut self, state: &State<'_>) {
        let count = state.online_count as f64;
        for (column, sums) in self.columns.iter_mut().zip(state.sums.iter().chain([&state.reserved])) {
            let deviation = sums.deviation(state.online_count);
            column.mean = sums.total() * SHARE_UNIT / count;
            column.squares = (deviation * SHARE_UNIT).powi(2) * count;
            column.score_part = column.weight * deviation * SHARE_UNIT;
        }
        self.score = state.score();
        self.count_score = state.counts.weighted();
    }

    /// Returns the score of the placement.
    pub fn score(&self) -> f64 {
        self.score
    }

    /// Returns the change of the counts in the score by the last evaluated change.
    pub(crate) fn count_score_delta(&self) -> i64 {
        self.count_score_delta
    }

    /// Returns the score after a change, except for rounding, without a check of limits. `changes` must contain each
    /// instance at most once.
    pub fn score_after(&mut self, state: &State<'_>, changes: &[(usize, Placement)]) -> f64 {
        self.affected_nodes.clear();
        self.reservation_changes.clear();
        self.tags.clear();
        let mut counted = self.count_score;
        for &(service, to) in changes {
            counted += self.record_change(state, service, to);
        }
        let mut tags = std::mem::take(&mut self.tags);
        for index in 0..tags.len() {
            let (earlier, remaining) = tags.split_at(index);
            counted += clash_delta(state, earlier, remaining[0]);
        }
        tags.clear();
        self.tags = tags;
        for index in 0..self.affected_nodes.len() {
            counted += self.apply_affected(state, index);
        }
        self.count_score_delta = counted - self.count_score;
        let (count, share) = (state.online_count as f64, 1.0 / state.online_count as f64);
        let reserved = self.columns.last().map_or(0.0, |column| column.mean * count + column.sum_delta);
        let mut deviations = 0.0;
        for column in &mut self.columns {
            deviations += if column.is_changed {
                let squares =
                    column.squares + column.squares_delta - column.sum_delta * column.sum_delta * share;
                (column.sum_delta, column.squares_delta, column.is_changed) = (0.0, 0.0, false);
                column.weight * (squares.max(0.0) * share).sqrt()
            } else {
                column.score_part
            };
        }
        (deviations + 0.25 * reserved) * (1.0 / SHARE_UNIT) + counted as f64
    }

    /// Records the effects of one instance's change on nodes. Returns the change of the counts that does not depend on
    /// other changes.
    fn record_change(&mut self, state: &State<'_>, service: usize, to: Placement) -> i64 {
        let (problem, from) = (state.problem, state.placement(service));
        let problem_service = &problem.services[service];
        let present = i64::try_from(problem_service.count()).unwrap_or(i64::MAX);
        let mut counted = 0;
        if from.primary != to.primary {
            for (node, sign) in [(from.primary, -1), (to.primary, 1)] {
                let affected = self.affected_index(state, node);
                self.add_amounts(state, affected, service, true, sign);
                self.affected_nodes[affected].memory_free -= problem_service.memory_used * sign;
                self.affected_nodes[affected].instances += present * sign;
                counted += if problem.nodes[node].is_offline { 20 * present * sign } else { 0 };
                if !problem_service.exclusion.is_empty() && !problem.nodes[node].is_offline {
                    self.record_tags(state, service, node, sign);
                }
            }
        }
        if from.secondary != to.secondary {
            for (node, sign) in [(from.secondary, -1), (to.secondary, 1)] {
                let Some(node) = node else { continue };
                let affected = self.affected_index(state, node);
                self.add_amounts(state, affected, service, false, sign);
                self.affected_nodes[affected].instances += present * sign;
                counted += if problem.nodes[node].is_offline { 4 * present * sign } else { 0 };
            }
        }
        if problem_service.memory_reserved > 0 && from != to {
            for (placement, sign) in [(from, -1), (to, 1)] {
                let Some(secondary) = placement.secondary else { continue };
                self.affected_index(state, secondary);
                self.reservation_changes.push(ReservationChange {
                    to: secondary,
                    from: placement.primary,
                    memory: problem_service.memory_reserved * sign,
                });
            }
        }
        if problem.locations > 0 || !problem_service.desired.is_empty() {
            counted += state.count_misplaced(service, to) - state.count_misplaced(service, from);
        }
        counted
    }

    /// Returns the index of a node among the affected ones, and adds the node if necessary.
    fn affected_index(&mut self, state: &State<'_>, node: usize) -> usize {
        if let Some(existing_index) = self.affected_nodes.iter().position(|affected| affected.node == node) {
            return existing_index;
        }
        let next = self.affected_nodes.len();
        let row = next * state.columns.len()..(next + 1) * state.columns.len();
        match self.deltas.get_mut(row.clone()) {
            Some(row) => row.fill(0),
            None => self.deltas.resize(row.end, 0),
        }
        self.affected_nodes.push(AffectedNode { node, memory_free: 0, instances: 0 });
        next
    }

    fn add_amounts(
        &mut self,
        state: &State<'_>,
        affected: usize,
        service: usize,
        is_primary: bool,
        sign: i64,
    ) {
        let count = state.columns.len();
        let exclusive = state.problem.nodes[self.affected_nodes[affected].node].has_exclusive_spindles;
        let added = state.columns.added(service, is_primary, exclusive);
        for (delta, added) in self.deltas[affected * count..(affected + 1) * count].iter_mut().zip(added) {
            *delta += added * sign;
        }
    }

    fn record_tags(&mut self, state: &State<'_>, service: usize, node: usize, sign: i64) {
        for &tag in &state.problem.services[service].exclusion {
            self.tags.push(TagChange { scope: TagScope::Node(node), tag, sign });
            for &location in &state.problem.nodes[node].locations {
                self.tags.push(TagChange { scope: TagScope::Location(location), tag, sign });
            }
        }
    }

    /// Adds the changes of an affected node to the columns, and returns the change of its counts.
    fn apply_affected(&mut self, state: &State<'_>, index: usize) -> i64 {
        let affected = self.affected_nodes[index];
        if state.problem.nodes[affected.node].is_offline {
            return 0;
        }
        let count = state.columns.len();
        let row = affected.node * count;
        let deltas = &self.deltas[index * count..(index + 1) * count];
        let shares_and_amounts = state.shares[row..row + count].iter().zip(&state.amounts[row..row + count]);
        let scales = state.columns.scales(affected.node);
        for (((column, delta), (share, amount)), scale) in
            self.columns.iter_mut().zip(deltas).zip(shares_and_amounts).zip(scales)
        {
            if *delta != 0 {
                column.replace(*share as f64, (amount + delta) as f64 * scale);
            }
        }
        let node_state = &state.node_states[affected.node];
        let mut memory_reserved = node_state.memory_reserved;
        if let Some(reserved_memory) = self.reserved_after(state, affected.node) {
            memory_reserved = reserved_memory;
            let old = node_state.reserved_share as f64;
            let new = memory_reserved as f64 * SHARE_UNIT / state.problem.nodes[affected.node].memory_total;
            self.columns[count].replace(old, new);
        }
        let before = if node_state.fails_n1() { node_state.instances } else { 0 };
        let fails = node_state.memory_free + affected.memory_free <= memory_reserved;
        (if fails { node_state.instances + affected.instances } else { 0 }) - before
    }

    /// Returns the most memory that one peer would send to a node after the change; `None` if the change does not
    /// affect it.
    fn reserved_after(&mut self, state: &State<'_>, node: usize) -> Option<i64> {
        self.peers.clear();
        for change in self.reservation_changes.iter().filter(|change| change.to == node) {
            match self.peers.iter_mut().find(|(peer, _)| *peer == change.from) {
                Some((_, memory)) => *memory += change.memory,
                None => self.peers.push((change.from, change.memory)),
            }
        }
        if self.peers.is_empty() {
            return None;
        }
        let mut max_memory = 0;
        for &(peer, memory) in &state.node_states[node].peers {
            let added_memory = self.peers.iter_mut().find(|(other, _)| *other == peer);
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
        self.is_changed = true;
    }
}

/// Returns the change of the weighted clashes by one tag that is added or removed, after the earlier ones of the same
/// change.
fn clash_delta(state: &State<'_>, earlier: &[TagChange], change: TagChange) -> i64 {
    let TagChange { scope, tag, sign } = change;
    let (present, weight) = match scope {
        TagScope::Node(node) => {
            let tags = &state.node_states[node].tags;
            (tags.iter().find(|(other, _)| *other == tag).map_or(0, |(_, count)| *count), 2)
        }
        TagScope::Location(location) => {
            (state.primaries_in_domain[location * state.problem.exclusion_tags + tag], 1)
        }
    };
    let moved = earlier.iter().filter(|other| other.scope == scope && other.tag == tag);
    let present = i64::from(present) + moved.map(|other| other.sign).sum::<i64>();
    if sign > 0 { weight * i64::from(present > 0) } else { -weight * i64::from(present > 1) }
}
