//! The choice of nodes for a new instance, by the rules of Ganeti's hspace and hail: of all nodes or pairs of nodes that accept the
//! instance, those with the lowest resulting score after which every node can still be evacuated.

use super::global_failover::{DiskSizes, Running, try_evacuation};
use crate::balance::model::{Allocation, Cluster, Instance, Role, Specification, StorageReach, Template};
use crate::balance::problem::{Placement, Problem, Settings};
use crate::balance::state::State;
use crate::balance::state::checked::{Checks, FailMode};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// An instance to be placed, with the size of each disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The instance; its nodes do not count yet.
    pub instance: Instance,
    /// Size of each disk in MiB.
    pub disks: Vec<i64>,
}

impl Request {
    /// Returns an existing instance as a request.
    pub(super) fn of_existing(cluster: &Cluster, index: usize, sizes: &DiskSizes) -> Request {
        let instance = cluster.instances[index].clone();
        let disks = sizes.get(&index).cloned().unwrap_or_else(|| vec![instance.disk]);
        Request { instance, disks }
    }

    /// Returns the number of nodes that the instance needs: 2 for a replicated instance, 1 otherwise.
    pub fn node_count(&self) -> usize {
        if self.instance.template.reach() == StorageReach::Replicated { 2 } else { 1 }
    }
}

/// Rules that apply to every allocation.
#[derive(Clone, Debug, Default)]
pub struct AllocationRules {
    /// Settings of scores and limits.
    pub settings: Settings,
    /// `true` if every node must be evacuable after an allocation.
    pub checks_capacity: bool,
    /// `true` if offline nodes need not be evacuable.
    pub accepts_existing: bool,
    /// Groups whose nodes need not be evacuable.
    pub ignored_groups: BTreeSet<usize>,
    /// Sizes of the disks of existing instances.
    pub disk_sizes: DiskSizes,
    /// Networks of existing instances, by position in the cluster.
    pub networks: BTreeMap<usize, Vec<String>>,
    /// Nodes that changed since the cluster was read, by position in the cluster.
    pub changed_nodes: BTreeSet<usize>,
    /// Names of the only nodes for new instances; `None` for all nodes.
    pub restricted_to: Option<BTreeSet<String>>,
}

impl AllocationRules {
    /// Returns `true` if every node must be evacuable after each copy of a request. As in hspace, a replicated instance fails
    /// over to its secondary, which N+1 covers; only the search for a smaller size checks the other nodes too.
    fn fills_with_checks(&self, request: &Request) -> bool {
        self.checks_capacity && request.node_count() == 1
    }
}

/// A possible node by position in the cluster, with its possible secondaries.
pub type Candidate = (usize, Vec<usize>);

/// Returns the possible nodes for instances with this number of nodes: online ones of these groups.
pub fn candidates(cluster: &Cluster, groups: &BTreeSet<usize>, node_count: usize) -> Vec<Candidate> {
    let online: Vec<usize> = (0..cluster.nodes.len())
        .filter(|&node| {
            cluster.nodes[node].role != Role::Offline && groups.contains(&cluster.nodes[node].group)
        })
        .collect();
    let peers = |node: usize| {
        let is_peer =
            |other: &usize| *other != node && cluster.nodes[*other].group == cluster.nodes[node].group;
        online.iter().copied().filter(is_peer).collect()
    };
    online.iter().map(|&node| (node, if node_count == 2 { peers(node) } else { Vec::new() })).collect()
}

/// Returns the groups that accept new instances.
pub fn allocatable_groups(cluster: &Cluster) -> BTreeSet<usize> {
    (0..cluster.groups.len())
        .filter(|&group| cluster.groups[group].allocation != Allocation::Unallocable)
        .collect()
}

/// The result of one attempt to place an instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attempt {
    /// Number of refusals by mode.
    pub failures: BTreeMap<FailMode, usize>,
    /// Number of nodes or pairs of nodes that accept the instance.
    pub successes: usize,
    /// The chosen nodes by position in the problem, with the score after it.
    pub best: Option<(Placement, f64)>,
}

/// Returns the reason why the policy of a group forbids an instance.
pub fn policy_refusal(
    cluster: &Cluster,
    group: usize,
    request: &Request,
    is_exclusive: bool,
) -> Option<FailMode> {
    let policy = cluster.policy(group)?;
    let refusals = || policy.ranges.iter().map(|range| range_refusal(range, request, is_exclusive));
    let allows_size = policy.ranges.is_empty() || refusals().any(|refusal| refusal.is_none());
    let allows_template = policy.templates.contains(&request.instance.template);
    // As in Ganeti, the first range determines the reason.
    let refusal = if allows_size { None } else { refusals().next().flatten() };
    refusal.or((!allows_template).then_some(FailMode::Disk))
}

