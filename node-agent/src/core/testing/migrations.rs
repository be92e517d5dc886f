//! Tests of FENCING 8: live migration in both roles.

use super::*;
use ha_api_types::driver::{DriverSpec, OcfDriver};
use ha_api_types::id::{ActionUid, Epoch};
use ha_api_types::reason::Reason;
use ha_api_types::resource::{RequestedState, ResourceSpec};

pub(super) const PEER: &str = "n2";

pub(super) fn migrate_to_peer() -> Action {
    Action::Migrate { target: PEER.into(), target_epoch: Epoch(1), target_boot_id: "peer-boot".into() }
}

#[test]
fn the_source_hands_over_after_target_is_ready() {
    let mut world = World::running();
    world.register_peer();
    let uid = world.assign("web", migrate_to_peer());
    world.advance(2_000);
    assert_eq!(world.count_commands("web", "migrate"), 0);
    world.peer_reports("web", &uid, Phase::Receiving, Reason::Waiting);
    world.advance(1_000);
    assert_eq!(world.count_commands("web", "migrate"), 0, "the target is not prepared yet");
    world.peer_reports("web", &uid, Phase::Receiving, Reason::Migrating);
    world.commands_to_hold.insert("migrate");
    world.advance(1_000);
    assert_eq!(world.service_report("web").phase, Phase::HandingOver);
    let (transaction, _) = world
        .commits
        .iter()
        .find(|(transaction, _)| transaction.guards().contains_key(&world.keys.fence(&PEER.into())))
        .expect("handing over");
    for key in [
        world.keys.alive(&own_node()),
        world.keys.fence(&own_node()),
        world.keys.assignment(&"web".into()),
        world.keys.service_report(&PEER.into(), &"web".into()),
        world.keys.fence(&PEER.into()),
    ] {
        assert!(transaction.guards().contains_key(&key), "{key}");
    }
    world.commands_to_hold.clear();
    world.finish_held_commands();
    world.advance(1_000);
    assert_eq!(
        (world.service_report("web").phase, world.service_report("web").action_uid),
        (Phase::HandedOver, Some(uid))
    );
    world.advance(2_000);
    assert!(!world.node_report().armed, "no copy is left on this node");
}

#[test]
fn a_failed_migration_is_resolved_by_a_probe() {
    for (still_here, phase) in [(true, Phase::MoveFailed), (false, Phase::HandedOver)] {
        let mut world = World::running();
        world.register_peer();
        world.commands_to_hold.insert("migrate");
        let uid = world.assign("web", migrate_to_peer());
        world.peer_reports("web", &uid, Phase::Receiving, Reason::Migrating);
        world.advance(1_000);
        let (id, _, _) = world.held_commands.pop().expect("a migration");
        world.copies.get_mut("web").expect("there").running = still_here;
        let failure = DriverFailure {
            class: FailureClass::RetryHere,
            reason: Reason::MoveFailed,
            message: "connection lost".into(),
        };
        world.input(Input::Ended { id, result: CommandResult::Failed(failure) });
        world.advance(1_000);
        assert_eq!(world.service_report("web").phase, phase);
        assert_eq!(world.copies["web"].running, still_here);
    }
}

#[test]
fn a_source_reports_nothing_while_its_probe_is_inconclusive() {
    let mut world = World::running();
    world.register_peer();
    let uid = world.assign("web", migrate_to_peer());
    world.copies.get_mut("web").expect("there").probe_unknown = true;
    world.peer_reports("web", &uid, Phase::Receiving, Reason::Migrating);
    world.advance(5_000);
    assert_eq!(world.service_report("web").phase, Phase::HandingOver);
    world.copies.get_mut("web").expect("there").probe_unknown = false;
    world.advance(5_000);
    assert_eq!(world.service_report("web").phase, Phase::HandedOver);
}

#[test]
fn failed_target_ends_migration_on_source() {
    let mut world = World::running();
    world.register_peer();
    let uid = world.assign("web", migrate_to_peer());
    world.peer_reports("web", &uid, Phase::Failed, Reason::DriverMissing);
    world.advance(1_000);
    assert_eq!(world.service_report("web").phase, Phase::MoveFailed);
    assert!(world.copies["web"].running);
}

#[test]
fn a_copy_killed_before_the_deadline_is_reported_as_handed_over() {
    let mut world = World::running();
    world.register_peer();
    world.commands_to_hold.insert("migrate");
    let uid = world.assign("web", migrate_to_peer());
    world.peer_reports("web", &uid, Phase::Receiving, Reason::Migrating);
    world.advance(1_000);
    world.network = NetworkFault::Down;
    world.advance(10_000);
    assert!(!world.copies["web"].running && world.held_commands.is_empty());
    world.network = NetworkFault::Up;
    world.advance(3_000);
    assert_eq!(world.service_report("web").phase, Phase::HandedOver);
}

