//! Preemption: which services of lower priority make room for one that fits nowhere.
//!
//! [`preempt`] is the entry. It only says who would have to go and where; the controller stops them and starts the service
//! once they are confirmed stopped.

use crate::place::{Placement, Verdict};
use crate::score::class_of;
use crate::trial::Trial;
use crate::view::{ServiceFacts, View};
use ha_api_types::reason::Reason;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// How many times a node is asked whether a set would do. Beyond it the best set found so far counts, which is then
/// minimal (none of it could stay), but perhaps not the cheapest.
const MOST_CHECKS: usize = 512;

/// What looks for room.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// The service that fits nowhere.
    pub name: &'a str,
    /// It, as it would start.
    pub service: &'a ServiceFacts,
    /// Services that must be with it (strict Positive) and have no place either.
    pub with: &'a BTreeSet<String>,
    /// Services that may be asked to leave: they run, and nothing else is being done about them.
    pub displaceable: &'a BTreeSet<String>,
    /// Services that are being stopped already: their room will be free.
    pub leaving: &'a BTreeSet<String>,
}

/// Who makes room, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// The node.
    pub node: String,
    /// The services that have to leave it, by name. None: it fits once those that are leaving are gone.
    pub victims: BTreeSet<String>,
}

/// Services that leave together: one, and those that must stay with it.
#[derive(Clone, Debug)]
struct Unit {
    members: BTreeSet<String>,
    /// The highest of its members.
    priority: i32,
    /// What it takes, for the order in which units are spared: memory, then cpu.
    size: (i128, i128),
}

/// The cheapest way to make room, if there is one.
///
/// Cost: the priorities of all that leave, highest first, compared one by one; so the most important service that has to
/// leave is as unimportant as possible, then the next, then they are as few as possible. Among nodes of equal cost: the
/// better priority class for the service, then the name. A node where the service failed to start comes last.
///
/// Guarantees: deterministic. Nobody leaves whose priority is not lower than that of the service and of everyone in
/// `with`. Services that must stay together leave together. With the victims and those that are leaving gone, no hard
/// limit and no strict rule refuses the node. Only nodes that nothing else speaks against are considered.
pub fn preempt(view: &View, placement: &Placement, wish: &Wish<'_>) -> Option<Preemption> {
    let bound = wish
        .with
        .iter()
        .filter_map(|name| view.services.get(name))
        .map(|facts| facts.priority)
        .fold(wish.service.priority, i32::min);
    let mut best: Option<(Rank, Preemption)> = None;
    for (node, verdict) in &placement.verdicts {
        let Verdict::Refused(found) = verdict else { continue };
        if !found.iter().all(|refusal| is_about_others(refusal.reason)) {
            continue;
        }
        let failed_before = wish.service.failed_nodes.contains(node);
        let class = Reverse(class_of(view, wish.name, wish.service, node));
        let limit = best.as_ref().filter(|(rank, _)| rank.0 == failed_before).map(|(rank, _)| rank.1.clone());
        let Some((cost, victims)) = cheapest(view, wish, node, bound, limit) else { continue };
        let rank = (failed_before, cost, class);
        if best.as_ref().is_none_or(|(known, _)| rank < *known) {
            best = Some((rank, Preemption { node: node.clone(), victims }));
        }
    }
    best.map(|(_, preemption)| preemption)
}

type Rank = (bool, Vec<i32>, Reverse<crate::score::Class>);

/// Whether a refusal ends when other services leave the node.
fn is_about_others(reason: Reason) -> bool {
    [
        Reason::NotEnoughMemory,
        Reason::NotEnoughDisk,
        Reason::NotEnoughCpu,
        Reason::NegativePartner,
        Reason::ExclusionTag,
    ]
    .contains(&reason)
}

/// The cheapest set on one node; `limit`: nothing dearer is of interest.
fn cheapest(
    view: &View,
    wish: &Wish<'_>,
    node: &str,
    bound: i32,
    limit: Option<Vec<i32>>,
) -> Option<(Vec<i32>, BTreeSet<String>)> {
    let units = units(view, wish, node, bound);
    let trial = Trial::new(view, wish.name, wish.service, wish.with, wish.leaving, node);
    let mut search = Search { trial, units: &units, limit, found: None, checks: 0 };
    if !search.fits(&[], 0) {
        return None;
    }
    search.decide(0, &mut Vec::new());
    search.found
}

