//! Tests of FENCING 6 and of the start failure policy: failures, crashes, restarts in place.

use super::*;
use ha_api_types::reason::Reason;

fn end_process(world: &mut World, name: &str, stopped_externally: bool) {
    world.copies.get_mut(name).expect("there").running = false;
    world.input(Input::Driver(DriverEvent::Exited {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        message: "killed by signal 9".into(),
        stopped_externally,
    }));
}

/// Checks one case: number of failing starts, `maxRestart`, and the final phase after a number of attempts.
fn check(fail_starts: u32, max_restart: u32, phase: Phase, attempts: usize) {
    let mut world = World::active();
    world.create_resource_with("web", |spec| spec.max_restart = max_restart);
    world.copies.entry("web".into()).or_default().fail_starts = fail_starts;
    world.assign("web", Action::Start);
    world.advance(120_000);
    assert_eq!(world.service_report("web").phase, phase, "{fail_starts} {max_restart}");
    assert_eq!(world.count_commands("web", "start"), attempts, "{fail_starts} {max_restart}");
}

#[test]
fn start_fails_after_max_restart_attempts() {
    check(0, 1, Phase::Running, 1);
    check(1, 1, Phase::Running, 2);
    check(2, 1, Phase::Failed, 2);
    check(1, 0, Phase::Failed, 1);
    check(3, 3, Phase::Running, 4);
}

#[test]
fn failed_is_reported_only_without_remaining_copy() {
    let mut world = World::active();
    world.create_resource_with("web", |spec| spec.max_restart = 0);
    let copy = world.copies.entry("web".into()).or_default();
    copy.fail_starts = 9;
    copy.stop_fails = true;
    world.assign("web", Action::Start);
    world.advance(3_000);
    assert_eq!(world.service_report("web").phase, Phase::StopFailed);
    assert!(world.node_report().armed, "the service counts as running");
}

#[test]
fn failed_needs_a_probe_that_confirms() {
    let mut world = World::active();
    world.create_resource_with("web", |spec| spec.max_restart = 0);
    world.advance(100);
    let copy = world.copies.entry("web".into()).or_default();
    copy.fail_starts = 9;
    copy.probe_unknown = true;
    world.assign("web", Action::Start);
    world.advance(3_000);
    assert_eq!(world.service_report("web").phase, Phase::StopFailed);
}

#[test]
fn service_uses_the_definition_of_its_assignment() {
    let mut world = World::active();
    world.create_resource_with("web", |spec| spec.timeouts.stop_seconds = 5.0);
    world.assign("web", Action::Start);
    // The spec is edited before the agent has begun, and again while the service runs.
    world.create_resource_with("web", |spec| spec.timeouts.stop_seconds = 6.0);
    world.advance(3_000);
    let journaled = |world: &World| world.journal.services["web"].definition.timeouts.stop_ms();
    assert_eq!((world.service_report("web").phase, journaled(&world)), (Phase::Running, 5_000));
    world.create_resource_with("web", |spec| {
        spec.timeouts.stop_seconds = 7.0;
        spec.max_restart = 0;
    });
    end_process(&mut world, "web", false);
    world.advance(1_000);
    assert_eq!(
        (world.service_report("web").phase, journaled(&world)),
        (Phase::Running, 5_000),
        "a crash changes nothing"
    );
    world.assign("web", Action::Stop { timeout_ms: None });
    world.advance(3_000);
    assert!(
        world.executed.contains(&("web".into(), Command::Stop { graceful_ms: 5_000 })),
        "{:?}",
        world.executed
    );
}

#[test]
fn crashed_service_restarts_under_same_permit() {
    let mut world = World::running();
    let uid = world.service_report("web").action_uid;
    world.advance(40_000);
    let commits = world.commits.len();
    end_process(&mut world, "web", false);
    assert!(world.copies["web"].running, "restarted immediately");
    let report = world.service_report("web");
    assert_eq!((report.phase, report.restarts, report.action_uid), (Phase::Running, 1, uid));
    let phases: Vec<Phase> = world.commits[commits..]
        .iter()
        .filter_map(|(transaction, _)| {
            match transaction.writes().get(&world.keys.service_report(&own_node(), &"web".into())) {
                Some(ha_store::Write::Put { value, .. }) => {
                    serde_json::from_slice::<ServiceReport>(value).ok().map(|report| report.phase)
                }
                _ => None,
            }
        })
        .collect();
    assert!(!phases.iter().any(|phase| matches!(phase, Phase::Stopped | Phase::Failed)), "{phases:?}");
    assert!(world.events.iter().any(|event| event.reason == Reason::Crashed));
}

