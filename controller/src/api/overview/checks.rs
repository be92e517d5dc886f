//! The cluster-wide checks of `hactl doctor`: pure functions over the overview and the view of the cluster.

use crate::core::world::ClusterView;
use ha_api_types::check::Check;
use ha_api_types::names;
use ha_api_types::node::{Node, NodeState};
use ha_api_types::record::SOFTDOG_IDENTITY;
use ha_api_types::resource::StorageMode;
use ha_api_types::time::Timestamp;
use ha_api_types::view::{NodeOverview, Overview};
use std::collections::{BTreeMap, BTreeSet};

/// Age, in seconds, after which a backup counts as old: two days. The alert HactlBackupOld has the same limit.
const BACKUP_AGE_MAX_SECONDS: i64 = 2 * 86_400;

/// Returns every check, always in the same order.
pub(super) fn cluster_checks(cluster_view: &ClusterView, overview: &Overview, now: &Timestamp) -> Vec<Check> {
    let nodes: Vec<&NodeOverview> =
        overview.nodes.iter().filter(|node| node.state != NodeState::Gone).collect();
    vec![
        check_members(overview),
        check_machines(overview),
        check_node_count(&nodes),
        check_pools(cluster_view),
        check_watchdog_tests(cluster_view, &nodes),
        check_watchdog_kinds(&nodes),
        check_versions(overview, &nodes),
        check_machine_ids(cluster_view, &nodes),
        check_fence_devices(cluster_view),
        check_backup(overview, now),
    ]
}

/// Finds out whether a recent backup of etcd exists.
fn check_backup(overview: &Overview, now: &Timestamp) -> Check {
    let name = "backup";
    let help = "run \"hactl backup\" daily (docs/tasks/back-up-and-restore.md)";
    let Some(backup) = &overview.store.backup else {
        return Check::warn(name, "no backup of etcd is recorded", help);
    };
    let age = now.unix_seconds().zip(backup.at.unix_seconds()).map(|(now, at)| now - at);
    match age {
        Some(age) if age <= BACKUP_AGE_MAX_SECONDS => {
            Check::ok(name, format!("last backup of etcd was made at {}", backup.at))
        }
        Some(_) | None => Check::warn(name, format!("last backup of etcd was made at {}", backup.at), help),
    }
}

/// Finds nodes with the same machine id. Clones of one disk image differ only in their hardware ids.
fn check_machine_ids(cluster_view: &ClusterView, nodes: &[&NodeOverview]) -> Check {
    let name = "machine-ids";
    let mut machines: BTreeMap<&str, Vec<(&str, Option<&str>)>> = BTreeMap::new();
    for node in nodes {
        if let Some(report) = cluster_view.node_reports.get(&node.name).map(|report| &report.value)
            && !report.machine_id.is_empty()
        {
            let nodes_of_machine = machines.entry(&report.machine_id).or_default();
            nodes_of_machine.push((&node.name, report.product_id.as_deref()));
        }
    }
    let shared = machines.values().filter(|nodes| nodes.len() > 1);
    let mut has_identical_hardware = false;
    let shown: Vec<String> = shared
        .map(|nodes| {
            let hardware: BTreeSet<Option<&str>> = nodes.iter().map(|(_, product)| *product).collect();
            has_identical_hardware |= hardware.len() < nodes.len() && !hardware.contains(&None);
            nodes.iter().map(|(name, _)| *name).collect::<Vec<&str>>().join(", ")
        })
        .collect();
    if shown.is_empty() {
        return Check::ok(name, "every node has its own machine ID");
    }
    let finding = format!("machine ID shared by several nodes: {}", shown.join("; "));
    let help =
        "create a new machine ID on each node: rm /etc/machine-id && systemd-machine-id-setup, then reboot";
    if has_identical_hardware {
        let cause = "hardware IDs are also identical, so the next boot of one node is refused";
        Check::fail(name, format!("{finding}; {cause}"), help)
    } else {
        Check::warn(name, finding, help)
    }
}

