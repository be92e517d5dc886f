//! Resource usage that agents have measured: the current figures, and the usage of a machine outside its services.

use super::placement::uses;
use super::world::World;
use ha_api_types::id::NodeName;
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::record::{FenceState, UsageReport};
use ha_api_types::resource::{Resource, ResourceStatus};
use ha_api_types::usage::Usage;
use ha_scheduler::{NodeFacts, Services};
use std::collections::BTreeMap;

/// Returns the usage that was measured on a node under its open epoch. Figures of a closed epoch do not count,
/// because its services are gone or in an unknown state.
pub fn of_node<'a>(world: &'a World, node: &NodeName) -> Option<&'a UsageReport> {
    let fence = &world.fences.get(node)?.value;
    let report = &world.usage_reports.get(node)?.value;
    let is_of_now =
        fence.state == FenceState::Open && fence.epoch == report.epoch && fence.boot_id == report.boot_id;
    is_of_now.then_some(report)
}

/// Returns the measured usage of a service on its node; `None` if it was not measured there.
pub fn of_service<'a>(world: &'a World, resource: &Resource, status: &ResourceStatus) -> Option<&'a Usage> {
    let node = status.node.as_ref().filter(|node| uses(status).contains(*node))?;
    let measured = of_node(world, node)?.services.get(resource.metadata.name.as_str())?;
    (measured.uid == resource.metadata.uid).then_some(&measured.usage)
}

/// Computes the usage outside hactl of nodes without a declared one: the measured usage of the whole machine minus
/// that of its services. A service that could not be measured counts with its requests.
///
/// The usage of a service that has left since the report is subtracted too. The machine's figure still contains it,
/// and would otherwise prevent the return of the service.
pub(super) fn count_outside(world: &World, nodes: &mut BTreeMap<NodeName, NodeFacts>, services: &Services) {
    if world.usage_reports.is_empty() {
        return;
    }
    let mut by_services: BTreeMap<&NodeName, Amounts> = BTreeMap::new();
    for (name, facts) in services {
        for node in &facts.uses {
            let Some(report) = of_node(world, node) else { continue };
            let known = report.services.get(name).map(|service| service.usage).unwrap_or_default();
            let sum = by_services.entry(node).or_default();
            sum.cpu = add(sum.cpu, facts.requests.cpu.filter(|_| known.cpu.is_none()));
            sum.memory = add(sum.memory, facts.requests.memory.filter(|_| known.memory.is_none()));
        }
    }
    for (name, facts) in nodes {
        let Some(report) = of_node(world, name) else { continue };
        let mut sum = by_services.get(name).copied().unwrap_or_default();
        for service in report.services.values() {
            sum.cpu = add(sum.cpu, service.usage.cpu);
            sum.memory = add(sum.memory, service.usage.memory);
        }
        let outside = |measured: Option<Quantity>, services: Option<Quantity>| {
            let left = measured?.milli().saturating_sub(services.unwrap_or_default().milli());
            (left > 0).then(|| Quantity::from_milli(left))
        };
        let (reserved, total) = (&mut facts.reserved, report.node);
        reserved.cpu = reserved.cpu.or_else(|| outside(total.cpu, sum.cpu));
        reserved.memory = reserved.memory.or_else(|| outside(total.memory, sum.memory));
    }
}

