//! The live cluster in the model of the balancer, built from the scheduler's view and measurements.
//!
//! Limits, eligible nodes and counting follow the scheduler's own code; this module only converts them.

mod constraints;
mod load;
#[cfg(test)]
mod tests;

pub use constraints::{model_exclusion_tags, nodes_for_new_service};

use super::model::{
    Allocation, Cluster, DEFAULT_SPINDLE_RATIO, FormatGeneration, Group, Instance, Node, Policy, Role,
    Specification, Status, Template,
};
use crate::filter::limits;
use crate::view::{NodeFacts, ServiceFacts, View};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::node::AllocationPolicy;
use ha_api_types::quantity::Quantity;
use ha_api_types::view::UsageOverview;
use std::collections::{BTreeMap, BTreeSet};

/// One MiB in thousandths of bytes.
const MIB: i128 = 1000 << 20;

/// Maximum amount, which prevents overflows of sums.
const MAX_AMOUNT: i128 = 1 << 40;

/// Prefix of the tags that keep services apart. As tags, these constraints survive in the text format.
pub const ANTI_AFFINITY_TAG_PREFIX: &str = "hactl-apart";

/// Builds the model of the live cluster. Nodes, groups and services are ordered by name; cpus are in thousandths.
///
/// - A service without a node is omitted.
/// - A service that does not run uses no memory or disk. Stopped services count as down; disabled, ignored and failed ones
///   as offline.
/// - An unknown capacity of memory, disk or cpus does not limit: it becomes the sum of all requests.
/// - Measured use counts as a share of the node's capacity, see `load`.
pub fn cluster(view: &View, usage: &UsageOverview) -> Cluster {
    let positions: BTreeMap<&NodeName, usize> = view.nodes.keys().zip(0..).collect();
    let (groups, group_of) = groups(view);
    let mut nodes = nodes(view, &group_of);
    let loads = load::loads(view, usage);
    let mut instances = Vec::new();
    let mut names = BTreeMap::new();
    for (name, facts) in &view.services {
        let Some(primary) = facts.node.as_ref().and_then(|node| positions.get(node).copied()) else {
            continue;
        };
        let mut instance = instance(name, facts, primary, &positions);
        instance.load = loads.get(name).copied().unwrap_or_default();
        subtract_usage(&mut nodes, facts, &instance, &positions);
        names.insert(name, instances.len());
        instances.push(instance);
    }
    let live_constraints = constraints::live_constraints(view, &names, &positions);
    constraints::add_exclusion_tags(view, &names, &mut instances);
    Cluster {
        generation: FormatGeneration::Newer,
        groups,
        nodes,
        instances,
        tags: vec![format!("htools:iextags:{ANTI_AFFINITY_TAG_PREFIX}")],
        policies: vec![policy(view)],
        live_constraints,
        has_forthcoming_field: false,
        cpus_in_thousandths: true,
    }
}

/// Returns the nodes that a plan empties as if they were offline: in maintenance, or not `schedulable`.
pub fn drained_nodes(view: &View) -> BTreeSet<String> {
    let leaves = |facts: &NodeFacts| facts.maintenance || !facts.schedulable;
    view.nodes.iter().filter(|(_, facts)| leaves(facts)).map(|(name, _)| name.to_string()).collect()
}

/// Returns the name of the group that the nodes without a group form: `default`, unless a group has this name.
pub fn ungrouped_name<'a>(mut group_names: impl Iterator<Item = &'a str>) -> &'static str {
    if group_names.any(|name| name == "default") { "without-group" } else { "default" }
}

/// Returns the groups of all nodes, and the position of each node's group. Nodes without a group form a group of their own.
fn groups(view: &View) -> (Vec<Group>, BTreeMap<&str, usize>) {
    let used_groups: BTreeSet<&str> =
        view.nodes.values().filter_map(|node| node.node_group.as_deref()).collect();
    let ungrouped = ungrouped_name(used_groups.iter().copied());
    let has_ungrouped = view.nodes.values().any(|node| node.node_group.is_none());
    let names: Vec<&str> = used_groups.into_iter().chain(has_ungrouped.then_some(ungrouped)).collect();
    let position = |name: &str| names.iter().position(|other| *other == name).unwrap_or_default();
    let group_of = view
        .nodes
        .iter()
        .map(|(name, node)| (name.as_str(), position(node.node_group.as_deref().unwrap_or(ungrouped))))
        .collect();
    let group = |name: &&str| Group {
        name: (*name).to_owned(),
        uuid: (*name).to_owned(),
        allocation: match view.node_groups.get(*name) {
            Some(AllocationPolicy::LastResort) => Allocation::LastResort,
            Some(AllocationPolicy::Unallocable) => Allocation::Unallocable,
            Some(AllocationPolicy::Preferred) | None => Allocation::Preferred,
        },
        tags: Vec::new(),
        networks: Vec::new(),
    };
    (names.iter().map(group).collect(), group_of)
}

