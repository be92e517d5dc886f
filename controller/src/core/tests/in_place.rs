//! Tests of a definition that an operator confirms for the running copy (FENCING, R6.10).

use super::services::{cluster_with_started_service, operation};
use super::test_cluster::TestCluster;
use ha_api_types::cluster::{CLUSTER_NAME, ClusterSpec, Disarmed};
use ha_api_types::kind::Kind;
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec};
use ha_api_types::reason::Reason;
use ha_api_types::resource::{RequestedState, Resource, ResourceSpec, ServiceState};

/// Edits a field of the driver that is not part of the identity. Returns the new generation, which an operator
/// confirms.
fn edit(cluster: &mut TestCluster, stop_seconds: u32) -> i64 {
    cluster.edit::<ResourceSpec>("web", |resource| {
        resource.spec.driver.simulated.as_mut().unwrap().stop_seconds = stop_seconds;
    });
    generation(cluster)
}

fn generation(cluster: &TestCluster) -> i64 {
    let resource: Resource = cluster.read(&cluster.keys.spec(Kind::Resource, "web")).unwrap();
    resource.metadata.generation
}

fn update(generation: i64) -> OperationSpec {
    OperationSpec { generation: Some(generation), ..operation(OperationAction::UpdateInPlace, None) }
}

#[track_caller]
fn check(cluster: &mut TestCluster, name: &str, generation: i64, phase: OperationPhase, reason: Reason) {
    cluster.create_operation(name, update(generation));
    cluster.run(1_000);
    let status = cluster.operation(name);
    assert_eq!((status.phase, status.reason), (phase, reason), "{name}: {}", status.message);
}

#[test]
fn in_place_update_stops_no_service() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    let before = cluster.assignment("web").unwrap();
    let generation = edit(&mut cluster, 7);
    cluster.run(2_000);
    assert_eq!(cluster.assignment("web").as_ref(), Some(&before), "an edit alone changes nothing that runs");
    check(&mut cluster, "fix", generation, OperationPhase::Succeeded, Reason::Completed);
    let after = cluster.assignment("web").unwrap();
    assert_eq!((&after.action_uid, &after.action), (&before.action_uid, &before.action));
    assert_eq!((&after.node, after.epoch, &after.boot_id), (&before.node, before.epoch, &before.boot_id));
    assert_eq!(after.definition.driver.simulated.as_ref().unwrap().stop_seconds, 7);
    assert_eq!(after.in_place.as_deref(), Some("fix"), "the confirmation is recorded");
    assert!(cluster.status("web").copies.iter().all(|copy| copy.definition == after.definition));
    assert_eq!(
        (cluster.running_nodes("web"), cluster.is_in_state("web", ServiceState::Started)),
        (vec![node], true)
    );
    // An agent that missed the rewritten definition receives it with the order to stop.
    cluster.set_requested_state("web", RequestedState::Stopped);
    cluster.run_until(20_000, "stopped", |cluster| cluster.is_in_state("web", ServiceState::Stopped));
    let stop = cluster.assignment("web").unwrap();
    assert_eq!((&stop.definition, stop.in_place.as_deref()), (&after.definition, Some("fix")));
    // Later edits were not confirmed.
    edit(&mut cluster, 9);
    cluster.set_requested_state("web", RequestedState::Started);
    cluster.run_until(20_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert_eq!(cluster.assignment("web").unwrap().in_place, None);
}

#[test]
fn in_place_update_needs_the_confirmed_generation() {
    let (mut cluster, _) = cluster_with_started_service(&["node1", "node2"]);
    let confirmed_generation = edit(&mut cluster, 7);
    edit(&mut cluster, 8);
    let before = cluster.assignment("web").unwrap();
    check(&mut cluster, "late", confirmed_generation, OperationPhase::Refused, Reason::Outdated);
    cluster.create_operation("none", operation(OperationAction::UpdateInPlace, None));
    cluster.run(1_000);
    assert_eq!(cluster.operation("none").reason, Reason::Invalid);
    // The API refuses these edits. A restored spec may still contain them.
    let simulated = |resource: &mut Resource, name: &str| {
        resource.spec.driver.simulated.as_mut().unwrap().identity = name.to_owned();
    };
    cluster.edit::<ResourceSpec>("web", |resource| simulated(resource, "other"));
    let edited_generation = generation(&cluster);
    check(&mut cluster, "identity", edited_generation, OperationPhase::Refused, Reason::DefinitionDiffers);
    cluster.edit::<ResourceSpec>("web", |resource| {
        simulated(resource, "");
        resource.spec.exclusive = false;
    });
    let edited_generation = generation(&cluster);
    check(&mut cluster, "exclusive", edited_generation, OperationPhase::Refused, Reason::DefinitionDiffers);
    assert_eq!(cluster.assignment("web"), Some(before));
}

#[test]
fn in_place_update_waits_while_disarmed() {
    let (mut cluster, _) = cluster_with_started_service(&["node1", "node2"]);
    let before = cluster.assignment("web").unwrap();
    cluster.edit::<ClusterSpec>(CLUSTER_NAME, |settings| settings.spec.disarmed = Some(Disarmed::Freeze));
    cluster.run(5_000);
    let generation = edit(&mut cluster, 7);
    check(&mut cluster, "disarmed", generation, OperationPhase::Pending, Reason::Disarmed);
    assert_eq!(cluster.assignment("web").unwrap().definition, before.definition);
    cluster.edit::<ClusterSpec>(CLUSTER_NAME, |settings| settings.spec.disarmed = None);
    cluster.run_until(20_000, "done", |cluster| {
        cluster.operation("disarmed").phase == OperationPhase::Succeeded
    });
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    cluster.agent(&node).power_off();
    cluster.run_until(30_000, "fenced", |cluster| cluster.running_nodes("web").is_empty());
    let generation = edit(&mut cluster, 7);
    cluster.create_operation("dead", update(generation));
    cluster
        .run_until(60_000, "settled", |cluster| cluster.operation("dead").phase == OperationPhase::Succeeded);
    cluster.run_until(30_000, "recovered", |cluster| {
        cluster.is_in_state("web", ServiceState::Started) && cluster.running_nodes("web").len() == 1
    });
}
