//! Sums over the nodes of a cluster, as hspace prints them.

use super::units::haskell_number;
use ha_scheduler::balance::model::{Cluster, DEFAULT_VCPU_RATIO};
use ha_scheduler::balance::problem::{Problem, Settings};
use ha_scheduler::balance::score::{Usage, score, usages};

/// Sums over all nodes, and the score of a cluster.
pub(super) struct Statistics {
    pub(super) memory: i64,
    pub(super) disk: i64,
    pub(super) cpus: i64,
    pub(super) vcpus: i64,
    pub(super) spindles: i64,
    pub(super) nodes: usize,
    pub(super) score: f64,
    pub(super) instances: usize,
    memory_free: i64,
    /// Free memory as reported, minus the memory of added instances.
    memory_free_reported: i64,
    memory_available: i64,
    memory_of_instances: i64,
    disk_free: i64,
    disk_available: i64,
    spindles_free: i64,
    vcpus_used: i64,
    /// Virtual cpus divided by the permitted ratio of virtual to physical cpus.
    normalized_cpus: f64,
    normalized_cpus_used: f64,
    largest_memory: i64,
    largest_disk: i64,
}

fn share(part: i64, whole: i64) -> f64 {
    part as f64 / whole as f64
}

impl Statistics {
    pub(super) fn new(cluster: &Cluster, settings: &Settings) -> Statistics {
        let groups: Vec<usize> = (0..cluster.groups.len()).collect();
        let problem = Problem::of_groups(cluster, &groups, settings);
        let usages = usages(&problem, &problem.start_placements);
        let mut statistics = Statistics {
            memory: 0,
            disk: 0,
            cpus: 0,
            vcpus: 0,
            spindles: 0,
            nodes: cluster.nodes.len(),
            score: if cluster.nodes.is_empty() { 0.0 } else { score(&problem, &problem.start_placements) },
            instances: cluster.instances.len(),
            memory_free: 0,
            memory_free_reported: 0,
            memory_available: 0,
            memory_of_instances: 0,
            disk_free: 0,
            disk_available: 0,
            spindles_free: 0,
            vcpus_used: 0,
            normalized_cpus: 0.0,
            normalized_cpus_used: 0.0,
            largest_memory: 0,
            largest_disk: 0,
        };
        for (node, usage) in problem.nodes.iter().zip(&usages) {
            statistics.add_node(cluster, settings, node.cluster_node, node.vcpus_max, usage);
        }
        for (service, _) in problem.services.iter().zip(&problem.start_placements) {
            statistics.memory_of_instances += service.memory_used;
        }
        statistics
    }

    #[expect(clippy::cast_possible_truncation, reason = "sizes are bounded where they are read")]
    fn add_node(
        &mut self,
        cluster: &Cluster,
        settings: &Settings,
        node: usize,
        vcpus_max: i64,
        usage: &Usage,
    ) {
        let node = &cluster.nodes[node];
        let policy = cluster.policy(node.group);
        let ratio =
            settings.max_cpu.unwrap_or_else(|| policy.map_or(DEFAULT_VCPU_RATIO, |policy| policy.vcpu_ratio));
        let memory_available = (usage.memory_free - usage.memory_reserved).max(0);
        let disk_reserved = (node.disk_total as f64 * settings.min_disk).floor() as i64;
        let disk_available = (usage.disk_free - disk_reserved).max(0);
        self.memory += node.memory_total;
        self.disk += node.disk_total;
        self.cpus += node.cpus;
        self.vcpus += vcpus_max;
        self.spindles += node.spindles;
        self.memory_free += usage.memory_free;
        self.memory_free_reported += node.memory_free;
        self.memory_available += memory_available;
        self.disk_free += usage.disk_free;
        self.disk_available += disk_available;
        self.spindles_free += node.spindles_free;
        self.vcpus_used += usage.vcpus;
        self.normalized_cpus += vcpus_max as f64 / ratio;
        self.normalized_cpus_used += usage.vcpus as f64 / ratio;
        self.largest_memory = self.largest_memory.max(memory_available);
        self.largest_disk = self.largest_disk.max(disk_available);
    }