/// Converts the nodes, without the usage by services.
fn nodes(view: &View, group_of: &BTreeMap<&str, usize>) -> Vec<Node> {
    let total_requested = |kind: usize| -> i128 {
        view.services.values().map(|facts| requested(facts)[kind]).map(i128::from).sum()
    };
    let unlimited = [total_requested(0) + 1, total_requested(1) + 1, total_requested(2) + 1];
    view.nodes
        .iter()
        .map(|(name, facts)| {
            let [_, memory, disk] = limits(&view.settings, facts);
            let reserved = [facts.reserved.memory, facts.reserved.disk]
                .map(|amount| mib(amount.unwrap_or_default().milli()));
            let available = |limit: Option<i128>, unlimited: i128| {
                clamp_to_limit(limit.map_or(unlimited, |limit| limit.div_euclid(MIB)))
            };
            let (memory_free, disk_free) = (available(memory, unlimited[1]), available(disk, unlimited[2]));
            Node {
                name: name.to_string(),
                memory_total: memory_free + reserved[0],
                memory_own: reserved[0],
                memory_free,
                disk_total: disk_free + reserved[1],
                disk_free,
                cpus: clamp_to_limit(facts.capacity.cpu.map_or(unlimited[0], Quantity::milli)),
                role: if facts.online.is_ok() { Role::Member } else { Role::Offline },
                group: group_of.get(name.as_str()).copied().unwrap_or_default(),
                spindles: 1,
                tags: Vec::new(),
                exclusive_storage: false,
                spindles_free: 1,
                cpus_own: clamp_to_limit(facts.reserved.cpu.unwrap_or_default().milli()),
                cpu_speed: 1.0,
            }
        })
        .collect()
}

/// Subtracts the usage of a service from the nodes that it uses, and from the node with the second copy of its data.
fn subtract_usage(
    nodes: &mut [Node],
    facts: &ServiceFacts,
    instance: &Instance,
    positions: &BTreeMap<&NodeName, usize>,
) {
    for used in facts.used_nodes.iter().filter_map(|node| positions.get(node)) {
        let node = &mut nodes[*used];
        node.memory_free -= instance.memory;
        node.disk_free -= instance.disk;
        // On the target of a move, the service is not a primary yet, so its cpus count as the node's own use.
        if *used != instance.primary {
            node.cpus_own += instance.vcpus;
        }
    }
    if facts.used_nodes.is_empty() && instance.template.uses_node_disk() {
        nodes[instance.primary].disk_free -= instance.disk;
    }
    if let Some(secondary) =
        instance.secondary.filter(|node| !facts.used_nodes.contains(nodes[*node].name.as_str()))
    {
        nodes[secondary].disk_free -= instance.disk;
    }
}

fn instance(
    name: &ResourceName,
    facts: &ServiceFacts,
    primary: usize,
    positions: &BTreeMap<&NodeName, usize>,
) -> Instance {
    let storage_nodes = facts.storage_nodes.iter().flatten().filter_map(|node| positions.get(node).copied());
    let secondary = storage_nodes.into_iter().find(|node| *node != primary);
    let template = match (&facts.storage_nodes, secondary, &facts.storage_pool) {
        (Some(_), Some(_), _) => Template::Drbd,
        (Some(_), None, _) => Template::Plain,
        (None, _, Some(_)) => Template::External,
        (None, _, None) => Template::Diskless,
    };
    let status = match (facts.used_nodes.is_empty(), facts.stopped, facts.is_desired) {
        (false, _, _) => Status::Running,
        (true, true, _) => Status::AdminDown,
        (true, false, true) => Status::ErrorDown,
        (true, false, false) => Status::AdminOffline,
    };
    let [vcpus, memory, disk] = requested(facts);
    Instance {
        name: name.to_string(),
        memory,
        disk,
        vcpus,
        status,
        auto_balance: status != Status::AdminOffline,
        primary,
        secondary,
        template,
        tags: facts.tags.iter().cloned().collect(),
        spindle_use: 0,
        disk_spindles: None,
        forthcoming: false,
        load: [0; 4],
    }
}

/// Returns the requests of a service: cpus in thousandths, memory and disk in MiB.
fn requested(facts: &ServiceFacts) -> [i64; 3] {
    let milli = |amount: Option<Quantity>| amount.unwrap_or_default().milli();
    let requests = &facts.requests;
    [clamp_to_limit(milli(requests.cpu)), mib(milli(requests.memory)), mib(milli(requests.disk))]
}

/// Converts thousandths of bytes to MiB, rounded up.
fn mib(milli: i128) -> i64 {
    clamp_to_limit((milli + MIB - 1).div_euclid(MIB))
}

fn clamp_to_limit(amount: i128) -> i64 {
    i64::try_from(amount.clamp(-MAX_AMOUNT, MAX_AMOUNT)).unwrap_or(i64::MAX)
}

/// Returns the limits of the cluster: those of `scheduler`, without limits on sizes.
fn policy(view: &View) -> Policy {
    let max_amount = i64::from(i32::MAX);
    let largest = Specification {
        memory: max_amount,
        cpus: max_amount,
        disk: max_amount,
        disks: 64,
        nics: 64,
        spindles: 64,
    };
    Policy {
        owner: String::new(),
        standard: Specification { memory: 1024, cpus: 1000, disk: 10240, disks: 1, nics: 1, spindles: 1 },
        ranges: vec![(Specification::default(), largest)],
        templates: Template::WORDS.iter().map(|(template, _)| *template).collect(),
        vcpu_ratio: view.settings.max_cpu_ratio,
        spindle_ratio: DEFAULT_SPINDLE_RATIO,
    }
}
