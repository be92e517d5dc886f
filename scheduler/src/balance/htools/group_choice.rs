//! The choice of a group and of nodes for a new instance, by the rules of Ganeti's hail: a preferred group before those of last
//! resort, then the group with the lowest resulting score.

use super::allocation::{
    AllocationRules, Attempt, InstanceNodes, Request, Trial, TrialProblems, add, candidates, nodes_of,
};
use super::dedicated::{self, Loss};
use crate::balance::groups::partition::populated_groups;
use crate::balance::model::{Allocation, Cluster};
use crate::balance::state::checked::FailMode;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A new instance with the conditions of a request to hail.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedInstance {
    /// The instance to be placed.
    pub request: Request,
    /// Number of nodes.
    pub node_count: i64,
    /// Networks that the group must have.
    pub networks: Vec<String>,
    /// Name of the group; `None` for any group that accepts instances.
    pub group: Option<String>,
}

/// The group and the nodes for an instance.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Position of the group in the cluster.
    pub group: usize,
    /// Nodes by position in the cluster.
    pub nodes: InstanceNodes,
    /// Descriptions of the choice and of the attempts in each group.
    pub log: Vec<String>,
}

/// The measure by which candidates are compared; lower is better.
#[derive(Clone, Debug, PartialEq)]
pub enum Metric {
    /// The score of the cluster.
    Score(f64),
    /// The lost allocations on dedicated nodes.
    Loss(Loss),
}

impl Metric {
    fn compare(&self, other: &Metric) -> Ordering {
        match (self, other) {
            (Metric::Score(one), Metric::Score(other)) => one.total_cmp(other),
            (Metric::Loss(one), Metric::Loss(other)) => one.cmp(other),
            (Metric::Score(_), Metric::Loss(_)) => Ordering::Less,
            (Metric::Loss(_), Metric::Score(_)) => Ordering::Greater,
        }
    }

    fn text(&self) -> String {
        match self {
            Metric::Score(score) => format!("{score:.8}"),
            Metric::Loss((lost, disk)) => format!("({},{disk})", format!("{lost:?}").replace(' ', "")),
        }
    }
}

/// All attempts to place an instance in a group.
#[derive(Clone, Debug, Default)]
pub struct GroupTrial {
    /// Number of refusals by mode.
    pub failures: BTreeMap<FailMode, usize>,
    /// Number of nodes or pairs of nodes that accept the instance.
    pub successes: usize,
    /// The chosen nodes by position in the cluster.
    pub best: Option<(InstanceNodes, Metric)>,
}

impl GroupTrial {
    /// Converts an attempt of a trial.
    pub(super) fn from_attempt(attempt: Attempt, trial: &Trial<'_>) -> GroupTrial {
        let best =
            attempt.best.map(|(placement, score)| (trial.cluster_nodes(placement), Metric::Score(score)));
        GroupTrial { failures: attempt.failures, successes: attempt.successes, best }
    }

    /// Adds the result for some nodes. Of equal ones, the last one counts.
    pub(super) fn add(&mut self, result: Result<(InstanceNodes, Metric), FailMode>) {
        match result {
            Err(mode) => *self.failures.entry(mode).or_default() += 1,
            Ok((nodes, metric)) => {
                self.successes += 1;
                let is_better =
                    |(_, best): &(InstanceNodes, Metric)| metric.compare(best) != Ordering::Greater;
                if self.best.as_ref().is_none_or(is_better) {
                    self.best = Some((nodes, metric));
                }
            }
        }
    }

    /// Returns the description of hail.
    pub fn describe(&self, cluster: &Cluster) -> String {
        let reasons: Vec<String> =
            self.failures.iter().map(|(mode, count)| format!("{}: {count}", mode.name())).collect();
        let reasons = reasons.join(", ");
        match &self.best {
            None if reasons.is_empty() => {
                "No valid allocation solutions, failure reasons: unknown reasons".to_owned()
            }
            None => format!("No valid allocation solutions, failure reasons: {reasons}"),
            Some((nodes, metric)) => format!(
                "score: {}, successes {}, failures {} ({reasons}) for node(s) {}",
                metric.text(),
                self.successes,
                self.failures.values().sum::<usize>(),
                node_names(cluster, *nodes).join("/")
            ),
        }
    }
}

/// Returns the names of an instance's nodes, the primary first.
pub fn node_names(cluster: &Cluster, nodes: InstanceNodes) -> Vec<String> {
    nodes_of(nodes).map(|node| cluster.nodes[node].name.clone()).collect()
}

/// Returns `true` if all nodes for new instances have exclusive storage, so that hail compares lost allocations instead of
/// scores. `group` is the name of the only group.
pub fn is_dedicated(cluster: &Cluster, group: Option<&str>) -> bool {
    let may_be_used = |position: usize| {
        let each = &cluster.groups[position];
        group.map_or(each.allocation != Allocation::Unallocable, |name| each.name == name)
    };
    cluster.nodes.iter().all(|node| node.exclusive_storage || !may_be_used(node.group))
}

