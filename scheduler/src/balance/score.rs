//! The score of a placement by its definition: the plain function against which all faster ones are checked.

use super::model::LOAD_UNIT;
use super::problem::{Guest, Host, Placement, Problem};
use std::collections::BTreeMap;

/// A value in the score, with its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// Name of the value, as in the tables of Ganeti's `hbal -vvv`.
    pub name: &'static str,
    /// Factor of the value in the score.
    pub weight: f64,
}

const fn value(name: &'static str, weight: f64) -> Value {
    Value { name, weight }
}

/// The values in their order. `cv` means the population standard deviation over the nodes that are not offline. `forth`
/// means that forthcoming instances count too.
pub const VALUES: [Value; 20] = [
    value("free_mem_cv", 0.5),
    value("free_disk_cv", 0.5),
    value("n1_cnt", 1.0),
    value("reserved_mem_cv", 1.0),
    value("offline_all_cnt", 4.0),
    value("offline_pri_cnt", 16.0),
    value("vcpu_ratio_cv", 0.5),
    value("cpu_load_cv", 1.0),
    value("mem_load_cv", 1.0),
    value("disk_load_cv", 1.0),
    value("net_load_cv", 1.0),
    value("pri_tags_score", 2.0),
    value("spindles_cv", 0.5),
    value("free_mem_cv_forth", 0.5),
    value("free_disk_cv_forth", 0.5),
    value("vcpu_ratio_cv_forth", 0.5),
    value("spindles_cv_forth", 0.5),
    value("location_score", 1.0),
    value("location_exclusion_score", 1.0),
    value("reserved_mem_rtotal", 0.25),
];

/// Computes the score of a placement; lower is better.
pub fn score(problem: &Problem, placements: &[Placement]) -> f64 {
    values(problem, placements).iter().zip(VALUES).map(|(amount, value)| amount * value.weight).sum()
}

/// The usage of a node.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// Free memory in MiB.
    pub memory_free: i64,
    /// Free memory in MiB once all forthcoming and stopped instances run.
    pub memory_free_forthcoming: i64,
    /// Free disk in MiB.
    pub disk_free: i64,
    /// Free disk in MiB without the share of forthcoming instances.
    pub disk_free_forthcoming: i64,
    /// Largest amount of memory in MiB that the failure of one peer would add to this node.
    pub memory_reserved: i64,
    /// Virtual cpus of the primaries.
    pub vcpus: i64,
    /// Virtual cpus of the primaries, including forthcoming ones.
    pub vcpus_forthcoming: i64,
    /// Loads: cpu, memory, disk (of secondaries too), network.
    pub load: [i64; 4],
    /// Number of spindles in use.
    pub spindles: i64,
    /// Number of spindles in use, including forthcoming instances.
    pub spindles_forthcoming: i64,
    /// Number of instances that run on this node.
    pub primaries: usize,
    /// Number of instances with their second copy on this node.
    pub secondaries: usize,
}

/// Returns the least possible part of the score for the memory that nodes reserve for their peers (`optimalCVScore` of
/// hbal): if every node reserves an equal part of what the failure of one node brings.
pub fn optimum(problem: &Problem) -> f64 {
    let peers = problem.hosts.len().saturating_sub(1).max(1) as f64;
    let memory: f64 = problem.hosts.iter().map(|host| host.memory_total).sum();
    let reserved: i64 = problem.guests.iter().map(|guest| guest.memory_reserved).sum();
    if memory > 0.0 { 0.25 * reserved as f64 / peers / memory } else { 0.0 }
}

/// Returns `true` if a node exceeds its policy: the ratio of virtual cpus, or of uses of its spindles.
pub fn violates_policy(host: &Host, usage: &Usage) -> bool {
    usage.vcpus > host.vcpus_most || host.lacks_spindles(usage.spindles)
}

impl Usage {
    /// Returns `true` if the node does not survive the failure of one peer.
    pub fn fails_n1(&self) -> bool {
        self.memory_free <= self.memory_reserved
    }
}

/// Computes the usage of each node.
pub fn usages(problem: &Problem, placements: &[Placement]) -> Vec<Usage> {
    let mut usages: Vec<Usage> = problem
        .hosts
        .iter()
        .map(|host| Usage {
            memory_free: host.memory_base,
            memory_free_forthcoming: host.memory_base_forthcoming,
            disk_free: host.disk_base,
            disk_free_forthcoming: host.disk_base,
            vcpus: host.cpus_own,
            vcpus_forthcoming: host.cpus_own,
            spindles: host.spindles_base,
            spindles_forthcoming: host.spindles_base,
            ..Usage::default()
        })
        .collect();
    let mut sent: BTreeMap<(usize, usize), i64> = BTreeMap::new();
    for (guest, placement) in problem.guests.iter().zip(placements) {
        let usage = &mut usages[placement.primary];
        usage.memory_free -= guest.memory_used;
        usage.memory_free_forthcoming -= guest.memory_forthcoming;
        usage.vcpus += guest.vcpus;
        usage.vcpus_forthcoming += guest.vcpus_forthcoming;
        for (sum, load) in usage.load.iter_mut().zip(guest.load) {
            *sum += load;
        }
        usage.primaries += guest.count();
        for node in placement.nodes() {
            let usage = &mut usages[node];
            usage.disk_free -= guest.disk_used;
            usage.disk_free_forthcoming -= guest.disk_forthcoming;
            let spindles = guest.spindles_on(&problem.hosts[node]);
            usage.spindles += if guest.present { spindles } else { 0 };
            usage.spindles_forthcoming += spindles;
        }
        if let Some(secondary) = placement.secondary {
            usages[secondary].load[2] += guest.load[2];
            usages[secondary].secondaries += guest.count();
            *sent.entry((secondary, placement.primary)).or_default() += guest.memory_reserved;
        }
    }
    for ((secondary, _), memory) in sent {
        let reserved = &mut usages[secondary].memory_reserved;
        *reserved = memory.max(*reserved);
    }
    usages
}

