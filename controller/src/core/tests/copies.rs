//! Tests of the copies in a status: a copy is recorded when a node gets a permit, and removed only with evidence
//! (FENCING, R6.3 to R6.6).

use super::test_cluster::TestCluster;
use ha_api_types::id::{Epoch, NodeName};
use ha_api_types::kind::Kind;
use ha_api_types::record::{Action, FenceState, Phase, ServiceReport, Tombstone};
use ha_api_types::resource::{
    RequestedState, Resource, ResourceSpec, ResourceStatus, ServiceDefinition, ServiceState,
};
use ha_store::{Guard, Transaction, Write};

#[test]
fn assignment_transaction_records_the_copy() {
    let mut cluster = TestCluster::new(1, &["node1", "node2"]);
    cluster.wait_until_nodes_online();
    cluster.start("web");
    let (assigned, status) =
        (cluster.keys.assignment(&"web".into()), cluster.keys.status(Kind::Resource, "web"));
    let (_, transaction, _) =
        cluster.controllers[0].commits.iter().find(|commit| commit.1.writes_key(&assigned)).unwrap();
    let Some(Write::Put { value, .. }) = transaction.writes().get(&status) else { panic!("{transaction:?}") };
    let written: ResourceStatus = serde_json::from_slice(value).unwrap();
    let assignment = cluster.assignment("web").unwrap();
    let copies: Vec<(&NodeName, Epoch)> =
        written.copies.iter().map(|copy| (&copy.node, copy.epoch)).collect();
    assert_eq!(copies, [(&assignment.node, assignment.epoch)]);
}

#[test]
fn a_permitted_node_has_a_copy_until_it_reports_the_stop() {
    let mut cluster = TestCluster::new(1, &["node1", "node2"]);
    cluster.wait_until_nodes_online();
    cluster.start("web");
    let status = cluster.status("web");
    let copies: Vec<(Option<NodeName>, Epoch)> =
        status.copies.iter().map(|copy| (Some(copy.node.clone()), copy.epoch)).collect();
    assert_eq!(copies, [(status.node, status.epoch.unwrap())]);
    cluster.set_requested_state("web", RequestedState::Stopped);
    cluster.run_until(20_000, "stopped", |cluster| cluster.is_in_state("web", ServiceState::Stopped));
    cluster.run_until(5_000, "no copy is left", |cluster| cluster.status("web").copies.is_empty());
}

#[test]
fn copy_on_silent_node_remains_recorded() {
    let mut cluster = TestCluster::new(1, &["node1", "node2"]);
    cluster.wait_until_nodes_online();
    let node = cluster.start_non_exclusive("web");
    cluster.agent(&node).isolated = true;
    cluster.run_until(30_000, "moved", |cluster| cluster.status("web").node.as_ref() != Some(&node));
    cluster.run(60_000);
    assert_ne!(cluster.fence(&node).state, FenceState::Open);
    assert!(cluster.status("web").copies.iter().any(|copy| copy.node == node), "{}", cluster.show());
    cluster.set_requested_state("web", RequestedState::Stopped);
    cluster.run_until(20_000, "stopped", |cluster| cluster.is_in_state("web", ServiceState::Stopped));
    cluster.run(10_000);
    let remaining: Vec<NodeName> = cluster.status("web").copies.into_iter().map(|copy| copy.node).collect();
    assert_eq!(remaining, [node], "silence proves nothing about a copy that was not guarded");
    // After a restore, the spec can differ although a copy may exist.
    cluster.edit::<ResourceSpec>("web", |resource| {
        resource.spec.exclusive = true;
        resource.spec.state = RequestedState::Started;
    });
    cluster.run(60_000);
    assert!(!cluster.is_in_state("web", ServiceState::Started), "{}", cluster.show());
}

#[test]
fn tombstone_keeps_the_recorded_copies() {
    let mut cluster = TestCluster::new(1, &["node1", "node2"]);
    cluster.wait_until_nodes_online();
    let node = cluster.start_non_exclusive("web");
    cluster.agent(&node).isolated = true;
    cluster.run_until(30_000, "moved", |cluster| {
        cluster.is_in_state("web", ServiceState::Started)
            && cluster.status("web").node.as_ref() != Some(&node)
    });
    let copies = cluster.status("web").copies;
    assert_eq!(copies.len(), 2, "{}", cluster.show());
    cluster.delete("web");
    cluster.run(5_000);
    let stone: Tombstone = cluster.read(&cluster.keys.tombstone(&"web".into())).expect("copies may run");
    for copy in &copies {
        let recorded_copy =
            stone.copies.iter().find(|recorded_copy| recorded_copy.node == copy.node).expect("taken over");
        // Each copy keeps the definition with which it was started. That definition determines how the copy is probed
        // and what proves its end.
        assert_eq!(
            (recorded_copy.epoch, &recorded_copy.boot_id, &recorded_copy.definition),
            (copy.epoch, &copy.boot_id, &copy.definition)
        );
        assert!(recorded_copy.is_unguarded, "the watchdog no longer guards the copy");
    }
    // A resource of that name starts only once the last copy is known to have ended.
    cluster.create_resource("web");
    cluster.run(60_000);
    assert!(!cluster.is_in_state("web", ServiceState::Started), "{}", cluster.show());
    assert!(cluster.read::<Tombstone>(&cluster.keys.tombstone(&"web".into())).is_some());
}

