//! Tests of R8.5, R8.10 to R8.12, R4.40 and R4.41: from the hand-over to its driver, and services that may still
//! arrive.

use super::migrations::migrate_to_peer;
use super::*;
use ha_api_types::cluster::{Cluster, ClusterSpec};
use ha_api_types::id::ActionUid;
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;

impl World {
    /// Creates a source that has committed HandingOver and whose read of the target is not answered yet.
    fn handing_over() -> (World, ActionUid) {
        let mut world = World::running();
        world.register_peer();
        let uid = world.assign("web", migrate_to_peer());
        world.hold_journal = true;
        world.peer_reports("web", &uid, Phase::Receiving, Reason::Migrating);
        world.advance(1_000);
        assert_eq!(world.service_report("web").phase, Phase::HandingOver);
        assert_eq!(world.count_commands("web", "migrate"), 0, "not before the journal has it");
        world.hold_reads = true;
        world.write_held_journals();
        assert_eq!(world.count_commands("web", "migrate"), 0, "not before the target is read");
        assert_eq!(world.held_reads.len(), 1);
        (world, uid)
    }

    fn never_began(&mut self) {
        self.advance(1_000);
        let report = self.service_report("web");
        assert_eq!((report.phase, report.never_began), (Phase::MoveFailed, true));
        assert_eq!(self.count_commands("web", "migrate"), 0);
        assert!(self.copies["web"].running);
    }
}

#[test]
fn driver_begins_after_unchanged_target_is_read() {
    let (mut world, uid) = World::handing_over();
    world.commands_to_hold.insert("migrate");
    world.answer_held_reads();
    assert_eq!(world.count_commands("web", "migrate"), 1);
    world.commands_to_hold.clear();
    world.finish_held_commands();
    world.advance(1_000);
    let report = world.service_report("web");
    assert_eq!((report.phase, report.action_uid, report.never_began), (Phase::HandedOver, Some(uid), false));
}

#[test]
fn changed_or_late_target_prevents_migration() {
    for case in ["report", "fence", "late", "none", "canceled"] {
        let (mut world, uid) = World::handing_over();
        match case {
            "report" => world.peer_reports("web", &uid, Phase::Stopped, Reason::LeaseLost),
            "fence" => world.fence_peer(),
            "late" => {
                let margin_ms = world.core.active_timings.stop_margin_ms;
                world.advance(margin_ms + 1);
                assert!(world.service_report("web").never_began, "reported without an answer");
            }
            "none" => {
                for (id, _) in std::mem::take(&mut world.held_reads) {
                    world.input(Input::Read { id, result: Err("no answer".to_owned()) });
                }
                world.hold_reads = false;
                world.advance(3_000);
            }
            _ => {
                world.assign("web", Action::Start);
                world.advance(100);
                world.answer_held_reads();
                world.advance(1_000);
                assert_eq!(
                    (world.count_commands("web", "migrate"), world.service_report("web").phase),
                    (0, Phase::Running)
                );
                continue;
            }
        }
        world.answer_held_reads();
        world.never_began();
        // A new assignment continues the service in place.
        world.assign("web", Action::Start);
        world.advance(1_000);
        assert_eq!(
            (world.service_report("web").phase, world.copies["web"].starts),
            (Phase::Running, 1),
            "{case}"
        );
    }
}

#[test]
fn cutover_is_committed_only_with_free_worker() {
    let mut world = World::running();
    let spec = ClusterSpec { max_workers: 1, ..ClusterSpec::default() };
    world.write(&world.keys.spec(Kind::Cluster, "default"), &Cluster::new("default", spec));
    world.deliver();
    world.create_resource("other");
    world.assign("other", Action::Start);
    world.advance(1_000);
    world.commands_to_hold.insert("stop");
    world.assign("other", Action::Stop { timeout_ms: None });
    world.register_peer();
    let uid = world.assign("web", migrate_to_peer());
    world.peer_reports("web", &uid, Phase::Receiving, Reason::Migrating);
    world.advance(3_000);
    assert_ne!(world.service_report("web").phase, Phase::HandingOver, "the only worker is busy");
    // The target is lost before the commit, so the hand-over is never committed.
    world.fence_peer();
    world.commands_to_hold.clear();
    world.finish_held_commands();
    world.advance(3_000);
    assert_ne!(world.service_report("web").phase, Phase::HandingOver);
    assert_eq!(world.count_commands("web", "migrate"), 0);
    // Once the target is registered again and the worker is free, the hand-over succeeds.
    world.register_peer();
    world.peer_reports("web", &uid, Phase::Receiving, Reason::Migrating);
    world.advance(3_000);
    assert_eq!(
        (world.count_commands("web", "migrate"), world.service_report("web").phase),
        (1, Phase::HandedOver)
    );
}

#[test]
fn restarted_agent_begins_no_unjournaled_cutover() {
    let mut world = World::running();
    world.register_peer();
    let uid = world.assign("web", migrate_to_peer());
    world.hold_journal = true;
    world.peer_reports("web", &uid, Phase::Receiving, Reason::Migrating);
    world.advance(1_000);
    assert_eq!(world.service_report("web").phase, Phase::HandingOver);
    world.hold_journal = false;
    world.restart_agent("boot-1");
    world.never_began();
}

