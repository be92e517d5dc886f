//! The daemon's core with a simulated device under a virtual clock.

mod properties;
mod refusing;

use super::super::protocol::{DeviceKind, LargestTimeouts, Name};
use super::*;

const SECOND_NS: u64 = NANOSECONDS_PER_SECOND;

/// The condition of the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Working,
    /// The device refuses pets until it is opened again.
    BoundAgain,
    /// The device refuses pets and cannot be opened.
    Removed,
}

/// A device, a clock and a peer around one core.
struct World {
    core: Core,
    now: DualClockTime,
    facts: DeviceFacts,
    open: bool,
    timeout_seconds: u32,
    /// Time at which the device resets the machine.
    fires_at: Option<DualClockTime>,
    fired: bool,
    message_number: u64,
    last_reply: Option<Reply>,
    notices: Vec<Notice>,
    saved: Option<SavedState>,
    /// Time for which the process is stopped between the decision to pet and the pet, once.
    stall_ns: u64,
    pets: usize,
    condition: Condition,
    /// Result of the next pet; `None` if the device takes the requested timeout.
    pet_result: Option<Result<u32, u32>>,
    /// Number of times that the device was opened.
    openings: usize,
    /// Number of resets that the daemon has requested.
    resets: usize,
}

fn facts(sliding: bool, nowayout: bool) -> DeviceFacts {
    DeviceFacts {
        kind: DeviceKind::Kernel,
        identity: Name::new(b"simulated"),
        location: Name::tail(b"/dev/watchdog0"),
        timeout_seconds: 5,
        smallest_timeout_seconds: 1,
        largest_timeout_seconds: 600,
        sliding,
        descriptor_retained: true,
        nowayout,
    }
}

impl World {
    fn new(facts: DeviceFacts) -> Self {
        let mut world = Self {
            core: Core::new(Privileges::default()),
            now: DualClockTime { monotonic_raw_ns: 100 * SECOND_NS, boottime_ns: 500 * SECOND_NS },
            facts,
            open: false,
            timeout_seconds: 0,
            fires_at: None,
            fired: false,
            message_number: 0,
            last_reply: None,
            notices: Vec::new(),
            saved: None,
            stall_ns: 0,
            pets: 0,
            condition: Condition::Working,
            pet_result: None,
            openings: 0,
            resets: 0,
        };
        world.input(Input::Connected);
        world
    }

    fn advance_ns(&mut self, ns: u64) {
        self.now.monotonic_raw_ns += ns;
        self.now.boottime_ns += ns;
        // The device does not count while the machine is suspended.
        if self.fires_at.is_some_and(|at| self.now.monotonic_raw_ns >= at.monotonic_raw_ns) {
            self.fired = true;
        }
    }

    fn input(&mut self, input: Input) {
        self.core.handle(self.now, input);
        while let Some(effect) = self.core.poll_effect() {
            let answer = match effect {
                Effect::Open { .. } if self.condition == Condition::Removed => {
                    Input::Opened(Err(Refusal::NoDevice { errno: 19, location: Name::default() }))
                }
                Effect::Pet { .. } if self.condition != Condition::Working => Input::Petted(Err(19)),
                Effect::Reset => {
                    self.resets += 1;
                    continue;
                }
                Effect::Open { timeout_seconds } => {
                    self.open = true;
                    self.openings += 1;
                    self.condition = Condition::Working;
                    self.timeout_seconds = timeout_seconds;
                    self.fires_at = Some(self.now.plus_ms(u64::from(timeout_seconds) * 1000));
                    Input::Opened(Ok(DeviceFacts { timeout_seconds, ..self.facts }))
                }
                Effect::Pet { timeout_seconds } => {
                    let stall_ns = std::mem::take(&mut self.stall_ns);
                    self.advance_ns(stall_ns);
                    if self.fired {
                        return;
                    }
                    let result =
                        self.pet_result.take().unwrap_or(Ok(timeout_seconds.unwrap_or(self.timeout_seconds)));
                    if let Ok(applied_seconds) = result {
                        self.timeout_seconds = applied_seconds;
                        self.fires_at = Some(self.now.plus_ms(u64::from(applied_seconds) * 1000));
                        self.pets += 1;
                    }
                    Input::Petted(result)
                }
                Effect::Close => {
                    self.open = false;
                    self.fires_at = None;
                    Input::Closed(Ok(()))
                }
                Effect::Save(saved) => {
                    self.saved = Some(saved);
                    continue;
                }
                Effect::Reply(reply) => {
                    if let Outcome::Notice(notice) = reply.outcome {
                        self.notices.push(notice);
                    } else {
                        self.last_reply = Some(reply);
                    }
                    continue;
                }
                Effect::Disconnect => continue,
            };
            self.core.handle(self.now, answer);
        }
    }

