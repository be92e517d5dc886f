//! Resource usage that agents have measured: the current figures, their overview, and the usage of a machine outside
//! its services.

use super::placement::used_nodes;
use super::resource_requests::requests;
use super::stored_view::status_of;
use super::world::ClusterView;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::record::{FenceState, UsageReport};
use ha_api_types::resource::{Resource, ResourceStatus};
use ha_api_types::usage::Usage;
use ha_api_types::view::{NodeUsage, ResourceUsage, UsageOverview};
use ha_scheduler::services::NodeUse;
use ha_scheduler::{NodeFacts, Services};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the usage that was measured on a node under its open epoch. Figures of a closed epoch do not count, because
/// its services have ended or are in an unknown state.
pub fn node_usage<'a>(cluster_view: &'a ClusterView, node: &NodeName) -> Option<&'a UsageReport> {
    let fence = &cluster_view.fences.get(node)?.value;
    let report = &cluster_view.usage_reports.get(node)?.value;
    let is_current =
        fence.state == FenceState::Open && fence.epoch == report.epoch && fence.boot_id == report.boot_id;
    is_current.then_some(report)
}

/// Returns the measured usage of a service on its node; `None` if it was not measured there.
pub fn service_usage<'a>(
    cluster_view: &'a ClusterView,
    resource: &Resource,
    status: &ResourceStatus,
) -> Option<&'a Usage> {
    let node = status.node.as_ref().filter(|node| used_nodes(status).contains(*node))?;
    let measured = node_usage(cluster_view, node)?.services.get(resource.metadata.name.as_str())?;
    (measured.uid == resource.metadata.uid && !measured.usage.is_empty()).then_some(&measured.usage)
}

/// Returns the measured usage together with the capacity of nodes and the requests of services. Every controller can
/// compute it.
pub fn overview(cluster_view: &ClusterView) -> UsageOverview {
    let nodes = cluster_view.nodes.keys().map(|name| {
        let status = cluster_view.node_statuses.get(name).map(|status| &status.value);
        NodeUsage {
            name: name.clone(),
            usage: node_usage(cluster_view, name).map(|report| report.node).filter(|usage| !usage.is_empty()),
            capacity: status.map(|status| status.capacity).unwrap_or_default(),
            allocated: status.map(|status| status.allocated).unwrap_or_default(),
        }
    });
    let resources = cluster_view.resources.iter().filter_map(|(name, resource)| {
        let resource = &resource.value;
        let status = status_of(cluster_view, resource);
        let node = status.node.clone().filter(|node| used_nodes(&status).contains(node))?;
        Some(ResourceUsage {
            name: name.clone(),
            type_name: resource.spec.driver.type_name(),
            node,
            usage: service_usage(cluster_view, resource, &status).copied(),
            requests: requests(cluster_view, resource),
        })
    });
    UsageOverview { nodes: nodes.collect(), resources: resources.collect() }
}

/// Computes the usage outside hactl of nodes without a declared one: the measured usage of the whole machine minus that
/// of its services. A service that could not be measured counts with its requests.
///
/// A service in the report that has left since is subtracted too, measured or not. The machine's figure still contains
/// it, and would otherwise prevent the start of another service.
pub(super) fn add_outside_usage(
    cluster_view: &ClusterView,
    nodes: &mut BTreeMap<NodeName, NodeFacts>,
    services: &Services,
) {
    if cluster_view.usage_reports.is_empty() {
        return;
    }
    for (name, facts) in nodes {
        let Some(report) = node_usage(cluster_view, name) else { continue };
        let users = services.node_use(name).into_iter().flat_map(NodeUse::users);
        let contained: BTreeSet<&ResourceName> = users.chain(report.services.keys()).collect();
        let mut sum = Amounts::default();
        for service in contained {
            let usage = report.services.get(service).map(|service| service.usage).unwrap_or_default();
            let requests = services.get(service).map(|facts| facts.requests).unwrap_or_default();
            sum.cpu = add(sum.cpu, usage.cpu.or(requests.cpu));
            sum.memory = add(sum.memory, usage.memory.or(requests.memory));
        }
        let usage_outside = |measured: Option<Quantity>, services: Option<Quantity>| {
            let outside_milli = measured?.milli().saturating_sub(services.unwrap_or_default().milli());
            (outside_milli > 0).then(|| Quantity::from_milli(outside_milli))
        };
        let (reserved, total) = (&mut facts.reserved, report.node);
        reserved.cpu = reserved.cpu.or_else(|| usage_outside(total.cpu, sum.cpu));
        reserved.memory = reserved.memory.or_else(|| usage_outside(total.memory, sum.memory));
    }
}

