//! A group to be balanced: all constants of the search, in the form that scores and limits need.

use super::live_constraints::LiveConstraints;
use super::model::{
    Cluster, DEFAULT_SPINDLE_RATIO, DEFAULT_VCPU_RATIO, Instance, Node, Role, StorageReach, Template,
};
use std::collections::{BTreeMap, BTreeSet};

/// User settings for scores and limits.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Settings {
    /// Maximum number of virtual cpus per physical cpu; `None` for the ratio of the group's policy.
    pub max_cpu: Option<f64>,
    /// Share of a node's disk that must stay free.
    pub min_disk: f64,
    /// `true` if stopped instances use memory on their primary too.
    pub count_down_memory: bool,
    /// `true` if measured use counts as 0.
    pub ignore_load: bool,
    /// Prefixes of exclusion tags; the cluster's tags can add more. Two instances with the same exclusion tag must not
    /// share a node.
    pub exclusion_tags: Vec<String>,
    /// `true` if no disk may be copied.
    pub no_disk_moves: bool,
    /// `true` if no primary may move.
    pub no_instance_moves: bool,
    /// `true` if no primary may move through its secondary to a third node.
    pub restricted_migration: bool,
    /// `true` if only instances on offline or drained nodes may move.
    pub evacuate: bool,
    /// Names of nodes to be emptied in addition to offline ones.
    pub drained: BTreeSet<String>,
    /// Names of the only instances that may move; `None` for all.
    pub selected: Option<BTreeSet<String>>,
    /// Names of instances that must not move.
    pub excluded: BTreeSet<String>,
    /// `true` if the disk of an instance may be copied from a node that is down, as in the plans of hbal. An operator
    /// has to repair that node first.
    pub copies_from_down_nodes: bool,
    /// `true` if neither the vcpu ratio nor N+1 can prohibit a move.
    pub ignore_soft_errors: bool,
}

/// The nodes of an instance, by position in the problem: its node, and the second node of a replicated instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Placement {
    /// Node on which the instance runs.
    pub primary: usize,
    /// Node with the second copy; `None` if there is none.
    pub secondary: Option<usize>,
}

impl Placement {
    /// Returns the primary, and the secondary if there is one.
    pub fn nodes(self) -> impl Iterator<Item = usize> {
        [Some(self.primary), self.secondary].into_iter().flatten()
    }

    /// Returns `true` if a node is the primary or secondary.
    pub fn contains(self, node: usize) -> bool {
        node == self.primary || Some(node) == self.secondary
    }

    /// Returns the placement with exchanged primary and secondary; `None` if there is no secondary.
    pub fn swapped(self) -> Option<Placement> {
        self.secondary.map(|secondary| Placement { primary: secondary, secondary: Some(self.primary) })
    }
}

/// A node of the problem, with the base values to which the services add their use.
#[derive(Clone, Debug)]
pub struct ProblemNode {
    /// Position of the node in the cluster.
    pub cluster_node: usize,
    /// `true` if no instance may move here and all should leave, because the node is off or drained.
    pub is_offline: bool,
    /// `true` if the node is off, so that it can neither copy disks nor send memory.
    pub is_down: bool,
    /// Total memory in MiB.
    pub memory_total: f64,
    /// Free memory in MiB without the instances of the group.
    pub memory_base: i64,
    /// Same amount as `memory_base`, but not capped at the total minus the node's own use. It is the base of the
    /// value that also counts forthcoming and stopped instances.
    pub memory_base_forthcoming: i64,
    /// Total disk in MiB.
    pub disk_total: f64,
    /// Free disk in MiB without the instances of the group.
    pub disk_base: i64,
    /// Number of physical cpus.
    pub cpus: f64,
    /// Speed of the cpus relative to an ordinary node.
    pub cpu_speed: f64,
    /// Virtual cpus that the node itself uses.
    pub cpus_own: i64,
    /// `true` if instances have their own spindles here, so that free spindles count as free disk.
    pub has_exclusive_spindles: bool,
    /// Number of spindles, regardless of the policy's ratio.
    pub spindles_total: f64,
    /// Number of spindle uses within the policy's ratio.
    pub spindles: f64,
    /// Number of spindles in use without the instances of the group.
    pub spindles_base: i64,
    /// Maximum number of virtual cpus.
    pub vcpus_max: i64,
    /// Disk in MiB that must stay free.
    pub disk_min: i64,
    /// Numbers of the failure domains of the node.
    pub locations: Vec<usize>,
    /// Migration tags of the node, with the prefixes that the cluster tags `htools:migration:` declare: a running instance
    /// leaves it only for a node that accepts all of them.
    pub migration_tags: BTreeSet<String>,
    /// Migration tags that the node accepts: its own, and those that the cluster tag `htools:allowmigration:FROM::TO` allows.
    pub accepted_migration_tags: BTreeSet<String>,
}