    fn send_request(&mut self, request: Request) -> Outcome {
        self.message_number += 1;
        let number = self.message_number;
        self.input(Input::Message { number, request });
        let reply = self.last_reply.take().expect("every request is answered");
        assert_eq!(reply.answers, number);
        reply.outcome
    }

    fn arm(&self, deadline: Option<DualClockTime>) -> Request {
        let _ = self;
        Request::Arm(Arm {
            timeout_seconds: 5,
            largest: LargestTimeouts {
                sliding_retained_seconds: 6,
                fixed_retained_seconds: 5,
                not_retained_seconds: 3,
            },
            heartbeat_valid_ms: 6000,
            deadline,
            purpose: Purpose::Guard,
        })
    }

    /// Runs the daemon's loop for this time, or until the machine is reset.
    fn run_ms(&mut self, ms: u64) {
        let end_ns = self.now.monotonic_raw_ns + ms * 1_000_000;
        let mut ticks = 0;
        while !self.fired {
            ticks += 1;
            assert!(ticks <= 10 + ms / 50, "the event loop spins");
            let fires = self.fires_at.map_or(end_ns, |at| at.monotonic_raw_ns);
            let due = self
                .core
                .deadline()
                .map_or(end_ns, |(due, _)| due.max(self.now.monotonic_raw_ns))
                .min(end_ns)
                .min(fires);
            let step = due - self.now.monotonic_raw_ns;
            self.advance_ns(step);
            if self.fired {
                break;
            }
            self.input(Input::Tick);
            if self.now.monotonic_raw_ns >= end_ns {
                break;
            }
        }
    }

    fn in_ms(&self, ms: u64) -> DualClockTime {
        self.now.plus_ms(ms)
    }
}

#[test]
fn sliding_watchdog_fires_just_before_deadline() {
    let mut world = World::new(facts(true, false));
    let deadline = world.in_ms(6000);
    assert_eq!(world.send_request(world.arm(Some(deadline))), Outcome::Done);
    world.run_ms(20_000);
    assert!(world.fired);
    let early_ns = world.now.remaining_ns(deadline).expect("the device fires by the deadline");
    assert!(early_ns <= (PET_INTERVAL_MS + 1) * 1_000_000, "{early_ns} ns early");
}

#[test]
fn fixed_watchdog_fires_within_one_timeout() {
    let mut world = World::new(facts(false, false));
    let deadline = world.in_ms(6000);
    assert_eq!(world.send_request(world.arm(Some(deadline))), Outcome::Done);
    world.run_ms(20_000);
    assert!(world.fired && world.now.remaining_ns(deadline).is_none());
    assert!(world.now.remaining_ns(deadline.plus_ms(5001)).is_some());
    assert_eq!(world.notices.last(), Some(&Notice::Expired));
}

#[test]
fn renewed_deadlines_prevent_the_reset() {
    let mut world = World::new(facts(true, false));
    assert_eq!(world.send_request(world.arm(None)), Outcome::Done);
    for _ in 0..100 {
        let deadline = world.in_ms(6000);
        assert_eq!(world.send_request(Request::Deadline(deadline)), Outcome::Done);
        assert_eq!(world.core.status().state, State::Armed { deadline });
        world.run_ms(1000);
    }
    assert!(!world.fired);
    let margin_ms = world.core.status().smallest_margin_ms.expect("petted");
    assert!((4700..5000).contains(&margin_ms), "{margin_ms}");
}

