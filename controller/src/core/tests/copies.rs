//! Copies in status: written when a place is permitted, gone only with what says so (FENCING, R6.3 to R6.6).

use super::lab::Lab;
use ha_api_types::record::FenceState;
use ha_api_types::resource::{RequestedState, ResourceSpec, ServiceState};

#[test]
fn a_permitted_place_is_a_copy_until_its_node_says_that_it_stopped() {
    let mut lab = Lab::new(1, &["node1", "node2"]);
    lab.settle();
    lab.start("web");
    let status = lab.status("web");
    let copies: Vec<(Option<String>, u64)> =
        status.copies.iter().map(|copy| (Some(copy.node.clone()), copy.epoch)).collect();
    assert_eq!(copies, [(status.node, status.epoch.unwrap())]);
    lab.want("web", RequestedState::Stopped);
    lab.until(20_000, "stopped", |lab| lab.is("web", ServiceState::Stopped));
    lab.until(5_000, "no copy is left", |lab| lab.status("web").copies.is_empty());
}

#[test]
fn a_copy_that_was_left_on_a_silent_node_outlives_its_silence() {
    let mut lab = Lab::new(1, &["node1", "node2"]);
    lab.settle();
    lab.resource("web");
    lab.edit::<ResourceSpec>("web", |resource| resource.spec.exclusive = false);
    lab.until(20_000, "started", |lab| lab.is("web", ServiceState::Started));
    let node = lab.status("web").node.unwrap();
    lab.agent(&node).cut = true;
    lab.until(30_000, "moved", |lab| lab.status("web").node.as_ref() != Some(&node));
    lab.run(60_000);
    assert_ne!(lab.fence(&node).state, FenceState::Open);
    assert!(lab.status("web").copies.iter().any(|copy| copy.node == node), "{}", lab.show());
    lab.want("web", RequestedState::Stopped);
    lab.until(20_000, "stopped", |lab| lab.is("web", ServiceState::Stopped));
    lab.run(10_000);
    let left: Vec<String> = lab.status("web").copies.into_iter().map(|copy| copy.node).collect();
    assert_eq!(left, [node], "silence says nothing of a copy that was not guarded");
    // As after a restore: the spec says otherwise, although a copy may exist.
    lab.edit::<ResourceSpec>("web", |resource| {
        resource.spec.exclusive = true;
        resource.spec.state = RequestedState::Started;
    });
    lab.run(60_000);
    assert!(!lab.is("web", ServiceState::Started), "{}", lab.show());
}