/// A service of the problem, with its sizes and constraints: one instance of the cluster, or several that move as one.
#[derive(Clone, Debug)]
pub struct ProblemService {
    /// Position of the first instance in the cluster.
    pub instance: usize,
    /// Nodes that reach the disk of the instance.
    pub reach: StorageReach,
    /// `true` if the instance may move.
    pub is_movable: bool,
    /// Memory in MiB of the running instance, which the next primary must have free.
    pub memory: i64,
    /// Memory in MiB that the instance uses on its primary now.
    pub memory_used: i64,
    /// Memory in MiB that the instance uses once all forthcoming and stopped instances run.
    pub memory_forthcoming: i64,
    /// Memory in MiB that the secondary reserves for the instance.
    pub memory_reserved: i64,
    /// Disk in MiB that the instance uses on each of its nodes now.
    pub disk_used: i64,
    /// Disk in MiB that the instance uses on each of its nodes, forthcoming or not.
    pub disk_forthcoming: i64,
    /// Virtual cpus that the instance uses now.
    pub vcpus: i64,
    /// Virtual cpus that the instance uses, forthcoming or not.
    pub vcpus_forthcoming: i64,
    /// Number of spindles that the instance uses on each node: if spindles are shared, and if they are exclusive.
    pub spindles: [i64; 2],
    /// Measured use: cpu, memory, disk, network.
    pub load: [i64; 4],
    /// `true` if the instance exists. Forthcoming instances count only in the values that include them.
    pub is_created: bool,
    /// Storage of the disk.
    pub template: Template,
    /// Number of the instance's own spindles; `None` if not given, so that exclusive spindles refuse it.
    pub own_spindles: Option<i64>,
    /// Numbers of the exclusion tags.
    pub exclusion: Vec<usize>,
    /// Failure domains in which the instance should run; `None` for a domain without nodes.
    pub desired: Vec<Option<usize>>,
    /// Other instances that move with it and whose sizes are included, by position in the cluster.
    pub partners: Vec<usize>,
    /// Eligibility of each node; `None` if all are eligible.
    pub eligible_nodes: Option<Vec<bool>>,
    /// `true` if the disk can be copied to another node.
    pub can_copy_disk: bool,
}

impl ProblemNode {
    /// Returns the number of free spindles without the instances of the group.
    #[expect(clippy::cast_possible_truncation, reason = "spindles are bounded where they are read")]
    pub fn spindles_free_base(&self) -> i64 {
        self.spindles_total as i64 - self.spindles_base
    }
}

impl ProblemNode {
    /// Returns `true` if a running instance can migrate from this node to another one.
    pub fn migrates_to(&self, other: &ProblemNode) -> bool {
        self.migration_tags.is_empty() || self.migration_tags.is_subset(&other.accepted_migration_tags)
    }

    /// Returns `true` if this number of uses exceeds the policy's ratio of shared spindles.
    pub fn lacks_spindles(&self, used_spindles: i64) -> bool {
        !self.has_exclusive_spindles && used_spindles as f64 > self.spindles
    }
}

impl ProblemService {
    /// Returns the number of instances of the service; 0 if it does not exist yet.
    pub fn count(&self) -> usize {
        usize::from(self.is_created) * (1 + self.partners.len())
    }

    /// Returns the instances of the service, by position in the cluster.
    pub fn instances(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.instance).chain(self.partners.iter().copied())
    }

    /// Returns `true` if a node is eligible, without regard to its other instances.
    pub fn is_eligible_on(&self, problem_node: usize) -> bool {
        self.eligible_nodes.as_ref().is_none_or(|is_eligible| is_eligible[problem_node])
    }

    /// Returns the number of spindles that the service uses on a node.
    pub fn spindles_on(&self, problem_node: &ProblemNode) -> i64 {
        self.spindles[usize::from(problem_node.has_exclusive_spindles)]
    }
}

