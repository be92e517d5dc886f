//! One group to be balanced: what stays the same whatever moves, in the numbers that scores and limits need.

use super::binding::Binding;
use super::model::{Cluster, DEFAULT_SPINDLE_RATIO, DEFAULT_VCPU_RATIO, Instance, Node, Reach, Role};
use std::collections::{BTreeMap, BTreeSet};

/// What the user may set about scores and limits.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Settings {
    /// Virtual cpus for each physical one at most; without it the group's policy says.
    pub max_cpu: Option<f64>,
    /// Share of a node's disk that stays free.
    pub min_disk: f64,
    /// Stopped instances take memory on their primary too.
    pub count_down_memory: bool,
    /// Measured use counts as 0.
    pub ignore_load: bool,
    /// Prefixes of tags of which two instances on one node are a clash; those of the cluster's tags are added.
    pub exclusion_tags: Vec<String>,
    /// Replicated and shared instances keep their disks where they are.
    pub no_disk_moves: bool,
    /// Primaries stay.
    pub no_instance_moves: bool,
    /// A primary is never moved by way of its secondary to a third node.
    pub restricted_migration: bool,
    /// Only what lives on offline or drained nodes moves.
    pub evacuate: bool,
    /// Nodes to be emptied besides offline ones, by name.
    pub drained: BTreeSet<String>,
    /// Only these move, if given.
    pub selected: Option<BTreeSet<String>>,
    /// These stay.
    pub excluded: BTreeSet<String>,
    /// The vcpu ratio and the failures to come are no reason to refuse a move.
    pub ignore_soft_errors: bool,
}

/// Where an instance is: a node of the problem, and the other one for replicated instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spot {
    /// Where it runs.
    pub primary: usize,
    /// Where the other copy is.
    pub secondary: Option<usize>,
}

impl Spot {
    /// The nodes that it names.
    pub fn nodes(self) -> impl Iterator<Item = usize> {
        [Some(self.primary), self.secondary].into_iter().flatten()
    }

    /// Whether it names a node.
    pub fn contains(self, node: usize) -> bool {
        node == self.primary || Some(node) == self.secondary
    }

    /// Primary and secondary in each other's place; `None`: there is no secondary.
    pub fn turned(self) -> Option<Spot> {
        self.secondary.map(|secondary| Spot { primary: secondary, secondary: Some(self.primary) })
    }
}

/// A node as the host of instances.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its position in the cluster.
    pub node: usize,
    /// Nothing may come here, and what is here should leave: it is off, or drained.
    pub offline: bool,
    /// It is off: it can neither copy disks nor send memory.
    pub down: bool,
    /// Its memory.
    pub memory_total: f64,
    /// Memory free if no instance of the group were here.
    pub memory_base: i64,
    /// The same as the file has it, for the value that counts forthcoming and stopped instances too.
    pub memory_base_forthcoming: i64,
    /// Its disk.
    pub disk_total: f64,
    /// Disk free if no instance of the group were here.
    pub disk_base: i64,
    /// Its cpus.
    pub cpus: f64,
    /// Speed of its cpus.
    pub cpu_speed: f64,
    /// Virtual cpus that it uses itself.
    pub cpus_own: i64,
    /// Instances have spindles of their own here, and free spindles count as free disk.
    pub exclusive: bool,
    /// Its spindles.
    pub spindles_total: f64,
    /// Spindle uses that it has room for.
    pub spindles: f64,
    /// Spindles in use if no instance of the group were here.
    pub spindles_base: i64,
    /// Virtual cpus at most.
    pub vcpus_most: i64,
    /// Free disk that must remain.
    pub disk_least: i64,
    /// Failure domains that it is in, by number.
    pub locations: Vec<usize>,
}

