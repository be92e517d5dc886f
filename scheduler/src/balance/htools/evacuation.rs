//! The moves of instances away from nodes or to other groups, by the rules of Ganeti's hail: one instance at a time,
//! each to the nodes with the lowest resulting score of the group. After a failed move, the instance stays on its
//! nodes.

use super::allocation::{
    AllocationRules, Candidate, InstanceNodes, Request, Trial, TrialProblems, nodes_of, relocate,
    take_amounts,
};
use super::group_choice::{GroupTrial, RequestedInstance, choose_among};
use crate::balance::model::{Cluster, Instance, Role, StorageReach, Template};
use crate::balance::problem::{Placement, Problem, Settings};
use crate::balance::state::State;
use crate::balance::state::checked::{Checks, FailMode};
use std::collections::BTreeSet;

/// The nodes that instances leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The primary.
    Primary,
    /// The secondary.
    Secondary,
    /// Both nodes.
    All,
}

/// A step of a move. Nodes are positions in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The instance fails over to its secondary.
    Failover,
    /// The instance moves to a node that reaches its storage.
    FailoverTo(usize),
    /// The secondary is replaced by a node.
    ReplaceSecondary(usize),
}

/// An instance that was moved.
#[derive(Clone, Debug, PartialEq)]
pub struct MovedInstance {
    /// Position of the instance in the cluster.
    pub instance: usize,
    /// Nodes of the instance afterward.
    pub nodes: InstanceNodes,
    /// Steps of the move, in their order.
    pub steps: Vec<Step>,
}

/// The result for several instances.
#[derive(Clone, Debug)]
pub struct Evacuation {
    /// The cluster afterward.
    pub cluster: Cluster,
    /// The moved instances, in their order.
    pub moved: Vec<MovedInstance>,
    /// The other instances, each with the reason.
    pub failed: Vec<(usize, String)>,
    /// Nodes that changed, by position in the cluster.
    changed_nodes: BTreeSet<usize>,
}

impl Evacuation {
    fn new(cluster: &Cluster) -> Evacuation {
        Evacuation {
            cluster: cluster.clone(),
            moved: Vec::new(),
            failed: Vec::new(),
            changed_nodes: BTreeSet::new(),
        }
    }

    /// Returns the rules with the nodes that changed.
    fn rules(&self, rules: &AllocationRules) -> AllocationRules {
        AllocationRules { changed_nodes: self.changed_nodes.clone(), ..rules.clone() }
    }

    fn add(&mut self, instance: usize, result: Result<MovedInstance, String>) {
        match result {
            Ok(moved) => {
                let before = &self.cluster.instances[instance];
                self.changed_nodes.extend(nodes_of((before.primary, before.secondary)));
                self.changed_nodes.extend(nodes_of(moved.nodes));
                relocate(&mut self.cluster, instance, moved.nodes);
                self.moved.push(moved);
            }
            Err(reason) => self.failed.push((instance, reason)),
        }
    }
}

/// Moves instances away from nodes inside their groups.
pub fn evacuate(cluster: &Cluster, instances: &[usize], mode: Mode, rules: &AllocationRules) -> Evacuation {
    let mut excluded = offline_nodes(cluster);
    for instance in instances.iter().map(|index| &cluster.instances[*index]) {
        if mode != Mode::Secondary {
            excluded.insert(instance.primary);
        }
        if mode != Mode::Primary && instance.template == Template::Drbd {
            excluded.extend(instance.secondary);
        }
    }
    let mut evacuation = Evacuation::new(cluster);
    for &index in instances {
        let primary = cluster.instances[index].primary;
        let group = cluster.nodes[primary].group;
        let targets: Vec<usize> = (0..cluster.nodes.len())
            .filter(|node| {
                cluster.nodes[*node].group == group && *node != primary && !excluded.contains(node)
            })
            .collect();
        let result =
            move_instance(&evacuation.cluster, index, mode, group, &targets, &evacuation.rules(rules));
        evacuation.add(index, result);
    }
    evacuation
}

