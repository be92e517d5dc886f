//! Tests of FENCING 3 and 4: the guards and effect of a heartbeat, and the consequences of a failed commit.

use super::*;
use ha_api_types::cluster::Cluster;
use ha_api_types::id::Epoch;
use ha_api_types::record::Mode;
use ha_api_types::timing::Profile;

#[test]
fn every_heartbeat_guards_its_keys_and_lease() {
    let mut world = World::active();
    world.commits.clear();
    world.advance(5_000);
    assert!(world.commits.len() >= 4, "every Ki");
    for (transaction, outcome) in &world.commits {
        assert!(outcome.applied().is_some());
        assert!(matches!(transaction.guards()[&world.keys.alive(&own_node())], Guard::Created(_)));
        assert!(matches!(transaction.guards()[&world.keys.fence(&own_node())], Guard::Unchanged(_)));
        assert!(matches!(transaction.guards()[&world.keys.node_report(&own_node())], Guard::Unchanged(_)));
    }
    assert_ne!(world.lease_of_alive(), ha_store::LeaseId::NONE);
}

#[test]
fn the_deadline_counts_from_before_the_commit() {
    let mut world = World::active();
    let timings = world.core.active_timings;
    let before_ms = world.now_ms;
    world.advance(timings.heartbeat_interval_ms);
    let proven = world.proven_ms.expect("heartbeat");
    assert!(proven >= before_ms);
    let deadline = world.core.deadline.expect("D");
    assert_eq!(deadline.monotonic_raw_ns / 1_000_000, proven + timings.heartbeat_valid_ms);
    assert_eq!(
        deadline.boottime_ns / 1_000_000,
        proven + 5_000 + timings.heartbeat_valid_ms,
        "on both clocks"
    );
}

#[test]
fn an_unknown_heartbeat_does_not_extend_deadline() {
    let mut world = World::running();
    let deadline = world.core.deadline;
    world.network = NetworkFault::AnswersLost;
    world.advance(2_000);
    assert_eq!(world.core.deadline, deadline);
    world.network = NetworkFault::Up;
    world.advance(1_100);
    assert_ne!(world.core.deadline, deadline);
    assert!(world.copies["web"].running);
    assert_eq!(world.copies["web"].starts, 1);
}

#[test]
fn after_the_deadline_a_heartbeat_guards_the_last_answer() {
    let mut world = World::running();
    world.network = NetworkFault::AnswersLost;
    world.advance(world.core.active_timings.heartbeat_valid_ms + 2_000);
    assert!(!world.copies["web"].running, "without an answer, D passes");
    let alive = world.alive();
    world.advance(20_000);
    assert_eq!(world.alive(), alive, "no further heartbeat is applied");
    world.network = NetworkFault::Up;
    world.advance(5_000);
    assert_ne!(world.alive(), alive);
    assert!(world.core.proven_deadline(&world.now()).is_some());
    assert_eq!(world.fence().epoch, Epoch(1));
}

#[test]
fn outage_within_the_margin_changes_nothing() {
    let mut world = World::running();
    let t = world.core.active_timings;
    world.network = NetworkFault::Down;
    world.advance(t.heartbeat_valid_ms - 2 * t.heartbeat_interval_ms - t.stop_margin_ms - 10);
    world.network = NetworkFault::Up;
    world.advance(20_000);
    assert!(world.copies["web"].running && !world.was_reset);
    assert_eq!(world.count_commands("web", "kill"), 0);
}

#[test]
fn deleted_alive_key_is_created_again() {
    let mut world = World::running();
    world.delete(&world.keys.alive(&own_node()));
    world.advance(2_000);
    assert!(world.alive().is_some());
    assert_eq!(world.node_report().mode, Mode::Active);
    assert_eq!(world.count_commands("web", "kill") + world.count_commands("web", "stop"), 0);
    assert_eq!(world.fence().epoch, Epoch(1));
}

#[test]
fn expired_lease_is_replaced_with_alive_key() {
    let mut world = World::running();
    let lease = world.lease_of_alive();
    world.state.revoke_lease(lease).expect("there");
    world.advance(2_000);
    assert_ne!(world.lease_of_alive(), lease);
    assert!(world.copies["web"].running && !world.was_reset);
}

#[test]
fn another_instance_in_alive_key_ends_this_process() {
    let mut world = World::running();
    world.delete(&world.keys.alive(&own_node()));
    world.write(
        &world.keys.alive(&own_node()),
        &Alive { instance: "other".into(), epoch: Epoch(1), sequence: 1 },
    );
    world.advance(2_000);
    assert_eq!(world.exit, Some(Exit::Superseded));
    assert!(world.copies["web"].running);
    let commits = world.commits.len();
    world.input(Input::Tick);
    assert_eq!(world.commits.len(), commits);
}