/// One or more groups to be balanced together, with all constants of the search.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Nodes of the groups, in the order of the cluster.
    pub nodes: Vec<ProblemNode>,
    /// Instances of the groups; instances that move as one are one service.
    pub services: Vec<ProblemService>,
    /// Current placement of each service.
    pub start_placements: Vec<Placement>,
    /// Number of different exclusion tags of the instances.
    pub exclusion_tags: usize,
    /// Number of failure domains.
    pub locations: usize,
    /// User settings.
    pub settings: Settings,
}

impl Problem {
    /// Returns `true` if an instance is on a node that is down. As in hbal, the limits of N+1, of disk that stays free and of
    /// virtual cpus do not keep it there (`Cluster.applyMoveEx`: forced if the old node is offline).
    pub fn must_leave(&self, placement: Placement) -> bool {
        placement.nodes().any(|problem_node| self.nodes[problem_node].is_down)
    }

    /// Returns the position in the problem of a node of the cluster; `None` if the problem does not contain it.
    pub fn position(&self, cluster_node: usize) -> Option<usize> {
        self.nodes.iter().position(|node| node.cluster_node == cluster_node)
    }

    /// Builds the problem of one group, given by its position in the cluster.
    pub fn new(cluster: &Cluster, group: usize, settings: &Settings) -> Problem {
        Problem::of_groups(cluster, &[group], settings)
    }

    /// Builds the problem of several groups of a cluster.
    pub fn of_groups(cluster: &Cluster, groups: &[usize], settings: &Settings) -> Problem {
        Problem::with_new_instance(cluster, groups, settings, None)
    }