#[test]
fn worst_event_loop_lateness_is_recorded() {
    let mut world = World::new(facts(true, false));
    assert_eq!(world.send_request(world.arm(None)), Outcome::Done);
    for (wait_ms, worst_ms) in
        [(PET_INTERVAL_MS, 0), (PET_INTERVAL_MS + 150, 150), (PET_INTERVAL_MS + 20, 150)]
    {
        world.advance_ns(wait_ms * 1_000_000);
        world.input(Input::Tick);
        assert_eq!(world.core.status().worst_lateness_ms, Some(worst_ms));
    }
    // A new arming restarts the measurement.
    assert_eq!(world.send_request(Request::Release), Outcome::Done);
    assert_eq!(world.send_request(world.arm(None)), Outcome::Done);
    assert_eq!(world.core.status().worst_lateness_ms, None);
}

#[test]
fn released_node_is_not_reset() {
    for request in [Request::PetWithoutDeadline, Request::Release] {
        let mut world = World::new(facts(true, false));
        let deadline = world.in_ms(6000);
        assert_eq!(world.send_request(world.arm(Some(deadline))), Outcome::Done);
        world.run_ms(5500);
        assert_eq!(world.send_request(request), Outcome::Done);
        world.input(Input::Disconnected);
        world.run_ms(60_000);
        assert!(!world.fired, "{request:?}");
    }
}

#[test]
fn lost_agent_connection_does_not_change_deadline() {
    let mut world = World::new(facts(true, false));
    let deadline = world.in_ms(6000);
    assert_eq!(world.send_request(world.arm(Some(deadline))), Outcome::Done);
    world.input(Input::Disconnected);
    world.run_ms(4000);
    assert!(!world.fired);
    world.input(Input::Connected);
    world.message_number = 0;
    let later_deadline = world.in_ms(6000);
    assert_eq!(world.send_request(Request::Deadline(later_deadline)), Outcome::Done);
    world.run_ms(4500);
    assert!(!world.fired);
    world.run_ms(5000);
    assert!(world.fired);
}

#[test]
fn late_deadline_is_accepted_if_still_ahead() {
    // Only a fixed timeout leaves time between the deadline and the reset.
    let mut world = World::new(facts(false, false));
    let deadline = world.in_ms(6000);
    assert_eq!(world.send_request(world.arm(Some(deadline))), Outcome::Done);
    world.run_ms(7000);
    assert_eq!(world.core.status().state, State::Expired { deadline });
    assert_eq!(world.send_request(Request::Deadline(deadline)), Outcome::Refused(Refusal::DeadlinePassed));
    assert_eq!(world.core.status().state, State::Expired { deadline });
    let later_deadline = world.in_ms(5000);
    assert_eq!(world.send_request(Request::Deadline(later_deadline)), Outcome::Done);
    world.run_ms(4900);
    assert!(!world.fired);
}

#[test]
fn earlier_deadline_applies_immediately() {
    let mut world = World::new(facts(true, false));
    assert_eq!(world.send_request(world.arm(Some(world.in_ms(6000)))), Outcome::Done);
    let earlier = world.in_ms(2500);
    assert_eq!(world.send_request(Request::Deadline(earlier)), Outcome::Done);
    assert!(world.fires_at.is_some_and(|at| !earlier.is_earlier_on_a_clock(at)));
    // The deadline is too near for a pet, so the daemon refuses it, but still applies it.
    let near = world.in_ms(500);
    assert_eq!(world.send_request(Request::Deadline(near)), Outcome::Refused(Refusal::DeadlinePassed));
    assert_eq!(world.core.status().state, State::Armed { deadline: near });
}

#[test]
fn refused_requests_change_nothing() {
    let mut world = World::new(facts(true, false));
    for request in [Request::Deadline(world.in_ms(3000)), Request::PetWithoutDeadline] {
        assert_eq!(world.send_request(request), Outcome::Refused(Refusal::NotArmed));
    }
    let far_deadline = world.in_ms(6001);
    assert_eq!(
        world.send_request(world.arm(Some(far_deadline))),
        Outcome::Refused(Refusal::DeadlineTooFar { ahead_ms: 6001, heartbeat_valid_ms: 6000 })
    );
    assert!(!world.open);
    assert_eq!(world.send_request(Request::Release), Outcome::Done);
    let deadline = world.in_ms(6000);
    assert_eq!(world.send_request(world.arm(Some(deadline))), Outcome::Done);
    let far_deadline = world.in_ms(6500);
    assert!(matches!(
        world.send_request(Request::Deadline(far_deadline)),
        Outcome::Refused(Refusal::DeadlineTooFar { .. })
    ));
    assert_eq!(world.core.status().state, State::Armed { deadline });
    world.input(Input::Message { number: 99, request: Request::PetWithoutDeadline });
    assert_eq!(
        world.last_reply.map(|reply| reply.outcome),
        Some(Outcome::Refused(Refusal::OutOfOrder { expected: world.message_number + 1 }))
    );
    assert_eq!(world.core.status().state, State::Armed { deadline });
}