#[test]
fn equivalent_fence_rewrite_changes_nothing() {
    let mut world = World::running();
    let fence = Fence { at: ha_api_types::time::Timestamp("later".into()), ..world.fence() };
    world.write(&world.keys.fence(&own_node()), &fence);
    world.advance(3_000);
    assert!(world.copies["web"].running);
    assert_eq!(world.count_commands("web", "kill"), 0);
    assert!(world.core.active_registration().is_some());
}

#[test]
fn restored_etcd_counts_as_closed_epoch() {
    let mut world = World::running();
    let revision = world.state.revision();
    world.journal.revision = revision + 1_000;
    world.restart_agent("boot-1");
    world.advance(3_000);
    assert_eq!(world.node_report().mode, Mode::Registering);
    assert!(!world.copies["web"].running);
}

#[test]
fn agent_registers_again_after_etcd_restore() {
    let mut world = World::running();
    let backup = world.state.clone();
    // The backup does not contain the registration that follows.
    world.close_epoch();
    world.advance(5_000);
    world.open_epoch();
    world.assign("web", Action::Start);
    world.advance(20_000);
    assert!(world.copies["web"].running, "{:#?}", world.logs);
    let seen_revision = world.journal.revision;
    // The plain backup, restored without `hactl restore`, is below every revision that the agent has seen.
    world.state = backup;
    assert!(world.state.revision() < seen_revision);
    world.advance(3_000);
    assert_eq!(world.running_copies(), 0, "{:#?}", world.logs);
    // The shell lists all keys within a minute, and reads the older revision.
    world.sync();
    world.advance(3_000);
    assert_eq!(world.node_report().mode, Mode::Registering, "{:#?}", world.logs);
    world.close_epoch();
    world.open_epoch();
    world.advance(3_000);
    assert_eq!(world.node_report().mode, Mode::Active, "{:#?}", world.logs);
    assert!(world.journal.revision < seen_revision, "the revisions of the lost store are forgotten");
    // The next process of this boot continues with the same etcd data.
    world.assign("web", Action::Start);
    world.advance(3_000);
    let stops = world.count_commands("web", "stop") + world.count_commands("web", "kill");
    world.restart_agent("boot-1");
    world.advance(3_000);
    assert!(world.copies["web"].running);
    assert_eq!(
        world.count_commands("web", "stop") + world.count_commands("web", "kill"),
        stops,
        "{:#?}",
        world.logs
    );
}

#[test]
fn new_timings_apply_from_their_committed_heartbeat() {
    let mut world = World::active();
    let mut cluster = Cluster::new("default", ha_api_types::cluster::ClusterSpec::default());
    cluster.spec.timing.profile = Profile::Fast;
    world.write(&world.keys.spec(Kind::Cluster, "default"), &cluster);
    world.network = NetworkFault::Down;
    world.advance(500);
    assert_eq!(world.core.active_timings.heartbeat_valid_ms, 6_000);
    world.network = NetworkFault::Up;
    world.advance(3_000);
    assert_eq!(world.node_report().timings.heartbeat_valid_ms, 4_000);
    assert_eq!(world.core.active_timings.heartbeat_valid_ms, 4_000);
    let remaining_ms = world.core.remaining_ms(&world.now()).expect("D");
    assert!(remaining_ms <= 4_000);
}

#[test]
fn shorter_validity_applies_from_first_attempt() {
    let mut world = World::running();
    let mut cluster = Cluster::new("default", ha_api_types::cluster::ClusterSpec::default());
    cluster.spec.timing.profile = Profile::Fast;
    world.write(&world.keys.spec(Kind::Cluster, "default"), &cluster);
    world.deliver();
    // The first heartbeat shortens the deadline, the next one commits the validity.
    while world.core.remaining_ms(&world.now()).is_none_or(|remaining_ms| remaining_ms > 4_000) {
        world.advance(10);
    }
    world.network = NetworkFault::AnswersLost;
    world.advance(1_100);
    assert_eq!(world.node_report().timings.heartbeat_valid_ms, 4_000, "applied, but not seen");
    let remaining_ms = world.core.remaining_ms(&world.now()).expect("D");
    assert!(remaining_ms <= 4_000, "{remaining_ms}");
}

#[test]
fn invalid_timings_are_not_applied() {
    let mut world = World::active();
    let mut cluster = Cluster::new("default", ha_api_types::cluster::ClusterSpec::default());
    cluster.spec.timing.heartbeat_lifetime_seconds = Some(1.0);
    world.write(&world.keys.spec(Kind::Cluster, "default"), &cluster);
    world.advance(3_000);
    assert_eq!(world.node_report().timings.heartbeat_valid_ms, 6_000);
}