/// An instance as the guest of nodes.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Its position in the cluster.
    pub instance: usize,
    /// How far its disk reaches.
    pub reach: Reach,
    /// It may be moved at all.
    pub movable: bool,
    /// Its memory when it runs, which its next host must have.
    pub memory: i64,
    /// Memory that it takes from its primary now.
    pub memory_used: i64,
    /// Memory that it takes once all that is forthcoming or stopped runs.
    pub memory_forthcoming: i64,
    /// Memory that its secondary keeps for it.
    pub memory_reserved: i64,
    /// Disk that it takes from both nodes now.
    pub disk_used: i64,
    /// Disk that it takes, forthcoming or not.
    pub disk_forthcoming: i64,
    /// Virtual cpus now.
    pub vcpus: i64,
    /// Virtual cpus, forthcoming or not.
    pub vcpus_forthcoming: i64,
    /// Spindles that it takes from both nodes, where they are shared, and where they are exclusive.
    pub spindles: [i64; 2],
    /// Measured use.
    pub load: [i64; 4],
    /// It exists: it counts in the values that are not about forthcoming ones too.
    pub present: bool,
    /// Its exclusion tags, by number.
    pub exclusion: Vec<usize>,
    /// Failure domains in which it should run; `None`: one that no node is in.
    pub desired: Vec<Option<usize>>,
    /// Others that move as one with it and are counted in its sizes, by position in the cluster.
    pub partners: Vec<usize>,
    /// Whether each host may take it; `None`: all.
    pub hosts: Option<Vec<bool>>,
    /// Its disk can be copied to another node.
    pub copies: bool,
}

impl Host {
    /// Spindles free if no instance of the group were here.
    #[expect(clippy::cast_possible_truncation, reason = "spindles are bounded where they are read")]
    pub fn spindles_free_base(&self) -> i64 {
        self.spindles_total as i64 - self.spindles_base
    }
}

impl Guest {
    /// How many instances it stands for; 0 when it does not exist yet.
    pub fn count(&self) -> usize {
        usize::from(self.present) * (1 + self.partners.len())
    }

    /// The instances that it stands for, by position in the cluster.
    pub fn instances(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.instance).chain(self.partners.iter().copied())
    }

    /// Nothing about this host itself speaks against its coming there.
    pub fn may_come_to(&self, host: usize) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| hosts[host])
    }

    /// The spindles that it takes on a host.
    pub fn spindles_on(&self, host: &Host) -> i64 {
        self.spindles[usize::from(host.exclusive)]
    }
}

/// A group to be balanced.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The group's nodes.
    pub hosts: Vec<Host>,
    /// The group's instances.
    pub guests: Vec<Guest>,
    /// Where they are now.
    pub start: Vec<Spot>,
    /// How many exclusion tags there are.
    pub exclusion_tags: usize,
    /// How many failure domains there are.
    pub locations: usize,
    /// What the user set.
    pub settings: Settings,
}

impl Problem {
    /// A group of a cluster as a problem.
    pub fn new(cluster: &Cluster, group: usize, settings: &Settings) -> Problem {
        Problem::of_groups(cluster, &[group], settings)
    }

    /// Several groups of a cluster as one problem.
    pub fn of_groups(cluster: &Cluster, groups: &[usize], settings: &Settings) -> Problem {
        Problem::with_newcomer(cluster, groups, settings, None)
    }

