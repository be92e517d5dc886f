//! Tests of FENCING 4 (stop, then stay), of enforced Stopped, and of deletion, Leave, disarm, shutdown and restart.

use super::*;
use ha_api_types::cluster::{Cluster, ClusterSpec, ClusterStatus, Disarmed};
use ha_api_types::id::Epoch;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Mode, ShutdownKind};
use ha_api_types::resource::RequestedState;

#[test]
fn self_fencing_kills_exclusive_services_before_deadline() {
    let mut world = World::running();
    world.create_resource_with("copy", |spec| spec.exclusive = false);
    world.assign("copy", Action::Start);
    world.advance(2_000);
    let uid = world.service_report("web").action_uid;
    world.network = NetworkFault::Down;
    let t = world.core.active_timings;
    let proven = world.proven_ms.expect("heartbeat");
    let margin = proven + t.heartbeat_valid_ms - t.stop_margin_ms;
    world.advance(margin - 1 - world.now_ms);
    assert!(world.copies["web"].running, "not a millisecond early");
    world.advance(100);
    assert!(!world.copies["web"].running);
    assert!(world.copies["copy"].running, "exclusive: false is exempt");
    world.advance(120_000);
    assert!(!world.was_reset, "the node is empty, so the machine is not reset");
    assert_eq!(world.daemon.status().state, protocol::State::Staying);

    // An action permits no second start after a kill: the service is reported Stopped, and starts again only under a
    // new action.
    world.network = NetworkFault::Up;
    world.advance(3_000);
    let report = world.service_report("web");
    assert_eq!((report.phase, report.reason, report.action_uid), (Phase::Stopped, Reason::LeaseLost, uid));
    assert!(!world.copies["web"].running);
    assert!(!world.was_reset);
    world.assign("web", Action::Start);
    world.advance(2_000);
    assert!(world.copies["web"].running);
    assert_eq!(world.fence().epoch, Epoch(1), "the epoch was never closed");
}

#[test]
fn unkillable_service_causes_watchdog_reset() {
    let mut world = World::running();
    world.copies.get_mut("web").expect("there").kill_fails = true;
    world.network = NetworkFault::Down;
    world.advance(20_000);
    assert!(world.was_reset);
}

#[test]
fn unfinished_kill_causes_watchdog_reset() {
    let mut world = World::running();
    world.commands_to_hold.insert("kill");
    world.network = NetworkFault::Down;
    world.advance(20_000);
    assert!(world.was_reset);
}

/// R4.36: the canceled start could still start a process after the kill has found none.
#[test]
fn a_cancelled_start_without_end_causes_reset() {
    let mut world = World::active();
    world.create_resource("web");
    world.commands_to_hold.insert("start");
    world.hold_cancels = true;
    world.assign("web", Action::Start);
    world.advance(1_000);
    assert_eq!(world.held_commands.len(), 1, "the command is in progress");
    world.network = NetworkFault::Down;
    world.advance(20_000);
    assert!(world.was_reset && world.count_commands("web", "kill") > 0);
}

#[test]
fn start_in_progress_at_margin_is_killed() {
    let mut world = World::active();
    world.create_resource("web");
    world.commands_to_hold.insert("start");
    let uid = world.assign("web", Action::Start);
    world.advance(1_000);
    world.network = NetworkFault::Down;
    world.advance(6_000);
    assert!(world.held_commands.is_empty(), "cancelled");
    assert_eq!(world.count_commands("web", "kill"), 1);
    assert_eq!(world.daemon.status().state, protocol::State::Staying);
    world.network = NetworkFault::Up;
    world.commands_to_hold.clear();
    world.advance(3_000);
    let report = world.service_report("web");
    assert_eq!((report.phase, report.action_uid), (Phase::Stopped, Some(uid)), "spent");
    assert_eq!(world.count_commands("web", "start"), 1);
}

#[test]
fn agent_without_etcd_obeys_the_inherited_deadline() {
    let mut world = World::running();
    world.restart_agent_without_etcd();
    world.advance(30_000);
    assert!(!world.copies["web"].running);
    assert!(!world.was_reset);
}

#[test]
fn an_agent_that_lost_its_journal_is_reset() {
    let mut world = World::running();
    world.journal = Journal::default();
    world.restart_agent_without_etcd();
    world.advance(30_000);
    assert!(world.copies["web"].running, "without journal and etcd, the agent has no record of the service");
    assert!(world.was_reset);
}

