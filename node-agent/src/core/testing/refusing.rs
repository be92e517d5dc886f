//! Tests of FENCING R4.17 to R4.24: a watchdog that refuses pets, on the agent's side.

use super::*;
use ha_api_types::cluster::{Cluster, ClusterSpec, FencingSpec, OnEtcdLoss};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Candidate, HoldAnswer, SleepProtection};

/// Unbinds the driver: the device refuses pets and stops counting.
fn make_pets_fail(world: &mut World) {
    world.pets_fail = true;
    world.fires_at_ms = None;
}

/// Creates a node that runs `web` and whose device has just begun to refuse pets.
fn refusing() -> World {
    let mut world = World::running();
    make_pets_fail(&mut world);
    world.advance(1_500);
    world
}

#[test]
fn refused_pet_is_committed_and_watchdog_stays() {
    let mut world = refusing();
    let report = world.node_report();
    assert!(report.armed && report.watchdog_failed, "{report:?}");
    assert_eq!(report.watchdog.reason, Some(Reason::WatchdogFailed));
    world.advance(60_000);
    assert!(world.node_report().armed && !world.was_reset, "heartbeats keep its deadline");
    assert!(matches!(world.daemon.status().state, protocol::State::Armed { .. }));
    assert!(world.copies["web"].running);
}

#[test]
fn refused_pets_block_new_permits() {
    let mut world = World::running();
    world.create_resource("mail");
    world.pets_fail = true;
    // The refusal is not committed yet, because heartbeats are delayed.
    world.hold_heartbeats = true;
    world.advance(400);
    assert!(!world.node_report().watchdog_failed);
    world.assign("mail", Action::Start);
    world.advance(600);
    assert_eq!(world.count_commands("mail", "start"), 0, "{:?}", world.logs);
    world.hold_heartbeats = false;
    world.deliver_heartbeats();
    world.advance(3_000);
    assert!(world.node_report().watchdog_failed);
    assert_eq!(world.count_commands("mail", "start"), 0);
    assert_eq!(world.service_report("mail").phase, Phase::Failed);
}

#[test]
fn watchdog_recovers_after_one_timeout_of_pets() {
    let mut world = refusing();
    world.create_resource("mail");
    world.pets_fail = false;
    let timeout_ms = world.core.active_timings.watchdog_timeout_ms;
    world.advance(timeout_ms - 500);
    assert!(world.node_report().watchdog_failed, "not before it has taken pets for its timeout");
    world.create_resource("early");
    world.assign("early", Action::Start);
    world.advance(300);
    assert_eq!(
        world.count_commands("early", "start"),
        0,
        "deadlines are acknowledged, but it does not count yet"
    );
    world.advance(9_000);
    let report = world.node_report();
    assert!(report.armed && !report.watchdog_failed, "{report:?} {:?}", world.logs);
    world.assign("mail", Action::Start);
    world.advance(2_000);
    assert!(world.copies["mail"].running);
}

#[test]
fn idle_node_keeps_refusing_watchdog_armed() {
    let mut world = refusing();
    world.assign("web", Action::Stop { timeout_ms: None });
    world.advance(5_000);
    let report = world.node_report();
    assert!(!report.armed && report.watchdog_failed, "{report:?}");
    assert_eq!(world.daemon.status().state, protocol::State::Staying);
    world.advance(60_000);
    assert!(!world.was_reset);
    world.pets_fail = false;
    world.advance(20_000);
    assert!(!world.node_report().watchdog_failed);
    assert_eq!(world.daemon.status().state, protocol::State::Released);
}

#[test]
fn refusing_watchdog_prevents_hold() {
    let check = |held_before: bool, pets_fail: bool, runs: bool| {
        let mut world = World::running();
        let fencing = FencingSpec { on_etcd_loss: OnEtcdLoss::Hold, ..FencingSpec::default() };
        let cluster = Cluster::new("default", ClusterSpec { fencing, ..ClusterSpec::default() });
        world.write(&world.keys.spec(Kind::Cluster, "default"), &cluster);
        let candidate =
            Candidate { id: "c1".into(), url: "https://c1:7443".to_owned(), ..Candidate::default() };
        world.write(&world.keys.candidate(&"c1".into()), &candidate);
        world.controllers.insert("c1".to_owned().into(), HoldAnswer { granted: true, reason: String::new() });
        world.advance(3_000);
        if held_before {
            make_pets_fail(&mut world);
            world.advance(1_500);
            assert!(world.node_report().watchdog_failed);
        }
        world.network = NetworkFault::Down;
        world.advance(20_000);
        assert_eq!(world.copies["web"].running, !held_before);
        if pets_fail {
            make_pets_fail(&mut world);
        }
        world.advance(20_000);
        assert_eq!(world.copies["web"].running, runs, "{:?}", world.logs);
        assert!(!world.was_reset, "the agent stopped its services in time, so the machine is not reset");
    };
    check(false, false, true);
    // The refusal is uncommitted in the first case and committed in the second.
    check(false, true, false);
    check(true, true, false);
}

#[test]
fn restarted_agent_reads_pet_refusal_from_daemon() {
    let mut world = refusing();
    world.create_resource("mail");
    world.pets_fail = false;
    world.restart_agent("boot-1");
    world.assign("mail", Action::Start);
    world.advance(1_500);
    assert_eq!(world.count_commands("mail", "start"), 0, "{:?}", world.logs);
}

#[test]
fn a_changed_sleep_protection_is_committed_immediately() {
    let mut world = World::running();
    assert_eq!(world.node_report().sleep_protection, None);
    for protection in [SleepProtection::Inhibitor, SleepProtection::None, SleepProtection::Masked] {
        world.input(Input::Sleep(protection));
        assert_eq!(world.node_report().sleep_protection, Some(protection));
    }
    assert!(world.node_report().armed && world.copies["web"].running, "the agent changes nothing");
}