#[test]
fn early_crashes_exhaust_the_restart_attempts() {
    let mut world = World::running();
    end_process(&mut world, "web", false);
    assert!(world.copies["web"].running, "the first crash leads to an immediate restart");
    end_process(&mut world, "web", false);
    assert!(!world.copies["web"].running, "the restart after the next crash is delayed");
    world.advance(3_000);
    assert!(world.copies["web"].running);
    end_process(&mut world, "web", false);
    world.advance(10_000);
    let report = world.service_report("web");
    assert_eq!((report.phase, report.reason), (Phase::Failed, Reason::Crashed));
    assert!(!world.copies["web"].running);
}

#[test]
fn late_crashes_never_exhaust_restart_attempts() {
    let mut world = World::running();
    for _ in 0..5 {
        world.advance(31_000);
        end_process(&mut world, "web", false);
        world.advance(100);
        assert_eq!(world.service_report("web").phase, Phase::Running);
    }
    assert_eq!(world.service_report("web").restarts, 5);
}

#[test]
fn manually_stopped_service_restarts_without_failure() {
    let mut world = World::running();
    for _ in 0..4 {
        end_process(&mut world, "web", true);
        world.advance(500);
        assert!(world.copies["web"].running);
    }
    assert!(world.events.iter().any(|event| {
        event.reason == Reason::StoppedExternally && event.message.contains("hactl stop web")
    }));
}

#[test]
fn an_exit_of_another_uid_is_ignored() {
    let mut world = World::running();
    world.input(Input::Driver(DriverEvent::Exited {
        name: "web".into(),
        uid: "another".into(),
        message: String::new(),
        stopped_externally: false,
    }));
    assert_eq!(world.count_commands("web", "kill"), 0);
}

#[test]
fn permanent_failures_are_not_retried() {
    for class in [FailureClass::TryElsewhere, FailureClass::NeverHere, FailureClass::ConfigurationWrong] {
        let mut world = World::active();
        world.create_resource_with("web", |spec| spec.max_restart = 9);
        world.commands_to_hold.insert("start");
        world.assign("web", Action::Start);
        world.advance(1_000);
        let (id, _, _) = world.held_commands.pop().expect("a start");
        let failure =
            DriverFailure { class, reason: Reason::NotInstalled, message: "no such program".into() };
        world.input(Input::Ended { id, result: CommandResult::Failed(failure) });
        world.advance(100);
        let report = world.service_report("web");
        assert_eq!((report.phase, report.failure), (Phase::Failed, Some(class)));
        assert_eq!(world.count_commands("web", "start"), 1);
    }
}

#[test]
fn a_restart_stops_and_starts_under_one_permit() {
    let mut world = World::running();
    let uid = world.assign("web", Action::Restart);
    world.advance(1_000);
    let report = world.service_report("web");
    assert_eq!((report.phase, report.action_uid), (Phase::Running, Some(uid)));
    assert_eq!((world.count_commands("web", "stop"), world.copies["web"].starts), (1, 2));
}

#[test]
fn changed_service_is_stopped_with_old_definition() {
    let mut world = World::running();
    world.create_resource_with("web", |spec| {
        spec.driver.simulated = Some(SimulatedDriver { start_seconds: 7, ..SimulatedDriver::default() });
    });
    world.executed.clear();
    world.assign("web", Action::Start);
    world.advance(1_000);
    assert_eq!(world.executed.first().map(|(_, command)| command.name()), Some("stop"));
    assert_eq!(world.journal.services["web"].definition, world.definition("web"));
    assert_eq!(world.copies["web"].starts, 2);
}
