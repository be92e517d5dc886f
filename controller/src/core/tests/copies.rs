//! Tests of the copies in a status: a copy is recorded when a node gets a permit, and removed only with evidence
//! (FENCING, R6.3 to R6.6).

use super::lab::Lab;
use ha_api_types::id::{Epoch, NodeName};
use ha_api_types::kind::Kind;
use ha_api_types::record::{Action, FenceState, Phase, ServiceReport, Tombstone};
use ha_api_types::resource::{
    RequestedState, Resource, ResourceSpec, ResourceStatus, ServiceDefinition, ServiceState,
};
use ha_store::{Guard, Transaction, Write};

#[test]
fn assignment_transaction_records_the_copy() {
    let mut lab = Lab::new(1, &["node1", "node2"]);
    lab.wait_until_nodes_online();
    lab.start("web");
    let (assigned, status) = (lab.keys.assignment(&"web".into()), lab.keys.status(Kind::Resource, "web"));
    let (_, transaction, _) =
        lab.members[0].commits.iter().find(|commit| commit.1.writes_key(&assigned)).unwrap();
    let Some(Write::Put { value, .. }) = transaction.writes().get(&status) else { panic!("{transaction:?}") };
    let written: ResourceStatus = serde_json::from_slice(value).unwrap();
    let assignment = lab.assignment("web").unwrap();
    let copies: Vec<(&NodeName, Epoch)> =
        written.copies.iter().map(|copy| (&copy.node, copy.epoch)).collect();
    assert_eq!(copies, [(&assignment.node, assignment.epoch)]);
}

#[test]
fn a_permitted_node_has_a_copy_until_it_reports_the_stop() {
    let mut lab = Lab::new(1, &["node1", "node2"]);
    lab.wait_until_nodes_online();
    lab.start("web");
    let status = lab.status("web");
    let copies: Vec<(Option<NodeName>, Epoch)> =
        status.copies.iter().map(|copy| (Some(copy.node.clone()), copy.epoch)).collect();
    assert_eq!(copies, [(status.node, status.epoch.unwrap())]);
    lab.set_requested_state("web", RequestedState::Stopped);
    lab.run_until(20_000, "stopped", |lab| lab.is_in_state("web", ServiceState::Stopped));
    lab.run_until(5_000, "no copy is left", |lab| lab.status("web").copies.is_empty());
}

#[test]
fn copy_on_silent_node_remains_recorded() {
    let mut lab = Lab::new(1, &["node1", "node2"]);
    lab.wait_until_nodes_online();
    let node = lab.start_non_exclusive("web");
    lab.agent(&node).isolated = true;
    lab.run_until(30_000, "moved", |lab| lab.status("web").node.as_ref() != Some(&node));
    lab.run(60_000);
    assert_ne!(lab.fence(&node).state, FenceState::Open);
    assert!(lab.status("web").copies.iter().any(|copy| copy.node == node), "{}", lab.show());
    lab.set_requested_state("web", RequestedState::Stopped);
    lab.run_until(20_000, "stopped", |lab| lab.is_in_state("web", ServiceState::Stopped));
    lab.run(10_000);
    let left: Vec<NodeName> = lab.status("web").copies.into_iter().map(|copy| copy.node).collect();
    assert_eq!(left, [node], "silence proves nothing about a copy that was not guarded");
    // After a restore, the spec can differ although a copy may exist.
    lab.edit::<ResourceSpec>("web", |resource| {
        resource.spec.exclusive = true;
        resource.spec.state = RequestedState::Started;
    });
    lab.run(60_000);
    assert!(!lab.is_in_state("web", ServiceState::Started), "{}", lab.show());
}

#[test]
fn tombstone_keeps_the_recorded_copies() {
    let mut lab = Lab::new(1, &["node1", "node2"]);
    lab.wait_until_nodes_online();
    let node = lab.start_non_exclusive("web");
    lab.agent(&node).isolated = true;
    lab.run_until(30_000, "moved", |lab| {
        lab.is_in_state("web", ServiceState::Started) && lab.status("web").node.as_ref() != Some(&node)
    });
    let copies = lab.status("web").copies;
    assert_eq!(copies.len(), 2, "{}", lab.show());
    lab.delete("web");
    lab.run(5_000);
    let stone: Tombstone = lab.read(&lab.keys.tombstone(&"web".into())).expect("copies may run");
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
    lab.create_resource("web");
    lab.run(60_000);
    assert!(!lab.is_in_state("web", ServiceState::Started), "{}", lab.show());
    assert!(lab.read::<Tombstone>(&lab.keys.tombstone(&"web".into())).is_some());
}

