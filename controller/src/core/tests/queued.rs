//! Tests of nodes where a service might already run, and of unique identities (FENCING, section 7).

use super::lab::Lab;
use ha_api_types::driver::{DriverSpec, SimulatedDriver};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FenceState, Mode, Tombstone};
use ha_api_types::resource::{RequestedState, Resource, ResourceSpec, ServiceState};

fn lab() -> Lab {
    let mut lab = Lab::new(1, &["node1", "node2", "node3"]);
    lab.wait_until_nodes_online();
    lab
}

/// Creates a resource with this identity.
fn named(lab: &mut Lab, name: &str, identity: &str) {
    let simulated = SimulatedDriver { identity: identity.to_owned(), ..SimulatedDriver::default() };
    let driver = DriverSpec { simulated: Some(simulated), ..DriverSpec::default() };
    let mut resource = Resource::new(name, ResourceSpec { driver, ..ResourceSpec::default() });
    resource.metadata.uid = format!("uid-{name}-{}", lab.state.revision()).into();
    lab.apply(resource);
}

fn has_ready_reason(lab: &Lab, name: &str, reason: Reason) -> bool {
    let status = lab.status(name);
    status.conditions.iter().any(|condition| condition.kind == "Ready" && condition.reason == reason)
}

#[test]
fn a_new_resource_waits_for_no_node_without_agent() {
    let mut lab = lab();
    lab.agent("node2").leave(Mode::Restart);
    lab.run(2_000);
    lab.agent("node2").isolated = true;
    lab.create_resource("web");
    lab.run_until(12_000, "started elsewhere", |lab| lab.is_in_state("web", ServiceState::Started));
    assert_ne!(lab.running_nodes("web"), ["node2"]);
    assert_eq!(lab.status("web").counted_empty, ["node2"]);
    let fence = lab.fence("node2");
    assert!(fence.state == FenceState::Open && fence.verify, "{fence:?}");
    lab.agent("node2").faults.ignores_probes = true;
    lab.agent("node2").isolated = false;
    lab.agent("node2").leave(Mode::Active);
    lab.run(5_000);
    assert!(lab.fence("node2").verify, "no permit before the node has answered");
    lab.agent("node2").faults.ignores_probes = false;
    lab.run_until(5_000, "the node has answered", |lab| !lab.fence("node2").verify);
    assert!(lab.status("web").counted_empty.is_empty());
}

#[test]
fn what_was_ignored_waits_for_stopped_agents() {
    let mut lab = lab();
    named(&mut lab, "web", "vm1");
    lab.run_until(20_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    let node = lab.status("web").node.unwrap();
    lab.set_requested_state("web", RequestedState::Ignored);
    lab.run_until(5_000, "ignored", |lab| lab.is_in_state("web", ServiceState::Ignored));
    lab.agent(&node).leave(Mode::Restart);
    lab.run(2_000);
    lab.agent(&node).isolated = true;
    lab.run(10_000);
    lab.set_requested_state("web", RequestedState::Started);
    lab.run(30_000);
    assert_eq!(lab.fence(&node).state, FenceState::Open);
    assert!(lab.is_in_state("web", ServiceState::Queued), "{}", lab.show());
}

#[test]
fn a_second_resource_of_one_identity_stays_queued_until_the_first_is_gone() {
    let mut lab = lab();
    named(&mut lab, "web", "vm1");
    named(&mut lab, "other", "vm1");
    lab.run_until(20_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    lab.run(5_000);
    assert!(
        lab.is_in_state("other", ServiceState::Queued)
            && has_ready_reason(&lab, "other", Reason::IdentityTaken)
    );
    assert!(lab.assignment("other").is_none());
}

#[test]
fn identity_of_an_existing_copy_stays_taken() {
    let mut lab = lab();
    named(&mut lab, "web", "vm1");
    lab.run_until(20_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    // After a restore, the running copy can have a different identity from the identity in the spec.
    lab.edit::<ResourceSpec>("web", |resource| {
        resource.spec.driver.simulated.as_mut().unwrap().identity = "vm2".to_owned();
    });
    named(&mut lab, "other", "vm1");
    lab.run(20_000);
    assert!(
        lab.is_in_state("other", ServiceState::Queued)
            && has_ready_reason(&lab, "other", Reason::IdentityTaken)
    );
    lab.set_requested_state("web", RequestedState::Stopped);
    lab.run_until(30_000, "started", |lab| lab.is_in_state("other", ServiceState::Started));
    assert!(lab.is_in_state("web", ServiceState::Stopped), "{}", lab.show());
}

#[test]
fn a_service_that_is_renamed_waits_for_isolated_node() {
    let mut lab = lab();
    named(&mut lab, "web", "vm1");
    lab.run_until(20_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    let node = lab.status("web").node.unwrap();
    lab.delete("web");
    lab.run_until(3_000, "deleted", |lab| {
        lab.read::<serde_json::Value>(&lab.keys.spec(ha_api_types::kind::Kind::Resource, "web")).is_none()
    });
    lab.agent(&node).isolated = true;
    named(&mut lab, "renamed", "vm1");
    lab.run(60_000);
    assert!(lab.is_in_state("renamed", ServiceState::Queued), "{}", lab.show());
    assert!(has_ready_reason(&lab, "renamed", Reason::IdentityTaken));
    let tombstone: Tombstone = lab.read(&lab.keys.tombstone(&"web".into())).unwrap();
    assert_eq!(tombstone.copies.len(), 1);
    // The service is the same under both names.
    lab.agent(&node).running.insert("renamed".into());
    lab.agent(&node).isolated = false;
    lab.run_until(60_000, "adopted", |lab| lab.is_in_state("renamed", ServiceState::Started));
    assert_eq!(lab.running_nodes("renamed"), [node]);
    assert!(lab.read::<Tombstone>(&lab.keys.tombstone(&"web".into())).is_none());
}

#[test]
fn tombstone_of_another_identity_outlives_new_resource() {
    let mut lab = lab();
    named(&mut lab, "web", "vm1");
    lab.run_until(20_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    let node = lab.status("web").node.unwrap();
    lab.delete("web");
    lab.run(2_000);
    lab.agent(&node).running.remove("web");
    named(&mut lab, "web", "vm2");
    lab.run_until(20_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    assert!(lab.read::<Tombstone>(&lab.keys.tombstone(&"web".into())).is_some(), "vm1 was not asked for");
}

#[test]
fn answers_of_an_earlier_identity_do_not_count() {
    let mut lab = lab();
    named(&mut lab, "web", "vm1");
    lab.run_until(20_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    lab.set_requested_state("web", RequestedState::Stopped);
    lab.run_until(5_000, "stopped", |lab| lab.is_in_state("web", ServiceState::Stopped));
    for node in ["node1", "node2", "node3"] {
        lab.agent(node).faults.ignores_probes = true;
    }
    lab.edit::<ResourceSpec>("web", |resource| {
        resource.spec.state = RequestedState::Started;
        if let Some(simulated) = &mut resource.spec.driver.simulated {
            "vm2".clone_into(&mut simulated.identity);
        }
    });
    lab.run(5_000);
    assert!(lab.is_in_state("web", ServiceState::Queued), "{}", lab.show());
    for node in ["node1", "node2", "node3"] {
        lab.agent(node).faults.ignores_probes = false;
    }
    lab.run_until(10_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
}