/// Moves instances to other groups: to one of `targets`, or if these are empty, to any group without one of the instances.
pub fn change_group(
    cluster: &Cluster,
    instances: &[usize],
    targets: &[usize],
    rules: &AllocationRules,
) -> Evacuation {
    let left: BTreeSet<usize> =
        instances.iter().map(|index| cluster.nodes[cluster.instances[*index].primary].group).collect();
    let all: Vec<usize> = (0..cluster.groups.len()).collect();
    let targets = if targets.is_empty() { &all } else { targets };
    let targets: Vec<usize> = targets.iter().copied().filter(|group| !left.contains(group)).collect();
    let offline = offline_nodes(cluster);
    // As in Ganeti, the moves to the group obey the default options.
    let default = AllocationRules {
        settings: Settings { ignore_soft_errors: false, ..rules.settings.clone() },
        ..rules.clone()
    };
    let mut evacuation = Evacuation::new(cluster);
    for &index in instances {
        let result =
            best_group(&evacuation.cluster, index, &targets, &evacuation.rules(rules)).and_then(|group| {
                let nodes: Vec<usize> = (0..cluster.nodes.len())
                    .filter(|node| cluster.nodes[*node].group == group && !offline.contains(node))
                    .collect();
                let rules = evacuation.rules(&default);
                move_instance(&evacuation.cluster, index, Mode::All, group, &nodes, &rules)
            });
        evacuation.add(index, result);
    }
    evacuation
}

fn offline_nodes(cluster: &Cluster) -> BTreeSet<usize> {
    (0..cluster.nodes.len()).filter(|node| cluster.nodes[*node].role == Role::Offline).collect()
}

/// Returns the group to which an instance should move.
fn best_group(
    cluster: &Cluster,
    index: usize,
    targets: &[usize],
    rules: &AllocationRules,
) -> Result<usize, String> {
    let request = Request::of_existing(cluster, index, &rules.disk_sizes);
    let wanted = RequestedInstance {
        node_count: if request.node_count() == 2 { 2 } else { 1 },
        networks: rules.networks.get(&index).cloned().unwrap_or_default(),
        group: None,
        request,
    };
    choose_among(cluster, &wanted, Some(targets), rules, false).map(|choice| choice.group)
}

/// An instance on its way to other nodes.
struct Move<'a> {
    /// All nodes and instances; positions of nodes are those of the cluster.
    whole: State<'a>,
    /// The instances of the target group.
    group: State<'a>,
    /// Positions of the instance in both problems.
    service: usize,
    group_service: usize,
    /// Placement of the instance in the whole problem, and in that of the group if it is there.
    start: Placement,
    is_forced: bool,
}

fn move_instance(
    cluster: &Cluster,
    index: usize,
    mode: Mode,
    group: usize,
    targets: &[usize],
    rules: &AllocationRules,
) -> Result<MovedInstance, String> {
    let instance = &cluster.instances[index];
    let word = Template::WORDS.iter().find(|(template, _)| *template == instance.template);
    let word = word.map_or("", |(_, word)| word);
    match instance.template.reach() {
        StorageReach::Local => return Err(format!("Instances of type {word} cannot be relocated")),
        StorageReach::Shared if mode == Mode::Secondary => {
            return Err(format!("Instances with disk template '{word}' can't execute change secondary"));
        }
        StorageReach::Shared | StorageReach::Replicated => {}
    }
    let all: Vec<usize> = (0..cluster.groups.len()).collect();
    let whole = Problem::of_groups(cluster, &all, &rules.settings);
    let is_here = cluster.nodes[instance.primary].group == group;
    let of_group = if is_here {
        Problem::new(cluster, group, &rules.settings)
    } else {
        Problem::with_new_instance(cluster, &[group], &rules.settings, Some((instance, None)))
    };
    let position = |problem: &Problem| {
        let found = problem.services.iter().position(|service| service.instance == index);
        found.unwrap_or(problem.services.len().saturating_sub(1))
    };
    let mut search = Move {
        service: position(&whole),
        group_service: position(&of_group),
        start: Placement { primary: instance.primary, secondary: instance.secondary },
        whole: State::new(&whole, &whole.start_placements),
        group: State::new(&of_group, &of_group.start_placements),
        is_forced: rules.settings.ignore_soft_errors,
    };
    search.whole.load_as_ganeti(cluster, &rules.changed_nodes);
    search.group.load_as_ganeti(cluster, &rules.changed_nodes);
    if is_here {
        let start = of_group.start_placements[search.group_service];
        search.group.remove_added(search.group_service, start);
    }
    let moved = |(to, steps): (Placement, Vec<Step>)| MovedInstance {
        instance: index,
        nodes: (to.primary, to.secondary),
        steps,
    };
    match (instance.template.reach(), mode) {
        (StorageReach::Replicated, Mode::Primary) => {
            let to = search.apply(search.start, Step::Failover).map_err(|mode| mode.name().to_owned())?;
            Ok(moved((to, vec![Step::Failover])))
        }
        (StorageReach::Replicated, Mode::All) => search.change_all(targets).map(moved),
        (reach, _) => {
            let step =
                if reach == StorageReach::Replicated { Step::ReplaceSecondary } else { Step::FailoverTo };
            search.change_one(cluster, targets, step).map(moved)
        }
    }
}

