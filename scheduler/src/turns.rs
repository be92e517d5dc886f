//! Whose turn it is to move, where services stand in each other's way.

mod component;
#[cfg(test)]
mod tests;

use crate::asked::priorities_of;
use crate::filter::drives_away;
use crate::place::{Verdict, place_unit};
use crate::score::Class;
use crate::unit::Unit;
use crate::view::{Refusal, ServiceFacts, View};
use ha_api_types::reason::Reason;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What a service that stands in others' way, or they in its, does now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It moves.
    Go {
        /// To this node.
        to: String,
        /// Services that can go where they should because of it; empty: it goes where it should be itself.
        makes_room_for: BTreeSet<String>,
    },
    /// It stays until another one has moved.
    Hold {
        /// Which, in a sentence.
        message: String,
    },
    /// It cannot go where it should be, in no order of moves.
    Blocked {
        /// Why, and what would help, in a sentence.
        message: String,
    },
}

/// The services whose moves depend on others, by name. Those that are not named move as they like.
///
/// Services are looked at together if a strict Negative rule ties them, directly or over others, or if one would like to go
/// where another one is that would like to leave. In such a set one service, or set of services that stay together, moves
/// at a time; all others stay meanwhile, since a move that is right for one of them may undo what was done for another.
///
/// Guarantees: a function of the view alone, to be asked again after every move. A set in which nothing is amiss is not
/// named at all.
pub fn turns(view: &View) -> BTreeMap<String, Turn> {
    let units = units(view);
    let shared = someone_shares(view);
    // Most of the time nobody wants to go anywhere.
    if !shared && !units.values().any(|unit| is_restless(view, unit)) {
        return BTreeMap::new();
    }
    // What each would like, if those that could make room, and those on their way, were nowhere.
    let mut bare = view.clone();
    let stays: BTreeSet<&String> = units.values().flat_map(|unit| &unit.members).collect();
    bare.services.change_all(|name, facts| {
        if stays.contains(name) || facts.uses.len() > 1 {
            facts.uses.clear();
        }
    });
    let amiss: BTreeMap<&String, Wishes> = units
        .iter()
        .filter(|(_, unit)| is_restless(view, unit))
        .filter_map(|(name, unit)| Some((name, wishes(&bare, unit)?)))
        .filter(|(name, wishes)| units.get(*name).is_some_and(|unit| wishes.amiss(unit.place.as_deref())))
        .collect();
    let mut turns = BTreeMap::new();
    if amiss.is_empty() && !shared {
        return turns;
    }
    for component in component::components(view, &units, &amiss) {
        turns.extend(component.turns(view, &units));
    }
    turns
}

/// Services that move as one, as far as order is concerned.
#[derive(Clone, Debug)]
struct Together {
    /// All that take part.
    members: Vec<String>,
    /// Where those that run are; `None`: none runs.
    place: Option<String>,
}

/// How far each node is from what a unit would like best; nodes where it may not be are missing.
#[derive(Clone, Debug, Default)]
struct Wishes(BTreeMap<String, u32>);

impl Wishes {
    fn amiss(&self, place: Option<&str>) -> bool {
        let Some(here) = place.and_then(|place| self.0.get(place)) else { return true };
        self.0.values().any(|wish| wish < here)
    }

    /// Nodes that it would rather be on than on its own.
    fn wanted(&self, place: Option<&str>) -> impl Iterator<Item = &String> {
        let here = place.and_then(|place| self.0.get(place)).copied();
        self.0.iter().filter(move |(_, wish)| here.is_none_or(|here| **wish < here)).map(|(node, _)| node)
    }
}