fn add(left: Option<Quantity>, right: Option<Quantity>) -> Option<Quantity> {
    match (left, right) {
        (None, only) | (only, None) => only,
        (Some(left), Some(right)) => Some(Quantity::from_milli(left.milli().saturating_add(right.milli()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::id::{Epoch, Revision};
    use ha_api_types::keys::Keys;
    use ha_api_types::kind::Kind;
    use ha_api_types::record::{Fence, ServiceUsage};
    use ha_api_types::resource::{ResourceSpec, ServiceState};
    use ha_api_types::time::MonotonicTime;
    use ha_scheduler::ServiceFacts;
    use ha_store::Entry;
    use serde::Serialize;

    #[expect(clippy::unnecessary_wraps, reason = "compared with amounts that may not be known")]
    fn gib(count: i128) -> Option<Quantity> {
        Some(Quantity::from_units(count << 30))
    }

    /// Returns a node with `web`, measured under this epoch and boot id while another epoch may be open.
    fn cluster_view(epoch: Epoch, boot_id: &str, state: FenceState) -> ClusterView {
        let keys = Keys::new("t");
        let mut resource = Resource::new("web", ResourceSpec::default());
        resource.metadata.uid = "u1".into();
        resource.spec.requests.memory = gib(4);
        let status = ResourceStatus {
            uid: "u1".into(),
            state: ServiceState::Started,
            node: Some("n1".into()),
            ..ResourceStatus::default()
        };
        let fence = Fence { epoch: Epoch(2), boot_id: "b2".into(), state, ..Fence::default() };
        let usage = Usage { memory: gib(3), ..Usage::default() };
        let report = UsageReport {
            epoch,
            boot_id: boot_id.into(),
            node: Usage { memory: gib(8), ..Usage::default() },
            services: [("web".into(), ServiceUsage { uid: "u1".into(), usage })].into_iter().collect(),
            ..UsageReport::default()
        };
        let entry = |key: String, value: Vec<u8>| Entry {
            key,
            value: value.into(),
            create_revision: Revision(1),
            mod_revision: Revision(1),
            lease: ha_store::LeaseId::NONE,
        };
        let mut cluster_view = ClusterView::new(keys.clone());
        cluster_view.replace(
            vec![
                entry(keys.spec(Kind::Resource, "web"), json(&resource)),
                entry(keys.status(Kind::Resource, "web"), json(&status)),
                entry(keys.fence(&"n1".into()), json(&fence)),
                entry(keys.usage_report(&"n1".into()), json(&report)),
            ],
            Revision(5),
            MonotonicTime(0),
        );
        cluster_view
    }

    fn json(value: &impl Serialize) -> Vec<u8> {
        serde_json::to_vec(value).expect("the value is written")
    }

    fn measured_memory(cluster_view: &ClusterView) -> Option<Quantity> {
        let (resource, status) =
            (&cluster_view.resources["web"].value, &cluster_view.resource_statuses["web"].value);
        service_usage(cluster_view, resource, status).and_then(|usage| usage.memory)
    }

    #[test]
    fn only_usage_of_open_epoch_counts() {
        assert_eq!(measured_memory(&cluster_view(Epoch(2), "b2", FenceState::Open)), gib(3));
        assert_eq!(measured_memory(&cluster_view(Epoch(2), "b2", FenceState::Fencing)), None);
        assert_eq!(measured_memory(&cluster_view(Epoch(2), "b2", FenceState::Fenced)), None);
        assert_eq!(measured_memory(&cluster_view(Epoch(1), "b2", FenceState::Open)), None);
        assert_eq!(measured_memory(&cluster_view(Epoch(2), "b1", FenceState::Open)), None);
    }

    #[test]
    fn overview_shows_only_current_usage() {
        let overview_of_web = |state| {
            let overview = overview(&cluster_view(Epoch(2), "b2", state));
            let web = overview.resources.first().expect("it uses a node").clone();
            (web.node, web.usage.and_then(|usage| usage.memory), web.requests.memory)
        };
        assert_eq!(overview_of_web(FenceState::Open), ("n1".into(), gib(3), gib(4)));
        assert_eq!(overview_of_web(FenceState::Fencing), ("n1".into(), None, gib(4)));
    }

    #[test]
    fn only_usage_of_local_services_counts() {
        let check = |change: fn(&mut Resource, &mut ResourceStatus), expected: Option<Quantity>| {
            let mut cluster_view = cluster_view(Epoch(2), "b2", FenceState::Open);
            let resource = &mut cluster_view.resources.get_mut("web").expect("there").value;
            let status = &mut cluster_view.resource_statuses.get_mut("web").expect("there").value;
            change(resource, status);
            assert_eq!(measured_memory(&cluster_view), expected);
        };
        check(|_, _| {}, gib(3));
        check(|_, status| status.state = ServiceState::Stopped, None);
        check(|_, status| status.node = Some("n2".into()), None);
        check(|resource, _| resource.metadata.uid = "u2".into(), None);
    }

    /// Checks the usage outside hactl on n1, where 8 GiB are in use and a report may contain `web`, which requests 4
    /// GiB.
    fn check_outside(
        declared: Option<Quantity>,
        reported_usage: Option<Quantity>,
        used_nodes: &[&str],
        expected: Option<Quantity>,
    ) {
        let mut cluster_view = cluster_view(Epoch(2), "b2", FenceState::Open);
        let report = &mut cluster_view.usage_reports.get_mut("n1").expect("there").value;
        report.services.get_mut("web").expect("there").usage.memory = reported_usage;
        let reserved = Amounts { memory: declared, ..Amounts::default() };
        let mut nodes: BTreeMap<NodeName, NodeFacts> =
            [("n1".into(), NodeFacts { reserved, ..NodeFacts::default() })].into_iter().collect();
        let facts = ServiceFacts {
            node: used_nodes.first().map(|node| (*node).into()),
            used_nodes: used_nodes.iter().map(|node| (*node).into()).collect(),
            requests: Amounts { memory: gib(4), ..Amounts::default() },
            ..ServiceFacts::default()
        };
        add_outside_usage(&cluster_view, &mut nodes, &[("web".into(), facts)].into_iter().collect());
        assert_eq!(nodes["n1"].reserved.memory, expected, "{declared:?} {reported_usage:?} {used_nodes:?}");
    }

    #[test]
    fn external_usage_is_total_minus_services() {
        check_outside(None, gib(3), &["n1"], gib(5));
        check_outside(None, None, &["n1"], gib(4));
        check_outside(None, gib(9), &["n1"], None);
        check_outside(gib(1), gib(3), &["n1"], gib(1));
        // The machine's figure may already contain an arriving service.
        check_outside(None, None, &["n2", "n1"], gib(4));
        // The machine's figure contains a service that has left since.
        check_outside(None, gib(3), &[], gib(5));
        check_outside(None, gib(3), &["n2"], gib(5));
        check_outside(None, None, &[], gib(4));
        check_outside(None, None, &["n2"], gib(4));
    }
}