impl Move<'_> {
    /// Makes a step if the nodes accept it, and returns the placement after it.
    fn apply(&mut self, from: Placement, step: Step) -> Result<Placement, FailMode> {
        let problem = self.whole.problem();
        let is_down = |node: usize| problem.nodes[node].is_down;
        let migrates = |to: usize| problem.nodes[from.primary].migrates_to(&problem.nodes[to]);
        let leaves_down_node = self.is_forced || is_down(from.primary);
        let (to, checks) = match step {
            Step::Failover => {
                let to = from.swapped().ok_or(FailMode::Disk)?;
                let checks = Checks {
                    forces_primary: leaves_down_node,
                    forces_secondary: leaves_down_node,
                    ignores_secondary_disk: is_down(from.primary),
                    checks_secondary_first: false,
                };
                (migrates(to.primary).then_some(to).ok_or(FailMode::Migration)?, checks)
            }
            Step::FailoverTo(node) => {
                let to = migrates(node).then_some(Placement { primary: node, ..from });
                let checks = Checks { forces_primary: leaves_down_node, ..Checks::default() };
                (to.ok_or(FailMode::Migration)?, checks)
            }
            Step::ReplaceSecondary(node) => {
                let checks = Checks {
                    forces_primary: true,
                    forces_secondary: self.is_forced || from.secondary.is_some_and(is_down),
                    ignores_secondary_disk: false,
                    checks_secondary_first: true,
                };
                (Placement { secondary: Some(node), ..from }, checks)
            }
        };
        self.whole.remove_added(self.service, from);
        match self.whole.add_checked(self.service, to, checks) {
            Ok(()) => Ok(to),
            Err(mode) => {
                self.whole.add_unchecked(self.service, from);
                Err(mode)
            }
        }
    }

    /// Moves the instance back to its first placement.
    fn undo(&mut self, from: Placement) {
        self.whole.remove_added(self.service, from);
        self.whole.add_unchecked(self.service, self.start);
    }

    /// Returns the score of the group with the instance on these nodes.
    fn score(&mut self, placement: Placement) -> f64 {
        let problem = self.group.problem();
        let position = |node: usize| problem.position(node);
        let Some(primary) = position(placement.primary) else { return f64::INFINITY };
        let inside = Placement { primary, secondary: placement.secondary.and_then(position) };
        self.group.add_unchecked(self.group_service, inside);
        let score = self.group.score();
        self.group.remove_added(self.group_service, inside);
        score
    }

    /// Changes one node of the instance.
    fn change_one(
        &mut self,
        cluster: &Cluster,
        targets: &[usize],
        step: fn(usize) -> Step,
    ) -> Result<(Placement, Vec<Step>), String> {
        let mut best: Option<(f64, Placement, Step)> = None;
        let mut failures = String::new();
        for &node in targets {
            let step = step(node);
            match self.apply(self.start, step) {
                Ok(to) => {
                    let score = self.score(to);
                    self.undo(to);
                    if best.is_none_or(|(best, ..)| score <= best) {
                        best = Some((score, to, step));
                    }
                }
                Err(mode) => {
                    let name = cluster.nodes[node].name.as_str();
                    failures.extend([" Node ", name, " failed: ", mode.name(), ";"]);
                }
            }
        }
        best.map(|(_, to, step)| (to, vec![step]))
            .ok_or_else(|| format!("Can't find any good node: {failures}"))
    }

    /// Changes both nodes of a replicated instance.
    fn change_all(&mut self, targets: &[usize]) -> Result<(Placement, Vec<Step>), String> {
        let mut best: Option<(f64, Placement, Vec<Step>)> = None;
        let mut failure = "no nodes available".to_owned();
        for &primary in targets {
            for &secondary in targets.iter().filter(|node| **node != primary) {
                match self.change_to(primary, secondary) {
                    Ok((to, steps)) => {
                        let score = self.score(to);
                        self.undo(to);
                        if best.as_ref().is_none_or(|(best, ..)| score <= *best) {
                            best = Some((score, to, steps));
                        }
                    }
                    Err(cause) => failure = format!("Allocation failed: {cause}"),
                }
            }
        }
        best.map(|(_, to, steps)| (to, steps))
            .ok_or_else(|| format!("Can't find any good nodes for relocation: {failure}"))
    }

    /// Replaces the secondary, fails over, and replaces the secondary again. An instance on a node that is down fails over
    /// first.
    fn change_to(&mut self, primary: usize, secondary: usize) -> Result<(Placement, Vec<Step>), String> {
        let mut steps = vec![
            (Step::ReplaceSecondary(primary), "Changing secondary to new primary"),
            (Step::Failover, "Failing over to new primary"),
            (Step::ReplaceSecondary(secondary), "Changing secondary to final secondary"),
        ];
        if self.whole.problem().nodes[self.start.primary].is_down {
            steps.insert(0, (Step::Failover, "Failing over to the secondary"));
        }
        let mut placement = self.start;
        for (step, what) in &steps {
            match self.apply(placement, *step) {
                Ok(to) => placement = to,
                Err(mode) => {
                    self.undo(placement);
                    return Err(format!("{what}: {}", mode.name()));
                }
            }
        }
        Ok((placement, steps.into_iter().map(|(step, _)| step).collect()))
    }
}

