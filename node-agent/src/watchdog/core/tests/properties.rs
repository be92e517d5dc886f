//! Properties of every run of the daemon, with stops, suspends and lost connections.

use super::*;
use proptest::prelude::*;

/// One step of a random run.
#[derive(Clone, Debug)]
enum Step {
    Deadline {
        in_ms: u64,
    },
    Arm {
        in_ms: Option<u64>,
        timeout_seconds: u32,
    },
    PetWithoutDeadline,
    Release,
    Advance {
        ms: u64,
    },
    /// The daemon is paused for this time.
    PauseDaemon {
        ms: u64,
    },
    /// The daemon is paused between the decision on the next pet and the pet.
    PauseBeforePet {
        ms: u64,
    },
    Reconnect,
    /// The machine is suspended, and the device does not count in the meantime.
    Suspend {
        ms: u64,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..6500).prop_map(|in_ms| Step::Deadline { in_ms }),
        2 => (proptest::option::of(0u64..6500), 1u32..8).prop_map(|(in_ms, timeout_seconds)| Step::Arm { in_ms, timeout_seconds }),
        1 => Just(Step::PetWithoutDeadline),
        1 => Just(Step::Release),
        6 => (1u64..3000).prop_map(|ms| Step::Advance { ms }),
        2 => (1u64..7000).prop_map(|ms| Step::PauseDaemon { ms }),
        2 => (1u64..5000).prop_map(|ms| Step::PauseBeforePet { ms }),
        1 => Just(Step::Reconnect),
        1 => (1u64..7000).prop_map(|ms| Step::Suspend { ms }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Once a deadline is acknowledged, the device fires within the time that the inequality of FENCING 4 allows after
    /// the deadline. That time is Tw for a sliding device (a pet is decided before the deadline, and made after a
    /// stop), and 2 Tw for a fixed timeout.
    #[test]
    fn watchdog_fires_by_the_deadline(sliding in any::<bool>(), steps in proptest::collection::vec(any_step(), 1..40)) {
        let mut world = World::new(facts(sliding, false));
        for step in steps {
            match step {
                Step::Deadline { in_ms } => { world.send_request(Request::Deadline(world.in_ms(in_ms))); }
                Step::Arm { in_ms, timeout_seconds } => {
                    let Request::Arm(arm) = world.arm(in_ms.map(|ms| world.in_ms(ms))) else { unreachable!() };
                    world.send_request(Request::Arm(Arm { timeout_seconds, ..arm }));
                }
                Step::PetWithoutDeadline => { world.send_request(Request::PetWithoutDeadline); }
                Step::Release => { world.send_request(Request::Release); }
                Step::Advance { ms } => world.run_ms(ms),
                Step::PauseDaemon { ms } => world.advance_ns(ms * 1_000_000),
                Step::PauseBeforePet { ms } => {
                    world.stall_ns = ms * 1_000_000;
                    world.run_ms(PET_INTERVAL_MS);
                    world.stall_ns = 0;
                }
                Step::Reconnect => {
                    world.input(Input::Disconnected);
                    world.input(Input::Connected);
                    world.message_number = 0;
                }
                Step::Suspend { ms } => world.now.boottime_ns += ms * 1_000_000,
            }
            if world.fired {
                break;
            }
            if let State::Armed { deadline } | State::Expired { deadline } = world.core.status().state {
                let fires_at = world.fires_at.expect("an armed device runs");
                let periods = if sliding { 1 } else { 2 };
                let latest_fire = deadline.plus_ms(periods * 7000);
                prop_assert!(
                    fires_at.monotonic_raw_ns <= latest_fire.monotonic_raw_ns,
                    "fires at {fires_at}, deadline {deadline}"
                );
            }
        }
    }

    /// Without stops, a sliding timeout never extends past the deadline.
    #[test]
    fn sliding_watchdog_never_extends_past_deadline(steps in proptest::collection::vec((0u64..6000, 1u64..2500), 1..40)) {
        let mut world = World::new(facts(true, false));
        world.send_request(world.arm(None));
        for (in_ms, run_ms) in steps {
            world.send_request(Request::Deadline(world.in_ms(in_ms)));
            world.run_ms(run_ms);
            if world.fired {
                break;
            }
            if let State::Armed { deadline } | State::Expired { deadline } = world.core.status().state {
                let fires_at = world.fires_at.expect("armed");
                // An earlier deadline that is too near for a pet cannot shorten the timeout that the device already
                // has.
                prop_assert!(
                    !deadline.is_earlier_on_a_clock(fires_at) || world.now.remaining_ns(deadline).is_none_or(|remaining_ns| remaining_ns < SECOND_NS),
                    "fires at {fires_at}, deadline {deadline}"
                );
            }
        }
    }
}