    /// The same with an instance that has no place yet: the last guest, of which the start says nothing.
    pub fn with_newcomer<'a>(
        cluster: &'a Cluster,
        groups: &[usize],
        settings: &Settings,
        newcomer: Option<(&'a Instance, Option<&Binding>)>,
    ) -> Problem {
        let mut positions = BTreeMap::new();
        for (index, node) in cluster.nodes.iter().enumerate() {
            if groups.contains(&node.group) {
                positions.insert(index, positions.len());
            }
        }
        let prefixes = |marker: &str| -> Vec<String> {
            cluster
                .tags
                .iter()
                .filter_map(|tag| tag.strip_prefix(marker))
                .map(|prefix| format!("{prefix}:"))
                .collect()
        };
        let mut exclusion_prefixes = prefixes("htools:iextags:");
        exclusion_prefixes.extend(settings.exclusion_tags.iter().map(|prefix| format!("{prefix}:")));
        let location_prefixes = prefixes("htools:nlocation:");
        let desired_prefixes = prefixes("htools:desiredlocation:");

        let mut exclusion = Numbers::default();
        let mut locations = Numbers::default();
        let hosts: Vec<Host> = positions
            .keys()
            .map(|&index| {
                let node = &cluster.nodes[index];
                let tags = matching(&node.tags, &location_prefixes);
                let drained = settings.drained.contains(&node.name);
                host(cluster, settings, index, drained, tags.map(|tag| locations.of(tag)).collect())
            })
            .collect();
        let mut problem = Problem {
            hosts,
            guests: Vec::new(),
            start: Vec::new(),
            exclusion_tags: 0,
            locations: locations.0.len(),
            settings: settings.clone(),
        };
        let mut tagged = |instance: &'a Instance, index: usize| {
            let mut guest = guest(instance, index, settings);
            guest.exclusion =
                matching(&instance.tags, &exclusion_prefixes).map(|tag| exclusion.of(tag)).collect();
            guest.desired = matching(&instance.tags, &desired_prefixes)
                .map(|tag| locations.0.get(tag).copied())
                .collect();
            guest
        };
        for (index, instance) in cluster.instances.iter().enumerate() {
            let Some(&primary) = positions.get(&instance.primary) else { continue };
            let secondary = instance.secondary.and_then(|node| positions.get(&node).copied());
            // With its other copy in another group it can only stay.
            let split = instance.secondary.is_some() && secondary.is_none();
            let mut guest = tagged(instance, index);
            let spot = Spot { primary, secondary };
            guest.movable = !split && may_move(instance, &guest, spot, &problem.hosts, settings);
            if let Some(binding) = cluster.bindings.get(&index) {
                binding.tie(&mut guest, instance, problem.hosts.iter().map(|host| host.node));
            }
            problem.add_to_bases(instance, &guest, spot);
            problem.guests.push(guest);
            problem.start.push(spot);
        }
        for host in &mut problem.hosts {
            // More free than can be free is a report from another moment; unexplained use stays taken.
            let node = &cluster.nodes[host.node];
            host.memory_base = host.memory_base.min(node.memory_total - node.memory_own);
        }
        let newcomer = newcomer.map(|(newcomer, binding)| {
            let mut guest = tagged(newcomer, cluster.instances.len());
            if let Some(binding) = binding {
                binding.tie(&mut guest, newcomer, problem.hosts.iter().map(|host| host.node));
            }
            guest
        });
        problem.exclusion_tags = exclusion.0.len();
        problem.unite(&cluster.bindings);
        problem.guests.extend(newcomer);
        problem
    }

    /// The name of a host's node.
    pub fn node_name<'c>(&self, cluster: &'c Cluster, host: usize) -> &'c str {
        &cluster.nodes[self.hosts[host].node].name
    }

    /// The name of an instance, and after plus signs those that move as one with it.
    pub fn instance_name(&self, cluster: &Cluster, guest: usize) -> String {
        let names = self.guests[guest].instances().map(|at| cluster.instances[at].name.as_str());
        names.collect::<Vec<_>>().join("+")
    }

    /// What the file says is free is what the instances have left of it; bases are without them.
    fn add_to_bases(&mut self, instance: &Instance, guest: &Guest, spot: Spot) {
        // Memory of stopped instances counts as free in the file, whatever the settings say of it.
        if instance.status.is_running() && !instance.forthcoming {
            self.hosts[spot.primary].memory_base += instance.memory;
            self.hosts[spot.primary].memory_base_forthcoming += instance.memory;
        }
        for node in spot.nodes() {
            let host = &mut self.hosts[node];
            host.disk_base += guest.disk_used;
            if host.exclusive && guest.present {
                host.spindles_base -= guest.spindles_on(host);
            }
        }
    }
}

/// Numbers for names, in the order in which they are seen.
#[derive(Default)]
struct Numbers<'a>(BTreeMap<&'a str, usize>);