/// Moves an instance away from one node: from its secondary if it is replicated, or else from its primary. Returns the cluster
/// afterward, and the new node.
///
/// # Errors
/// Returns the reason if the instance cannot move, or if `excluded` is not its node.
pub fn relocate_instance(
    cluster: &Cluster,
    index: usize,
    node_count: i64,
    excluded: &[usize],
    rules: &AllocationRules,
) -> Result<(Cluster, usize), String> {
    if node_count != 1 {
        return Err(format!("Exchange {node_count} nodes mode is not implemented"));
    }
    let instance = &cluster.instances[index];
    let (left, word, mode) = match instance.template.reach() {
        StorageReach::Local => return Err("Can't relocate non-mirrored instances".to_owned()),
        StorageReach::Replicated => (instance.secondary, "secondary", Mode::Secondary),
        StorageReach::Shared => (Some(instance.primary), "primary", Mode::Primary),
    };
    if left.is_none_or(|left| excluded != [left]) {
        let left = left.map_or("-1".to_owned(), |left| left.to_string());
        let excluded = format!("{excluded:?}").replace(' ', "");
        return Err(format!(
            "Unsupported request: excluded nodes not equal to instance's {word}({left} versus {excluded})"
        ));
    }
    let evacuation = evacuate(cluster, &[index], mode, rules);
    match (evacuation.failed.into_iter().next(), evacuation.moved.first()) {
        (Some((_, reason)), _) => Err(reason),
        (None, None) => Err("Internal error: lost instance idx during move".to_owned()),
        (None, Some(moved)) => Ok((evacuation.cluster, moved.nodes.1.unwrap_or(moved.nodes.0))),
    }
}

/// Tries all nodes of the primary's group as secondary of an instance that has none. Returns the attempts, and the cluster
/// afterward.
///
/// # Errors
/// Returns the reason if the instance has a secondary already.
pub fn allocate_secondary(
    cluster: &Cluster,
    index: usize,
    rules: &AllocationRules,
) -> Result<(GroupTrial, Cluster), String> {
    let Request { instance, disks } = Request::of_existing(cluster, index, &rules.disk_sizes);
    if instance.secondary.is_some() {
        return Err("Instance already has a secondary".to_owned());
    }
    let primary = instance.primary;
    let mut without = cluster.clone();
    take_amounts(&mut without, &instance, (primary, None), -1);
    without.instances.remove(index);
    let sizes = rules.disk_sizes.iter().filter(|(other, _)| **other != index);
    let sizes = sizes.map(|(other, sizes)| (other - usize::from(*other > index), sizes.clone()));
    let changed_nodes = BTreeSet::from([primary]);
    let rules = AllocationRules { disk_sizes: sizes.collect(), changed_nodes, ..rules.clone() };
    let replaced = instance.template.reach();
    let request = Request { instance: Instance { template: Template::Drbd, ..instance }, disks };
    let is_peer =
        |node: &usize| *node != primary && cluster.nodes[*node].group == cluster.nodes[primary].group;
    let candidate: Candidate = (primary, (0..cluster.nodes.len()).filter(is_peer).collect());
    let all: Vec<usize> = (0..cluster.groups.len()).collect();
    let problems = TrialProblems::new(&without, &request, &rules, &all);
    let mut trial = Trial::new(&without, &rules, &problems);
    trial.replaced = Some(replaced);
    let attempt = trial.attempt(&request, &[candidate]);
    let tried = GroupTrial::from_attempt(attempt, &trial);
    let mut after = cluster.clone();
    if let Some((nodes, _)) = &tried.best {
        after.instances[index].template = Template::Drbd;
        relocate(&mut after, index, *nodes);
    }
    Ok((tried, after))
}
