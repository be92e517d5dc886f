//! Tests of FENCING 4: without a deadline that the watchdog follows, no exclusive service begins, and no node counts as
//! empty.

use super::*;
use ha_api_types::cluster::{Cluster, ClusterSpec};
use ha_api_types::id::Epoch;
use ha_api_types::reason::Reason;
use ha_api_types::record::Mode;
use ha_api_types::timing::Profile;

#[test]
fn old_permit_starts_nothing_without_daemon_deadline() {
    let mut world = World::running();
    world.create_resource("mail");
    // The permit is applied, but the answer is lost, and etcd stays unreachable past D − Ts.
    world.network = NetworkFault::AnswersLost;
    world.assign("mail", Action::Start);
    let key = world.keys.assignment(&"mail".into());
    let entry = world.state.get(&key).entries[0].clone();
    let revision = entry.mod_revision;
    world.input(Input::Changed { changes: vec![Change::Put(entry)], revision });
    world.advance(100);
    assert_eq!(world.service_report("mail").phase, Phase::Starting, "the permit stands");
    world.network = NetworkFault::Down;
    world.advance(10_000);
    assert_eq!(world.daemon.status().state, protocol::State::Staying);
    assert_eq!(world.count_commands("mail", "start"), 0);
    // Heartbeats commit again, but the daemon has not answered yet.
    world.daemon_up = false;
    world.network = NetworkFault::Up;
    world.advance(2_000);
    assert_eq!(world.count_commands("mail", "start"), 0, "{:?}", world.logs);
    world.daemon_up = true;
    world.reconnect();
    world.advance(3_000);
    assert_eq!(world.count_commands("mail", "start"), 1, "{:?}", world.core.wait_messages(&world.now()));
    assert!(world.copies["mail"].running && !world.was_reset);
}

#[test]
fn agent_without_etcd_pets_no_abandoned_watchdog() {
    let mut world = World::running();
    // Both processes are replaced, and the descriptor was not kept: the device keeps counting.
    world.daemon = daemon::Core::new(protocol::Privileges::default());
    world.restart_agent_without_etcd();
    world.advance(60_000);
    assert!(world.was_reset, "{:?} {:?}", world.requests, world.logs);
}

#[test]
fn restarted_agent_kills_adopted_service_before_deadline() {
    let mut world = World::found_running();
    world.restart_agent_without_etcd();
    world.advance(60_000);
    assert!(!world.copies["web"].running && !world.was_reset, "{:?}", world.logs);
}

#[test]
fn a_service_added_during_clearing_is_also_probed() {
    let mut world = World::running();
    world.commands_to_hold.insert("probe");
    world.close_epoch();
    world.advance(100);
    world.copies.insert("mail".into(), ServiceCopy { running: true, ..ServiceCopy::default() });
    world.create_resource("mail");
    world.advance(100);
    world.commands_to_hold.clear();
    world.finish_held_commands();
    world.advance(2_000);
    assert!(!world.copies["mail"].running, "{:?}", world.core.wait_messages(&world.now()));
    assert_eq!(world.node_report().mode, Mode::Registering);
}

#[test]
fn newly_exclusive_service_is_killed_before_deadline() {
    let mut world = World::active();
    world.create_resource_with("web", |spec| spec.exclusive = false);
    world.assign("web", Action::Start);
    world.advance(1_000);
    assert!(world.copies["web"].running && !world.node_report().armed);
    world.create_resource_with("web", |spec| spec.exclusive = true);
    world.advance(3_000);
    assert!(!world.node_report().armed, "R6.1: the assignment decides, not the spec");
    world.assign("web", Action::Start);
    world.advance(5_000);
    assert!(world.node_report().armed);
    assert_eq!(world.service_report("web").phase, Phase::Running);
    world.network = NetworkFault::Down;
    world.advance(30_000);
    assert!(!world.copies["web"].running || world.was_reset);
}

fn set_profile(world: &mut World, profile: Profile) {
    let mut cluster = Cluster::new("default", ClusterSpec::default());
    cluster.spec.timing.profile = profile;
    world.write(&world.keys.spec(Kind::Cluster, "default"), &cluster);
    world.deliver();
}

#[test]
fn a_shorter_validity_is_committed_after_the_daemon() {
    let mut world = World::active();
    set_profile(&mut world, Profile::Conservative);
    world.advance(5_000);
    world.create_resource("web");
    world.assign("web", Action::Start);
    world.advance(10_000);
    assert!(world.copies["web"].running);
    assert_eq!(world.node_report().timings.heartbeat_valid_ms, 20_000);
    set_profile(&mut world, Profile::Fast);
    for _ in 0..400 {
        world.advance(25);
        let report = world.node_report();
        if report.timings.heartbeat_valid_ms < 20_000 {
            let protocol::State::Armed { deadline } = world.daemon.status().state else {
                panic!("{:?}", world.daemon.status())
            };
            let remaining_ms =
                DualClockTime::from(&world.now()).remaining_ns(deadline).unwrap_or(0) / 1_000_000;
            assert!(remaining_ms <= report.timings.heartbeat_valid_ms, "{remaining_ms}");
        }
    }
    assert_eq!(world.node_report().timings.heartbeat_valid_ms, 4_000);
    assert_eq!(world.count_commands("web", "kill"), 0, "{:?}", world.logs);
    assert!(world.copies["web"].running && !world.was_reset);
}