/// Returns the reason why a range of sizes does not contain a request. The lower end counts first.
fn range_refusal(
    (lower, upper): &(Specification, Specification),
    request: &Request,
    is_exclusive: bool,
) -> Option<FailMode> {
    let refusal = |limit: &Specification, outside: Ordering| {
        let instance = &request.instance;
        let is_outside = |amount: i64, limit: i64| amount.cmp(&limit) == outside;
        let spindles = if is_exclusive { instance.disk_spindles } else { Some(instance.spindle_use) };
        let disks = i64::try_from(request.disks.len()).unwrap_or(i64::MAX);
        if is_outside(instance.memory, limit.memory) {
            Some(FailMode::Memory)
        } else if request.disks.iter().any(|disk| is_outside(*disk, limit.disk)) {
            Some(FailMode::Disk)
        } else if is_outside(instance.vcpus, limit.cpus) {
            Some(FailMode::Cpu)
        } else if spindles.is_none_or(|spindles| is_outside(spindles, limit.spindles)) {
            Some(FailMode::Spindles)
        } else if instance.template != Template::Diskless && is_outside(disks, limit.disks) {
            Some(FailMode::DiskCount)
        } else {
            None
        }
    };
    refusal(lower, Ordering::Less).or_else(|| refusal(upper, Ordering::Greater))
}

/// A cluster with a request, as the states in which its nodes are tried.
pub struct Trial<'a> {
    /// Reach of the instance that the request replaces. As in Ganeti, that instance is evacuated instead.
    pub(super) replaced: Option<StorageReach>,
    /// `true` while nodes are filled without a check that each node can be evacuated.
    defers_evacuations: bool,
    cluster: &'a Cluster,
    rules: &'a AllocationRules,
    whole: TrialPart<'a>,
    /// One part for each group whose nodes must stay evacuable.
    groups: Vec<(usize, TrialPart<'a>)>,
}

/// Some groups with the request and its copies.
struct TrialPart<'a> {
    state: State<'a>,
    /// Position of the request among the services.
    service: usize,
    running: Running,
    /// Position in the problem of each node of the cluster.
    positions: BTreeMap<usize, usize>,
}