impl<'a> Numbers<'a> {
    fn of(&mut self, name: &'a str) -> usize {
        let next = self.0.len();
        *self.0.entry(name).or_insert(next)
    }
}

/// The tags that have one of these prefixes, each once.
fn matching<'a>(tags: &'a [String], prefixes: &[String]) -> impl Iterator<Item = &'a str> {
    let chosen: BTreeSet<&str> = tags
        .iter()
        .map(String::as_str)
        .filter(|tag| prefixes.iter().any(|prefix| tag.starts_with(prefix.as_str())))
        .collect();
    chosen.into_iter()
}

#[expect(clippy::cast_possible_truncation, reason = "sizes and ratios are bounded where they are read")]
fn host(cluster: &Cluster, settings: &Settings, index: usize, drained: bool, locations: Vec<usize>) -> Host {
    let node: &Node = &cluster.nodes[index];
    let policy = cluster.policy(node.group);
    let vcpu_ratio = policy.map_or(DEFAULT_VCPU_RATIO, |policy| policy.vcpu_ratio);
    let spindle_ratio = policy.map_or(DEFAULT_SPINDLE_RATIO, |policy| policy.spindle_ratio);
    let positive = |size: i64| size.max(1) as f64;
    let spindles = positive(node.spindles);
    Host {
        node: index,
        offline: node.role == Role::Offline || drained,
        down: node.role == Role::Offline,
        memory_total: positive(node.memory_total),
        memory_base: node.memory_free,
        memory_base_forthcoming: node.memory_free,
        disk_total: positive(node.disk_total),
        disk_base: node.disk_free,
        cpus: positive(node.cpus),
        cpu_speed: node.cpu_speed,
        cpus_own: node.cpus_own,
        exclusive: node.exclusive_storage,
        spindles_total: spindles,
        spindles: spindles * spindle_ratio,
        spindles_base: if node.exclusive_storage { node.spindles - node.spindles_free } else { 0 },
        vcpus_most: (positive(node.cpus) * settings.max_cpu.unwrap_or(vcpu_ratio)).floor() as i64,
        disk_least: (positive(node.disk_total) * settings.min_disk).ceil() as i64,
        locations,
    }
}

fn guest(instance: &Instance, index: usize, settings: &Settings) -> Guest {
    let present = i64::from(!instance.forthcoming);
    let online = i64::from(!instance.status.is_offline());
    let running = i64::from(instance.status.is_running() || (settings.count_down_memory && online == 1));
    let on_disk = i64::from(instance.template.uses_node_disk());
    let reserves = i64::from(instance.auto_balance && instance.template.reach() == Reach::Replicated);
    Guest {
        instance: index,
        reach: instance.template.reach(),
        movable: true,
        memory: instance.memory * online,
        memory_used: instance.memory * running * present,
        memory_forthcoming: instance.memory,
        memory_reserved: instance.memory * online * reserves * present,
        disk_used: instance.disk * on_disk * present,
        disk_forthcoming: instance.disk * on_disk,
        vcpus: instance.vcpus * online * present,
        vcpus_forthcoming: instance.vcpus * online,
        spindles: [instance.spindle_use * on_disk, instance.disk_spindles.unwrap_or(0) * on_disk],
        load: if settings.ignore_load || instance.forthcoming { [0; 4] } else { instance.load },
        present: !instance.forthcoming,
        exclusion: Vec::new(),
        desired: Vec::new(),
        partners: Vec::new(),
        hosts: None,
        copies: true,
    }
}

/// Whether the settings let an instance move at all.
fn may_move(instance: &Instance, guest: &Guest, spot: Spot, hosts: &[Host], settings: &Settings) -> bool {
    let leaves = |node: usize| hosts[node].offline;
    let named = |names: &BTreeSet<String>| names.contains(&instance.name);
    guest.reach != Reach::Local
        && !instance.forthcoming
        && settings.selected.as_ref().is_none_or(named)
        && !named(&settings.excluded)
        && (!settings.evacuate || spot.nodes().any(leaves))
}
