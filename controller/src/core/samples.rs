//! Prometheus metrics of the leader, computed from its current view at scrape time by one pure function.

mod resources;

use super::plan::RebalanceState;
use super::plan_input::ImbalanceKind;
use super::reservation::Finding;
use super::stored_view;
use super::world::ClusterView;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::meta::ConditionStatus;
use ha_api_types::metric::{Metric, Sample, leader};
use ha_api_types::node::{NodeState, NodeStatus};
use ha_api_types::quantity::Quantity;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FenceState, Mode};
use ha_api_types::time::Now;
use ha_scheduler::View;
use ha_scheduler::filter::limits;
use ha_scheduler::rebalance::Loads;
use ha_scheduler::services::NodeUse;
use std::collections::BTreeMap;

const ARMING_STATES: [&str; 4] = ["Armed", "Disarming", "Disarmed", "Arming"];
/// Results of the N+1 check.
const CHECK_RESULTS: [(&str, Reason); 3] = [
    ("Holds", Reason::FailoverCapacityAvailable),
    ("Failed", Reason::InsufficientFailoverCapacity),
    ("Undecided", Reason::FailoverCapacityUnknown),
];

/// Number of started moves, by resource and reason.
pub type Relocations = BTreeMap<(ResourceName, Reason), u64>;

/// Facts from which the values of metrics are computed.
#[derive(Clone, Copy, Debug)]
pub struct MetricsInput<'a> {
    /// View of the cluster from which the metrics are computed.
    pub cluster_view: &'a ClusterView,
    /// The current time, on the view's clock and on the wall clock.
    pub now: &'a Now,
    /// Number of conditions that the leader waits for.
    pub waiting: usize,
    /// Result of the N+1 check; `None` if there is none yet.
    pub reservation: Option<&'a Finding>,
    /// State of automatic rebalancing, by the property that it balances.
    pub rebalance: &'a BTreeMap<ImbalanceKind, RebalanceState>,
    /// Number of started moves.
    pub relocations: &'a Relocations,
}

/// Returns all metrics about objects. Only the leader's view is authoritative, so only the leader exports them.
pub fn samples(input: &MetricsInput<'_>) -> Vec<Sample> {
    let mut samples = vec![leader::WAITING.sample([], input.waiting as f64)];
    if let Some(status) = &input.cluster_view.cluster_status {
        let arming = &status.value.arming;
        samples
            .extend(ARMING_STATES.map(|state| leader::CLUSTER_ARMING.sample([state], flag(arming == state))));
    }
    let waiting = input.cluster_view.notified.as_ref().map_or(0, |stored| stored.value.queue.len());
    samples.push(leader::NOTIFICATIONS_WAITING.sample([], waiting as f64));
    if let Some(backup) = input.cluster_view.backup.as_ref().map(|stored| &stored.value) {
        let at = backup.at.unix_seconds().unwrap_or_default();
        samples.push(leader::BACKUP_TIMESTAMP.sample([], at as f64));
        samples.push(leader::BACKUP_SIZE.sample([], backup.size_bytes as f64));
    }
    if let Some(finding) = input.reservation {
        let sample_of =
            |(state, reason)| leader::RESERVATION_STATE.sample([state], flag(finding.reason == reason));
        samples.extend(CHECK_RESULTS.map(sample_of));
        samples.extend(finding.has_capacity.map(|holds| leader::FAILURE_TOLERANCE.sample([], flag(holds))));
    }
    let (view, _) = stored_view::view(input.cluster_view);
    samples.push(leader::BALANCE_SCORE.sample([], Loads::of(&view).imbalance()));
    for (kind, current_state) in input.rebalance {
        let sample_of = |state| {
            let labels = [format!("{kind:?}"), format!("{state:?}")];
            leader::REBALANCE_STATE
                .sample(labels.each_ref().map(String::as_str), flag(state == *current_state))
        };
        samples.extend(RebalanceState::ALL.map(sample_of));
    }
    let headroom = headroom(&view).into_iter().zip([
        leader::HEADROOM_CPU,
        leader::HEADROOM_MEMORY,
        leader::HEADROOM_DISK,
    ]);
    samples.extend(headroom.filter_map(|(amount, metric)| Some(metric.sample([], thousandths(amount?)))));
    add_nodes(input, &view, &mut samples);
    resources::add(input, &mut samples);
    samples
}

