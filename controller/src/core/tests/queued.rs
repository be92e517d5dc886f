//! Tests of nodes where a service might already run, and of unique identities (FENCING, section 7).

use super::test_cluster::TestCluster;
use ha_api_types::driver::{DriverSpec, SimulatedDriver};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FenceState, Mode, Tombstone};
use ha_api_types::resource::{RequestedState, Resource, ResourceSpec, ServiceState};

fn three_nodes() -> TestCluster {
    let mut cluster = TestCluster::new(1, &["node1", "node2", "node3"]);
    cluster.wait_until_nodes_online();
    cluster
}

/// Creates a resource with this identity.
fn add_resource(cluster: &mut TestCluster, name: &str, identity: &str) {
    let simulated = SimulatedDriver { identity: identity.to_owned(), ..SimulatedDriver::default() };
    let driver = DriverSpec { simulated: Some(simulated), ..DriverSpec::default() };
    let mut resource = Resource::new(name, ResourceSpec { driver, ..ResourceSpec::default() });
    resource.metadata.uid = format!("uid-{name}-{}", cluster.state.revision()).into();
    cluster.apply(resource);
}

fn has_ready_reason(cluster: &TestCluster, name: &str, reason: Reason) -> bool {
    let status = cluster.status(name);
    status.conditions.iter().any(|condition| condition.kind == "Ready" && condition.reason == reason)
}

