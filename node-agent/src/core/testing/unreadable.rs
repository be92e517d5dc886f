//! Tests of values that another version wrote and this one cannot read (FENCING, R1.15 to R1.23).

use super::*;
use ha_api_types::cluster::{CLUSTER_NAME, Cluster, ClusterSpec, ClusterStatus, Disarmed};
use ha_api_types::record::Mode;
use serde_json::json;

/// Changes one field of a value to a word of a future version.
fn write_unknown_value(world: &mut World, key: &str, pointer: &str) {
    let mut value: serde_json::Value = world.value(key).expect("there");
    *value.pointer_mut(pointer).expect("the field is there") = json!("Novel");
    world.write(key, &value);
    world.deliver();
}

#[test]
fn unreadable_assignment_changes_no_service() {
    let mut world = World::running();
    let key = world.keys.assignment(&"web".into());
    write_unknown_value(&mut world, &key, "/action/kind");
    world.advance(20_000);
    assert!(world.copies["web"].running, "{:#?}", world.logs);
    assert_eq!(
        (
            world.count_commands("web", "start"),
            world.count_commands("web", "stop"),
            world.count_commands("web", "kill")
        ),
        (1, 0, 0)
    );
    assert!(world.node_report().armed, "a running service is guarded");
}

#[test]
fn an_unreadable_fence_counts_as_a_closed_epoch() {
    let mut world = World::running();
    let key = world.keys.fence(&own_node());
    write_unknown_value(&mut world, &key, "/state");
    world.advance(5_000);
    assert!(!world.copies["web"].running);
    assert_eq!(world.node_report().mode, Mode::Registering);
}

#[test]
fn an_unreadable_cluster_neither_arms_nor_disarms() {
    let cluster = |disarmed| Cluster::new(CLUSTER_NAME, ClusterSpec { disarmed, ..ClusterSpec::default() });
    let status = |disarmed, active| ClusterStatus { disarm: disarmed, active, ..ClusterStatus::default() };
    // Three cases: the active settings in the status, only the leader's disarm state in the status, and neither.
    for case in 0..3 {
        for disarmed in [None, Some(Disarmed::Freeze)] {
            let mut world = World::running();
            let (spec_key, status_key) = (
                world.keys.spec(Kind::Cluster, CLUSTER_NAME),
                world.keys.status(Kind::Cluster, CLUSTER_NAME),
            );
            world.write(&spec_key, &cluster(disarmed));
            let active = (case == 0).then(|| cluster(disarmed).spec);
            world.write(&status_key, &status(disarmed, active));
            world.deliver();
            world.advance(5_000);
            let (mode, armed) = (world.node_report().mode, world.node_report().armed);
            assert_eq!(mode == Mode::Disarmed, disarmed.is_some());
            write_unknown_value(&mut world, &spec_key, "/spec/shutdownPolicy");
            if case == 2 {
                world.write(&status_key, &json!("Novel"));
                world.deliver();
            }
            world.advance(5_000);
            assert_eq!(
                (world.node_report().mode, world.node_report().armed),
                (mode, armed),
                "{case} {disarmed:?}"
            );
            // A new process of the same boot has never read the object.
            world.restart_agent("boot-1");
            world.advance(5_000);
            assert_eq!(
                (world.node_report().mode, world.node_report().armed),
                (mode, armed),
                "{case} {disarmed:?} again"
            );
            assert!(world.copies["web"].running);
        }
    }
}

#[test]
fn agent_rewrites_its_own_unreadable_records() {
    let mut world = World::running();
    world.dead = true;
    let unassigned_key = world.keys.service_report(&own_node(), &"gone".into());
    world.write(&unassigned_key, &json!({"uid": "uid-gone", "epoch": 1, "phase": "Novel"}));
    let web = world.keys.service_report(&own_node(), &"web".into());
    write_unknown_value(&mut world, &web, "/phase");
    let report = world.keys.node_report(&own_node());
    write_unknown_value(&mut world, &report, "/mode/kind");
    world.restart_agent("boot-1");
    world.advance(10_000);
    assert_eq!(world.node_report().mode, Mode::Active);
    assert!(world.state.get(&unassigned_key).entries.is_empty());
    // The earlier report is lost, so the action counts as interrupted: the service is stopped, verified, and reported
    // so.
    let web: serde_json::Value = world.value(&web).expect("there");
    assert_eq!(
        (&web["phase"], &web["reason"]),
        (&json!("Failed"), &json!("Interrupted")),
        "{:#?}",
        world.logs
    );
    assert_eq!(world.running_copies(), 0);
}

#[test]
fn journal_stores_the_followed_etcd_incarnation() {
    let mut world = World::running();
    world.input(Input::FollowsIncarnation { incarnation: "a".into(), ordered_by_operator: false });
    world.advance(1_000);
    assert_eq!(world.journal.incarnation.as_deref(), Some("a"));
    world.restart_agent("boot-1");
    world.advance(3_000);
    assert!(world.copies["web"].running, "same data, boot and epoch: the service keeps running");
    // An operator has ordered the node to follow other data. No epoch in those data was opened for this agent.
    world.dead = true;
    world.restart_agent("boot-1");
    world.core = AgentCore::new(world.config.clone(), world.journal.clone());
    world.input(Input::FollowsIncarnation { incarnation: "b".into(), ordered_by_operator: true });
    world.sync();
    world.advance(5_000);
    assert_eq!(world.journal.incarnation.as_deref(), Some("b"));
    assert!(!world.copies["web"].running, "{:#?}", world.logs);
    assert_eq!(world.node_report().mode, Mode::Registering);
}