#[test]
fn timeout_longer_than_w_allows_is_refused() {
    let check = |sliding, retained, timeout_seconds, bears| {
        let mut world = World::new(DeviceFacts { descriptor_retained: retained, ..facts(sliding, false) });
        let Request::Arm(arm) = world.arm(None) else { unreachable!() };
        let outcome = world.send_request(Request::Arm(Arm { timeout_seconds, ..arm }));
        assert_eq!(outcome == Outcome::Done, bears, "{sliding} {retained} {timeout_seconds}: {outcome:?}");
        assert_eq!(world.open, bears, "a refused device is closed again");
    };
    check(true, true, 6, true);
    check(true, true, 7, false);
    check(false, true, 5, true);
    check(false, true, 6, false);
    check(true, false, 3, true);
    check(true, false, 4, false);
}

#[test]
fn timing_can_change_on_armed_device() {
    let mut world = World::new(facts(true, false));
    let deadline = world.in_ms(6000);
    assert_eq!(world.send_request(world.arm(Some(deadline))), Outcome::Done);
    let Request::Arm(arm) = world.arm(Some(deadline)) else { unreachable!() };
    assert_eq!(world.send_request(Request::Arm(Arm { timeout_seconds: 2, ..arm })), Outcome::Done);
    assert_eq!(world.timeout_seconds, 2);
    let reported = |world: &World| world.core.status().device.map(|device| device.timeout_seconds);
    assert_eq!(reported(&world), Some(2), "the agent commits the active values");
    assert!(!world.core.status().refuses_pets);
    assert_eq!(world.saved.and_then(|saved| saved.device).map(|device| device.timeout_seconds), Some(2));
    assert!(matches!(
        world.send_request(Request::Arm(Arm { timeout_seconds: 9, ..arm })),
        Outcome::Refused(Refusal::TimeoutTooLong { .. })
    ));
    assert!(matches!(
        world.send_request(Request::Arm(Arm { timeout_seconds: 0, ..arm })),
        Outcome::Refused(Refusal::TimeoutNotApplied { .. })
    ));
    assert_eq!(reported(&world), Some(2), "a refused change changes nothing");
    world.run_ms(1000);
    assert_eq!(world.timeout_seconds, 2);
}

#[test]
fn new_timeout_must_be_one_of_the_driver() {
    let driver =
        DeviceFacts { smallest_timeout_seconds: 2, largest_timeout_seconds: 5, ..facts(true, false) };
    for (timeout_seconds, is_accepted) in [(1, false), (2, true), (5, true), (6, false)] {
        let mut world = World::new(driver);
        let Request::Arm(arm) = world.arm(None) else { unreachable!() };
        assert_eq!(world.send_request(Request::Arm(arm)), Outcome::Done);
        let outcome = world.send_request(Request::Arm(Arm { timeout_seconds, ..arm }));
        assert_eq!(outcome == Outcome::Done, is_accepted, "{timeout_seconds} s: {outcome:?}");
    }
}

