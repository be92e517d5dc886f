//! The writer of the text format, in the generation in which the cluster was read.

use super::policy;
use super::reader::{ALLOCATIONS, FLAGS, ROLES};
use crate::balance::model::{Cluster, FormatGeneration, Group, Instance, Node, Status, Template};

/// Formats a cluster for [`super::read`].
pub fn write(cluster: &Cluster) -> String {
    let generation = cluster.generation;
    let sections = [
        lines(&cluster.groups, |group| format_group(group, generation)),
        lines(&cluster.nodes, |node| format_node(node, cluster)),
        lines(&cluster.instances, |instance| format_instance(instance, cluster)),
        lines(&cluster.tags, Clone::clone),
        lines(&cluster.policies, |group_policy| policy::write(group_policy, generation)),
    ];
    sections.join("\n")
}

fn lines<T>(items: &[T], line: impl Fn(&T) -> String) -> String {
    items.iter().map(|item| line(item) + "\n").collect::<Vec<_>>().concat()
}

fn format_group(group: &Group, generation: FormatGeneration) -> String {
    let basic = format!("{}|{}|{}", group.name, group.uuid, word(&ALLOCATIONS, group.allocation));
    match generation {
        FormatGeneration::Older => basic,
        FormatGeneration::Newer => format!("{basic}|{}|{}", group.tags.join(","), group.networks.join(",")),
    }
}

fn format_node(node: &Node, cluster: &Cluster) -> String {
    let group = cluster.groups.get(node.group).map_or("", |group| group.uuid.as_str());
    let basic = format!(
        "{}|{}|{}|{}|{}|{}|{}|{}|{group}|{}",
        node.name,
        node.memory_total,
        node.memory_own,
        node.memory_free,
        node.disk_total,
        node.disk_free,
        node.cpus,
        word(&ROLES, node.role),
        node.spindles
    );
    match cluster.generation {
        FormatGeneration::Older => basic,
        FormatGeneration::Newer => format!(
            "{basic}|{}|{}|{}|{}|{:?}",
            node.tags.join(","),
            word(&FLAGS, node.exclusive_storage),
            node.spindles_free,
            node.cpus_own,
            node.cpu_speed
        ),
    }
}

fn format_instance(instance: &Instance, cluster: &Cluster) -> String {
    let name = |node: usize| cluster.nodes.get(node).map_or("", |node| node.name.as_str());
    let basic = format!(
        "{}|{}|{}|{}|{}|{}|{}|{}|{}|{}",
        instance.name,
        instance.memory,
        instance.disk,
        instance.vcpus,
        word(&Status::WORDS, instance.status),
        word(&FLAGS, instance.auto_balance),
        name(instance.primary),
        instance.secondary.map_or("", name),
        word(&Template::WORDS, instance.template),
        instance.tags.join(",")
    );
    if cluster.generation == FormatGeneration::Older {
        return basic;
    }
    let spindles = instance.disk_spindles.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let newer = format!("{basic}|{}|{spindles}", instance.spindle_use);
    if instance.forthcoming || cluster.has_forthcoming_field {
        format!("{newer}|{}", word(&FLAGS, instance.forthcoming))
    } else {
        newer
    }
}

fn word<T: PartialEq + Copy>(words: &[(T, &'static str)], value: T) -> &'static str {
    words.iter().find(|(listed, _)| *listed == value).map_or("", |(_, word)| *word)
}
