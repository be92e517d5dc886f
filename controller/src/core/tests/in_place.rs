//! Tests of a definition that an operator confirms for the running copy (FENCING, R6.10).

use super::lab::Lab;
use super::services::{operation, started};
use ha_api_types::cluster::{CLUSTER_NAME, ClusterSpec, Disarmed};
use ha_api_types::kind::Kind;
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec};
use ha_api_types::reason::Reason;
use ha_api_types::resource::{RequestedState, Resource, ResourceSpec, ServiceState};

/// Edits a field of the driver that is not part of the identity. Returns the new generation, which an operator
/// confirms.
fn edit(lab: &mut Lab, stop_seconds: u32) -> i64 {
    lab.edit::<ResourceSpec>("web", |resource| {
        resource.spec.driver.simulated.as_mut().unwrap().stop_seconds = stop_seconds;
    });
    generation(lab)
}

fn generation(lab: &Lab) -> i64 {
    let resource: Resource = lab.read(&lab.keys.spec(Kind::Resource, "web")).unwrap();
    resource.metadata.generation
}

fn update(generation: i64) -> OperationSpec {
    OperationSpec { generation: Some(generation), ..operation(OperationAction::UpdateInPlace, None) }
}

#[track_caller]
fn check(lab: &mut Lab, name: &str, generation: i64, phase: OperationPhase, reason: Reason) {
    lab.create_operation(name, update(generation));
    lab.run(1_000);
    let status = lab.operation(name);
    assert_eq!((status.phase, status.reason), (phase, reason), "{name}: {}", status.message);
}

#[test]
fn in_place_update_stops_no_service() {
    let (mut lab, node) = started(&["node1", "node2"]);
    let before = lab.assignment("web").unwrap();
    let seen = edit(&mut lab, 7);
    lab.run(2_000);
    assert_eq!(lab.assignment("web").as_ref(), Some(&before), "an edit alone changes nothing that runs");
    check(&mut lab, "fix", seen, OperationPhase::Succeeded, Reason::Completed);
    let after = lab.assignment("web").unwrap();
    assert_eq!((&after.action_uid, &after.action), (&before.action_uid, &before.action));
    assert_eq!((&after.node, after.epoch, &after.boot_id), (&before.node, before.epoch, &before.boot_id));
    assert_eq!(after.definition.driver.simulated.as_ref().unwrap().stop_seconds, 7);
    assert_eq!(after.in_place.as_deref(), Some("fix"), "the confirmation is recorded");
    assert!(lab.status("web").copies.iter().all(|copy| copy.definition == after.definition));
    assert_eq!((lab.running_nodes("web"), lab.is_in_state("web", ServiceState::Started)), (vec![node], true));
    // An agent that missed the rewritten definition receives it with the order to stop.
    lab.set_requested_state("web", RequestedState::Stopped);
    lab.run_until(20_000, "stopped", |lab| lab.is_in_state("web", ServiceState::Stopped));
    let stop = lab.assignment("web").unwrap();
    assert_eq!((&stop.definition, stop.in_place.as_deref()), (&after.definition, Some("fix")));
    // Later edits were not confirmed.
    edit(&mut lab, 9);
    lab.set_requested_state("web", RequestedState::Started);
    lab.run_until(20_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    assert_eq!(lab.assignment("web").unwrap().in_place, None);
}

#[test]
fn in_place_update_needs_the_confirmed_generation() {
    let (mut lab, _) = started(&["node1", "node2"]);
    let seen = edit(&mut lab, 7);
    edit(&mut lab, 8);
    let before = lab.assignment("web").unwrap();
    check(&mut lab, "late", seen, OperationPhase::Refused, Reason::Outdated);
    lab.create_operation("none", operation(OperationAction::UpdateInPlace, None));
    lab.run(1_000);
    assert_eq!(lab.operation("none").reason, Reason::Invalid);
    // The API refuses these edits. A restored spec may still contain them.
    let simulated = |resource: &mut Resource, name: &str| {
        resource.spec.driver.simulated.as_mut().unwrap().identity = name.to_owned();
    };
    lab.edit::<ResourceSpec>("web", |resource| simulated(resource, "other"));
    let seen = generation(&lab);
    check(&mut lab, "identity", seen, OperationPhase::Refused, Reason::DefinitionDiffers);
    lab.edit::<ResourceSpec>("web", |resource| {
        simulated(resource, "");
        resource.spec.exclusive = false;
    });
    let seen = generation(&lab);
    check(&mut lab, "exclusive", seen, OperationPhase::Refused, Reason::DefinitionDiffers);
    assert_eq!(lab.assignment("web"), Some(before));
}

#[test]
fn in_place_update_waits_while_disarmed() {
    let (mut lab, _) = started(&["node1", "node2"]);
    let before = lab.assignment("web").unwrap();
    lab.edit::<ClusterSpec>(CLUSTER_NAME, |cluster| cluster.spec.disarmed = Some(Disarmed::Freeze));
    lab.run(5_000);
    let seen = edit(&mut lab, 7);
    check(&mut lab, "disarmed", seen, OperationPhase::Pending, Reason::Disarmed);
    assert_eq!(lab.assignment("web").unwrap().definition, before.definition);
    lab.edit::<ClusterSpec>(CLUSTER_NAME, |cluster| cluster.spec.disarmed = None);
    lab.run_until(20_000, "done", |lab| lab.operation("disarmed").phase == OperationPhase::Succeeded);
    let (mut lab, node) = started(&["node1", "node2"]);
    lab.agent(&node).power_off();
    lab.run_until(30_000, "fenced", |lab| lab.running_nodes("web").is_empty());
    let seen = edit(&mut lab, 7);
    lab.create_operation("dead", update(seen));
    lab.run_until(60_000, "settled", |lab| lab.operation("dead").phase == OperationPhase::Succeeded);
    lab.run_until(30_000, "recovered", |lab| {
        lab.is_in_state("web", ServiceState::Started) && lab.running_nodes("web").len() == 1
    });
}
