//! The score of a placement by its definition: the plain function against which all faster ones are checked.

use super::model::LOAD_UNIT;
use super::problem::{Placement, Problem, ProblemNode, ProblemService};
use std::collections::BTreeMap;

/// A value in the score, with its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreComponent {
    /// Name of the value, as in the tables of Ganeti's `hbal -vvv`.
    pub name: &'static str,
    /// Factor of the value in the score.
    pub weight: f64,
}

const fn score_component(name: &'static str, weight: f64) -> ScoreComponent {
    ScoreComponent { name, weight }
}

/// The values in their order. `cv` means the population standard deviation over the nodes that are not offline. `forth`
/// means that forthcoming instances count too.
pub const SCORE_COMPONENTS: [ScoreComponent; 20] = [
    score_component("free_mem_cv", 0.5),
    score_component("free_disk_cv", 0.5),
    score_component("n1_cnt", 1.0),
    score_component("reserved_mem_cv", 1.0),
    score_component("offline_all_cnt", 4.0),
    score_component("offline_pri_cnt", 16.0),
    score_component("vcpu_ratio_cv", 0.5),
    score_component("cpu_load_cv", 1.0),
    score_component("mem_load_cv", 1.0),
    score_component("disk_load_cv", 1.0),
    score_component("net_load_cv", 1.0),
    score_component("pri_tags_score", 2.0),
    score_component("spindles_cv", 0.5),
    score_component("free_mem_cv_forth", 0.5),
    score_component("free_disk_cv_forth", 0.5),
    score_component("vcpu_ratio_cv_forth", 0.5),
    score_component("spindles_cv_forth", 0.5),
    score_component("location_score", 1.0),
    score_component("location_exclusion_score", 1.0),
    score_component("reserved_mem_rtotal", 0.25),
];

/// Computes the score of a placement; lower is better.
pub fn score(problem: &Problem, placements: &[Placement]) -> f64 {
    values(problem, placements)
        .iter()
        .zip(SCORE_COMPONENTS)
        .map(|(amount, value)| amount * value.weight)
        .sum()
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
    let peers = problem.nodes.len().saturating_sub(1).max(1) as f64;
    let memory: f64 = problem.nodes.iter().map(|node| node.memory_total).sum();
    let reserved: i64 = problem.services.iter().map(|service| service.memory_reserved).sum();
    if memory > 0.0 { 0.25 * reserved as f64 / peers / memory } else { 0.0 }
}

/// Returns `true` if a node exceeds its policy: the ratio of virtual cpus, or of uses of its spindles.
pub fn violates_policy(node: &ProblemNode, usage: &Usage) -> bool {
    usage.vcpus > node.vcpus_max || node.lacks_spindles(usage.spindles)
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
        .nodes
        .iter()
        .map(|node| Usage {
            memory_free: node.memory_base,
            memory_free_forthcoming: node.memory_base_forthcoming,
            disk_free: node.disk_base,
            disk_free_forthcoming: node.disk_base,
            vcpus: node.cpus_own,
            vcpus_forthcoming: node.cpus_own,
            spindles: node.spindles_base,
            spindles_forthcoming: node.spindles_base,
            ..Usage::default()
        })
        .collect();
    let mut memory_sent: BTreeMap<(usize, usize), i64> = BTreeMap::new();
    for (service, placement) in problem.services.iter().zip(placements) {
        let usage = &mut usages[placement.primary];
        usage.memory_free -= service.memory_used;
        usage.memory_free_forthcoming -= service.memory_forthcoming;
        usage.vcpus += service.vcpus;
        usage.vcpus_forthcoming += service.vcpus_forthcoming;
        for (sum, load) in usage.load.iter_mut().zip(service.load) {
            *sum += load;
        }
        usage.primaries += service.count();
        for node in placement.nodes() {
            let usage = &mut usages[node];
            usage.disk_free -= service.disk_used;
            usage.disk_free_forthcoming -= service.disk_forthcoming;
            let spindles = service.spindles_on(&problem.nodes[node]);
            usage.spindles += if service.is_created { spindles } else { 0 };
            usage.spindles_forthcoming += spindles;
        }
        if let Some(secondary) = placement.secondary {
            usages[secondary].load[2] += service.load[2];
            usages[secondary].secondaries += service.count();
            *memory_sent.entry((secondary, placement.primary)).or_default() += service.memory_reserved;
        }
    }
    for ((secondary, _), memory) in memory_sent {
        let reserved = &mut usages[secondary].memory_reserved;
        *reserved = memory.max(*reserved);
    }
    usages
}

