//! Brute-force search over every arrangement, each checked by the filter that the leader uses.

use crate::place::{Verdict, place_unit};
use crate::reservation::{Move, Proof, counted_facts};
use crate::unit::PlacementUnit;
use crate::view::{ServiceFacts, View};
use ha_api_types::id::{NodeName, ResourceName};
use std::collections::{BTreeMap, BTreeSet};

/// Services that move together, because of failed nodes or a preemption.
#[derive(Clone, Debug)]
struct Group {
    /// Services that must leave come first.
    members: Vec<ResourceName>,
    from: NodeName,
    is_preempted: bool,
}

/// The cluster with all services as the check counts them, before placement, and the groups that must be placed.
struct ClusterAfterFailure {
    view: View,
    groups: Vec<Group>,
    /// Groups that may be preempted, with `scheduler.preemption`.
    others: Vec<Group>,
}

fn after_failure(view: &View, failed: &BTreeSet<NodeName>) -> ClusterAfterFailure {
    let mut view = View {
        services: view
            .services
            .iter()
            .map(|(name, facts)| (name.clone(), counted_facts(view, name, facts).into_owned()))
            .collect(),
        ..view.clone()
    };
    for (name, node) in &mut view.nodes {
        if failed.contains(name) {
            node.online = Err(ha_api_types::reason::Reason::HeartbeatMissed);
        }
    }
    let current_node = |facts: &ServiceFacts| {
        facts
            .node
            .clone()
            .filter(|node| facts.used_nodes.contains(node))
            .or(facts.used_nodes.first().cloned())
    };
    let mut groups: Vec<Group> = Vec::new();
    let mut visited = BTreeSet::new();
    let leaves = |name: &str| {
        let facts = &view.services[name];
        facts.is_desired && current_node(facts).is_some_and(|current_node| failed.contains(&current_node))
    };
    for name in view.services.keys().filter(|name| leaves(name)) {
        if visited.contains(name) {
            continue;
        }
        let companions = view.rules.strict_affinity_partners(name);
        let set: BTreeSet<ResourceName> = companions.into_iter().chain([name.clone()]).collect();
        let mut members: Vec<ResourceName> = set
            .iter()
            .filter(|member| view.services.contains_key(*member) && leaves(member))
            .cloned()
            .collect();
        let running = |member: &&ResourceName| {
            view.services.get(*member).is_some_and(|facts| facts.movable && !facts.used_nodes.is_empty())
        };
        members
            .extend(set.iter().filter(running).filter(|member| !leaves(member)).cloned().collect::<Vec<_>>());
        visited.extend(members.iter().cloned());
        let from = current_node(&view.services[&members[0]]).expect("the service has an assigned node");
        groups.push(Group { members, from, is_preempted: false });
    }
    let mut others: Vec<Group> = Vec::new();
    for (name, facts) in &view.services {
        if !view.settings.preemption || visited.contains(name) || facts.used_nodes.len() != 1 {
            continue;
        }
        let from = facts.used_nodes.first().cloned().expect("one");
        let running = |member: &ResourceName| {
            view.services.get(member).is_some_and(|facts| !facts.used_nodes.is_empty())
        };
        let set: BTreeSet<ResourceName> = view
            .rules
            .strict_affinity_partners(name)
            .into_iter()
            .filter(running)
            .chain([name.clone()])
            .collect();
        let may = |member: &ResourceName| {
            let facts = &view.services[member];
            facts.is_desired && facts.movable && facts.used_nodes == BTreeSet::from([from.clone()])
        };
        visited.extend(set.iter().cloned());
        if !failed.contains(&from) && set.iter().all(may) {
            others.push(Group { members: set.into_iter().collect(), from, is_preempted: true });
        }
    }
    let leaving: Vec<ResourceName> = view.services.keys().filter(|name| leaves(name)).cloned().collect();
    view.services.change_all(|name, facts| {
        if leaving.contains(name) {
            facts.used_nodes.clear();
        } else {
            facts.used_nodes.retain(|node| !failed.contains(node));
        }
    });
    ClusterAfterFailure { view, groups, others }
}