#[test]
fn new_timeout_that_the_driver_lengthens_may_be_refused() {
    // A sliding device must take each timeout exactly. A fixed device may lengthen the timeout up to the limit of 5 s.
    for (is_sliding, requested_seconds, applied_seconds, is_accepted) in [
        (true, 4, 4, true),
        (true, 4, 5, false),
        (true, 4, 3, true),
        (false, 3, 4, true),
        (false, 4, 5, true),
        (false, 4, 6, false),
        (false, 4, 3, true),
    ] {
        let mut world = World::new(facts(is_sliding, false));
        let Request::Arm(arm) = world.arm(None) else { unreachable!() };
        assert_eq!(world.send_request(Request::Arm(arm)), Outcome::Done);
        world.pet_result = Some(Ok(applied_seconds));
        let outcome = world.send_request(Request::Arm(Arm { timeout_seconds: requested_seconds, ..arm }));
        let case = format!("sliding {is_sliding}, {requested_seconds} s, {applied_seconds} s: {outcome:?}");
        assert_eq!(outcome == Outcome::Done, is_accepted, "{case}");
        let reported_seconds = world.core.status().device.map(|device| device.timeout_seconds);
        let active_seconds = match (is_accepted, is_sliding) {
            (false, _) => 5,
            (true, true) => requested_seconds,
            (true, false) => applied_seconds,
        };
        assert_eq!(reported_seconds, Some(active_seconds), "{case}");
    }
}

#[test]
fn deadline_needs_time_for_the_smallest_timeout() {
    for (is_sliding, smallest_timeout_seconds, in_ms, is_accepted) in
        [(true, 3, 2999, false), (true, 3, 3000, true), (false, 3, 500, true)]
    {
        let mut world = World::new(DeviceFacts { smallest_timeout_seconds, ..facts(is_sliding, false) });
        assert_eq!(world.send_request(world.arm(None)), Outcome::Done);
        let outcome = world.send_request(Request::Deadline(world.in_ms(in_ms)));
        assert_eq!(outcome == Outcome::Done, is_accepted, "sliding {is_sliding}, {in_ms} ms: {outcome:?}");
    }
}

#[test]
fn disconnected_agent_receives_no_answer() {
    let replies = |core: &mut Core| {
        std::iter::from_fn(|| core.poll_effect())
            .filter_map(|effect| match effect {
                Effect::Reply(reply) => Some(reply.outcome),
                Effect::Open { .. }
                | Effect::Pet { .. }
                | Effect::Close
                | Effect::Save(_)
                | Effect::Disconnect
                | Effect::Reset => None,
            })
            .collect::<Vec<Outcome>>()
    };
    let mut world = World::new(facts(false, false));
    assert_eq!(world.send_request(world.arm(None)), Outcome::Done);
    let request = Request::Deadline(world.in_ms(6000));
    world.core.handle(world.now, Input::Message { number: 2, request });
    world.core.handle(world.now, Input::Disconnected);
    assert_eq!(replies(&mut world.core), []);
    world.core.handle(world.now, Input::Connected);
    world.core.handle(world.now, Input::Petted(Ok(5)));
    // The next agent numbers its requests from 1 again, so it must not receive the answer to an earlier request.
    assert_eq!(replies(&mut world.core), [Outcome::Notice(Notice::Welcome)]);
    world.core.handle(world.now, Input::Disconnected);
    world.core.handle(world.in_ms(6001), Input::Tick);
    assert!(matches!(world.core.status().state, State::Expired { .. }));
    assert_eq!(replies(&mut world.core), []);
}

#[test]
fn nowayout_device_is_petted_while_idle() {
    let mut world = World::new(facts(true, true));
    assert_eq!(world.send_request(world.arm(None)), Outcome::Done);
    assert_eq!(world.send_request(Request::Release), Outcome::Done);
    assert_eq!(world.core.status().state, State::Released);
    world.run_ms(60_000);
    assert!(world.open && !world.fired);
    for request in [Request::Deadline(world.in_ms(3000)), Request::PetWithoutDeadline] {
        assert_eq!(world.send_request(request), Outcome::Refused(Refusal::NotArmed));
    }
    let deadline = world.in_ms(3000);
    assert_eq!(world.send_request(world.arm(Some(deadline))), Outcome::Done);
    world.run_ms(10_000);
    assert!(world.fired);
}