impl World {
    pub(super) fn migrate_here(&mut self) -> ActionUid {
        self.migrate_here_with_max_restart(1)
    }

    fn migrate_here_with_max_restart(&mut self, max_restart: u32) -> ActionUid {
        self.migrate_here_with_spec(|spec| spec.max_restart = max_restart)
    }

    pub(super) fn migrate_here_with_spec(&mut self, change: impl FnOnce(&mut ResourceSpec)) -> ActionUid {
        self.create_resource_with("web", change);
        self.register_peer();
        let fence = self.fence();
        let action =
            Action::Migrate { target: own_node(), target_epoch: fence.epoch, target_boot_id: fence.boot_id };
        self.assign_to("web", PEER, action)
    }
}

#[test]
fn target_is_armed_before_arrival() {
    let mut world = World::active();
    let uid = world.migrate_here();
    world.advance(2_000);
    assert!(world.node_report().armed);
    assert_eq!(
        (world.service_report("web").phase, world.service_report("web").reason),
        (Phase::Receiving, Reason::Migrating)
    );
    assert_eq!(world.count_commands("web", "receive"), 1);
    world.peer_reports("web", &uid, Phase::HandingOver, Reason::Migrating);
    world.advance(2_000);
    assert_eq!(world.service_report("web").phase, Phase::Receiving);
    world.copies.entry("web".into()).or_default().running = true;
    world.peer_reports("web", &uid, Phase::HandedOver, Reason::Moved);
    world.advance(1_000);
    assert_eq!(
        (world.service_report("web").phase, world.service_report("web").action_uid),
        (Phase::Running, Some(uid))
    );
    // The leader then assigns the service to this node permanently.
    world.assign("web", Action::Start);
    world.advance(1_000);
    assert_eq!(world.service_report("web").phase, Phase::Running);
    assert_eq!(world.copies["web"].starts, 0, "adopted, not started again");
}

#[test]
fn missing_arrival_fails_the_migration() {
    for (reported, phase) in [(Phase::HandedOver, Phase::Failed), (Phase::MoveFailed, Phase::Stopped)] {
        let mut world = World::active();
        let uid = world.migrate_here();
        world.advance(2_000);
        world.peer_reports("web", &uid, reported, Reason::MoveFailed);
        world.advance(2_000);
        assert_eq!(world.service_report("web").phase, phase, "{reported:?}");
        assert_eq!(world.count_commands("web", "start"), 0);
    }
}

/// Configures an OCF agent, whose driver runs a command on the target after the source has handed over.
fn use_ocf_agent(spec: &mut ResourceSpec) {
    let ocf = OcfDriver { agent: "heartbeat:Dummy".into(), allow_migrate: true, ..OcfDriver::default() };
    spec.driver = DriverSpec { ocf: Some(ocf), ..DriverSpec::default() };
}

#[test]
fn the_arrival_command_runs_only_after_the_source_handed_over() {
    for (fails, phase) in [(0, Phase::Running), (1, Phase::Failed)] {
        let mut world = World::active();
        let uid = world.migrate_here_with_spec(use_ocf_agent);
        world.advance(2_000);
        world.peer_reports("web", &uid, Phase::HandingOver, Reason::Migrating);
        world.advance(2_000);
        assert_eq!((world.count_commands("web", "receive"), world.count_commands("web", "arrive")), (1, 0));
        world.copies.entry("web".into()).or_default().fail_arrivals = fails;
        world.peer_reports("web", &uid, Phase::HandedOver, Reason::Moved);
        world.advance(2_000);
        assert_eq!(
            (world.service_report("web").phase, world.service_report("web").action_uid),
            (phase, Some(uid))
        );
        assert_eq!(world.count_commands("web", "arrive"), 1);
        assert_eq!(world.copies["web"].starts, 0, "not started again");
    }
}

#[test]
fn a_restarted_agent_repeats_the_arrival_command() {
    let mut world = World::active();
    let uid = world.migrate_here_with_spec(use_ocf_agent);
    world.advance(2_000);
    world.commands_to_hold.insert("arrive");
    world.peer_reports("web", &uid, Phase::HandedOver, Reason::Moved);
    world.advance(1_000);
    assert_eq!(world.count_commands("web", "arrive"), 1);
    world.commands_to_hold.clear();
    world.held_commands.clear();
    world.restart_agent("boot-1");
    world.advance(3_000);
    assert_eq!(world.count_commands("web", "arrive"), 2);
    assert_eq!(
        (world.service_report("web").phase, world.service_report("web").action_uid),
        (Phase::Running, Some(uid))
    );
}