#[test]
fn completed_stop_is_reported_and_enforced() {
    let mut world = World::running();
    let uid = world.assign("web", Action::Stop { timeout_ms: Some(1_234) });
    world.advance(100);
    assert!(world.executed.contains(&("web".into(), Command::Stop { graceful_ms: 1_234 })));
    assert_eq!(world.service_report("web").action_uid.as_ref(), Some(&uid));
    assert_eq!(world.service_report("web").phase, Phase::Stopped);
    world.copies.get_mut("web").expect("there").running = true;
    world.input(Input::Driver(DriverEvent::Appeared { name: "web".into(), uid: "uid-web".into() }));
    world.advance(100);
    assert!(!world.copies["web"].running);
    assert_eq!(
        (world.service_report("web").phase, world.service_report("web").action_uid),
        (Phase::Stopped, Some(uid))
    );
    assert!(world.events.iter().any(|event| event.reason == Reason::StartedExternally));
}

#[test]
fn failed_stop_is_reported_and_retried_armed() {
    let mut world = World::running();
    world.copies.get_mut("web").expect("there").stop_fails = true;
    world.assign("web", Action::Stop { timeout_ms: None });
    world.advance(2_000);
    assert_eq!(world.service_report("web").phase, Phase::StopFailed);
    assert!(world.node_report().armed);
    world.copies.get_mut("web").expect("there").stop_fails = false;
    world.advance(40_000);
    assert_eq!(world.service_report("web").phase, Phase::Stopped);
}

#[test]
fn stop_cancels_a_start_in_progress() {
    let mut world = World::active();
    world.create_resource("web");
    world.commands_to_hold.insert("start");
    world.assign("web", Action::Start);
    world.advance(1_000);
    let uid = world.assign("web", Action::Stop { timeout_ms: None });
    world.advance(1_000);
    assert_eq!(
        (world.service_report("web").phase, world.service_report("web").action_uid),
        (Phase::Stopped, Some(uid))
    );
    assert_eq!(world.count_commands("web", "stop"), 1);
}

#[test]
fn a_shorter_grace_period_replaces_a_stop_in_progress() {
    let mut world = World::running();
    world.commands_to_hold.insert("stop");
    world.assign("web", Action::Stop { timeout_ms: None });
    world.advance(1_000);
    let uid = world.assign("web", Action::Stop { timeout_ms: Some(0) });
    world.advance(10);
    assert_eq!(world.held_commands.len(), 1);
    assert_eq!(world.held_commands[0].1, Command::Stop { graceful_ms: 0 });
    world.finish_held_commands();
    world.advance(10);
    assert_eq!(world.service_report("web").action_uid, Some(uid));
}

#[test]
fn leave_action_does_not_touch_service() {
    let mut world = World::running();
    world.assign("web", Action::DoNothing);
    world.executed.clear();
    world.copies.get_mut("web").expect("there").running = false;
    world.input(Input::Driver(DriverEvent::Exited {
        name: "web".into(),
        uid: "uid-web".into(),
        message: "exit status 1".into(),
        stopped_externally: false,
    }));
    world.advance(10_000);
    assert_eq!(world.executed, Vec::new());
}

#[test]
fn local_copy_of_service_assigned_elsewhere_is_killed() {
    let mut world = World::running();
    world.assign_to("web", "n2", Action::Start);
    world.advance(100);
    assert!(!world.copies["web"].running);
    assert_eq!(world.service_report("web").phase, Phase::Stopped);
}

#[test]
fn service_of_deleted_resource_is_not_touched() {
    let mut world = World::running();
    world.delete(&world.keys.assignment(&"web".into()));
    world.delete(&world.keys.spec(Kind::Resource, "web"));
    world.advance(2_000);
    assert!(world.copies["web"].running);
    assert_eq!(world.value::<ServiceReport>(&world.keys.service_report(&own_node(), &"web".into())), None);
    assert!(!world.journal.services.contains_key("web"));
    assert!(!world.node_report().armed);
}

