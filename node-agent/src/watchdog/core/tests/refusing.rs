//! Tests with a device that refuses pets (FENCING R4.17 to R4.24).

use super::*;

/// Creates a daemon that pets by a deadline 6 s away, with a device that refuses pets from now on.
fn refusing() -> (World, DualClockTime) {
    let mut world = World::new(facts(true, false));
    let deadline = world.in_ms(6000);
    assert_eq!(world.send_request(world.arm(Some(deadline))), Outcome::Done);
    world.condition = Condition::Removed;
    world.fires_at = None;
    (world, deadline)
}

#[test]
fn the_daemon_resets_the_machine_when_the_deadline_passes() {
    let (mut world, deadline) = refusing();
    world.run_ms(5_900);
    assert_eq!(world.resets, 0, "not before the deadline");
    assert!(world.core.status().refuses_pets);
    assert_eq!(
        world.notices.iter().filter(|notice| matches!(notice, Notice::DeviceFailed { errno: 19 })).count(),
        1
    );
    world.run_ms(200);
    assert_eq!(world.resets, 1);
    assert_eq!(world.core.status().state, State::Expired { deadline });
    // A failed reset is tried again.
    world.run_ms(3_000);
    assert_eq!(world.resets, 4);
}

#[test]
fn working_device_resets_the_machine_itself() {
    let mut world = World::new(facts(true, false));
    assert_eq!(world.send_request(world.arm(Some(world.in_ms(6000)))), Outcome::Done);
    world.run_ms(20_000);
    assert!(world.fired && world.resets == 0);
}

#[test]
fn the_daemon_resets_the_machine_if_the_device_does_not() {
    for is_sliding in [true, false] {
        let mut world = World::new(facts(is_sliding, false));
        let deadline = world.in_ms(6000);
        assert_eq!(world.send_request(world.arm(Some(deadline))), Outcome::Done);
        // No pet follows before the deadline of a sliding device, so the daemon sees no refusal.
        world.run_ms(5_500);
        if is_sliding {
            world.fires_at = None;
            world.run_ms(600);
        } else {
            world.run_ms(501);
            world.fires_at = None;
            world.run_ms(1_000);
            assert_eq!(world.resets, 0, "a fixed device resets the machine after the deadline");
            world.run_ms(4_000);
        }
        assert_eq!(world.core.status().state, State::Expired { deadline });
        assert!(world.resets > 0 && !world.core.status().refuses_pets, "sliding: {is_sliding}");
    }
}

/// With a device that does nothing, a test must fail, so nothing else may reset the machine (R4.33).
#[test]
fn only_the_device_resets_the_machine_in_a_test() {
    let mut world = World::new(facts(true, false));
    let deadline = world.in_ms(3000);
    let Request::Arm(arm) = world.arm(Some(deadline)) else { unreachable!() };
    assert_eq!(world.send_request(Request::Arm(Arm { purpose: Purpose::Test, ..arm })), Outcome::Done);
    world.run_ms(2_500);
    world.fires_at = None;
    world.run_ms(20_000);
    assert_eq!(world.core.status().state, State::Expired { deadline });
    assert_eq!(world.resets, 0);
    // A later renewal guards services again, so the daemon resets the machine if the device does not.
    let deadline = world.in_ms(3000);
    assert_eq!(world.send_request(Request::Deadline(deadline)), Outcome::Done);
    world.run_ms(2_500);
    world.fires_at = None;
    world.run_ms(20_000);
    assert!(world.resets > 0);
}

#[test]
fn refused_pets_still_update_the_deadline() {
    let (mut world, _) = refusing();
    for _ in 0..20 {
        world.run_ms(1_000);
        let deadline = world.in_ms(6000);
        assert_eq!(
            world.send_request(Request::Deadline(deadline)),
            Outcome::Refused(Refusal::DeviceFailed { errno: 19 })
        );
        assert_eq!(world.core.status().state, State::Armed { deadline });
    }
    assert_eq!(world.resets, 0);
    world.run_ms(6_100);
    assert_eq!(world.resets, 1);
}