/// R5.6: the daemon still has the longer deadline.
#[test]
fn a_shorter_validity_waits_for_unresponsive_daemon() {
    let mut world = World::active();
    set_profile(&mut world, Profile::Conservative);
    world.create_resource("web");
    world.assign("web", Action::Start);
    world.advance(15_000);
    assert!(world.copies["web"].running);
    let heartbeat_start_times = world.commits.len();
    world.daemon_up = false;
    set_profile(&mut world, Profile::Fast);
    world.advance(5_000);
    assert!(world.commits.len() > heartbeat_start_times, "heartbeats continue");
    assert_eq!(world.node_report().timings.heartbeat_valid_ms, 20_000);
}

#[test]
fn late_deadline_is_sent_to_daemon_once() {
    let mut world = World::running();
    world.create_resource("mail");
    world.advance(2_000);
    world.network = NetworkFault::Down;
    let t = world.core.active_timings;
    let deadline = world.proven_ms.expect("heartbeat") + t.heartbeat_valid_ms;
    world.advance(deadline - 500 - world.now_ms);
    assert_eq!(world.daemon.status().state, protocol::State::Staying);
    // The node is found not to be empty when less time is left than the device's smallest timeout.
    world.commands_to_hold.insert("kill");
    world.requests.clear();
    world.copies.entry("mail".into()).or_default().running = true;
    world.input(Input::Driver(DriverEvent::Appeared { name: "mail".into(), uid: "uid-mail".into() }));
    world.advance(400);
    let deadline_requests =
        world.requests.iter().filter(|request| matches!(request, protocol::Request::Deadline(_)));
    assert_eq!(deadline_requests.count(), 1, "{:?}", world.requests);
}

#[test]
fn missing_daemon_stops_services_before_reset() {
    let mut world = World::running();
    let timeout_ms = 2_500;
    world.disconnect_watchdog_daemon();
    world.advance(timeout_ms - 100);
    assert!(world.copies["web"].running && world.node_report().watchdog.problem.is_empty());
    let commit_count = world.commits.len();
    world.advance(600);
    assert!(!world.copies["web"].running && !world.was_reset, "{:?}", world.logs);
    let report = world.service_report("web");
    assert_eq!((report.phase, report.reason), (Phase::Stopped, Reason::WatchdogMissing));
    assert_eq!(world.node_report().watchdog.reason, Some(Reason::WatchdogMissing));
    // The loss of the daemon must be recorded first, because otherwise the leader would start the service here again.
    let keys = [world.keys.node_report(&own_node()), world.keys.service_report(&own_node(), &"web".into())];
    let wrote = |key: &String| {
        let writes_the_key = |(transaction, _): &(Transaction, Outcome)| transaction.writes_key(key);
        world.commits[commit_count..].iter().position(writes_the_key).expect("the key was written")
    };
    assert!(wrote(&keys[0]) < wrote(&keys[1]));
    world.advance(3_000);
    assert!(world.was_reset, "no process could release the device");
    assert!(
        world
            .journal
            .shutdown_record
            .is_some_and(|shutdown_record| shutdown_record.message.contains("ha-watchdogd was not running"))
    );
}

#[test]
fn short_daemon_outage_stops_no_service() {
    let mut world = World::running();
    for _ in 0..5 {
        world.disconnect_watchdog_daemon();
        world.advance(2_000);
        world.daemon_up = true;
        world.reconnect();
        world.advance(2_000);
    }
    assert_eq!(world.count_commands("web", "kill"), 0, "{:?}", world.logs);
    assert!(
        world.copies["web"].running && !world.was_reset && world.node_report().watchdog.problem.is_empty()
    );
}

#[test]
fn missing_daemon_blocks_actions_on_adopted_service() {
    let mut world = World::found_running();
    world.disconnect_watchdog_daemon();
    let (target, target_boot_id) = ("n2".into(), "boot-n2".into());
    world.assign("web", Action::Migrate { target, target_epoch: Epoch(1), target_boot_id });
    // The agent must stop the service instead of alternating between probes and kills indefinitely.
    world.advance(2_500);
    assert!(!world.copies["web"].running && !world.was_reset, "{:?}", world.logs);
}