fn add(one: Option<Quantity>, other: Option<Quantity>) -> Option<Quantity> {
    match (one, other) {
        (None, only) | (only, None) => only,
        (Some(one), Some(other)) => Some(Quantity::from_milli(one.milli().saturating_add(other.milli()))),
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
    use ha_api_types::time::Mono;
    use ha_scheduler::ServiceFacts;
    use ha_store::Entry;
    use serde::Serialize;

    #[expect(clippy::unnecessary_wraps, reason = "compared with amounts that may not be known")]
    fn gib(count: i128) -> Option<Quantity> {
        Some(Quantity::from_units(count << 30))
    }

    /// Returns a node with `web`, measured under this epoch and boot id while another epoch may be open.
    fn world(epoch: Epoch, boot_id: &str, state: FenceState) -> World {
        let keys = Keys::new("t");
        let mut resource = Resource::new("web", ResourceSpec::default());
        resource.metadata.uid = "u1".to_owned();
        resource.spec.requests.memory = gib(4);
        let status = ResourceStatus {
            uid: "u1".to_owned(),
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
            services: [("web".into(), ServiceUsage { uid: "u1".to_owned(), usage })].into_iter().collect(),
            ..UsageReport::default()
        };
        let entry = |key: String, value: Vec<u8>| Entry {
            key,
            value: value.into(),
            create_revision: Revision(1),
            mod_revision: Revision(1),
            lease: 0,
        };
        let mut world = World::new(keys.clone());
        world.replace(
            vec![
                entry(keys.spec(Kind::Resource, "web"), json(&resource)),
                entry(keys.status(Kind::Resource, "web"), json(&status)),
                entry(keys.fence(&"n1".into()), json(&fence)),
                entry(keys.usage_report(&"n1".into()), json(&report)),
            ],
            Revision(5),
            Mono(0),
        );
        world
    }

    fn json(value: &impl Serialize) -> Vec<u8> {
        serde_json::to_vec(value).expect("it is written")
    }

    fn measured(world: &World) -> Option<Quantity> {
        let (resource, status) = (&world.resources["web"].value, &world.resource_statuses["web"].value);
        of_service(world, resource, status).and_then(|usage| usage.memory)
    }

    #[test]
    fn only_figures_of_the_open_epoch_count() {
        assert_eq!(measured(&world(Epoch(2), "b2", FenceState::Open)), gib(3));
        assert_eq!(measured(&world(Epoch(2), "b2", FenceState::Fencing)), None);
        assert_eq!(measured(&world(Epoch(2), "b2", FenceState::Fenced)), None);
        assert_eq!(measured(&world(Epoch(1), "b2", FenceState::Open)), None);
        assert_eq!(measured(&world(Epoch(2), "b1", FenceState::Open)), None);
    }

    #[test]
    fn people_are_told_what_counts() {
        let of_web = |state| {
            let overview = crate::core::usage_overview::overview(&world(Epoch(2), "b2", state));
            let web = overview.resources.first().expect("it uses a node").clone();
            (web.node, web.usage.and_then(|usage| usage.memory), web.requests.memory)
        };
        assert_eq!(of_web(FenceState::Open), ("n1".into(), gib(3), gib(4)));
        assert_eq!(of_web(FenceState::Fencing), ("n1".into(), None, gib(4)));
    }

    #[test]
    fn only_figures_of_what_runs_there_count() {
        let check = |change: fn(&mut Resource, &mut ResourceStatus), expected: Option<Quantity>| {
            let mut world = world(Epoch(2), "b2", FenceState::Open);
            let resource = &mut world.resources.get_mut("web").expect("there").value;
            let status = &mut world.resource_statuses.get_mut("web").expect("there").value;
            change(resource, status);
            assert_eq!(measured(&world), expected);
        };
        check(|_, _| {}, gib(3));
        check(|_, status| status.state = ServiceState::Stopped, None);
        check(|_, status| status.node = Some("n2".into()), None);
        check(|resource, _| resource.metadata.uid = "u2".to_owned(), None);
    }

    /// Checks the usage outside hactl on n1, where 8 GiB are in use and a report may contain `web`, which requests 4
    /// GiB.
    fn check_outside(
        declared: Option<Quantity>,
        known: Option<Quantity>,
        on: &[&str],
        expected: Option<Quantity>,
    ) {
        let mut world = world(Epoch(2), "b2", FenceState::Open);
        let report = &mut world.usage_reports.get_mut("n1").expect("there").value;
        report.services.get_mut("web").expect("there").usage.memory = known;
        let reserved = Amounts { memory: declared, ..Amounts::default() };
        let mut nodes: BTreeMap<NodeName, NodeFacts> =
            [("n1".into(), NodeFacts { reserved, ..NodeFacts::default() })].into_iter().collect();
        let facts = ServiceFacts {
            node: on.first().map(|node| (*node).into()),
            uses: on.iter().map(|node| (*node).into()).collect(),
            requests: Amounts { memory: gib(4), ..Amounts::default() },
            ..ServiceFacts::default()
        };
        count_outside(&world, &mut nodes, &[("web".into(), facts)].into_iter().collect());
        assert_eq!(nodes["n1"].reserved.memory, expected, "{declared:?} {known:?} {on:?}");
    }

    #[test]
    fn what_is_used_outside_is_what_services_leave() {
        check_outside(None, gib(3), &["n1"], gib(5));
        check_outside(None, None, &["n1"], gib(4));
        check_outside(None, gib(9), &["n1"], None);
        check_outside(gib(1), gib(3), &["n1"], gib(1));
        // The machine's figure may already contain an arriving service.
        check_outside(None, None, &["n2", "n1"], gib(4));
        check_outside(None, None, &["n2"], gib(8));
        // The machine's figure contains a service that has left since.
        check_outside(None, gib(3), &[], gib(5));
        check_outside(None, gib(3), &["n2"], gib(5));
    }
}