/// Finds nodes with the same fence device: at least one of them would be fenced by switching another machine.
fn check_fence_devices(cluster_view: &ClusterView) -> Check {
    let name = "fence-devices";
    let mut nodes_by_parts: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (node, object) in &cluster_view.nodes {
        for device in &object.value.spec.fencing.devices {
            // The serialization of the project's types cannot fail.
            let parts = serde_json::to_string(&device.parts).unwrap_or_default();
            nodes_by_parts.entry(parts).or_default().insert(node);
        }
    }
    let shared: Vec<String> = nodes_by_parts
        .values()
        .filter(|nodes| nodes.len() > 1)
        .map(|nodes| nodes.iter().copied().collect::<Vec<_>>().join(", "))
        .collect();
    if shared.is_empty() {
        return Check::ok(name, "no two nodes have the same fence device");
    }
    Check::fail(
        name,
        format!("identical fence device declared for several nodes: {}", shared.join("; ")),
        "correct spec.fencing.devices of these nodes (address or plug): fencing one node would power another machine off",
    )
}

fn check_members(overview: &Overview) -> Check {
    let name = "etcd-members";
    let count = overview.store.members.len();
    let help = "use three or five etcd members, each on its own machine (docs/etcd.md)";
    match count {
        0 => Check::warn(name, "etcd members are unknown", "check etcd: etcdctl endpoint status --cluster"),
        1 | 2 => {
            let finding = format!("etcd members: {count}; 3 are required to tolerate the loss of one");
            Check::fail(name, finding, help)
        }
        _ if count.is_multiple_of(2) => Check::warn(
            name,
            format!("etcd has {count} members and tolerates only as many failures as {} members", count - 1),
            help,
        ),
        _ => Check::ok(name, format!("etcd has {count} members")),
    }
}

/// Finds etcd members on the same machine, which fail together.
fn check_machines(overview: &Overview) -> Check {
    let name = "etcd-machines";
    let mut members_by_host: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for member in &overview.store.members {
        let shown = if member.name.is_empty() { &member.url } else { &member.name };
        members_by_host.entry(host_of(&member.url)).or_default().push(shown);
    }
    let shared: Vec<String> = members_by_host
        .iter()
        .filter(|(_, members)| members.len() > 1)
        .map(|(host, members)| format!("{} share host {host}", members.join(", ")))
        .collect();
    if shared.is_empty() {
        return Check::ok(name, "no two etcd members share an address");
    }
    Check::warn(name, shared.join("; "), "move each member to its own machine (docs/etcd.md)")
}

/// Returns the host of a URL: the part between the scheme and the port.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split('/').next().unwrap_or(rest);
    if let Some(end) = rest.find(']') {
        return &rest[..=end];
    }
    rest.rsplit_once(':').map_or(rest, |(host, _)| host)
}

fn check_node_count(nodes: &[&NodeOverview]) -> Check {
    let name = "nodes";
    let count = nodes.len();
    let finding = format!("{} in the cluster", names::count_with_noun(count, "node"));
    let help =
        "start ha-node-agent on more machines: with three, one can fail while another is in maintenance";
    match count {
        0 | 1 => {
            Check::fail(name, format!("{finding}, so services cannot be recovered on another node"), help)
        }
        2 => Check::warn(name, finding, help),
        _ => Check::ok(name, finding),
    }
}

/// Finds storage pools that only one node reaches: services that use them cannot fail over.
fn check_pools(cluster_view: &ClusterView) -> Check {
    let name = "pools";
    let mut nodes_by_pool: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (node, object) in &cluster_view.nodes {
        let node_value: &Node = &object.value;
        for pool in &node_value.spec.storage_pools {
            nodes_by_pool.entry(pool).or_default().insert(node);
        }
    }
    let required_pools: BTreeSet<&str> = cluster_view
        .resources
        .values()
        .filter_map(|resource| resource.value.spec.storage.as_ref())
        // Local storage is not expected on other nodes.
        .filter(|storage| storage.mode != StorageMode::Local)
        .map(|storage| storage.pool.as_str())
        .filter(|pool| !pool.is_empty())
        .collect();
    let node_count = |pool: &str| nodes_by_pool.get(pool).map_or(0, BTreeSet::len);
    let pools: BTreeSet<&str> = nodes_by_pool.keys().copied().chain(required_pools.iter().copied()).collect();
    let isolated_pools: Vec<&str> = pools.iter().copied().filter(|pool| node_count(pool) < 2).collect();
    if isolated_pools.is_empty() {
        return Check::ok(
            name,
            format!(
                "every storage pool is connected to at least two nodes ({})",
                names::count_with_noun(pools.len(), "pool")
            ),
        );
    }
    let shown: Vec<String> = isolated_pools
        .iter()
        .map(|pool| format!("{pool} ({})", names::count_with_noun(node_count(pool), "node")))
        .collect();
    let finding = format!("storage pools connected to fewer than two nodes: {}", shown.join(", "));
    let help = "connect the pool to another node and add it there: hactl set node/NODE storagePools=POOL,…";
    if isolated_pools.iter().any(|pool| required_pools.contains(pool)) {
        Check::fail(name, format!("{finding}; services that use them cannot be recovered"), help)
    } else {
        Check::warn(name, finding, help)
    }
}