    /// Builds the problem with an additional instance that has no placement yet. It becomes the last service of the
    /// problem, without an entry in `start_placements`.
    pub fn with_new_instance<'a>(
        cluster: &'a Cluster,
        groups: &[usize],
        settings: &Settings,
        new_instance: Option<(&'a Instance, Option<&LiveConstraints>)>,
    ) -> Problem {
        let mut positions = BTreeMap::new();
        for (index, node) in cluster.nodes.iter().enumerate() {
            if groups.contains(&node.group) {
                positions.insert(index, positions.len());
            }
        }
        let mut exclusion_prefixes = prefixes(cluster, "htools:iextags:");
        exclusion_prefixes.extend(settings.exclusion_tags.iter().map(|prefix| format!("{prefix}:")));
        let location_prefixes = prefixes(cluster, "htools:nlocation:");
        let desired_prefixes = prefixes(cluster, "htools:desiredlocation:");

        let mut exclusion = NameNumbers::default();
        let mut locations = NameNumbers::default();
        let problem_nodes: Vec<ProblemNode> = positions
            .keys()
            .map(|&index| {
                let node = &cluster.nodes[index];
                let tags = tags_with_prefix(&node.tags, &location_prefixes);
                let drained = settings.drained.contains(&node.name);
                build_node(
                    cluster,
                    settings,
                    index,
                    drained,
                    tags.map(|tag| locations.get_or_insert(tag)).collect(),
                )
            })
            .collect();
        let mut problem = Problem {
            nodes: problem_nodes,
            services: Vec::new(),
            start_placements: Vec::new(),
            exclusion_tags: 0,
            locations: locations.0.len(),
            settings: settings.clone(),
        };
        let mut build_tagged_service = |instance: &'a Instance, index: usize| {
            let mut service = build_service(instance, index, settings);
            service.exclusion = tags_with_prefix(&instance.tags, &exclusion_prefixes)
                .map(|tag| exclusion.get_or_insert(tag))
                .collect();
            service.desired = tags_with_prefix(&instance.tags, &desired_prefixes)
                .map(|tag| locations.0.get(tag).copied())
                .collect();
            service
        };
        for (index, instance) in cluster.instances.iter().enumerate() {
            let Some(&primary) = positions.get(&instance.primary) else { continue };
            let secondary = instance.secondary.and_then(|node| positions.get(&node).copied());
            // An instance with its second copy in another group cannot move.
            let is_split = instance.secondary.is_some() && secondary.is_none();
            let mut service = build_tagged_service(instance, index);
            let placement = Placement { primary, secondary };
            service.is_movable =
                !is_split && may_move(instance, &service, placement, &problem.nodes, settings);
            if let Some(constraints) = cluster.live_constraints.get(&index) {
                let nodes = problem.nodes.iter().map(|problem_node| problem_node.cluster_node);
                constraints.apply_to(&mut service, instance, nodes, problem.nodes[primary].is_offline);
            }
            problem.add_to_bases(instance, &service, placement);
            problem.services.push(service);
            problem.start_placements.push(placement);
        }
        for problem_node in &mut problem.nodes {
            // If the reported free memory exceeds the total, the two were reported at different times, and the excess
            // is ignored. Used memory that no instance accounts for stays subtracted.
            let node = &cluster.nodes[problem_node.cluster_node];
            problem_node.memory_base = problem_node.memory_base.min(node.memory_total - node.memory_own);
        }
        let new_instance = new_instance.map(|(new_instance, constraints)| {
            let mut service = build_tagged_service(new_instance, cluster.instances.len());
            if let Some(constraints) = constraints {
                constraints.apply_to(
                    &mut service,
                    new_instance,
                    problem.nodes.iter().map(|problem_node| problem_node.cluster_node),
                    false,
                );
            }
            service
        });
        problem.exclusion_tags = exclusion.0.len();
        problem.merge_units(&cluster.live_constraints);
        problem.services.extend(new_instance);
        problem
    }

    /// Begins at other placements, with the instances that may still move there.
    pub(super) fn set_start_placements(&mut self, placements: Vec<Placement>) {
        if self.settings.evacuate {
            for (service, placement) in self.services.iter_mut().zip(&placements) {
                service.is_movable &=
                    placement.nodes().any(|problem_node| self.nodes[problem_node].is_offline);
            }
        }
        self.start_placements = placements;
    }

    /// Returns the name of a node, by position in the problem.
    pub fn node_name<'c>(&self, cluster: &'c Cluster, problem_node: usize) -> &'c str {
        &cluster.nodes[self.nodes[problem_node].cluster_node].name
    }

    /// Returns the name of an instance, followed after plus signs by the names of the instances that move with it.
    pub fn instance_name(&self, cluster: &Cluster, service: usize) -> String {
        let names =
            self.services[service].instances().map(|instance| cluster.instances[instance].name.as_str());
        names.collect::<Vec<_>>().join("+")
    }

    /// Adds the use of an instance back to the bases of its nodes. A file contains free amounts with all instances
    /// subtracted.
    fn add_to_bases(&mut self, instance: &Instance, service: &ProblemService, placement: Placement) {
        // In a file, the memory of stopped instances counts as free, regardless of the settings.
        if instance.status.is_running() && !instance.forthcoming {
            self.nodes[placement.primary].memory_base += instance.memory;
            self.nodes[placement.primary].memory_base_forthcoming += instance.memory;
        }
        for node in placement.nodes() {
            let problem_node = &mut self.nodes[node];
            problem_node.disk_base += service.disk_used;
            if problem_node.has_exclusive_spindles && service.is_created {
                problem_node.spindles_base -= service.spindles_on(problem_node);
            }
        }
    }
}

/// Numbers for names, in the order of their first use.
#[derive(Default)]
struct NameNumbers<'a>(BTreeMap<&'a str, usize>);

impl<'a> NameNumbers<'a> {
    /// Returns the number of a name, and assigns the next one to a new name.
    fn get_or_insert(&mut self, name: &'a str) -> usize {
        let next = self.0.len();
        *self.0.entry(name).or_insert(next)
    }
}

/// Returns the prefixes of tags that the cluster's tags with this marker declare.
fn prefixes(cluster: &Cluster, marker: &str) -> Vec<String> {
    cluster
        .tags
        .iter()
        .filter_map(|tag| tag.strip_prefix(marker))
        .map(|prefix| format!("{prefix}:"))
        .collect()
}

/// Returns the tags with one of these prefixes, without duplicates.
fn tags_with_prefix<'a>(tags: &'a [String], prefixes: &[String]) -> impl Iterator<Item = &'a str> {
    let chosen: BTreeSet<&str> = tags
        .iter()
        .map(String::as_str)
        .filter(|tag| prefixes.iter().any(|prefix| tag.starts_with(prefix.as_str())))
        .collect();
    chosen.into_iter()
}