#[test]
fn restarted_agent_ends_migration_before_probing() {
    for (runs, phase) in [(true, Phase::MoveFailed), (false, Phase::HandedOver)] {
        let (mut world, uid) = World::handing_over();
        world.commands_to_hold.insert("migrate");
        world.answer_held_reads();
        world.copies.get_mut("web").expect("there").running = runs;
        world.commands_to_hold.insert("end-migration");
        world.restart_agent("boot-1");
        let probes = world.count_commands("web", "probe");
        world.advance(3_000);
        assert_eq!(world.count_commands("web", "end-migration"), 1);
        assert_eq!(
            world.count_commands("web", "probe"),
            probes,
            "no probe while the migration may be in progress"
        );
        assert_eq!(world.service_report("web").phase, Phase::HandingOver, "no later phase is reported yet");
        world.commands_to_hold.clear();
        world.finish_held_commands();
        world.advance(1_000);
        let report = world.service_report("web");
        assert_eq!((report.phase, report.action_uid, report.never_began), (phase, Some(uid), false));
        assert_eq!(world.count_commands("web", "migrate"), 1, "never again");
    }
}

#[test]
fn unjournaled_cutover_never_begins() {
    let mut world = World::running();
    world.register_peer();
    let uid = world.assign("web", migrate_to_peer());
    world.journal_fails = true;
    world.peer_reports("web", &uid, Phase::Receiving, Reason::Migrating);
    world.advance(2_000);
    world.never_began();
    assert_eq!(world.count_commands("web", "stop"), 0);
}

#[test]
fn arrived_service_needs_permit_after_cutover() {
    let mut world = World::active();
    let uid = world.migrate_here();
    world.advance(2_000);
    world.copies.entry("web".into()).or_default().running = true;
    world.peer_reports("web", &uid, Phase::HandingOver, Reason::Migrating);
    world.advance(3_000);
    assert_eq!(
        (world.count_commands("web", "start"), world.service_report("web").phase),
        (0, Phase::Receiving)
    );
    world.commands_to_hold.insert("probe");
    world.peer_reports("web", &uid, Phase::HandedOver, Reason::Moved);
    world.advance(1_000);
    let report = world.service_report("web");
    assert_eq!((report.phase, report.reason), (Phase::Starting, Reason::Migrating));
    let key = world.keys.service_report(&own_node(), &"web".into());
    let (permit, _) =
        world.commits.iter().rfind(|(permit, _)| permit.writes().contains_key(&key)).expect("a permit");
    assert!(permit.guards().contains_key(&world.keys.assignment(&"web".into())));
    // The result is the same if the agent is restarted at that moment.
    world.commands_to_hold.clear();
    world.restart_agent("boot-1");
    world.advance(3_000);
    assert_eq!(
        (world.service_report("web").phase, world.service_report("web").action_uid),
        (Phase::Running, Some(uid))
    );
    assert_eq!((world.count_commands("web", "start"), world.copies["web"].starts), (1, 0));
}

#[test]
fn isolated_target_stays_only_without_open_reception() {
    for gated in [true, false] {
        let mut world = World::active();
        world.migrate_here_with_spec(|spec| {
            spec.driver.simulated = Some(SimulatedDriver { gated, ..SimulatedDriver::default() });
        });
        world.advance(2_000);
        assert_eq!(world.service_report("web").phase, Phase::Receiving);
        world.network = NetworkFault::Down;
        world.advance(30_000);
        assert_eq!(world.count_commands("web", "close-reception"), 1, "gated: {gated}");
        assert_eq!(world.was_reset, !gated, "gated: {gated}");
    }
}

#[test]
fn reception_ends_with_its_source() {
    let mut world = World::active();
    let uid = world.migrate_here_with_spec(|spec| {
        spec.driver.simulated = Some(SimulatedDriver { gated: false, ..SimulatedDriver::default() });
    });
    world.advance(2_000);
    world.copies.entry("web".into()).or_default().running = true;
    world.peer_reports("web", &uid, Phase::HandedOver, Reason::Moved);
    world.advance(2_000);
    assert_eq!(world.service_report("web").phase, Phase::Running);
    world.network = NetworkFault::Down;
    world.advance(30_000);
    assert_eq!(world.count_commands("web", "close-reception"), 0);
    assert!(!world.was_reset && !world.copies["web"].running, "killed in time, so it stays");
}

#[test]
fn possibly_arrived_service_is_stopped() {
    for (gated, stops) in [(true, 0), (false, 1)] {
        let mut world = World::active();
        world.create_resource_with("web", |spec| {
            spec.driver.simulated = Some(SimulatedDriver { gated, ..SimulatedDriver::default() });
        });
        world.advance(1_000);
        assert_eq!(world.service_report("web").phase, Phase::ProbedStopped);
        world.assign("web", Action::Stop { timeout_ms: None });
        world.advance(1_000);
        assert_eq!(
            (world.service_report("web").phase, world.count_commands("web", "stop")),
            (Phase::Stopped, stops)
        );
    }
}

#[test]
fn target_waits_for_report_of_departed_source() {
    let mut world = World::active();
    let uid = world.migrate_here();
    world.advance(2_000);
    world.copies.entry("web".into()).or_default().running = true;
    // The fence is watched, but the report is read only at intervals.
    world.peer_reports("web", &uid, Phase::HandedOver, Reason::Moved);
    world.fence_peer();
    world.deliver();
    world.advance(2_000);
    assert_eq!(
        (world.service_report("web").phase, world.service_report("web").action_uid),
        (Phase::Running, Some(uid))
    );
    assert_eq!((world.copies["web"].starts, world.count_commands("web", "kill")), (0, 0));
}