/// Returns `true` if all groups may be on their nodes once all have arrived.
fn is_allowed(failed: &ClusterAfterFailure, to: &[(&Group, &NodeName)]) -> bool {
    let priorities = |group: &Group| -> Vec<i32> {
        group.members.iter().map(|member| failed.view.services[member].priority).collect()
    };
    let is_justified = to.iter().filter(|(group, _)| group.is_preempted).all(|(group, _)| {
        let highest = priorities(group).into_iter().max();
        to.iter().any(|(other, node)| **node == group.from && priorities(other).into_iter().min() > highest)
    });
    is_justified
        && to.iter().all(|(group, node)| {
            let mut view = failed.view.clone();
            for (other, place) in to {
                for member in &other.members {
                    let mut facts = view.services.get_mut(member).expect("a member");
                    if other.members == group.members {
                        if group.is_preempted {
                            facts.used_nodes.clear();
                        }
                    } else {
                        facts.used_nodes = BTreeSet::from([(*place).clone()]);
                        facts.node = Some((*place).clone());
                    }
                }
            }
            let members = group.members.iter().map(|member| (member, &view.services[member])).collect();
            let placement = place_unit(&view, &PlacementUnit::new(members));
            matches!(placement.verdicts.get(*node), Some(Verdict::Allowed(_)))
        })
}

/// Returns `true` if any arrangement has a node for every service.
pub(super) fn survives(view: &View, failure: &BTreeSet<NodeName>) -> bool {
    let failed = after_failure(view, failure);
    let nodes: Vec<&NodeName> = view.nodes.keys().filter(|node| !failure.contains(*node)).collect();
    can_place_all(&failed, &nodes, &mut Vec::new(), 0)
}

fn can_place_all<'a>(
    failed: &'a ClusterAfterFailure,
    nodes: &[&'a NodeName],
    to: &mut Vec<(&'a Group, &'a NodeName)>,
    index: usize,
) -> bool {
    let all_groups: Vec<&Group> = failed.groups.iter().chain(&failed.others).collect();
    let Some(group) = all_groups.get(index) else { return is_allowed(failed, to) };
    if group.is_preempted && can_place_all(failed, nodes, to, index + 1) {
        return true;
    }
    for node in nodes.iter().filter(|node| !group.is_preempted || **node != &group.from) {
        to.push((group, node));
        if can_place_all(failed, nodes, to, index + 1) {
            return true;
        }
        to.pop();
    }
    false
}

/// Returns `true` if a proof is valid.
pub(super) fn proves(view: &View, failure: &BTreeSet<NodeName>, proof: &Proof) -> bool {
    let failed = after_failure(view, failure);
    let moves: BTreeMap<&ResourceName, &Move> = proof
        .moves
        .iter()
        .chain(&proof.preempted)
        .map(|service_move| (&service_move.service, service_move))
        .collect();
    let goes = |group: &&Group| group.members.iter().any(|member| moves.contains_key(member));
    let groups: Vec<&Group> = failed.groups.iter().chain(failed.others.iter().filter(goes)).collect();
    let members: BTreeSet<&ResourceName> = groups.iter().flat_map(|group| &group.members).collect();
    let one_node = |group: &&Group| {
        let nodes: BTreeSet<&NodeName> =
            group.members.iter().filter_map(|member| Some(&moves.get(member)?.to)).collect();
        nodes.len() == 1
    };
    let to: Vec<(&Group, &NodeName)> =
        groups.iter().filter_map(|group| Some((*group, &moves.get(&group.members[0])?.to))).collect();
    members == moves.keys().copied().collect()
        && groups.iter().all(one_node)
        && !to.iter().any(|(_, node)| failure.contains(*node))
        && is_allowed(&failed, &to)
}