    /// Returns the keys about the cluster itself, with their values.
    pub(super) fn cluster_keys(&self) -> Vec<(String, String)> {
        let keys = [
            ("CLUSTER_MEM", self.memory.to_string()),
            ("CLUSTER_DSK", self.disk.to_string()),
            ("CLUSTER_CPU", self.cpus.to_string()),
            ("CLUSTER_VCPU", self.vcpus.to_string()),
            ("CLUSTER_SPN", self.spindles.to_string()),
            ("CLUSTER_NODES", self.nodes.to_string()),
        ];
        keys.map(|(key, value)| (key.to_owned(), value)).to_vec()
    }

    /// Returns the keys of a phase, with their values; the phase is INI, TRL or FIN.
    pub(super) fn phase_keys(&self, phase: &str) -> Vec<(String, String)> {
        let overhead = self.memory - self.memory_free_reported - self.memory_of_instances;
        let (disk_used, spindles_used) = self.used();
        let eight = |number: f64| format!("{number:.8}");
        let keys = [
            ("SCORE", eight(self.score)),
            ("INST_CNT", self.instances.to_string()),
            ("MEM_FREE", self.memory_free.to_string()),
            ("MEM_AVAIL", self.memory_available.to_string()),
            ("MEM_RESVD", (self.memory_free - self.memory_available).to_string()),
            ("MEM_INST", self.memory_of_instances.to_string()),
            ("MEM_OVERHEAD", overhead.to_string()),
            ("MEM_EFF", eight(self.memory_efficiency())),
            ("DSK_FREE", self.disk_free.to_string()),
            ("DSK_AVAIL", self.disk_available.to_string()),
            ("DSK_RESVD", (self.disk_free - self.disk_available).to_string()),
            ("DSK_INST", disk_used.to_string()),
            ("DSK_EFF", eight(self.disk_efficiency())),
            ("SPN_FREE", self.spindles_free.to_string()),
            ("SPN_INST", spindles_used.to_string()),
            ("SPN_EFF", eight(self.spindle_efficiency())),
            ("CPU_INST", self.vcpus_used.to_string()),
            ("CPU_EFF", eight(self.cpu_efficiency())),
            ("MNODE_MEM_AVAIL", self.largest_memory.to_string()),
            ("MNODE_DSK_AVAIL", self.largest_disk.to_string()),
        ];
        keys.map(|(key, value)| (format!("{phase}_{key}"), value)).to_vec()
    }

    /// Returns the keys about resources, with their values: those used in `initial`, those allocated since then, and
    /// those that remain.
    pub(super) fn resource_keys(&self, initial: &Statistics) -> Vec<(String, String)> {
        let amounts = |statistics: &Statistics| {
            let (disk, spindles) = statistics.used();
            [statistics.vcpus_used, statistics.memory_of_instances, disk, spindles]
        };
        let (before, after) = (amounts(initial), amounts(self));
        let totals = [self.vcpus, self.memory, self.disk, self.spindles];
        let parts = [
            ("USED", before, initial.normalized_cpus_used),
            (
                "POOL",
                std::array::from_fn(|index| after[index] - before[index]),
                self.normalized_cpus_used - initial.normalized_cpus_used,
            ),
            (
                "UNAV",
                std::array::from_fn(|index| totals[index] - after[index]),
                self.normalized_cpus - self.normalized_cpus_used,
            ),
        ];
        let keys = parts.into_iter().flat_map(|(part, [cpus, memory, disk, spindles], normalized)| {
            let keys = [
                ("CPU", cpus.to_string()),
                ("NPU", haskell_number(normalized)),
                ("MEM", memory.to_string()),
                ("DSK", disk.to_string()),
                ("SPN", spindles.to_string()),
            ];
            keys.map(|(key, value)| (format!("KM_{part}_{key}"), value))
        });
        keys.collect()
    }

    /// Returns disk and spindles in use.
    fn used(&self) -> (i64, i64) {
        (self.disk - self.disk_free, self.spindles - self.spindles_free)
    }

    pub(super) fn memory_efficiency(&self) -> f64 {
        share(self.memory_of_instances, self.memory)
    }

    pub(super) fn disk_efficiency(&self) -> f64 {
        share(self.used().0, self.disk)
    }

    pub(super) fn cpu_efficiency(&self) -> f64 {
        share(self.vcpus_used, self.vcpus)
    }

    pub(super) fn spindle_efficiency(&self) -> f64 {
        share(self.used().1, self.spindles)
    }
}
