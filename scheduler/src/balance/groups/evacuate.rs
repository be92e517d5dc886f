//! New places for all that lives on some nodes: inside the group first, else in another group of the partition.

use super::elsewhere::{NoPlace, Obstacle, place, shortlists};
use super::partition::Barrier;
use super::span::{Moved, Span};
use crate::balance::model::Reach;
use crate::balance::moves::destinations;
use crate::balance::plan::{Step, step};
use crate::balance::problem::Spot;
use crate::balance::state::State;

/// What of an instance on the nodes has to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// Everything.
    #[default]
    All,
    /// Instances whose primary is there.
    Primaries,
    /// Instances whose other copy is there.
    Secondaries,
}

/// Where everything goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Evacuation {
    /// What stays inside its group, in an order in which it can be executed.
    pub inside: Vec<Moved>,
    /// What goes to another group, after that.
    pub outside: Vec<Moved>,
    /// What finds no place.
    pub stuck: Vec<NoPlace>,
}

/// Plans for nodes, which must be drained in the problem's settings; `hosts` are their positions in the problem.
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
    // The largest find room most hardly.
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

/// Brings an instance to nodes of its group that are not offline: by one step if there is one, the lowest score first.
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