impl<'a> TrialPart<'a> {
    fn new(cluster: &Cluster, problem: &'a Problem, rules: &AllocationRules) -> TrialPart<'a> {
        let mut state = State::new(problem, &problem.start_placements);
        state.load_as_ganeti(cluster, &rules.changed_nodes);
        let service = problem.services.len() - 1;
        let running = Running::new(cluster, problem, &rules.disk_sizes);
        let positions =
            problem.nodes.iter().enumerate().map(|(position, node)| (node.cluster_node, position)).collect();
        TrialPart { state, service, running, positions }
    }

    fn placement(&self, (primary, secondary): InstanceNodes) -> Option<Placement> {
        let position = |node: usize| self.positions.get(&node).copied();
        match secondary {
            None => Some(Placement { primary: position(primary)?, secondary: None }),
            Some(node) => Some(Placement { primary: position(primary)?, secondary: Some(position(node)?) }),
        }
    }

    fn add(&mut self, placement: Placement, replaced: Option<StorageReach>) {
        self.state.add_unchecked(self.service, placement);
        let reach = replaced.unwrap_or(self.state.problem().services[self.service].reach);
        self.running.push(self.service, placement, reach);
    }

    fn remove_last(&mut self) {
        if let Some((service, placement)) = self.running.pop() {
            self.state.remove_added(service, placement);
        }
    }
}

/// The problems of a trial, which it borrows.
pub struct TrialProblems {
    whole: Problem,
    groups: Vec<(usize, Problem)>,
}

impl TrialProblems {
    /// Builds the problems of these groups with a request. Nodes of other groups do not count in scores.
    pub fn new(
        cluster: &Cluster,
        request: &Request,
        rules: &AllocationRules,
        groups: &[usize],
    ) -> TrialProblems {
        let whole = problem(cluster, request, rules, groups);
        let checked = (0..cluster.groups.len())
            .filter(|group| rules.checks_capacity && !rules.ignored_groups.contains(group));
        let groups = checked.map(|group| (group, problem(cluster, request, rules, &[group]))).collect();
        TrialProblems { whole, groups }
    }
}

/// Returns the problem of some groups, with the request as its last service.
fn problem(cluster: &Cluster, request: &Request, rules: &AllocationRules, groups: &[usize]) -> Problem {
    Problem::with_new_instance(cluster, groups, &rules.settings, Some((&request.instance, None)))
}

/// Nodes of an instance, by position in the cluster: its node, and the second node of a replicated instance.
pub type InstanceNodes = (usize, Option<usize>);

pub(super) fn nodes_of((primary, secondary): InstanceNodes) -> impl Iterator<Item = usize> {
    [Some(primary), secondary].into_iter().flatten()
}

/// Adds an instance to a cluster, whose free amounts then are without it.
pub fn add(cluster: &mut Cluster, instance: &Instance, nodes: InstanceNodes) {
    take_amounts(cluster, instance, nodes, 1);
    cluster.instances.push(Instance { primary: nodes.0, secondary: nodes.1, ..instance.clone() });
}

/// Moves an instance of a cluster to other nodes.
pub fn relocate(cluster: &mut Cluster, index: usize, nodes: InstanceNodes) {
    let instance = cluster.instances[index].clone();
    take_amounts(cluster, &instance, (instance.primary, instance.secondary), -1);
    take_amounts(cluster, &instance, nodes, 1);
    cluster.instances[index] = Instance { primary: nodes.0, secondary: nodes.1, ..instance };
}

/// Takes the amounts of an instance from the free ones of its nodes (`sign` 1), or gives them back (−1).
pub(super) fn take_amounts(cluster: &mut Cluster, instance: &Instance, nodes: InstanceNodes, sign: i64) {
    let node = &mut cluster.nodes[nodes.0];
    if instance.status.is_running() && !instance.forthcoming {
        node.memory_free -= instance.memory * sign;
    }
    for node in nodes_of(nodes) {
        let node = &mut cluster.nodes[node];
        if instance.template.uses_node_disk() {
            node.disk_free -= instance.disk * sign;
        }
        // As in Ganeti, only exclusive spindles are free on a node that got an instance.
        if node.exclusive_storage {
            node.spindles_free -= instance.disk_spindles.unwrap_or(0) * sign;
        } else {
            node.spindles_free = 0;
        }
    }
}

impl<'a> Trial<'a> {
    /// Builds the states of the problems.
    pub fn new(cluster: &'a Cluster, rules: &'a AllocationRules, problems: &'a TrialProblems) -> Trial<'a> {
        let groups = problems.groups.iter().filter(|(_, problem)| !problem.nodes.is_empty());
        Trial {
            replaced: None,
            defers_evacuations: false,
            cluster,
            rules,
            whole: TrialPart::new(cluster, &problems.whole, rules),
            groups: groups
                .map(|(group, problem)| (*group, TrialPart::new(cluster, problem, rules)))
                .collect(),
        }
    }

    /// Tries all candidates, and counts the refusals by mode.
    pub fn attempt(&mut self, request: &Request, candidates: &[Candidate]) -> Attempt {
        let mut attempt = Attempt::default();
        if request.node_count() == 1 {
            let nodes: Vec<InstanceNodes> = candidates.iter().map(|&(node, _)| (node, None)).collect();
            self.attempt_set(request, &nodes, &mut attempt);
        } else {
            for (primary, secondaries) in candidates {
                let pairs: Vec<InstanceNodes> =
                    secondaries.iter().map(|&secondary| (*primary, Some(secondary))).collect();
                self.attempt_set(request, &pairs, &mut attempt);
            }
        }
        attempt
    }

    /// Tries some nodes, and keeps the best ones after which every node can be evacuated.
    fn attempt_set(&mut self, request: &Request, nodes: &[InstanceNodes], attempt: &mut Attempt) {
        let mut scored = Vec::new();
        for &candidate in nodes {
            match self.try_nodes(request, candidate) {
                Ok((placement, score)) => scored.push((score, placement, candidate)),
                Err(mode) => *attempt.failures.entry(mode).or_default() += 1,
            }
        }
        attempt.successes += scored.len();
        // Of equal scores, the last one counts.
        scored.reverse();
        scored.sort_by(|one, other| one.0.total_cmp(&other.0));
        for (score, placement, candidate) in scored {
            if !self.defers_evacuations && !self.try_evacuations(Some(candidate)) {
                *attempt.failures.entry(FailMode::NPlusOne).or_default() += 1;
                attempt.successes -= 1;
                continue;
            }
            if attempt.best.is_none_or(|(_, best)| score <= best) {
                attempt.best = Some((placement, score));
            }
            break;
        }
    }

    pub(super) fn try_nodes(
        &mut self,
        request: &Request,
        candidate: InstanceNodes,
    ) -> Result<(Placement, f64), FailMode> {
        let node = &self.cluster.nodes[candidate.0];
        if let Some(mode) = policy_refusal(self.cluster, node.group, request, node.exclusive_storage) {
            return Err(mode);
        }
        let placement = self.whole.placement(candidate).ok_or(FailMode::Memory)?;
        // The secondary is never forced in Ganeti.
        let forces_primary = self.rules.settings.ignore_soft_errors;
        let (state, service) = (&mut self.whole.state, self.whole.service);
        state.add_checked(service, placement, Checks { forces_primary, ..Checks::default() })?;
        let score = state.score();
        state.remove_added(service, placement);
        Ok((placement, score))
    }

    /// Tries to evacuate each node, if given with the instance on these nodes, and returns `true` if that is possible for
    /// all. The states are as before afterward.
    fn try_evacuations(&mut self, candidate: Option<InstanceNodes>) -> bool {
        let (accepts_existing, replaced) = (self.rules.accepts_existing, self.replaced);
        self.groups.iter_mut().all(|(_, part)| {
            let placement = candidate.and_then(|candidate| part.placement(candidate));
            if let Some(placement) = placement {
                part.add(placement, replaced);
            }
            let problem = part.state.problem();
            let is_evacuable = (0..problem.nodes.len()).all(|node| {
                (accepts_existing && problem.nodes[node].is_offline)
                    || try_evacuation(&mut part.state, node, &part.running)
            });
            if placement.is_some() {
                part.remove_last();
            }
            is_evacuable
        })
    }

    /// Returns the nodes of a placement by position in the cluster.
    pub fn cluster_nodes(&self, placement: Placement) -> InstanceNodes {
        let node = |node: usize| self.whole.state.problem().nodes[node].cluster_node;
        (node(placement.primary), placement.secondary.map(node))
    }

    /// Places copies of the request until no node accepts one more, or until `limit` copies were placed. Returns the
    /// refusals of the last attempt.
    fn place_copies(
        &mut self,
        request: &Request,
        candidates: &[Candidate],
        limit: Option<usize>,
        placed: &mut Vec<InstanceNodes>,
    ) -> BTreeMap<FailMode, usize> {
        let end = limit.map(|limit| placed.len().saturating_add(limit));
        loop {
            let attempt = self.attempt(request, candidates);
            let Some((placement, _)) = attempt.best else { return attempt.failures };
            if end.is_some_and(|end| placed.len() >= end) {
                return attempt.failures;
            }
            let nodes = self.cluster_nodes(placement);
            self.place(nodes);
            placed.push(nodes);
        }
    }

    /// Removes the last copies of the request, so that the first `remaining` ones are left.
    fn remove_copies(&mut self, placed: &mut Vec<InstanceNodes>, remaining: usize) {
        for nodes in placed.drain(remaining..).rev() {
            let parts = self.groups.iter_mut().map(|(_, part)| part).chain([&mut self.whole]);
            for part in parts.filter(|part| part.placement(nodes).is_some()) {
                part.remove_last();
            }
        }
    }

    fn place(&mut self, nodes: InstanceNodes) {
        let parts = self.groups.iter_mut().map(|(_, part)| part).chain([&mut self.whole]);
        for part in parts {
            if let Some(placement) = part.placement(nodes) {
                part.add(placement, None);
            }
        }
    }
}

/// Smallest number of copies that are added before the check that each node can be evacuated.
const MIN_STEP: usize = 20;

/// A cluster with the instances that were added to it.
#[derive(Clone, Debug)]
pub struct Filled {
    /// The cluster with the added instances.
    pub cluster: Cluster,
    /// Number of added instances, which are the last ones.
    pub added: usize,
    /// Refusals of the last attempt.
    pub failures: BTreeMap<FailMode, usize>,
}

impl Filled {
    /// Starts with a cluster to which no instance was added.
    pub fn new(cluster: &Cluster) -> Filled {
        Filled { cluster: cluster.clone(), added: 0, failures: BTreeMap::new() }
    }

