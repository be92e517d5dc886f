//! New nodes for all instances of some nodes: in their own group first, or else in another group of the partition.

use super::elsewhere::{NoPlace, Obstacle, place, shortlists};
use super::partition::Barrier;
use super::span::{Moved, Span};
use crate::balance::model::Reach;
use crate::balance::moves::destinations;
use crate::balance::plan::{Step, step};
use crate::balance::problem::Spot;
use crate::balance::state::State;

/// The instances that have to leave the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All instances.
    #[default]
    All,
    /// Instances whose primary is on the nodes.
    Primaries,
    /// Instances whose second copy is on the nodes.
    Secondaries,
}

/// The moves of an evacuation.
#[derive(Clone, Debug, PartialEq)]
pub struct Evacuation {
    /// Moves inside the group, in an executable order.
    pub inside: Vec<Moved>,
    /// Moves to other groups, to be executed after `inside`.
    pub outside: Vec<Moved>,
    /// Instances for which no other node was found.
    pub stuck: Vec<NoPlace>,
}

/// Plans the evacuation of nodes, which must be drained in the problem's settings. `hosts` are their positions in the
/// problem.
pub fn evacuate(span: &Span<'_>, hosts: &[usize], part: Part) -> Evacuation {
    let mut state = State::new(&span.problem, &span.problem.start);
    let mut waiting: Vec<usize> = (0..span.problem.guests.len())
        .filter(|&guest| {
            let spot = state.spot(guest);
            let (primary, secondary) =
                (hosts.contains(&spot.primary), spot.secondary.is_some_and(|host| hosts.contains(&host)));
            match part {
                Part::All => primary || secondary,
                Part::Primaries => primary,
                Part::Secondaries => secondary,
            }
        })
        .collect();
    // The largest instances are the hardest to place.
    waiting.sort_by_key(|&guest| (-span.problem.guests[guest].memory, guest));
    let mut found = Evacuation { inside: Vec::new(), outside: Vec::new(), stuck: Vec::new() };
    let mut rest = Vec::new();
    for guest in waiting {
        let from = state.spot(guest);
        match inside(span, &mut state, guest, from) {
            Ok(steps) => found.inside.push(Moved::new(span, guest, from, steps)),
            Err(obstacle) => rest.push((guest, obstacle)),
        }
    }
    for (guest, obstacle) in rest {
        let from = state.spot(guest);
        match span.elsewhere(&mut state, guest, &|_| true) {
            Ok((_, steps)) => found.outside.push(Moved::new(span, guest, from, steps)),
            Err(mut no_place) => {
                no_place.obstacles.insert(0, (span.group_of(from.primary), obstacle));
                found.stuck.push(no_place);
            }
        }
    }
    found
}

/// Moves an instance to nodes of its group that are not offline, by a single step if possible, the lowest score first.
fn inside(span: &Span<'_>, state: &mut State<'_>, guest: usize, from: Spot) -> Result<Vec<Step>, Obstacle> {
    let problem = &span.problem;
    if problem.guests[guest].reach == Reach::Local {
        return Err(Obstacle::Barrier(Barrier::Local));
    }
    if let Some(why) = span.cluster.bindings.get(&problem.guests[guest].instance).and_then(|one| one.stays) {
        return Err(Obstacle::Barrier(Barrier::Stays(why)));
    }
    let mut hosts = span.hosts(span.group_of(from.primary));
    hosts.retain(|&host| !problem.hosts[host].offline);
    for hosts in shortlists(state, hosts.clone()) {
        let mut found = Vec::new();
        destinations(problem, guest, from, &hosts, &mut found);
        let works = |host: usize| !problem.hosts[host].offline;
        found.retain(|to| to.nodes().all(works));
        let mut ranked: Vec<(f64, Spot)> = Vec::new();
        for to in found {
            if state.change(&[(guest, to)]) {
                ranked.push((state.score(), to));
                state.restore(guest, from);
            }
        }
        ranked.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        for (_, to) in ranked {
            if let Some(only) = step(state, guest, to) {
                return Ok(vec![only]);
            }
        }
    }
    place(state, guest, hosts)
}