#[expect(clippy::cast_possible_truncation, reason = "sizes and ratios are bounded where they are read")]
fn build_node(
    cluster: &Cluster,
    settings: &Settings,
    index: usize,
    drained: bool,
    locations: Vec<usize>,
) -> ProblemNode {
    let node: &Node = &cluster.nodes[index];
    let policy = cluster.policy(node.group);
    let vcpu_ratio = policy.map_or(DEFAULT_VCPU_RATIO, |policy| policy.vcpu_ratio);
    let spindle_ratio = policy.map_or(DEFAULT_SPINDLE_RATIO, |policy| policy.spindle_ratio);
    let positive = |size: i64| size.max(1) as f64;
    let spindles = positive(node.spindles);
    let prefixes = prefixes(cluster, "htools:migration:");
    let migration_tags = tags_with_prefix(&node.tags, &prefixes).map(str::to_owned).collect();
    ProblemNode {
        cluster_node: index,
        is_offline: node.role == Role::Offline || drained,
        is_down: node.role == Role::Offline,
        memory_total: positive(node.memory_total),
        memory_base: node.memory_free,
        memory_base_forthcoming: node.memory_free,
        disk_total: positive(node.disk_total),
        disk_base: node.disk_free,
        cpus: positive(node.cpus),
        cpu_speed: node.cpu_speed,
        cpus_own: node.cpus_own,
        has_exclusive_spindles: node.exclusive_storage,
        spindles_total: spindles,
        spindles: spindles * spindle_ratio,
        spindles_base: if node.exclusive_storage { node.spindles - node.spindles_free } else { 0 },
        accepted_migration_tags: accepted_migrations(cluster, &migration_tags),
        migration_tags,
        vcpus_max: (positive(node.cpus) * settings.max_cpu.unwrap_or(vcpu_ratio)).floor() as i64,
        disk_min: (positive(node.disk_total) * settings.min_disk).ceil() as i64,
        locations,
    }
}

/// Returns the migration tags that a node with these tags accepts.
fn accepted_migrations(cluster: &Cluster, node_tags: &BTreeSet<String>) -> BTreeSet<String> {
    let allowed = cluster.tags.iter().filter_map(|tag| {
        let (from, to) = tag.strip_prefix("htools:allowmigration:")?.split_once("::")?;
        node_tags.contains(to).then(|| from.to_owned())
    });
    node_tags.iter().cloned().chain(allowed).collect()
}

fn build_service(instance: &Instance, index: usize, settings: &Settings) -> ProblemService {
    let present = i64::from(!instance.forthcoming);
    let online = i64::from(!instance.status.is_offline());
    let running = i64::from(instance.status.is_running() || (settings.count_down_memory && online == 1));
    let on_disk = i64::from(instance.template.uses_node_disk());
    let reserves = i64::from(instance.auto_balance && instance.template.reach() == StorageReach::Replicated);
    ProblemService {
        instance: index,
        reach: instance.template.reach(),
        is_movable: true,
        memory: instance.memory * online,
        memory_used: instance.memory * running * present,
        memory_forthcoming: instance.memory,
        memory_reserved: instance.memory * online * reserves * present,
        disk_used: instance.disk * on_disk * present,
        disk_forthcoming: instance.disk * on_disk,
        vcpus: instance.vcpus * online * present,
        vcpus_forthcoming: instance.vcpus * online,
        // As in hbal, an instance uses its own spindles even if its disk is elsewhere.
        spindles: [instance.spindle_use * on_disk, instance.disk_spindles.unwrap_or(0)],
        load: if settings.ignore_load || instance.forthcoming { [0; 4] } else { instance.load },
        is_created: !instance.forthcoming,
        template: instance.template,
        own_spindles: instance.disk_spindles,
        exclusion: Vec::new(),
        desired: Vec::new(),
        partners: Vec::new(),
        eligible_nodes: None,
        can_copy_disk: true,
    }
}

/// Returns `true` if the settings allow an instance to move.
fn may_move(
    instance: &Instance,
    service: &ProblemService,
    placement: Placement,
    problem_nodes: &[ProblemNode],
    settings: &Settings,
) -> bool {
    let is_to_be_emptied = |node: usize| problem_nodes[node].is_offline;
    let is_named_in = |names: &BTreeSet<String>| names.contains(&instance.name);
    service.reach != StorageReach::Local
        && settings.selected.as_ref().is_none_or(is_named_in)
        && !is_named_in(&settings.excluded)
        && (!settings.evacuate || placement.nodes().any(is_to_be_emptied))
}