/// Every unit that could be moved or started now, under the name of its first member that runs, else its first.
fn units(view: &View) -> BTreeMap<String, Together> {
    let mut units = BTreeMap::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (name, facts) in &view.services {
        // Those that must be with one that pauses stay with it.
        let held = facts.paused && !view.rules.companions(name).is_empty();
        let takes_part =
            (facts.movable && !held) || (facts.wanted && facts.uses.is_empty() && !facts.waits_for_others);
        if !takes_part || !seen.insert(name) {
            continue;
        }
        let companions = view.rules.companions(name);
        let moving = |other: &String| view.services.get(other).is_some_and(|facts| facts.uses.len() > 1);
        let unit = Unit::of(view, name, facts);
        seen.extend(unit.members.iter().map(|(member, _)| *member));
        // Who follows a partner that is on its way follows it now.
        if companions.iter().any(moving) {
            continue;
        }
        let places: BTreeSet<&str> = unit.members.iter().filter_map(|(_, facts)| facts.heading()).collect();
        // Those that must be together and are not find together first.
        if places.len() > 1 {
            continue;
        }
        let place = places.first().map(|place| (*place).to_owned());
        let runs = |facts: &ServiceFacts| !facts.uses.is_empty();
        let leader = unit.members.iter().filter(|(_, facts)| runs(facts)).chain(&unit.members).next();
        let Some((leader, _)) = leader else { continue };
        let members: BTreeSet<String> = unit.members.iter().map(|(member, _)| (*member).to_owned()).collect();
        let members = members.into_iter().collect();
        units.insert((*leader).to_owned(), Together { members, place });
    }
    units
}

/// Whether a unit might not be where it should be; most of a cluster is told from the rest without looking at every node.
fn is_restless(view: &View, unit: &Together) -> bool {
    let Some(node) = unit.place.as_ref().and_then(|place| view.nodes.get(place)) else { return true };
    node.maintenance
        || unit.members.iter().any(|name| {
            view.services.get(name).is_none_or(|facts| {
                facts.uses.is_empty()
                    || facts.maintenance_node.is_some()
                    || !facts.failed_nodes.is_empty()
                    || priorities_of(view, name, facts).is_some()
            })
        })
}

/// Whether two services share a node that a strict rule keeps apart.
fn someone_shares(view: &View) -> bool {
    view.rules.apart_sets().any(|partners| {
        let mut taken = BTreeSet::new();
        let mut uses = partners
            .resources
            .iter()
            .filter_map(|name| view.services.get(name))
            .flat_map(|facts| &facts.uses);
        uses.any(|node| !taken.insert(node))
    })
}

/// Nodes with the same key are liked alike: whether it failed to start there, and the class, if that counts.
type Key = (bool, Option<(Reverse<Class>, u32)>);

/// What a unit would like, in a view in which those that could make room use no node. `None`: it has no say.
fn wishes(bare: &View, unit: &Together) -> Option<Wishes> {
    let leader = unit.members.iter().find(|name| {
        unit.place.is_none() || bare.services.get(*name).is_some_and(|facts| facts.node == unit.place)
    })?;
    let facts = bare.services.get(leader)?;
    let whole = Unit::of(bare, leader, facts);
    let mut judged = place_unit(bare, &whole);
    let mut placed = whole.clone();
    if judged.node.is_none()
        && unit.place.is_some()
        && let Some(running) = whole.without(|_, facts| facts.movable)
    {
        judged = place_unit(bare, &running);
        placed = running;
    }
    let failback = placed.failback(bare);
    let key = |score: &crate::score::Score| -> Key {
        (score.failed_before, failback.then_some((score.class, score.partners_class)))
    };
    let allowed: BTreeMap<&String, Key> = judged
        .verdicts
        .iter()
        .filter_map(|(node, verdict)| match verdict {
            Verdict::Allowed(score) => Some((node, key(score))),
            Verdict::Refused(_) => None,
        })
        .collect();
    let keys: BTreeSet<&Key> = allowed.values().collect();
    let home = placed.maintenance_node().filter(|home| allowed.contains_key(&(*home).to_owned()));
    let mut wishes: BTreeMap<String, u32> = allowed
        .iter()
        .map(|(node, own)| {
            let rank = keys.iter().position(|key| *key == own).unwrap_or(0);
            let away = u32::from(home.is_some_and(|home| home != node.as_str()));
            ((*node).clone(), u32::try_from(rank).unwrap_or(u32::MAX / 4) * 2 + away)
        })
        .collect();
    // Reasons that only keep new services away do not make it leave, nor long for elsewhere.
    if let Some(place) = &unit.place
        && let Some(Verdict::Refused(refusals)) = judged.verdicts.get(place)
        && !refusals.iter().any(makes_leave)
    {
        wishes.insert(place.clone(), 0);
    }
    Some(Wishes(wishes))
}

/// Whether a service leaves its place for this reason.
fn makes_leave(refusal: &Refusal) -> bool {
    drives_away(refusal.reason) || (refusal.drives && refusal.reason == Reason::WatchdogFailed)
}