    /// Returns the rules with the nodes that the added instances changed.
    fn rules(&self, rules: &AllocationRules) -> AllocationRules {
        let nodes =
            self.added_instances().iter().flat_map(|added| nodes_of((added.primary, added.secondary)));
        AllocationRules { changed_nodes: nodes.collect(), ..rules.clone() }
    }

    /// Returns the instances that were added to the cluster, which follow its other instances.
    pub fn added_instances(&self) -> &[Instance] {
        &self.cluster.instances[self.cluster.instances.len() - self.added..]
    }

    /// Returns the number of copies that hspace adds before it checks that each node can be evacuated: an estimate of those
    /// that fit.
    fn step(&self, request: &Request, added: usize) -> usize {
        let nodes = &self.cluster.nodes;
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let memory = request.instance.memory.max(1);
        let free = nodes.iter().map(|node| node.memory_free).sum::<i64>() - memory * count(added);
        let reserved = nodes.iter().map(|node| node.memory_total).max().unwrap_or(0);
        let estimate = (free - reserved) / memory - count(nodes.len());
        usize::try_from(estimate).unwrap_or(0).max(MIN_STEP)
    }

    /// Places copies of a request in steps, after which each node can be evacuated. Returns the refusals of the last attempt.
    fn place_in_steps(
        &self,
        trial: &mut Trial<'_>,
        request: &Request,
        candidates: &[Candidate],
        limit: Option<usize>,
        placed: &mut Vec<InstanceNodes>,
    ) -> BTreeMap<FailMode, usize> {
        let mut has_failed = false;
        loop {
            let (start, remaining) = (placed.len(), limit.map(|limit| limit.saturating_sub(placed.len())));
            let step = if has_failed { MIN_STEP } else { self.step(request, start) };
            let step = step.min(remaining.unwrap_or(usize::MAX));
            trial.defers_evacuations = true;
            let failures = trial.place_copies(request, candidates, Some(step), placed);
            trial.defers_evacuations = false;
            let is_complete = placed.len() - start < step || remaining == Some(step);
            if trial.try_evacuations(None) {
                if is_complete {
                    return failures;
                }
                continue;
            }
            trial.remove_copies(placed, start);
            if step <= MIN_STEP {
                return trial.place_copies(request, candidates, remaining, placed);
            }
            has_failed = true;
        }
    }