#[test]
fn an_ignored_resource_is_not_touched_and_does_not_arm() {
    let mut world = World::running();
    world.delete(&world.keys.assignment(&"web".into()));
    world.create_resource_with("web", |spec| spec.state = RequestedState::Ignored);
    world.advance(2_000);
    assert!(world.copies["web"].running && !world.node_report().armed);
    world.network = NetworkFault::Down;
    world.advance(30_000);
    assert!(world.copies["web"].running && !world.was_reset);
}

#[test]
fn an_ignored_resource_is_guarded_until_its_assignment_ends() {
    let mut world = World::running();
    world.create_resource_with("web", |spec| spec.state = RequestedState::Ignored);
    world.advance(2_000);
    assert!(world.copies["web"].running && world.node_report().armed);
    world.network = NetworkFault::Down;
    world.advance(30_000);
    assert!(!world.copies["web"].running && !world.was_reset, "killed before the deadline");
}

fn set_disarmed(world: &mut World, disarmed: Option<Disarmed>) {
    let cluster = Cluster::new("default", ClusterSpec { disarmed, ..ClusterSpec::default() });
    world.write(&world.keys.spec(Kind::Cluster, "default"), &cluster);
    let status = ClusterStatus { disarm: disarmed, ..ClusterStatus::default() };
    world.write(&world.keys.status(Kind::Cluster, "default"), &status);
    world.deliver();
}

#[test]
fn agent_disarms_after_leader_permission_and_workers() {
    let mut world = World::running();
    let cluster =
        Cluster::new("default", ClusterSpec { disarmed: Some(Disarmed::Freeze), ..ClusterSpec::default() });
    world.write(&world.keys.spec(Kind::Cluster, "default"), &cluster);
    world.deliver();
    world.advance(5_000);
    assert_eq!(
        (world.node_report().mode, world.node_report().armed),
        (Mode::Active, true),
        "something still moves"
    );
    world.commands_to_hold.insert("stop");
    world.assign("web", Action::Stop { timeout_ms: None });
    world.advance(1_000);
    set_disarmed(&mut world, Some(Disarmed::Freeze));
    world.advance(5_000);
    assert_eq!(
        (world.node_report().mode, world.node_report().armed),
        (Mode::Active, true),
        "a worker is busy"
    );
    world.commands_to_hold.clear();
    world.finish_held_commands();
    world.advance(2_000);
    assert_eq!((world.node_report().mode, world.node_report().armed), (Mode::Disarmed, false));
}

#[test]
fn disarm_applies_after_its_committed_acknowledgement() {
    let mut world = World::running();
    set_disarmed(&mut world, Some(Disarmed::Freeze));
    world.advance(2_000);
    assert_eq!((world.node_report().mode, world.node_report().armed), (Mode::Disarmed, false));
    assert_eq!(world.fires_at_ms, None);
    world.network = NetworkFault::Down;
    world.advance(60_000);
    assert!(world.copies["web"].running && !world.was_reset);
    world.network = NetworkFault::Up;
    set_disarmed(&mut world, None);
    world.advance(3_000);
    assert_eq!((world.node_report().mode, world.node_report().armed), (Mode::Active, true));
    assert!(world.copies["web"].running);
}

#[test]
fn a_service_moved_while_disarmed_is_not_restarted_in_place() {
    for still_here in [true, false] {
        let mut world = World::running();
        set_disarmed(&mut world, Some(Disarmed::Ignore));
        world.advance(2_000);
        world.copies.get_mut("web").expect("there").running = still_here;
        set_disarmed(&mut world, None);
        world.advance(3_000);
        assert_eq!(world.copies["web"].running, still_here);
        let expected = if still_here { Phase::Running } else { Phase::Stopped };
        assert_eq!(world.service_report("web").phase, expected);
        assert_eq!(world.copies["web"].starts, 1);
    }
}