#[test]
fn next_daemon_continues_from_saved_state() {
    let check = |prepare: &dyn Fn(&mut World), fires: bool, open: bool| {
        let mut world = World::new(facts(true, false));
        prepare(&mut world);
        let saved = world.saved.map(|saved| super::super::protocol::encode_saved(&saved));
        world.core = Core::new(Privileges::default());
        let saved = saved.and_then(|bytes| super::super::protocol::decode_saved(&bytes).ok());
        world.core.resume(world.now, world.facts, saved);
        world.run_ms(10_000);
        assert_eq!((world.fired, world.open), (fires, open));
    };
    check(
        &|world| assert_eq!(world.send_request(world.arm(Some(world.in_ms(6000)))), Outcome::Done),
        true,
        true,
    );
    check(&|world| assert_eq!(world.send_request(world.arm(None)), Outcome::Done), false, true);
    // The record is lost: an unknown deadline counts as passed.
    check(
        &|world| {
            assert_eq!(world.send_request(world.arm(None)), Outcome::Done);
            world.saved = None;
        },
        true,
        true,
    );
    // The daemon ended between the decision to release and the close.
    check(
        &|world| {
            assert_eq!(world.send_request(world.arm(None)), Outcome::Done);
            world.saved = world.saved.map(|saved| SavedState { state: State::Released, ..saved });
        },
        false,
        false,
    );
}

#[test]
fn arming_replaces_an_unknown_deadline() {
    let mut world = World::new(facts(true, false));
    assert_eq!(world.send_request(world.arm(None)), Outcome::Done);
    world.core = Core::new(Privileges::default());
    world.core.resume(world.now, world.facts, None);
    world.input(Input::Connected);
    world.message_number = 0;
    assert_eq!(world.send_request(Request::Deadline(world.in_ms(6000))), Outcome::Refused(Refusal::NotArmed));
    assert_eq!(world.send_request(world.arm(Some(world.in_ms(6000)))), Outcome::Done);
    world.run_ms(5500);
    assert!(!world.fired);
}

#[test]
fn stay_or_release_ends_unknown_deadline() {
    for request in [Request::PetWithoutDeadline, Request::Release] {
        let mut world = World::new(facts(true, false));
        assert_eq!(world.send_request(world.arm(None)), Outcome::Done);
        world.core = Core::new(Privileges::default());
        world.core.resume(world.now, world.facts, None);
        world.input(Input::Connected);
        world.message_number = 0;
        assert_eq!(world.send_request(request), Outcome::Done);
        world.run_ms(20_000);
        assert!(!world.fired, "{request:?}");
    }
}

#[test]
fn driver_that_rounds_timeouts_up_is_fixed() {
    let mut world = World::new(facts(true, false));
    assert_eq!(world.send_request(world.arm(None)), Outcome::Done);
    assert_eq!(world.send_request(Request::Deadline(world.in_ms(3000))), Outcome::Done);
    world.core.handle(world.in_ms(250), Input::Tick);
    assert!(matches!(world.core.poll_effect(), Some(Effect::Pet { timeout_seconds: Some(2) })));
    world.core.handle(world.in_ms(250), Input::Petted(Ok(60)));
    assert!(!world.core.status().device.expect("open").sliding);
    assert!(world.core.effects.iter().any(|effect| matches!(
        effect,
        Effect::Reply(Reply { outcome: Outcome::Notice(Notice::NotSliding), .. })
    )));
}

#[test]
fn failing_device_is_reported_once_and_retried() {
    let mut world = World::new(facts(true, false));
    assert_eq!(world.send_request(world.arm(None)), Outcome::Done);
    let mut notices = 0;
    for round in 1..4 {
        let now = world.in_ms(round * PET_INTERVAL_MS);
        world.core.handle(now, Input::Tick);
        assert!(matches!(world.core.poll_effect(), Some(Effect::Pet { .. })));
        world.core.handle(now, Input::Petted(Err(5)));
        while let Some(effect) = world.core.poll_effect() {
            notices += usize::from(matches!(effect, Effect::Reply(_)));
        }
    }
    assert_eq!(notices, 1);
}

#[test]
fn daemon_shutdown_closes_only_unused_device() {
    let mut world = World::new(facts(true, false));
    assert_eq!(world.send_request(world.arm(None)), Outcome::Done);
    world.input(Input::ShutDown);
    assert!(!world.open);
    let deadline = world.in_ms(6000);
    assert_eq!(world.send_request(world.arm(Some(deadline))), Outcome::Done);
    world.input(Input::ShutDown);
    assert!(world.open && world.fires_at.is_some());
}