/// The reason why an instance was not placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No node of the group in the request accepts the instance. Other instances are still placed.
    NoNode {
        /// Name of the group with its policy, as in hail's descriptions.
        group: String,
        /// Reasons why nodes were not chosen, as hail prints them.
        reasons: String,
    },
    /// The request cannot be met.
    Request(String),
}

impl Refusal {
    /// Returns the reason.
    pub fn into_text(self) -> String {
        match self {
            Refusal::NoNode { group, reasons } => format!("{group}: {reasons}"),
            Refusal::Request(text) => text,
        }
    }
}

/// Chooses the group and the nodes for an instance.
///
/// # Errors
/// Returns the reasons of all groups.
pub fn choose(
    cluster: &Cluster,
    wanted: &RequestedInstance,
    rules: &AllocationRules,
    is_dedicated: bool,
) -> Result<Choice, Refusal> {
    match &wanted.group {
        None => choose_among(cluster, wanted, None, rules, is_dedicated).map_err(Refusal::Request),
        Some(name) => {
            let group = group_named(cluster, name).map_err(Refusal::Request)?;
            let tried = try_named_group(cluster, wanted, group, rules, is_dedicated);
            let tried = tried.map_err(Refusal::Request)?;
            match tried.best {
                Some((nodes, _)) => {
                    Ok(Choice { group, nodes, log: vec![group_description(cluster, group, &tried)] })
                }
                None => Err(Refusal::NoNode {
                    group: name_with_policy(cluster, group),
                    reasons: tried.describe(cluster),
                }),
            }
        }
    }
}

/// Tries the nodes of the only group. The nodes of other groups do not count.
fn try_named_group(
    cluster: &Cluster,
    wanted: &RequestedInstance,
    group: usize,
    rules: &AllocationRules,
    is_dedicated: bool,
) -> Result<GroupTrial, String> {
    if !has_networks(cluster, group, wanted) {
        return Err(missing_network(cluster, "The group", group, wanted));
    }
    let mut rules = rules.clone();
    rules.ignored_groups.extend((0..cluster.groups.len()).filter(|other| *other != group));
    try_group(cluster, wanted, group, &[group], &rules, is_dedicated)
}

/// Returns the position of a group.
///
/// # Errors
/// Returns hail's error about an unknown group.
pub fn group_named(cluster: &Cluster, name: &str) -> Result<usize, String> {
    let found = cluster.groups.iter().position(|group| group.name == name || group.uuid == name);
    found.ok_or_else(|| format!("Wrong number of elems found with name {name}"))
}

/// Chooses among the groups with nodes, or among the `allowed` ones of these.
pub(super) fn choose_among(
    cluster: &Cluster,
    wanted: &RequestedInstance,
    allowed: Option<&[usize]>,
    rules: &AllocationRules,
    is_dedicated: bool,
) -> Result<Choice, String> {
    let all: Vec<usize> = (0..cluster.groups.len()).collect();
    let is_allowed = |group: &usize| allowed.is_none_or(|allowed| allowed.contains(group));
    let groups: Vec<usize> = populated_groups(cluster).filter(is_allowed).collect();
    if let (true, Some(allowed)) = (groups.is_empty(), allowed) {
        let names: Vec<&str> =
            populated_groups(cluster).map(|group| cluster.groups[group].name.as_str()).collect();
        let allowed = format!("{allowed:?}").replace(' ', "");
        return Err(format!(
            "no groups for evacuation: allowed groups was Just {allowed}, all groups: {names:?}"
        ));
    }
    let mut log = Vec::new();
    let mut attempts = Vec::new();
    for group in groups {
        let result = if has_networks(cluster, group, wanted) {
            // Only the nodes of the group count for dedicated ones.
            let scope = if is_dedicated { vec![group] } else { all.clone() };
            try_group(cluster, wanted, group, &scope, rules, is_dedicated)
        } else if is_dedicated {
            Err(missing_network(cluster, "The group", group, wanted))
        } else {
            log.push(missing_network(cluster, "group", group, wanted));
            continue;
        };
        attempts.push((group, result));
    }
    let mut solutions = Vec::new();
    for (group, result) in attempts {
        match result {
            Err(cause) => log.push(format!("Group {}: error {cause}", cluster.groups[group].name)),
            Ok(tried) => {
                log.push(group_description(cluster, group, &tried));
                if cluster.groups[group].allocation != Allocation::Unallocable {
                    solutions.extend(tried.best.map(|(nodes, metric)| (group, nodes, metric)));
                }
            }
        }
    }
    // Of equal groups, the last one counts.
    solutions.reverse();
    solutions.sort_by(|(one, _, metric), (other, _, other_metric)| {
        let is_last_resort = |group: usize| cluster.groups[group].allocation == Allocation::LastResort;
        is_last_resort(*one).cmp(&is_last_resort(*other)).then_with(|| metric.compare(other_metric))
    });
    match solutions.first() {
        None => Err(log.join(", ")),
        Some((group, nodes, _)) => {
            log.insert(0, format!("Selected group: {}", cluster.groups[*group].name));
            Ok(Choice { group: *group, nodes: *nodes, log })
        }
    }
}

