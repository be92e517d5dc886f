//! Small random clusters of several groups: all allocation policies, networks, size limits, offline and crowded
//! nodes.

use crate::balance::model::{Allocation, Cluster, Group, Policy, Role, Specification, Template};
use crate::balance::random::Random;
use crate::balance::samples::sample;

/// Returns a cluster of up to four groups, determined by the seed.
pub(super) fn sample_with_several_groups(seed: u64) -> Cluster {
    let mut random = Random::new(seed);
    let count = 1 + random.draw_below(4);
    let mut cluster = Cluster::default();
    for group in 0..count {
        let part = sample(seed.wrapping_mul(31).wrapping_add(group as u64));
        let first = cluster.nodes.len();
        let classes = [Allocation::Preferred, Allocation::LastResort, Allocation::Unallocable];
        cluster.groups.push(Group {
            name: format!("g{group}"),
            uuid: format!("u{group}"),
            allocation: classes[random.draw_below(5).saturating_sub(2)],
            tags: Vec::new(),
            networks: if random.draw_below(4) == 0 { vec!["lan".to_owned()] } else { Vec::new() },
        });
        for mut node in part.nodes {
            node.name = format!("{}-{}", node.name, group);
            node.group = group;
            if random.draw_below(12) == 0 {
                node.role = Role::Offline;
            }
            cluster.nodes.push(node);
        }
        let has_few_instances = random.draw_below(2) == 0;
        for (index, mut instance) in part.instances.into_iter().enumerate() {
            instance.name = format!("{}-{}", instance.name, group);
            instance.primary += first;
            instance.secondary = instance.secondary.map(|node| node + first);
            // Instances with local storage would prevent emptying or repairing a group.
            if instance.template == Template::Plain && random.draw_below(3) > 0 {
                instance.template = Template::Rbd;
                cluster.nodes[instance.primary].disk_free += instance.disk;
            }
            if has_few_instances && index > 3 {
                let running = instance.status.is_running() && !instance.forthcoming;
                cluster.nodes[instance.primary].memory_free += if running { instance.memory } else { 0 };
                continue;
            }
            cluster.instances.push(instance);
        }
        cluster.tags = part.tags;
    }
    if random.draw_below(3) == 0 {
        let size = |memory| Specification { memory, cpus: 1, disk: 512, disks: 1, nics: 1, spindles: 1 };
        cluster.policies.push(Policy {
            owner: "g1".to_owned(),
            standard: size(128),
            ranges: vec![(size(1), Specification { cpus: 64, disk: 100_000, ..size(100_000) })],
            templates: vec![Template::Drbd, Template::Plain],
            vcpu_ratio: 2.0,
            spindle_ratio: 32.0,
        });
    }
    cluster
}