#[test]
fn the_arrival_command_does_not_run_if_the_source_is_fenced() {
    let mut world = World::active();
    let uid = world.migrate_here_with_spec(use_ocf_agent);
    world.advance(2_000);
    world.peer_reports("web", &uid, Phase::HandingOver, Reason::Migrating);
    world.fence_peer();
    world.advance(2_000);
    assert_eq!(world.count_commands("web", "arrive"), 0, "the progress of the source is unknown");
    assert_eq!(world.service_report("web").phase, Phase::Failed);
}

#[test]
fn a_target_without_watchdog_receives_nothing() {
    let mut world = World::active();
    world.refuse_arm = true;
    world.migrate_here();
    world.advance(3_000);
    assert_eq!(world.count_commands("web", "receive"), 0);
    assert_eq!(world.service_report("web").phase, Phase::Failed);
}

#[test]
fn ignored_resource_begins_no_cutover() {
    // Tests the source, before and after it has committed HandingOver.
    for in_progress in [false, true] {
        let mut world = World::running();
        world.register_peer();
        let uid = world.assign("web", migrate_to_peer());
        world.commands_to_hold.insert("migrate");
        if in_progress {
            world.peer_reports("web", &uid, Phase::Receiving, Reason::Migrating);
            world.advance(1_000);
            assert_eq!(world.service_report("web").phase, Phase::HandingOver);
        }
        world.create_resource_with("web", |spec| spec.state = RequestedState::Ignored);
        world.advance(2_000);
        world.peer_reports("web", &uid, Phase::Receiving, Reason::Migrating);
        assert!(world.node_report().armed, "the service is guarded until its assignment has ended");
        world.commands_to_hold.clear();
        world.finish_held_commands();
        world.advance(3_000);
        let (phase, runs) = if in_progress { (Phase::HandedOver, false) } else { (Phase::Running, true) };
        assert_eq!(
            (world.service_report("web").phase, world.copies["web"].running),
            (phase, runs),
            "begun: {in_progress}"
        );
        assert_eq!(world.count_commands("web", "migrate"), usize::from(in_progress));
        world.delete(&world.keys.assignment(&"web".into()));
        world.advance(2_000);
        assert!(!world.node_report().armed);
    }
}

#[test]
fn target_reports_arrival_of_ignored_service() {
    for (arrives, phase) in [(true, Phase::Running), (false, Phase::Failed)] {
        let mut world = World::active();
        let uid = world.migrate_here();
        world.advance(2_000);
        world.create_resource_with("web", |spec| spec.state = RequestedState::Ignored);
        world.advance(2_000);
        world.copies.entry("web".into()).or_default().running = arrives;
        world.peer_reports("web", &uid, Phase::HandedOver, Reason::Moved);
        world.advance(2_000);
        assert_eq!((world.service_report("web").phase, world.copies["web"].running), (phase, arrives));
        world.delete(&world.keys.assignment(&"web".into()));
        world.advance(2_000);
        assert!(!world.node_report().armed, "from now on, the service is not touched");
    }
}

#[test]
fn target_agent_restart_during_arrival_fails_migration() {
    let mut world = World::active();
    let uid = world.migrate_here_with_max_restart(3);
    world.advance(2_000);
    let copy = world.copies.entry("web".into()).or_default();
    (copy.running, copy.fail_starts) = (true, 2);
    world.peer_reports("web", &uid, Phase::HandedOver, Reason::Moved);
    world.advance(700);
    assert_eq!(
        world.service_report("web").phase,
        Phase::Starting,
        "the service does not start again immediately"
    );
    world.restart_agent("boot-1");
    world.advance(5_000);
    assert_eq!(
        (world.service_report("web").phase, world.service_report("web").action_uid),
        (Phase::Failed, Some(uid))
    );
    assert!(!world.copies["web"].running);
}