/// Computes the values of a placement, in the order of [`SCORE_COMPONENTS`].
pub fn values(problem: &Problem, placements: &[Placement]) -> [f64; 20] {
    let usages = usages(problem, placements);
    let online: Vec<_> = problem.nodes.iter().zip(&usages).filter(|(node, _)| !node.is_offline).collect();
    let offline: Vec<_> = problem.nodes.iter().zip(&usages).filter(|(node, _)| node.is_offline).collect();
    let deviation_and_sum = |share: &dyn Fn(&ProblemNode, &Usage) -> f64| {
        let shares: Vec<f64> = online.iter().map(|(node, usage)| share(node, usage)).collect();
        (deviation(&shares), shares.iter().sum::<f64>())
    };
    let deviation_of = |share: &dyn Fn(&ProblemNode, &Usage) -> f64| deviation_and_sum(share).0;
    let load = |kind: usize| deviation_of(&|_, usage| usage.load[kind] as f64 / LOAD_UNIT as f64);
    let instances = |(_, usage): &(&ProblemNode, &Usage)| usage.primaries + usage.secondaries;
    let failing = online.iter().filter(|(_, usage): &&(&ProblemNode, &Usage)| usage.fails_n1());
    let (reserved, reserved_total) =
        deviation_and_sum(&|node, usage| usage.memory_reserved as f64 / node.memory_total);
    let (clashes, location_clashes) = count_clashes(problem, placements);
    [
        deviation_of(&|node, usage| usage.memory_free as f64 / node.memory_total),
        deviation_of(&|node, usage| free_disk_share(node, usage.disk_free, usage.spindles)),
        failing.map(instances).sum::<usize>() as f64,
        reserved,
        offline.iter().map(instances).sum::<usize>() as f64,
        offline.iter().map(|(_, usage)| usage.primaries).sum::<usize>() as f64,
        deviation_of(&|node, usage| usage.vcpus as f64 / (node.cpus * node.cpu_speed)),
        load(0),
        load(1),
        load(2),
        load(3),
        clashes as f64,
        deviation_of(&|node, usage| spindle_share(node, usage.spindles)),
        deviation_of(&|node, usage| usage.memory_free_forthcoming as f64 / node.memory_total),
        deviation_of(&|node, usage| {
            free_disk_share(node, usage.disk_free_forthcoming, usage.spindles_forthcoming)
        }),
        deviation_of(&|node, usage| usage.vcpus_forthcoming as f64 / (node.cpus * node.cpu_speed)),
        deviation_of(&|node, usage| spindle_share(node, usage.spindles_forthcoming)),
        count_misplaced(problem, placements) as f64,
        location_clashes as f64,
        reserved_total,
    ]
}

/// Returns the free share of a node's disk, or of its spindles if they are exclusive.
fn free_disk_share(node: &ProblemNode, disk_free: i64, spindles_used: i64) -> f64 {
    if node.has_exclusive_spindles {
        (node.spindles_total - spindles_used as f64) / node.spindles_total
    } else {
        disk_free as f64 / node.disk_total
    }
}

/// Returns the used share of a node's spindle uses; exclusive spindles count as disk instead.
fn spindle_share(node: &ProblemNode, used: i64) -> f64 {
    if node.has_exclusive_spindles { 0.0 } else { used as f64 / node.spindles }
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
fn count_clashes(problem: &Problem, placements: &[Placement]) -> (usize, usize) {
    let mut on_node: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let mut in_domain: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for (service, placement) in problem.services.iter().zip(placements) {
        let node = &problem.nodes[placement.primary];
        if node.is_offline {
            continue;
        }
        for &tag in &service.exclusion {
            *on_node.entry((placement.primary, tag)).or_default() += 1;
            for &location in &node.locations {
                *in_domain.entry((location, tag)).or_default() += 1;
            }
        }
    }
    let beyond_first = |counts: BTreeMap<(usize, usize), usize>| counts.values().map(|count| count - 1).sum();
    (beyond_first(on_node), beyond_first(in_domain))
}

/// Counts the failure domains that contain both copies of an instance, and the desired domains in which an instance does
/// not run. As in hbal, instances with an offline primary do not count.
fn count_misplaced(problem: &Problem, placements: &[Placement]) -> usize {
    let locations = |node: usize| &problem.nodes[node].locations;
    let misplaced_count = |(service, placement): (&ProblemService, &Placement)| {
        let primary = locations(placement.primary);
        let shared = placement.secondary.map_or(0, |secondary| {
            locations(secondary).iter().filter(|location| primary.contains(location)).count()
        });
        let missed_domains = service
            .desired
            .iter()
            .filter(|domain| !domain.is_some_and(|domain| primary.contains(&domain)))
            .count();
        shared + missed_domains
    };
    let has_online_primary =
        |(_, placement): &(&ProblemService, &Placement)| !problem.nodes[placement.primary].is_offline;
    problem.services.iter().zip(placements).filter(has_online_primary).map(misplaced_count).sum()
}