#[test]
fn a_copy_of_another_identity_continues_until_it_is_stopped() {
    let mut lab = Lab::new(1, &["node1", "node2"]);
    lab.wait_until_nodes_online();
    lab.start("web");
    let before = lab.assignment("web").unwrap();
    // The API refuses this edit. A spec from before an upgrade may still contain it.
    lab.edit::<ResourceSpec>("web", |resource| {
        resource.spec.driver.simulated.as_mut().unwrap().identity = "other".to_owned();
    });
    lab.run(60_000);
    let differs = |lab: &Lab| {
        lab.status("web").conditions.iter().any(|condition| condition.kind == "DefinitionDiffers")
    };
    assert!(differs(&lab) && lab.is_in_state("web", ServiceState::Started), "{}", lab.show());
    assert_eq!((lab.assignment("web").unwrap(), lab.running_nodes("web").len()), (before.clone(), 1));
    lab.set_requested_state("web", RequestedState::Stopped);
    let is_reported = |lab: &Lab| {
        lab.assignment("web").is_some_and(|assignment| matches!(assignment.action, Action::Stop { .. }))
    };
    lab.run_until(20_000, "ordered to stop", is_reported);
    let stop = lab.assignment("web").unwrap();
    assert_eq!(stop.definition, before.definition, "the copy is stopped under the definition of its start");
    lab.run_until(20_000, "stopped", |lab| lab.is_in_state("web", ServiceState::Stopped));
    lab.run_until(5_000, "the definitions no longer differ", |lab| !differs(lab));
    lab.set_requested_state("web", RequestedState::Started);
    lab.run_until(60_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    let identity = lab.assignment("web").unwrap().definition.identity().unwrap().to_string();
    assert!(identity.contains("other"), "{identity}");
}

#[test]
fn a_copy_of_another_identity_keeps_its_definition() {
    let check = |desired_state: RequestedState, action: &Action| {
        let mut lab = Lab::new(1, &["node1", "node2"]);
        lab.wait_until_nodes_online();
        lab.agent("node2").faults.ignores_probes = true;
        lab.create_resource("web");
        lab.set_requested_state("web", desired_state);
        lab.run(500);
        let resource: Resource = lab.read(&lab.keys.spec(Kind::Resource, "web")).unwrap();
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
        let key = lab.keys.service_report(&"node2".into(), &"web".into());
        let write_report = |lab: &mut Lab, report: &ServiceReport| {
            let guard = lab
                .state
                .get(&key)
                .entries
                .first()
                .map_or(Guard::Absent, |entry| Guard::Unchanged(entry.mod_revision));
            let value = serde_json::to_vec(report).unwrap();
            lab.state.commit(&Transaction::new().put(key.clone(), guard, value));
        };
        write_report(&mut lab, &report);
        lab.run(500);
        assert!(lab.is_in_state("web", ServiceState::Queued), "an identity alone does not say what to stop");
        report.definition = Some(Box::new(definition.clone()));
        write_report(&mut lab, &report);
        lab.run_until(500, "assigned", |lab| lab.assignment("web").is_some());
        let assignment = lab.assignment("web").unwrap();
        assert_eq!((assignment.node.as_str(), &assignment.action), ("node2", action));
        assert_eq!(assignment.definition, definition);
        let status = lab.status("web");
        assert!(status.conditions.iter().any(|condition| condition.kind == "DefinitionDiffers"));
        let copies: Vec<_> =
            status.copies.iter().map(|copy| (copy.node.as_str(), &copy.definition)).collect();
        assert_eq!(copies, [("node2", &definition)]);
    };
    check(RequestedState::Started, &Action::Start);
    check(RequestedState::Stopped, &Action::Stop { timeout_ms: None });
}