#[test]
fn a_new_resource_waits_for_no_node_without_agent() {
    let mut cluster = three_nodes();
    cluster.agent("node2").set_mode(Mode::Restart);
    cluster.run(2_000);
    cluster.agent("node2").isolated = true;
    cluster.create_resource("web");
    cluster
        .run_until(12_000, "started elsewhere", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert_ne!(cluster.running_nodes("web"), ["node2"]);
    assert_eq!(cluster.status("web").counted_empty, ["node2"]);
    let fence = cluster.fence("node2");
    assert!(fence.state == FenceState::Open && fence.requires_probes, "{fence:?}");
    cluster.agent("node2").faults.ignores_probes = true;
    cluster.agent("node2").isolated = false;
    cluster.agent("node2").set_mode(Mode::Active);
    cluster.run(5_000);
    assert!(cluster.fence("node2").requires_probes, "no permit before the node has answered");
    cluster.agent("node2").faults.ignores_probes = false;
    cluster.run_until(5_000, "the node has answered", |cluster| !cluster.fence("node2").requires_probes);
    assert!(cluster.status("web").counted_empty.is_empty());
}

#[test]
fn what_was_ignored_waits_for_stopped_agents() {
    let mut cluster = three_nodes();
    add_resource(&mut cluster, "web", "vm1");
    cluster.run_until(20_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    let node = cluster.status("web").node.unwrap();
    cluster.set_requested_state("web", RequestedState::Ignored);
    cluster.run_until(5_000, "ignored", |cluster| cluster.is_in_state("web", ServiceState::Ignored));
    cluster.agent(&node).set_mode(Mode::Restart);
    cluster.run(2_000);
    cluster.agent(&node).isolated = true;
    cluster.run(10_000);
    cluster.set_requested_state("web", RequestedState::Started);
    cluster.run(30_000);
    assert_eq!(cluster.fence(&node).state, FenceState::Open);
    assert!(cluster.is_in_state("web", ServiceState::Queued), "{}", cluster.show());
}

#[test]
fn a_second_resource_of_one_identity_stays_queued_until_the_first_is_gone() {
    let mut cluster = three_nodes();
    add_resource(&mut cluster, "web", "vm1");
    add_resource(&mut cluster, "other", "vm1");
    cluster.run_until(20_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    cluster.run(5_000);
    assert!(
        cluster.is_in_state("other", ServiceState::Queued)
            && has_ready_reason(&cluster, "other", Reason::IdentityTaken)
    );
    assert!(cluster.assignment("other").is_none());
}

#[test]
fn identity_of_an_existing_copy_stays_taken() {
    let mut cluster = three_nodes();
    add_resource(&mut cluster, "web", "vm1");
    cluster.run_until(20_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    // After a restore, the running copy can have a different identity from the identity in the spec.
    cluster.edit::<ResourceSpec>("web", |resource| {
        resource.spec.driver.simulated.as_mut().unwrap().identity = "vm2".to_owned();
    });
    add_resource(&mut cluster, "other", "vm1");
    cluster.run(20_000);
    assert!(
        cluster.is_in_state("other", ServiceState::Queued)
            && has_ready_reason(&cluster, "other", Reason::IdentityTaken)
    );
    cluster.set_requested_state("web", RequestedState::Stopped);
    cluster.run_until(30_000, "started", |cluster| cluster.is_in_state("other", ServiceState::Started));
    assert!(cluster.is_in_state("web", ServiceState::Stopped), "{}", cluster.show());
}

#[test]
fn a_service_that_is_renamed_waits_for_isolated_node() {
    let mut cluster = three_nodes();
    add_resource(&mut cluster, "web", "vm1");
    cluster.run_until(20_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    let node = cluster.status("web").node.unwrap();
    cluster.delete("web");
    cluster.run_until(3_000, "deleted", |cluster| {
        cluster
            .read::<serde_json::Value>(&cluster.keys.spec(ha_api_types::kind::Kind::Resource, "web"))
            .is_none()
    });
    cluster.agent(&node).isolated = true;
    add_resource(&mut cluster, "renamed", "vm1");
    cluster.run(60_000);
    assert!(cluster.is_in_state("renamed", ServiceState::Queued), "{}", cluster.show());
    assert!(has_ready_reason(&cluster, "renamed", Reason::IdentityTaken));
    let tombstone: Tombstone = cluster.read(&cluster.keys.tombstone(&"web".into())).unwrap();
    assert_eq!(tombstone.copies.len(), 1);
    // The service is the same under both names.
    cluster.agent(&node).running.insert("renamed".into());
    cluster.agent(&node).isolated = false;
    cluster.run_until(60_000, "adopted", |cluster| cluster.is_in_state("renamed", ServiceState::Started));
    assert_eq!(cluster.running_nodes("renamed"), [node]);
    assert!(cluster.read::<Tombstone>(&cluster.keys.tombstone(&"web".into())).is_none());
}

#[test]
fn tombstone_of_another_identity_outlives_new_resource() {
    let mut cluster = three_nodes();
    add_resource(&mut cluster, "web", "vm1");
    cluster.run_until(20_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    let node = cluster.status("web").node.unwrap();
    cluster.delete("web");
    cluster.run(2_000);
    cluster.agent(&node).running.remove("web");
    add_resource(&mut cluster, "web", "vm2");
    cluster.run_until(20_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert!(
        cluster.read::<Tombstone>(&cluster.keys.tombstone(&"web".into())).is_some(),
        "vm1 was not asked for"
    );
}

#[test]
fn answers_of_an_earlier_identity_do_not_count() {
    let mut cluster = three_nodes();
    add_resource(&mut cluster, "web", "vm1");
    cluster.run_until(20_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    cluster.set_requested_state("web", RequestedState::Stopped);
    cluster.run_until(5_000, "stopped", |cluster| cluster.is_in_state("web", ServiceState::Stopped));
    for node in ["node1", "node2", "node3"] {
        cluster.agent(node).faults.ignores_probes = true;
    }
    cluster.edit::<ResourceSpec>("web", |resource| {
        resource.spec.state = RequestedState::Started;
        if let Some(simulated) = &mut resource.spec.driver.simulated {
            "vm2".clone_into(&mut simulated.identity);
        }
    });
    cluster.run(5_000);
    assert!(cluster.is_in_state("web", ServiceState::Queued), "{}", cluster.show());
    for node in ["node1", "node2", "node3"] {
        cluster.agent(node).faults.ignores_probes = false;
    }
    cluster.run_until(10_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
}