#[test]
fn stay_request_prevents_the_software_reset() {
    let (mut world, _) = refusing();
    world.run_ms(5_000);
    assert_eq!(world.send_request(Request::PetWithoutDeadline), Outcome::Done);
    world.run_ms(60_000);
    assert_eq!(world.resets, 0);
    assert!(world.core.status().refuses_pets);
}

#[test]
fn device_counts_as_failed_until_rearmed() {
    let (mut world, _) = refusing();
    world.run_ms(1_000);
    world.condition = Condition::Working;
    let go_on = |world: &mut World, ms: u64| {
        for _ in 0..ms / 500 {
            assert_eq!(world.send_request(Request::Deadline(world.in_ms(6000))), Outcome::Done);
            world.run_ms(500);
        }
    };
    go_on(&mut world, 20_000);
    assert!(world.core.status().refuses_pets, "pets alone do not make good for it");
    assert_eq!(world.send_request(world.arm(Some(world.in_ms(6000)))), Outcome::Done);
    go_on(&mut world, 4_500);
    assert!(world.core.status().refuses_pets, "not yet for the whole timeout");
    go_on(&mut world, 1_000);
    assert!(!world.core.status().refuses_pets);
    // Another refusal in between restarts the wait.
    let (mut world, _) = refusing();
    world.run_ms(500);
    world.condition = Condition::Working;
    assert_eq!(world.send_request(world.arm(Some(world.in_ms(6000)))), Outcome::Done);
    go_on(&mut world, 3_000);
    world.condition = Condition::Removed;
    world.run_ms(300);
    world.condition = Condition::Working;
    go_on(&mut world, 10_000);
    assert!(world.core.status().refuses_pets);
}

#[test]
fn a_refused_arming_keeps_the_deadline_and_the_device() {
    let (mut world, deadline) = refusing();
    world.run_ms(1_000);
    let refused = world.send_request(world.arm(Some(world.in_ms(6000))));
    assert!(matches!(refused, Outcome::Refused(Refusal::NoDevice { .. })), "{refused:?}");
    assert_eq!(world.core.status().state, State::Armed { deadline });
    assert!(world.open);
    world.run_ms(6_000);
    assert_eq!(world.resets, 1);
}

#[test]
fn refused_timeout_keeps_the_previous_timeout() {
    let mut world = World::new(facts(true, false));
    let Request::Arm(arm) = world.arm(Some(world.in_ms(6000))) else { unreachable!() };
    assert_eq!(world.send_request(Request::Arm(arm)), Outcome::Done);
    world.pet_result = Some(Err(22));
    assert_eq!(
        world.send_request(Request::Arm(Arm { timeout_seconds: 4, ..arm })),
        Outcome::Refused(Refusal::DeviceFailed { errno: 22 })
    );
    assert_eq!((world.openings, world.timeout_seconds), (1, 5));
    assert!(!world.core.status().refuses_pets, "the device takes the previous timeout");
}

#[test]
fn arming_opens_a_refusing_device_again() {
    let (mut world, _) = refusing();
    world.run_ms(1_000);
    world.condition = Condition::BoundAgain;
    assert_eq!(world.send_request(world.arm(Some(world.in_ms(6000)))), Outcome::Done);
    assert_eq!(world.openings, 2);
    assert!(world.core.status().refuses_pets, "not yet for the whole timeout");
    for _ in 0..12 {
        assert_eq!(world.send_request(Request::Deadline(world.in_ms(6000))), Outcome::Done);
        world.run_ms(500);
    }
    assert!(!world.core.status().refuses_pets && world.resets == 0);
}

#[test]
fn next_daemon_continues_after_refused_pets() {
    let (mut world, _) = refusing();
    world.run_ms(1_000);
    let saved = world.saved.map(|saved| super::super::super::protocol::encode_saved(&saved)).unwrap();
    let saved = super::super::super::protocol::decode_saved(&saved).unwrap();
    world.core = Core::new(Privileges::default());
    world.core.resume(world.now, world.facts, Some(saved));
    // The new daemon cannot detect the refusal after the deadline has passed.
    world.advance_ns(6_000_000_000);
    world.run_ms(100);
    assert_eq!(world.resets, 1);
    // A failed reset is tried again.
    world.run_ms(3_000);
    assert_eq!(world.resets, 4);
}