    /// Adds copies of a request until no node accepts one more, or until `limit` copies were added.
    ///
    /// As in hspace, many copies are added before the check that each node can be evacuated. If some node cannot, they are
    /// removed, and fewer are added at a time, in the end with this check for each of them.
    pub fn fill(
        &mut self,
        request: &Request,
        rules: &AllocationRules,
        candidates: &[Candidate],
        limit: Option<usize>,
    ) {
        let all: Vec<usize> = (0..self.cluster.groups.len()).collect();
        let filling = AllocationRules { checks_capacity: rules.fills_with_checks(request), ..rules.clone() };
        let problems = TrialProblems::new(&self.cluster, request, &filling, &all);
        let mut placed = Vec::new();
        let rules =
            &AllocationRules { checks_capacity: rules.fills_with_checks(request), ..self.rules(rules) };
        let mut trial = Trial::new(&self.cluster, rules, &problems);
        self.failures = if rules.checks_capacity {
            self.place_in_steps(&mut trial, request, candidates, limit, &mut placed)
        } else {
            trial.place_copies(request, candidates, limit, &mut placed)
        };
        for nodes in placed {
            let name = format!("new-{}", self.added);
            add(&mut self.cluster, &Instance { name, ..request.instance.clone() }, nodes);
            self.added += 1;
        }
    }

    /// Adds copies of a request, then of smaller ones, until none fits. The amount that most nodes lack shrinks first.
    /// As in hspace, each smaller size lowers the limit by the number of instances that were added before.
    #[must_use]
    pub fn fill_in_tiers(
        &self,
        request: &Request,
        rules: &AllocationRules,
        candidates: &[Candidate],
        limit: Option<usize>,
        known: &mut KnownAttempts,
    ) -> Filled {
        let mut filled = self.clone();
        let checks =
            if rules.fills_with_checks(request) { Evacuations::Deferred } else { Evacuations::Ignored };
        if let Some(failures) = known.failures(&filled, request, checks) {
            filled.failures = failures;
        } else {
            filled.fill(request, rules, candidates, limit);
            if filled.added == self.added {
                known.insert(&filled, request, checks, &filled.failures);
            }
        }
        if limit.is_some_and(|limit| limit <= filled.added) {
            return filled;
        }
        let limit = limit.map(|limit| limit - filled.added);
        let mut by_count: Vec<FailMode> = FailMode::WORDS.iter().map(|(mode, _)| *mode).collect();
        by_count.sort_by_key(|mode| filled.failures.get(mode).copied().unwrap_or(0));
        by_count.reverse();
        if let Some(smaller) = by_count.first().and_then(|mode| shrunk_request(request, *mode)) {
            let further = filled.fill_in_tiers(&smaller, rules, candidates, limit, known);
            if further.added > filled.added {
                return further;
            }
        }
        for mode in by_count {
            if let Some(smaller) = filled.sufficient_request(request, rules, candidates, mode, known) {
                return filled.fill_in_tiers(&smaller, rules, candidates, limit, known);
            }
        }
        filled
    }