#[test]
fn an_idle_node_is_never_armed_and_never_reset() {
    let mut world = World::active();
    assert!(!world.node_report().armed);
    assert_eq!(world.node_report().watchdog.timeout_ms, 5_000, "the facts of the device are reported");
    assert_eq!(world.fires_at_ms, None);
    world.network = NetworkFault::Down;
    world.advance(120_000);
    assert!(!world.was_reset);
}

#[test]
fn armed_covers_first_permit_to_last_stop() {
    let mut world = World::running();
    assert!(world.node_report().armed);
    world.assign("web", Action::Stop { timeout_ms: None });
    world.advance(3_000);
    assert_eq!(world.service_report("web").phase, Phase::Stopped);
    assert!(!world.node_report().armed);
    assert_eq!(world.fires_at_ms, None);
    assert_eq!(world.requests.last(), Some(&protocol::Request::Release));
}

#[test]
fn watchdog_stays_armed_until_disarm_is_committed() {
    let mut world = World::running();
    world.commands_to_hold.insert("stop");
    world.assign("web", Action::Stop { timeout_ms: None });
    world.network = NetworkFault::AnswersLost;
    world.requests.clear();
    world.finish_held_commands();
    world.advance(2_500);
    assert!(!world.copies["web"].running);
    assert!(world.fires_at_ms.is_some());
    assert!(!world.requests.contains(&protocol::Request::Release));
    world.network = NetworkFault::Up;
    world.advance(3_000);
    assert_eq!(world.fires_at_ms, None);
    assert!(!world.node_report().armed);
}

#[test]
fn only_new_candidates_trigger_another_heartbeat() {
    let mut world = World::active();
    let key = world.keys.candidate(&"c9".into());
    let now = world.now();
    let mut followed_up = |create_revision, mod_revision| {
        let entry = ha_store::Entry {
            key: key.clone(),
            value: b"{}".as_slice().into(),
            create_revision,
            mod_revision,
            lease: ha_store::LeaseId::NONE,
        };
        let changes = vec![Change::Put(entry)];
        world.core.handle(&now, Input::Changed { changes, revision: mod_revision });
        let followed_up = world.core.pending_follow_up.is_some();
        while world.core.poll_effect().is_some() {}
        followed_up
    };
    assert!(followed_up(Revision(1_000), Revision(1_000)), "a new one");
    assert!(!followed_up(Revision(1_000), Revision(1_001)), "the same");
    assert!(followed_up(Revision(1_002), Revision(1_002)), "another under the same name");
    assert_eq!(world.core.view.candidate_generation(), Revision(1_002));
}

#[test]
fn invalid_timings_are_logged_and_ignored() {
    let mut world = World::active();
    let in_force = world.node_report().timings;
    let mut cluster = Cluster::new("default", ha_api_types::cluster::ClusterSpec::default());
    cluster.spec.timing.self_fence_margin_seconds = Some(5.0);
    world.write(&world.keys.spec(Kind::Cluster, "default"), &cluster);
    world.advance(3_000);
    assert_eq!(world.node_report().timings, in_force);
    let warnings: Vec<&String> =
        world.logs.iter().filter(|line| line.contains("cannot use the timing settings")).collect();
    assert_eq!(warnings.len(), 1, "{:?}", world.logs);
    assert!(
        warnings[0].contains("spec.timing.heartbeatLifetimeSeconds is 6")
            && warnings[0].contains("more than 1"),
        "{warnings:?}"
    );
}

#[test]
fn write_failures_are_logged_on_change() {
    let mut world = World::running();
    let mut check = |outcome: &Outcome, logged: &[&str]| {
        world.core.log_outcome("report of web", outcome);
        let mut logs = Vec::new();
        for effect in world.core.effects.drain(..) {
            if let Effect::Log { level: Level::Info | Level::Warning, message } = effect {
                logs.push(message);
            }
        }
        assert_eq!(logs.len(), logged.len(), "{logs:?}");
        for (log, part) in logs.iter().zip(logged) {
            assert!(log.contains(part), "{part:?} is not in {log:?}");
        }
    };
    let refused = |text: &str| Outcome::Refused(text.to_owned());
    check(&Outcome::Applied(Revision(1)), &[]);
    check(&refused("permission denied"), &["rejected by etcd: permission denied"]);
    check(&refused("permission denied"), &[]);
    check(&refused("too many requests"), &["too many requests"]);
    check(&Outcome::Unknown("timed out after 1.0 s".to_owned()), &["may not have been committed"]);
    check(&Outcome::Unknown("timed out after 1.1 s".to_owned()), &[]);
    check(&Outcome::Applied(Revision(2)), &["committed again"]);
    check(&Outcome::Applied(Revision(3)), &[]);
}