fn has_networks(cluster: &Cluster, group: usize, wanted: &RequestedInstance) -> bool {
    wanted.networks.iter().all(|network| cluster.groups[group].networks.contains(network))
}

fn missing_network(cluster: &Cluster, word: &str, group: usize, wanted: &RequestedInstance) -> String {
    format!(
        "{word} {} is not connected to a network required by instance {}",
        cluster.groups[group].name, wanted.request.instance.name
    )
}

fn group_description(cluster: &Cluster, group: usize, tried: &GroupTrial) -> String {
    format!("{}: {}", name_with_policy(cluster, group), tried.describe(cluster))
}

/// Formats the name of a group with its policy, as in hail's descriptions.
fn name_with_policy(cluster: &Cluster, group: usize) -> String {
    let policy = match cluster.groups[group].allocation {
        Allocation::Preferred => "preferred",
        Allocation::LastResort => "last_resort",
        Allocation::Unallocable => "unallocable",
    };
    format!("Group {} ({policy})", cluster.groups[group].name)
}

/// Tries the nodes of a group. The nodes of all groups of the scope count in scores.
fn try_group(
    cluster: &Cluster,
    wanted: &RequestedInstance,
    group: usize,
    scope: &[usize],
    rules: &AllocationRules,
    is_dedicated: bool,
) -> Result<GroupTrial, String> {
    let node_count = match wanted.node_count {
        1 => 1,
        2 => 2,
        _ => return Err("Unsupported number of nodes, only one or two  supported".to_owned()),
    };
    let may_be_used = |node: usize| {
        rules.restricted_to.as_ref().is_none_or(|names| names.contains(&cluster.nodes[node].name))
    };
    let mut candidates = candidates(cluster, &BTreeSet::from([group]), node_count);
    candidates.retain(|(node, _)| may_be_used(*node));
    for (_, secondaries) in &mut candidates {
        secondaries.retain(|node| may_be_used(*node));
    }
    candidates.retain(|(_, secondaries)| node_count == 1 || !secondaries.is_empty());
    if candidates.is_empty() {
        return Err(if node_count == 2 { "Not enough online nodes" } else { "No online nodes" }.to_owned());
    }
    let pairs = candidates.iter().flat_map(|(primary, secondaries)| {
        let with_secondary = secondaries.iter().map(|secondary| (*primary, Some(*secondary)));
        with_secondary.chain((node_count == 1).then_some((*primary, None)))
    });
    if is_dedicated {
        return Ok(dedicated::attempt(cluster, &wanted.request, group, pairs, rules));
    }
    let problems = TrialProblems::new(cluster, &wanted.request, rules, scope);
    let mut trial = Trial::new(cluster, rules, &problems);
    let attempt = trial.attempt(&wanted.request, &candidates);
    Ok(GroupTrial::from_attempt(attempt, &trial))
}

/// The nodes of several new instances, or the reason for each, in their order.
pub type AllocationResults = Vec<Result<InstanceNodes, String>>;

/// Places several instances one at a time. Returns the cluster with them.
///
/// # Errors
/// Returns the reason if an instance without a group cannot be placed, or if a request is invalid.
pub fn choose_each(
    cluster: &Cluster,
    wanted: &[RequestedInstance],
    rules: &AllocationRules,
    is_dedicated: bool,
) -> Result<(Cluster, AllocationResults), String> {
    let mut filled = cluster.clone();
    let mut rules = rules.clone();
    let mut allocated = Vec::new();
    // As in hail, only dedicated nodes of the group of the first instance are left for the others.
    let mut only_group = None;
    for each in wanted {
        // As in hail, an instance in a given dedicated group is placed as if the earlier ones did not exist.
        let base = if is_dedicated && each.group.is_some() { cluster } else { &filled };
        let choice = match only_group {
            Some(group) if each.group.is_none() => {
                choose_among(base, each, Some(&[group]), &rules, is_dedicated).map_err(Refusal::Request)
            }
            Some(_) | None => choose(base, each, &rules, is_dedicated),
        };
        match choice {
            Ok(choice) => {
                only_group = is_dedicated.then_some(choice.group);
                rules.disk_sizes.insert(filled.instances.len(), each.request.disks.clone());
                add(&mut filled, &each.request.instance, choice.nodes);
                rules.changed_nodes.extend(nodes_of(choice.nodes));
                allocated.push(Ok(choice.nodes));
            }
            // As in hail, the reasons are without the group for dedicated nodes.
            Err(Refusal::NoNode { reasons, .. }) if is_dedicated => allocated.push(Err(reasons)),
            Err(refusal @ Refusal::NoNode { .. }) => allocated.push(Err(refusal.into_text())),
            Err(Refusal::Request(text)) => return Err(text),
        }
    }
    Ok((filled, allocated))
}