/// Computes the values of a placement, in the order of [`VALUES`].
pub fn values(problem: &Problem, placements: &[Placement]) -> [f64; 20] {
    let usages = usages(problem, placements);
    let online: Vec<_> = problem.hosts.iter().zip(&usages).filter(|(host, _)| !host.offline).collect();
    let offline: Vec<_> = problem.hosts.iter().zip(&usages).filter(|(host, _)| host.offline).collect();
    let over = |share: &dyn Fn(&Host, &Usage) -> f64| {
        let shares: Vec<f64> = online.iter().map(|(host, usage)| share(host, usage)).collect();
        (deviation(&shares), shares.iter().sum::<f64>())
    };
    let sd = |share: &dyn Fn(&Host, &Usage) -> f64| over(share).0;
    let load = |kind: usize| sd(&|_, usage| usage.load[kind] as f64 / LOAD_UNIT as f64);
    let instances = |(_, usage): &(&Host, &Usage)| usage.primaries + usage.secondaries;
    let failing = online.iter().filter(|(_, usage): &&(&Host, &Usage)| usage.fails_n1());
    let (reserved, reserved_total) = over(&|host, usage| usage.memory_reserved as f64 / host.memory_total);
    let (clashes, location_clashes) = clashes(problem, placements);
    [
        sd(&|host, usage| usage.memory_free as f64 / host.memory_total),
        sd(&|host, usage| free_disk_share(host, usage.disk_free, usage.spindles)),
        failing.map(instances).sum::<usize>() as f64,
        reserved,
        offline.iter().map(instances).sum::<usize>() as f64,
        offline.iter().map(|(_, usage)| usage.primaries).sum::<usize>() as f64,
        sd(&|host, usage| usage.vcpus as f64 / (host.cpus * host.cpu_speed)),
        load(0),
        load(1),
        load(2),
        load(3),
        clashes as f64,
        sd(&|host, usage| spindle_share(host, usage.spindles)),
        sd(&|host, usage| usage.memory_free_forthcoming as f64 / host.memory_total),
        sd(&|host, usage| free_disk_share(host, usage.disk_free_forthcoming, usage.spindles_forthcoming)),
        sd(&|host, usage| usage.vcpus_forthcoming as f64 / (host.cpus * host.cpu_speed)),
        sd(&|host, usage| spindle_share(host, usage.spindles_forthcoming)),
        misplaced(problem, placements) as f64,
        location_clashes as f64,
        reserved_total,
    ]
}

/// Returns the free share of a node's disk, or of its spindles if they are exclusive.
fn free_disk_share(host: &Host, disk_free: i64, spindles_used: i64) -> f64 {
    if host.exclusive {
        (host.spindles_total - spindles_used as f64) / host.spindles_total
    } else {
        disk_free as f64 / host.disk_total
    }
}

/// Returns the used share of a node's spindle uses; exclusive spindles count as disk instead.
fn spindle_share(host: &Host, used: i64) -> f64 {
    if host.exclusive { 0.0 } else { used as f64 / host.spindles }
}

/// Computes the population standard deviation.
fn deviation(numbers: &[f64]) -> f64 {
    if numbers.is_empty() {
        return 0.0;
    }
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    (numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / count).sqrt()
}

/// Counts the instances beyond the first with the same exclusion tag, per node and per failure domain.
fn clashes(problem: &Problem, placements: &[Placement]) -> (usize, usize) {
    let mut on_node: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let mut in_domain: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for (guest, placement) in problem.guests.iter().zip(placements) {
        let host = &problem.hosts[placement.primary];
        if host.offline {
            continue;
        }
        for &tag in &guest.exclusion {
            *on_node.entry((placement.primary, tag)).or_default() += 1;
            for &location in &host.locations {
                *in_domain.entry((location, tag)).or_default() += 1;
            }
        }
    }
    let beyond_first = |counts: BTreeMap<(usize, usize), usize>| counts.values().map(|count| count - 1).sum();
    (beyond_first(on_node), beyond_first(in_domain))
}

/// Counts the failure domains that contain both copies of an instance, and the desired domains in which an instance does
/// not run. As in hbal, instances with an offline primary do not count.
fn misplaced(problem: &Problem, placements: &[Placement]) -> usize {
    let locations = |node: usize| &problem.hosts[node].locations;
    let instance = |(guest, placement): (&Guest, &Placement)| {
        let primary = locations(placement.primary);
        let shared = placement.secondary.map_or(0, |secondary| {
            locations(secondary).iter().filter(|location| primary.contains(location)).count()
        });
        let missed =
            guest.desired.iter().filter(|wish| !wish.is_some_and(|wish| primary.contains(&wish))).count();
        shared + missed
    };
    let online = |(_, placement): &(&Guest, &Placement)| !problem.hosts[placement.primary].offline;
    problem.guests.iter().zip(placements).filter(online).map(instance).sum()
}