#[test]
fn a_copy_of_another_identity_continues_until_it_is_stopped() {
    let mut cluster = TestCluster::new(1, &["node1", "node2"]);
    cluster.wait_until_nodes_online();
    cluster.start("web");
    let before = cluster.assignment("web").unwrap();
    // The API refuses this edit. A spec from before an upgrade may still contain it.
    cluster.edit::<ResourceSpec>("web", |resource| {
        resource.spec.driver.simulated.as_mut().unwrap().identity = "other".to_owned();
    });
    cluster.run(60_000);
    let differs = |cluster: &TestCluster| {
        cluster.status("web").conditions.iter().any(|condition| condition.kind == "DefinitionDiffers")
    };
    assert!(differs(&cluster) && cluster.is_in_state("web", ServiceState::Started), "{}", cluster.show());
    assert_eq!((cluster.assignment("web").unwrap(), cluster.running_nodes("web").len()), (before.clone(), 1));
    cluster.set_requested_state("web", RequestedState::Stopped);
    let is_reported = |cluster: &TestCluster| {
        cluster.assignment("web").is_some_and(|assignment| matches!(assignment.action, Action::Stop { .. }))
    };
    cluster.run_until(20_000, "ordered to stop", is_reported);
    let stop = cluster.assignment("web").unwrap();
    assert_eq!(stop.definition, before.definition, "the copy is stopped under the definition of its start");
    cluster.run_until(20_000, "stopped", |cluster| cluster.is_in_state("web", ServiceState::Stopped));
    cluster.run_until(5_000, "the definitions no longer differ", |cluster| !differs(cluster));
    cluster.set_requested_state("web", RequestedState::Started);
    cluster.run_until(60_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    let identity = cluster.assignment("web").unwrap().definition.identity().unwrap().to_string();
    assert!(identity.contains("other"), "{identity}");
}

#[test]
fn a_copy_of_another_identity_keeps_its_definition() {
    let check = |desired_state: RequestedState, action: &Action| {
        let mut cluster = TestCluster::new(1, &["node1", "node2"]);
        cluster.wait_until_nodes_online();
        cluster.agent("node2").faults.ignores_probes = true;
        cluster.create_resource("web");
        cluster.set_requested_state("web", desired_state);
        cluster.run(500);
        let resource: Resource = cluster.read(&cluster.keys.spec(Kind::Resource, "web")).unwrap();
        let mut definition = ServiceDefinition::of(&resource);
        definition.driver.simulated.as_mut().unwrap().identity = "other".to_owned();
        // After a restore, the node can run a service that the spec does not name.
        let mut report = ServiceReport {
            uid: definition.uid.clone(),
            epoch: Epoch(1),
            probed_generation: resource.metadata.generation,
            exclusive: true,
            identity: definition.identity(),
            phase: Phase::ProbedRunning,
            ..ServiceReport::default()
        };
        let key = cluster.keys.service_report(&"node2".into(), &"web".into());
        let write_report = |cluster: &mut TestCluster, report: &ServiceReport| {
            let guard = cluster
                .state
                .get(&key)
                .entries
                .first()
                .map_or(Guard::Absent, |entry| Guard::Unchanged(entry.mod_revision));
            let value = serde_json::to_vec(report).unwrap();
            cluster.state.commit(&Transaction::new().put(key.clone(), guard, value));
        };
        write_report(&mut cluster, &report);
        cluster.run(500);
        assert!(
            cluster.is_in_state("web", ServiceState::Queued),
            "an identity alone does not say what to stop"
        );
        report.definition = Some(Box::new(definition.clone()));
        write_report(&mut cluster, &report);
        cluster.run_until(500, "assigned", |cluster| cluster.assignment("web").is_some());
        let assignment = cluster.assignment("web").unwrap();
        assert_eq!((assignment.node.as_str(), &assignment.action), ("node2", action));
        assert_eq!(assignment.definition, definition);
        let status = cluster.status("web");
        assert!(status.conditions.iter().any(|condition| condition.kind == "DefinitionDiffers"));
        let copies: Vec<_> =
            status.copies.iter().map(|copy| (copy.node.as_str(), &copy.definition)).collect();
        assert_eq!(copies, [("node2", &definition)]);
    };
    check(RequestedState::Started, &Action::Start);
    check(RequestedState::Stopped, &Action::Stop { timeout_ms: None });
}