/// Adds the metrics of nodes. A node has one series per state, because nodes are few.
fn add_nodes(input: &MetricsInput<'_>, view: &View, samples: &mut Vec<Sample>) {
    let cluster_view = input.cluster_view;
    for (name, node) in &cluster_view.nodes {
        let status = cluster_view.node_statuses.get(name).map(|stored| &stored.value);
        let state = status.map(|status| status.state).unwrap_or_default();
        for listed_state in NodeState::ALL {
            samples.push(
                leader::NODE_STATE.sample([name, &format!("{listed_state:?}")], flag(listed_state == state)),
            );
        }
        if let Some(fence) = cluster_view.fences.get(name) {
            for listed_state in FenceState::ALL {
                let value = flag(listed_state == fence.value.state);
                samples.push(leader::NODE_FENCE_STATE.sample([name, listed_state.name()], value));
            }
        }
        samples.push(leader::NODE_MAINTENANCE.sample([name], flag(node.value.spec.maintenance)));
        if let Some(heard) = cluster_view.observations.get(name).filter(|heard| heard.revision.is_some()) {
            let age_ms = input.now.monotonic_raw.since(heard.since);
            samples.push(leader::NODE_HEARTBEAT_AGE.sample([name], age_ms as f64 / 1000.0));
        }
        if let Some(report) = cluster_view.node_reports.get(name).map(|stored| &stored.value) {
            samples.push(leader::NODE_WATCHDOG_ARMED.sample([name], flag(report.armed)));
            let is_open =
                cluster_view.fences.get(name).is_some_and(|fence| fence.value.state == FenceState::Open);
            let is_agent_down = is_open && report.mode == Mode::Restart;
            samples.push(leader::NODE_AGENT_AWAY.sample([name], flag(is_agent_down)));
        }
        if let Some(usable) = status.and_then(|status| has_condition(status, "Fenceable")) {
            samples.push(leader::NODE_WATCHDOG_USABLE.sample([name], flag(usable)));
        }
        if let Some(healthy) = status.and_then(|status| has_condition(status, "FenceDevicesHealthy")) {
            samples.push(leader::NODE_FENCE_DEVICES_HEALTHY.sample([name], flag(healthy)));
        }
        let capacity = view.nodes.get(name).map(|facts| facts.capacity).unwrap_or_default();
        let allocated = status.map(|status| status.allocated).unwrap_or_default();
        samples.extend(amount(leader::NODE_CAPACITY_CPU, name, capacity.cpu));
        samples.extend(amount(leader::NODE_CAPACITY_MEMORY, name, capacity.memory));
        samples.extend(amount(leader::NODE_CAPACITY_DISK, name, capacity.disk));
        samples.extend(amount(leader::NODE_ALLOCATED_CPU, name, Some(allocated.cpu.unwrap_or_default())));
        samples.extend(amount(
            leader::NODE_ALLOCATED_MEMORY,
            name,
            Some(allocated.memory.unwrap_or_default()),
        ));
        samples.extend(amount(leader::NODE_ALLOCATED_DISK, name, Some(allocated.disk.unwrap_or_default())));
        samples.push(leader::NODE_SERVICES.sample([name], users(view, name) as f64));
    }
}

/// Returns `Some(true)` if a node has a condition, `Some(false)` if not, and `None` if unknown.
fn has_condition(status: &NodeStatus, kind: &str) -> Option<bool> {
    let condition = status.conditions.iter().find(|condition| condition.kind == kind)?;
    Some(condition.status == ConditionStatus::True)
}

fn flag(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}

fn thousandths(milli: i128) -> f64 {
    milli as f64 / 1000.0
}

/// Returns the sample of an amount, if the amount is known.
fn amount(metric: &'static Metric, node: &NodeName, amount: Option<Quantity>) -> Option<Sample> {
    Some(metric.sample([node], thousandths(amount?.milli())))
}

/// Returns the CPU, memory and disk that would remain after the worst node failure, in thousandths. `None` if a node
/// has no limit, or if there is no node.
///
/// The failed node's whole capacity is lost, and its services must run elsewhere. The free amount of the cluster
/// therefore decreases by the limit of the failed node.
fn headroom(view: &View) -> [Option<i128>; 3] {
    let is_usable = |node: &ha_scheduler::NodeFacts| node.online.is_ok() && !node.maintenance;
    let nodes = view.nodes.iter().filter(|(_, node)| is_usable(node));
    let limits: Vec<_> = nodes.map(|(name, node)| (name, limits(&view.settings, node))).collect();
    [0, 1, 2].map(|kind| {
        let largest_headroom =
            limits.iter().map(|(_, limits)| limits[kind]).collect::<Option<Vec<i128>>>()?;
        let used = |(name, _): &(&NodeName, _)| {
            view.services.node_use(name).map_or(0, |used| used.requested()[kind])
        };
        let free = largest_headroom.iter().sum::<i128>() - limits.iter().map(used).sum::<i128>();
        Some(free - largest_headroom.iter().max()?)
    })
}

/// Returns the number of services that use a node.
fn users(view: &View, node: &NodeName) -> usize {
    view.services.node_use(node).map_or(0, NodeUse::count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::quantity::Amounts;
    use ha_scheduler::{NodeFacts, ServiceFacts};

    /// Checks the headroom of nodes with a number of CPUs (`None`: not reported) and services with their node and CPU
    /// request.
    fn check(nodes: &[(&str, Option<i128>)], services: &[(&str, i128)], expected: Option<i128>) {
        let cpus = |count: i128| Amounts { cpu: Some(Quantity::from_units(count)), ..Amounts::default() };
        let mut view = View::default();
        view.settings.max_cpu_ratio = 1.0;
        for (name, count) in nodes {
            let facts =
                NodeFacts { capacity: count.map_or(Amounts::default(), cpus), ..NodeFacts::default() };
            view.nodes.insert((*name).into(), facts);
        }
        for (number, (node, count)) in services.iter().enumerate() {
            let used_nodes = [(*node).into()].into();
            let facts = ServiceFacts { used_nodes, requests: cpus(*count), ..ServiceFacts::default() };
            view.services.insert(format!("s{number}").into(), facts);
        }
        let actual = headroom(&view)[0].map(|milli| milli / 1000);
        assert_eq!(actual, expected, "{nodes:?} with {services:?}");
    }

    #[test]
    fn headroom_is_the_capacity_after_the_worst_failure() {
        check(&[("a", Some(8)), ("b", Some(8))], &[("a", 2), ("b", 3)], Some(3));
        check(&[("a", Some(8)), ("b", Some(4))], &[("a", 2), ("b", 3)], Some(-1));
        check(&[("a", Some(8))], &[("a", 2)], Some(-2));
        check(&[("a", Some(8)), ("b", None)], &[], None);
        check(&[], &[], None);
    }
}