#[test]
fn target_keeps_arrived_and_removes_partial_copy() {
    // Three causes: the source is fenced, it reports HandedOver, or the leader orders the target to start the service
    // before that.
    let cases = ["fenced", "handed over", "start"].into_iter().flat_map(|cause| {
        [(cause, false, false), (cause, false, true), (cause, true, false), (cause, true, true)]
    });
    for (cause, gated, arrived) in cases {
        {
            let mut world = World::active();
            let uid = world.migrate_here_with_spec(|spec| {
                spec.driver.simulated = Some(SimulatedDriver { gated, ..SimulatedDriver::default() });
            });
            world.advance(2_000);
            assert_eq!(world.service_report("web").phase, Phase::Receiving);
            let copy = world.copies.entry("web".into()).or_default();
            (copy.running, copy.remnant) = (arrived, !arrived);
            match cause {
                "fenced" => world.fence_peer(),
                "handed over" => world.peer_reports("web", &uid, Phase::HandedOver, Reason::Moved),
                _ => {
                    world.assign("web", Action::Start);
                }
            }
            world.advance(3_000);
            // R8.20: if the source is lost, a gated driver has only a paused copy, whose memory may be older than its
            // data.
            let is_copy_kept = arrived && (cause == "handed over" || !gated);
            let expected = match (cause, is_copy_kept) {
                (_, true) => (Phase::Running, 0),
                ("start", false) => (Phase::Running, 1),
                (_, false) => (Phase::Failed, 0),
            };
            let copy = &world.copies["web"];
            let case = format!("{cause}, gated: {gated}, arrived: {arrived}");
            assert_eq!((world.service_report("web").phase, copy.starts), expected, "{case}");
            assert!(!copy.remnant, "{case}");
            assert_eq!(
                world.count_commands("web", "kill") + world.count_commands("web", "stop"),
                usize::from(!is_copy_kept),
                "{case}"
            );
        }
    }
}

#[test]
fn source_remnant_is_killed_after_migration() {
    let mut world = World::running();
    world.register_peer();
    world.commands_to_hold.insert("migrate");
    let uid = world.assign("web", migrate_to_peer());
    world.peer_reports("web", &uid, Phase::Receiving, Reason::Migrating);
    world.advance(1_000);
    let (id, _, _) = world.held_commands.pop().expect("a migration");
    let copy = world.copies.get_mut("web").expect("there");
    (copy.running, copy.remnant) = (false, true);
    world.input(Input::Ended { id, result: CommandResult::Canceled });
    world.advance(2_000);
    assert_eq!(
        (world.service_report("web").phase, world.service_report("web").action_uid),
        (Phase::HandedOver, Some(uid))
    );
    assert_eq!(world.count_commands("web", "kill"), 1);
    assert!(!world.copies["web"].remnant);
}

#[test]
fn remnant_counts_as_running_until_removed() {
    // Case 1: the remnant is found by the probe that adopts running copies, and counts as a crash.
    let mut world = World::running();
    let copy = world.copies.get_mut("web").expect("there");
    (copy.running, copy.remnant) = (false, true);
    world.restart_agent("boot-1");
    world.advance(3_000);
    assert_eq!(
        (world.service_report("web").phase, world.service_report("web").reason),
        (Phase::Running, Reason::Restarted)
    );
    assert_eq!((world.count_commands("web", "kill"), world.copies["web"].starts), (1, 2));
    // Case 2: the remnant is found by a probe for the leader.
    let mut world = World::active();
    world.copies.entry("web".into()).or_default().remnant = true;
    world.create_resource("web");
    world.advance(1_000);
    assert_eq!(world.service_report("web").phase, Phase::ProbedUnknown);
}

#[test]
fn the_report_shows_the_progress_of_a_migration() {
    let mut world = World::running();
    world.register_peer();
    let progress = |world: &mut World, message: &str| {
        let (name, uid, message) = ("web".into(), "uid-web".to_owned(), message.to_owned());
        world.input(Input::Driver(DriverEvent::Progress { name, uid: uid.into(), message }));
        world.advance(500);
    };
    progress(&mut world, "too early");
    assert_eq!(world.service_report("web").phase, Phase::Running);
    world.commands_to_hold.insert("migrate");
    let uid = world.assign("web", migrate_to_peer());
    world.peer_reports("web", &uid, Phase::Receiving, Reason::Migrating);
    world.advance(1_000);
    progress(&mut world, "45 %");
    let report = world.service_report("web");
    assert_eq!((report.phase, report.message.as_str()), (Phase::HandingOver, "45 %"));
    world.commands_to_hold.clear();
    world.finish_held_commands();
    world.advance(1_000);
    progress(&mut world, "too late");
    assert_eq!(world.service_report("web").phase, Phase::HandedOver);
    assert_eq!(world.service_report("web").message, "");
}

#[test]
fn report_contains_resource_requests_of_definition() {
    let mut world = World::running();
    let memory = Some(ha_api_types::quantity::Quantity::from_units(1 << 30));
    let amounts = ha_api_types::quantity::Amounts { memory, ..Default::default() };
    let (name, uid) = ("web".into(), "uid-web".to_owned());
    world.input(Input::Driver(DriverEvent::RequestedAmounts { name, uid: uid.into(), amounts }));
    world.advance(500);
    assert_eq!(
        (world.service_report("web").phase, world.service_report("web").definition_requests),
        (Phase::Running, amounts)
    );
    world.assign("web", Action::Stop { timeout_ms: None });
    world.advance(1_000);
    assert_eq!(
        (world.service_report("web").phase, world.service_report("web").definition_requests),
        (Phase::Stopped, amounts)
    );
}