#[test]
fn a_clean_leave_stops_services_before_leaving() {
    for shutdown_kind in [ShutdownKind::Poweroff, ShutdownKind::Reboot] {
        let mut world = World::running();
        world.commands_to_hold.insert("stop");
        world.input(Input::Shutdown(Shutdown::Machine(shutdown_kind)));
        world.advance(2_000);
        assert_eq!(
            world.node_report().mode,
            Mode::Shutdown(shutdown_kind),
            "Left not before all stops are committed"
        );
        assert!(world.node_report().armed);
        world.commands_to_hold.clear();
        world.finish_held_commands();
        world.advance(2_000);
        assert_eq!(world.service_report("web").phase, Phase::Stopped);
        assert_eq!((world.node_report().mode, world.node_report().armed), (Mode::Left(shutdown_kind), false));
        assert_eq!(world.alive(), None);
        assert_eq!((world.exit, world.fires_at_ms), (Some(Exit::Left), None));
        let is_one_transaction = world.commits.iter().any(|(transaction, _)| {
            transaction.writes_key(&world.keys.alive(&own_node()))
                && transaction.writes_key(&world.keys.node_report(&own_node()))
                && matches!(transaction.writes()[&world.keys.alive(&own_node())], ha_store::Write::Delete)
        });
        assert!(is_one_transaction);
    }
}

#[test]
fn a_stop_that_fails_at_shutdown_keeps_the_watchdog_armed() {
    let mut world = World::running();
    world.copies.get_mut("web").expect("there").stop_fails = true;
    world.input(Input::Shutdown(Shutdown::Machine(ShutdownKind::Poweroff)));
    world.advance(20_000);
    assert_eq!(world.exit, None);
    assert!(world.node_report().armed);
    assert!(world.fires_at_ms.is_some());
    // After the longest shutdown time (1800 s), the machine goes down with an armed watchdog and without a clean leave.
    world.advance(1_770_000);
    assert_eq!(world.exit, None);
    world.advance(100_000);
    assert_eq!(world.exit, Some(Exit::Left));
    assert!(world.node_report().armed && world.fires_at_ms.is_some());
    assert_eq!(world.node_report().mode, Mode::Shutdown(ShutdownKind::Poweroff));
}

#[test]
fn an_agent_that_ends_alone_keeps_services_running() {
    let mut world = World::running();
    world.input(Input::Shutdown(Shutdown::Restart));
    world.advance(2_000);
    assert_eq!((world.node_report().mode, world.node_report().armed), (Mode::Restart, false));
    assert_eq!((world.exit, world.fires_at_ms), (Some(Exit::Restart), None));
    assert!(world.copies["web"].running);

    world.restart_agent("boot-1");
    world.advance(3_000);
    assert_eq!((world.node_report().mode, world.node_report().armed), (Mode::Active, true));
    assert!(world.copies["web"].running);
    assert_eq!(world.copies["web"].starts, 1);
    assert_eq!(world.service_report("web").phase, Phase::Running);
}

#[test]
fn a_restart_that_cannot_commit_stays_armed() {
    let mut world = World::running();
    world.network = NetworkFault::Down;
    world.input(Input::Shutdown(Shutdown::Restart));
    world.advance(2_000);
    assert_eq!(world.exit, None);
    assert!(world.fires_at_ms.is_some());
    assert!(world.copies["web"].running);
}

#[test]
fn agent_with_closed_epoch_exits_after_clearing() {
    let mut world = World::running();
    world.close_epoch();
    world.input(Input::Shutdown(Shutdown::Restart));
    world.advance(10_000);
    assert_eq!(world.exit, Some(Exit::Restart));
    assert!(!world.copies["web"].running);
    world.dead = true;
    world.advance(60_000);
    assert!(!world.was_reset, "the daemon pets an empty node without a deadline");
}

#[test]
fn stop_requested_after_margin_waits_for_heartbeat() {
    let mut world = World::running();
    world.copies.get_mut("web").expect("there").stop_fails = true;
    world.assign("web", Action::Stop { timeout_ms: None });
    world.network = NetworkFault::Down;
    world.advance(60_000);
    assert!(!world.copies["web"].running && !world.was_reset);
    world.network = NetworkFault::Up;
    world.advance(3_000);
    assert_eq!(world.service_report("web").phase, Phase::Stopped);
}

#[test]
fn leave_with_unknown_outcome_is_repeated() {
    let mut world = World::active();
    world.network = NetworkFault::Down;
    world.advance(10_000);
    world.input(Input::Shutdown(Shutdown::Machine(ShutdownKind::Reboot)));
    world.advance(1_000);
    world.network = NetworkFault::Up;
    world.advance(5_000);
    assert_eq!((world.node_report().mode, world.exit), (Mode::Left(ShutdownKind::Reboot), Some(Exit::Left)));
    assert_eq!(world.fires_at_ms, None);
}