/// What may leave a node, the most important first, and of these the smallest: in this order they are spared.
fn units(view: &View, wish: &Wish<'_>, node: &str, bound: i32) -> Vec<Unit> {
    let own = view.rules.companions(wish.name);
    let stays = |name: &str, facts: &ServiceFacts| {
        !wish.displaceable.contains(name)
            || own.contains(name)
            || facts.priority >= bound
            || facts.uses.len() != 1
            || !facts.uses.contains(node)
    };
    let mut units: BTreeMap<BTreeSet<String>, Unit> = BTreeMap::new();
    for (name, facts) in view.users_of(node, wish.name) {
        if wish.leaving.contains(name) || stays(name, facts) {
            continue;
        }
        let members = leave_together(view, wish, name, node);
        let known: Vec<(&String, &ServiceFacts)> =
            members.iter().filter_map(|name| Some((name, view.services.get(name)?))).collect();
        if known.iter().any(|(name, facts)| stays(name, facts)) {
            continue;
        }
        let priority = known.iter().map(|(_, facts)| facts.priority).max().unwrap_or(facts.priority);
        let sum = |pick: fn(&ServiceFacts) -> i128| known.iter().map(|(_, facts)| pick(facts)).sum::<i128>();
        let size = (
            sum(|facts| facts.requests.memory.unwrap_or_default().milli()),
            sum(|facts| facts.requests.cpu.unwrap_or_default().milli()),
        );
        units.insert(members.clone(), Unit { members, priority, size });
    }
    let mut units: Vec<Unit> = units.into_values().collect();
    units.sort_by(|a, b| {
        (Reverse(a.priority), a.size, &a.members).cmp(&(Reverse(b.priority), b.size, &b.members))
    });
    units
}

/// A service and those on the node that must stay with it.
fn leave_together(view: &View, wish: &Wish<'_>, name: &str, node: &str) -> BTreeSet<String> {
    view.rules
        .companions(name)
        .into_iter()
        .filter(|other| !wish.leaving.contains(other))
        .filter(|other| view.services.get(other).is_some_and(|facts| facts.uses.contains(node)))
        .chain(std::iter::once(name.to_owned()))
        .collect()
}

/// Decides unit after unit, the most important first: spared if what is still undecided can make up for it, else it
/// leaves. The first end is minimal; going on finds the cheapest.
struct Search<'a> {
    trial: Trial<'a>,
    units: &'a [Unit],
    /// The cost to beat.
    limit: Option<Vec<i32>>,
    found: Option<(Vec<i32>, BTreeSet<String>)>,
    checks: usize,
}

impl Search<'_> {
    /// Whether it fits when these leave, and all that are undecided.
    fn fits(&mut self, leave: &[usize], undecided: usize) -> bool {
        self.checks += 1;
        let gone = leave.iter().filter_map(|at| self.units.get(*at)).chain(self.units.iter().skip(undecided));
        self.trial.fits(gone.flat_map(|unit| &unit.members))
    }

    fn cost(&self, leave: &[usize]) -> Vec<i32> {
        let mut cost: Vec<i32> = leave
            .iter()
            .filter_map(|at| self.units.get(*at))
            .flat_map(|unit| &unit.members)
            .filter_map(|name| self.trial.priority_of(name))
            .collect();
        cost.sort_unstable_by_key(|priority| Reverse(*priority));
        cost
    }

    /// Assumes that it fits when `leave` and everything from `at` on leave.
    fn decide(&mut self, at: usize, leave: &mut Vec<usize>) {
        let cost = self.cost(leave);
        // Whoever leaves besides makes it dearer, never cheaper.
        if self.limit.as_ref().is_some_and(|limit| cost > *limit)
            || self.found.as_ref().is_some_and(|(known, _)| cost >= *known)
        {
            return;
        }
        if at >= self.units.len() {
            let members =
                leave.iter().filter_map(|at| self.units.get(*at)).flat_map(|unit| unit.members.clone());
            self.found = Some((cost, members.collect()));
            return;
        }
        if self.checks >= MOST_CHECKS && self.found.is_some() {
            return;
        }
        if self.fits(leave, at + 1) {
            self.decide(at + 1, leave);
        }
        leave.push(at);
        self.decide(at + 1, leave);
        leave.pop();
    }
}

#[cfg(test)]
mod tests;
