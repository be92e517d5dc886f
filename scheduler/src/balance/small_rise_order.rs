//! A beam search for an order of moves in which the score hardly rises, so that a plan can be interrupted and
//! continued.

use super::greedy::MIN_GAIN;
use super::problem::Placement;
use super::state::{ChangeEvaluator, State};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// Product of the number of moves and of the partial orders that are continued for each length.
const CONTINUED_MOVES: usize = 1600;

/// Maximum number of partial orders that are continued for each length.
const MAX_WIDTH: usize = 16;

/// The last moves of an order.
#[derive(Clone)]
struct OrderEnd<'a> {
    /// State before the ending.
    state: State<'a>,
    /// Instances of the ending, the last one first.
    backwards: Vec<usize>,
    /// Instances that move before the ending.
    remaining: Vec<usize>,
    defects: Defects,
}

/// Defects by which endings of the same length are compared, the worst one first.
#[derive(Clone, Copy, Default)]
struct Defects {
    /// Sum of the amounts by which scores exceed the score at the start.
    above_start: f64,
    /// Sum of the amounts by which scores are exceeded later.
    rises: f64,
    /// Highest score. If it is low, earlier scores are hardly exceeded.
    peak: f64,
}

impl Defects {
    /// Returns the defects of the ending if `score` is the score before it.
    fn before(self, score: f64, start: f64) -> Defects {
        Defects {
            above_start: self.above_start + (score - start - MIN_GAIN).max(0.0),
            rises: self.rises + (self.peak - score).max(0.0),
            peak: self.peak.max(score),
        }
    }

    fn compare(&self, other: &Defects) -> Ordering {
        let (above_start, rises) = (self.above_start, self.rises);
        above_start
            .total_cmp(&other.above_start)
            .then(rises.total_cmp(&other.rises))
            .then(self.peak.total_cmp(&other.peak))
    }
}

/// Returns the instances that move, in an order with few defects; `None` if too many instances move.
///
/// The order is found from its end, where the score is lowest. Limits are not considered.
pub(super) fn services_with_small_rises(start: &State<'_>, targets: &[Placement]) -> Option<Vec<usize>> {
    let moving: Vec<usize> =
        (0..targets.len()).filter(|&service| targets[service] != start.placement(service)).collect();
    let width = (CONTINUED_MOVES / moving.len().max(1)).min(MAX_WIDTH);
    let (length, start_score) = (moving.len(), start.score());
    let end = State::new(start.problem(), targets);
    let mut change_evaluator = ChangeEvaluator::new(&end);
    let defects = Defects { peak: end.score(), ..Defects::default() };
    let mut endings = vec![OrderEnd { state: end, backwards: Vec::new(), remaining: moving, defects }];
    for _ in 0..length {
        let mut extended = Vec::new();
        for ending in &endings {
            change_evaluator.refresh(&ending.state);
            for &service in &ending.remaining {
                let score =
                    change_evaluator.score_after(&ending.state, &[(service, start.placement(service))]);
                extended.push((ending.defects.before(score, start_score), service, ending));
            }
        }
        extended.sort_by(|left, right| left.0.compare(&right.0));
        let mut seen_remaining = BTreeSet::new();
        let mut next = Vec::new();
        for (defects, service, ending) in extended {
            if next.len() == width {
                break;
            }
            let mut remaining = ending.remaining.clone();
            remaining.retain(|&other| other != service);
            // Endings with the same instances lead to the same state; the first one has the fewest defects.
            if seen_remaining.insert(remaining.clone()) {
                let mut ending = OrderEnd { remaining, defects, ..ending.clone() };
                ending.state.restore(service, start.placement(service));
                ending.backwards.push(service);
                next.push(ending);
            }
        }
        endings = next;
    }
    let best = endings.into_iter().next()?;
    Some(best.backwards.into_iter().rev().collect())
}