    /// Returns the first request that fits while one amount shrinks. Stops when nodes no longer lack this amount.
    fn sufficient_request(
        &self,
        request: &Request,
        rules: &AllocationRules,
        candidates: &[Candidate],
        mode: FailMode,
        known: &mut KnownAttempts,
    ) -> Option<Request> {
        let mut request = request.clone();
        let checks = if rules.checks_capacity { Evacuations::Checked } else { Evacuations::Ignored };
        loop {
            let failures = if let Some(failures) = known.failures(self, &request, checks) {
                failures
            } else {
                let all: Vec<usize> = (0..self.cluster.groups.len()).collect();
                let problems = TrialProblems::new(&self.cluster, &request, rules, &all);
                let rules = self.rules(rules);
                let attempt = Trial::new(&self.cluster, &rules, &problems).attempt(&request, candidates);
                if attempt.best.is_some() {
                    return Some(request);
                }
                known.insert(self, &request, checks, &attempt.failures);
                attempt.failures
            };
            if !failures.contains_key(&mode) {
                return None;
            }
            request = shrunk_request(&request, mode)?;
        }
    }
}

/// Refusals of requests that did not fit, for the number of instances that were added before.
#[derive(Debug, Default)]
pub struct KnownAttempts {
    added: usize,
    failures: BTreeMap<AttemptKey, BTreeMap<FailMode, usize>>,
}

/// Time at which an attempt checks that every node can be evacuated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Evacuations {
    /// Never.
    Ignored,
    /// After many copies, as in [`Filled::fill`].
    Deferred,
    /// After each copy.
    Checked,
}

/// The sizes of a request, and the check of its attempts.
type AttemptKey = ([i64; 4], Evacuations);

impl KnownAttempts {
    fn key(request: &Request, checks: Evacuations) -> AttemptKey {
        let instance = &request.instance;
        let spindles = instance.disk_spindles.unwrap_or(-1);
        ([instance.memory, instance.disk, instance.vcpus, spindles], checks)
    }

    fn failures(
        &self,
        filled: &Filled,
        request: &Request,
        checks: Evacuations,
    ) -> Option<BTreeMap<FailMode, usize>> {
        let known = self.failures.get(&KnownAttempts::key(request, checks));
        known.filter(|_| filled.added == self.added).cloned()
    }

    fn insert(
        &mut self,
        filled: &Filled,
        request: &Request,
        checks: Evacuations,
        failures: &BTreeMap<FailMode, usize>,
    ) {
        if filled.added != self.added {
            self.failures.clear();
            self.added = filled.added;
        }
        self.failures.insert(KnownAttempts::key(request, checks), failures.clone());
    }
}

/// Returns a request with one unit less of the amount that a failure is about.
fn shrunk_request(request: &Request, mode: FailMode) -> Option<Request> {
    let mut smaller = request.clone();
    let instance = &mut smaller.instance;
    match mode {
        FailMode::Memory => {
            instance.memory -= 64;
            (instance.memory >= 64).then_some(smaller)
        }
        FailMode::Disk => {
            instance.disk -= 256;
            smaller.disks = vec![instance.disk];
            (instance.disk >= 256).then_some(smaller)
        }
        FailMode::Cpu => {
            instance.vcpus -= 1;
            (instance.vcpus >= 1).then_some(smaller)
        }
        FailMode::Spindles => {
            let spindles = instance.disk_spindles? - 1;
            instance.disk_spindles = Some(spindles);
            (spindles >= 1).then_some(smaller)
        }
        FailMode::NPlusOne | FailMode::Tags | FailMode::Migration | FailMode::DiskCount => None,
    }
}

#[cfg(test)]
mod tests;
