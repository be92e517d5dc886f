//! Tests of definitions that an operator has confirmed for a running copy (FENCING, R6.10).

use super::*;

/// Rewrites the definition of the assignment under the same action, as the leader does.
fn rewrite(world: &mut World, in_place: Option<&str>, change: impl FnOnce(&mut ServiceDefinition)) {
    let key = world.keys.assignment(&"web".into());
    let mut assignment: Assignment = world.value(&key).expect("assigned");
    assignment.in_place = in_place.map(Into::into);
    change(&mut assignment.definition);
    world.write(&key, &assignment);
    world.deliver();
}

fn set_stop_seconds(definition: &mut ServiceDefinition) {
    definition.timeouts.stop_seconds = 7.0;
}

#[test]
fn a_confirmed_definition_is_adopted_without_a_stop() {
    let mut world = World::running();
    rewrite(&mut world, None, set_stop_seconds);
    world.advance(2_000);
    let journaled = |world: &World| world.journal.services["web"].definition.timeouts.stop_ms();
    assert_ne!(journaled(&world), 7_000, "R6.9: what runs is stopped as it was started");
    rewrite(&mut world, Some("fix"), set_stop_seconds);
    world.advance(2_000);
    assert_eq!(journaled(&world), 7_000, "the next process stops it that way, too");
    assert!(world.copies["web"].running);
    assert_eq!(
        (
            world.count_commands("web", "start"),
            world.count_commands("web", "stop"),
            world.count_commands("web", "kill")
        ),
        (1, 0, 0)
    );
    assert_eq!(world.service_report("web").phase, Phase::Running);
    // The next process continues under the same action.
    let uid = world.service_report("web").action_uid;
    world.restart_agent("boot-1");
    world.advance(3_000);
    assert_eq!(
        (world.service_report("web").phase, &world.service_report("web").action_uid),
        (Phase::Running, &uid)
    );
    rewrite(&mut world, Some("fix"), set_stop_seconds);
    let key = world.keys.assignment(&"web".into());
    let mut stop: Assignment = world.value(&key).expect("assigned");
    stop.action_uid = "7-stop".into();
    stop.action = Action::Stop { timeout_ms: None };
    world.write(&key, &stop);
    world.deliver();
    world.advance(2_000);
    assert!(
        world.executed.contains(&("web".into(), Command::Stop { graceful_ms: 7_000 })),
        "{:?}",
        world.executed
    );
}

#[test]
fn failed_stop_is_retried_with_confirmed_definition() {
    let mut world = World::running();
    world.copies.get_mut("web").expect("there").stop_fails = true;
    world.assign("web", Action::Stop { timeout_ms: None });
    world.advance(2_000);
    assert_eq!(world.service_report("web").phase, Phase::StopFailed);
    world.copies.get_mut("web").expect("there").stop_fails = false;
    rewrite(&mut world, Some("fix"), set_stop_seconds);
    world.advance(1_000);
    assert_eq!(world.service_report("web").phase, Phase::Stopped);
    assert!(
        world.executed.contains(&("web".into(), Command::Stop { graceful_ms: 7_000 })),
        "{:?}",
        world.executed
    );
}

#[test]
fn a_definition_of_another_service_is_never_adopted() {
    let other_identity = |definition: &mut ServiceDefinition| {
        definition.driver.simulated.as_mut().expect("simulated").identity = "other".to_owned();
    };
    let not_exclusive = |definition: &mut ServiceDefinition| definition.exclusive = false;
    let changes: [fn(&mut ServiceDefinition); 2] = [other_identity, not_exclusive];
    for change in changes {
        let mut world = World::running();
        let definition_before = world.journal.services["web"].definition.clone();
        rewrite(&mut world, Some("fix"), change);
        world.advance(3_000);
        assert_eq!(world.journal.services["web"].definition, definition_before);
        assert!(world.copies["web"].running && world.node_report().armed);
    }
}