fn check_watchdog_tests(cluster_view: &ClusterView, nodes: &[&NodeOverview]) -> Check {
    let name = "watchdogs-tested";
    let is_tested = |node: &NodeOverview| node.watchdog.as_ref().is_some_and(|watchdog| watchdog.tested);
    let untested: Vec<&str> =
        nodes.iter().filter(|node| !is_tested(node)).map(|node| node.name.as_str()).collect();
    if untested.is_empty() {
        return Check::ok(name, "the watchdog of every node has passed a test");
    }
    let finding = format!("watchdog not tested on: {}", untested.join(", "));
    let first = untested[0];
    let help = format!(
        "run \"hactl node maintenance enable {first} --wait\", then \"hactl node test-watchdog {first}\" \
         (resets the node)"
    );
    if cluster_view.settings().fencing.require_tested {
        Check::fail(name, format!("{finding}; required by Cluster.spec.fencing.requireTested"), help)
    } else {
        Check::warn(name, finding, help)
    }
}

fn check_watchdog_kinds(nodes: &[&NodeOverview]) -> Check {
    let name = "watchdogs";
    let nodes_where = |matches: &dyn Fn(Option<&ha_api_types::node::WatchdogStatus>) -> bool| -> Vec<&str> {
        nodes.iter().filter(|node| matches(node.watchdog.as_ref())).map(|node| node.name.as_str()).collect()
    };
    let without_watchdog = nodes_where(&|watchdog| {
        watchdog.is_none_or(|watchdog| watchdog.kind == "None" || watchdog.kind.is_empty())
    });
    let simulated =
        nodes_where(&|watchdog| watchdog.is_some_and(ha_api_types::node::WatchdogStatus::is_simulated));
    let soft =
        nodes_where(&|watchdog| watchdog.is_some_and(|watchdog| watchdog.identity == SOFTDOG_IDENTITY));
    if !without_watchdog.is_empty() {
        return Check::fail(
            name,
            format!("no working watchdog on: {}", without_watchdog.join(", ")),
            format!("hactl doctor {}", without_watchdog[0]),
        );
    }
    if !simulated.is_empty() {
        let finding =
            format!("simulated watchdog in use (does not protect the machine): {}", simulated.join(", "));
        return Check::warn(name, finding, "start ha-watchdogd without --simulated on these nodes");
    }
    if !soft.is_empty() {
        let finding =
            format!("softdog in use (cannot reset a node whose kernel has stopped): {}", soft.join(", "));
        return Check::warn(name, finding, format!("hactl doctor {}", soft[0]));
    }
    Check::ok(name, "every node has a hardware watchdog")
}

fn check_versions(overview: &Overview, nodes: &[&NodeOverview]) -> Check {
    let name = "versions";
    let controllers = overview
        .controllers
        .iter()
        .map(|controller| (format!("controller {}", controller.id), controller.version.as_str()));
    let agents = nodes.iter().map(|node| (format!("agent {}", node.name), node.version.as_str()));
    let mut by_version: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (owner, version) in controllers.chain(agents).filter(|(_, version)| !version.is_empty()) {
        by_version.entry(version).or_default().push(owner);
    }
    if by_version.len() <= 1 {
        return Check::ok(name, "all controllers and agents run the same version");
    }
    let shown: Vec<String> =
        by_version.iter().map(|(version, owner)| format!("{version}: {}", owner.join(", "))).collect();
    Check::warn(name, shown.join("; "), "upgrade the older ones, one at a time")
}

#[cfg(test)]
mod tests;
