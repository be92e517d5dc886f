//! Tests of traces: recorded traces must be paths of the model, and changed traces must be refused.

use crate::configuration::Configuration;
use crate::replay::{Refused, TICK_MS, configuration, replay};
use crate::store::Work;
use crate::trace::{Event, Timed, Trace, of_scenario};
use crate::write::{Change, Proof, Write};
use ha_api_types::time::Millis;

/// Scenarios in which a service is on at most two nodes, and whether Hold occurs in them.
const SCENARIOS: [(&str, bool); 19] = [
    ("fencing/node-is-cut-off", false),
    ("fencing/node-loses-power", false),
    ("fencing/agent-hangs", false),
    ("fencing/a-fence-device-is-proof", false),
    ("fencing/a-node-that-reboots-quickly-is-not-declared-dead", false),
    ("fencing/a-watchdog-daemon-that-stands-still", false),
    ("agent/agent-is-killed-and-restarted", false),
    ("leadership/leader-is-killed", false),
    ("leadership/leader-hangs-and-wakes", false),
    ("services/service-crashes", false),
    ("shutdown/failover-returns-late", false),
    ("moves/relocate", false),
    ("moves/migrate-live", false),
    ("moves/the-target-of-a-migration-dies", false),
    ("moves/the-source-of-a-migration-dies", false),
    ("moves/a-target-that-dies-after-the-hand-over", false),
    ("store/long-store-outage", false),
    ("store/held-over-ten-minutes", true),
    ("store/cut-off-while-others-are-held", true),
];

/// Service whose trace is replayed.
const SERVICE: &str = "web";

/// In these scenarios, the model must allow every step of the cores at its time.
#[test]
fn traces_of_the_simulator_are_paths_of_the_model() {
    let mut wrong = Vec::new();
    for (name, hold) in SCENARIOS {
        let trace = of_scenario(name, SERVICE);
        if let Err(refused) = replay(configuration(&trace, hold), &trace.steps) {
            wrong.push(format!("{name}: {}", shown(&trace.steps, &refused)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Describes a refusal with the steps before it, without frequently repeated ones.
fn shown(steps: &[Timed], refused: &Refused) -> String {
    let is_rare = |timed: &&Timed| match timed.event {
        Event::Pet(_)
        | Event::Deadline { .. }
        | Event::Ask(_)
        | Event::Grant { .. }
        | Event::Write(Write::Heartbeat(_, Change::Keep)) => false,
        Event::Write(_)
        | Event::Arm(_)
        | Event::Release(_)
        | Event::Stay(_)
        | Event::Begin(_)
        | Event::End(_)
        | Event::CutOver(_)
        | Event::CheckTarget(_)
        | Event::BeginDriver(_)
        | Event::PowerLost { .. }
        | Event::Boot(_)
        | Event::AgentEnds(_)
        | Event::AgentStarts(_)
        | Event::Leads
        | Event::Restarts => true,
    };
    let before: Vec<String> =
        steps[..refused.number].iter().filter(is_rare).map(|timed| format!("{timed:?}")).collect();
    let latest = before[before.len().saturating_sub(12)..].join("\n");
    format!("no state allows {:?}: {}\nafter\n{latest}", refused.step, refused.detail)
}

/// A trace that is a path of the model, for tests that change one step.
struct Case {
    trace: Trace,
    configuration: Configuration,
}

impl Case {
    /// Returns the trace up to `until_ms`, or the whole trace.
    fn of(name: &str, hold: bool, until_ms: Option<Millis>) -> Case {
        let mut trace = of_scenario(name, SERVICE);
        let configuration = configuration(&trace, hold);
        if let Some(until) = until_ms {
            trace.steps.retain(|timed| timed.at <= until);
        }
        let outcome = replay(configuration, &trace.steps);
        assert!(
            outcome.is_ok(),
            "{name}: {}",
            outcome.map_or_else(|refused| shown(&trace.steps, &refused), |_| String::new())
        );
        Case { trace, configuration }
    }

    /// Returns the index of the first step with a matching event.
    fn place(&self, is_it: impl Fn(Event) -> bool) -> usize {
        self.trace.steps.iter().position(|timed| is_it(timed.event)).expect("such a step")
    }

    /// Asserts that the changed trace is refused at a step with a matching event.
    fn refuses(&self, what: &str, change: impl FnOnce(&mut Vec<Timed>), at: impl Fn(Event) -> bool) {
        let mut steps = self.trace.steps.clone();
        change(&mut steps);
        let refused = replay(self.configuration, &steps).expect_err(what);
        let step = refused.step.map(|timed| timed.event);
        assert!(step.is_some_and(at), "{what}: {}", shown(&steps, &refused));
    }
}

/// Moves a step to an earlier time.
fn advance(steps: &mut Vec<Timed>, place: usize, by_ms: Millis) {
    let mut timed = steps.remove(place);
    timed.at -= by_ms;
    let earlier = steps.partition_point(|other| other.at <= timed.at);
    steps.insert(earlier, timed);
}

/// Moves a step to a later time.
fn delay(steps: &mut Vec<Timed>, place: usize, by_ms: Millis) {
    let mut timed = steps.remove(place);
    timed.at += by_ms;
    let later = steps.partition_point(|other| other.at <= timed.at);
    steps.insert(later, timed);
}

/// Removes a step.
fn without(place: usize) -> impl FnOnce(&mut Vec<Timed>) {
    move |steps| {
        steps.remove(place);
    }
}

fn is_assign_to_the_other(event: Event) -> bool {
    matches!(event, Event::Write(Write::Assign { work: Work::Run(1), .. }))
}

/// A node is isolated and its service fails over: each step must have its order and its time.
#[test]
fn a_failover_that_breaks_a_rule_is_refused() {
    let case = Case::of("fencing/node-is-cut-off", false, None);
    let is_close = |event| matches!(event, Event::Write(Write::Close { node: 0, .. }));
    let is_release = |event| event == Event::Write(Write::Release(0, Proof::Silence));
    let is_permit = |node| move |event| event == Event::Write(Write::Permit(node));
    let is_beat = |event| event == Event::Write(Write::Heartbeat(0, Change::Keep));
    let (close, release) = (case.place(is_close), case.place(is_release));
    case.refuses("declared dead before Th", |steps| advance(steps, close, 500), is_close);
    case.refuses("released before W", |steps| advance(steps, release, 500), is_release);
    let assign = case.place(is_assign_to_the_other);
    case.refuses(
        "assigned before it is released",
        |steps| {
            let early = Timed { at: steps[release].at, ..steps[assign] };
            steps.insert(release, early);
        },
        is_assign_to_the_other,
    );
    case.refuses("released without a close", without(close), is_release);
    let under_closed =
        |event| move |steps: &mut Vec<Timed>| steps.insert(close + 1, Timed { at: steps[close].at, event });
    for write in [
        Write::Permit(0),
        Write::Heartbeat(0, Change::Keep),
        Write::Stopped { node: 0, current: true },
        Write::Leave(0),
    ] {
        let what = format!("{write:?} under a closed epoch");
        case.refuses(&what, under_closed(Event::Write(write)), |event| event == Event::Write(write));
    }
    let armed = case.place(|event| event == Event::Write(Write::Heartbeat(0, Change::Arm)));
    case.refuses("permitted before armed is committed", without(armed), |event| {
        matches!(event, Event::Deadline { node: 0, .. }) || is_permit(0)(event)
    });
    let permit = case.place(is_permit(0));
    case.refuses("begun without a permit", without(permit), |event| event == Event::Begin(0));
    let beats = case.trace.steps.iter().filter(|timed| is_beat(timed.event)).count();
    assert!(beats > 5, "{beats} heartbeats");
    case.refuses(
        "a deadline that no heartbeat gives",
        |steps| {
            let beat = steps.iter().position(|timed| is_beat(timed.event)).expect("a heartbeat");
            steps.remove(beat);
        },
        |event| matches!(event, Event::Deadline { node: 0, .. }),
    );
    let stay = case.place(|event| event == Event::Stay(0));
    case.refuses("petted after D", without(stay), |event| event == Event::Pet(0));
    let end = case.place(|event| event == Event::End(0));
    case.refuses("stays with what runs", without(end), |event| event == Event::Stay(0));
}

/// A live migration with steps in a wrong order must be refused.
#[test]
fn a_migration_that_breaks_a_rule_is_refused() {
    let case = Case::of("moves/migrate-live", false, None);
    let is_hand_over = |event| event == Event::Write(Write::HandOver(0));
    let hand_over = case.place(is_hand_over);
    case.refuses("migrated before it is handed over", without(hand_over), |event| {
        event == Event::CheckTarget(0)
    });
    let receiving = case.place(|event| event == Event::Write(Write::Permit(1)));
    case.refuses(
        "handed over before the target receives",
        |steps| {
            let early = Timed { at: steps[receiving].at, ..steps[hand_over] };
            steps.insert(receiving, early);
        },
        is_hand_over,
    );
    let gone = case.place(|event| matches!(event, Event::Write(Write::Stopped { node: 0, .. })));
    let assign = case.place(is_assign_to_the_other);
    case.refuses(
        "assigned before the source says that it is gone",
        |steps| {
            let early = Timed { at: steps[gone].at, ..steps[assign] };
            steps.insert(gone, early);
        },
        is_assign_to_the_other,
    );
    case.refuses("disarmed before the source says that it is gone", without(gone), |event| {
        event == Event::Write(Write::Heartbeat(0, Change::Disarm))
    });
}

/// A driver that begins without the second read of its target, or too late after it, must be refused, and so must a
/// source that reports its end while the driver runs.
#[test]
fn a_driver_that_does_not_wait_is_refused() {
    let case = Case::of("moves/a-target-that-dies-after-the-hand-over", false, None);
    let is_driver = |event| event == Event::BeginDriver(0);
    let (check, begin) = (case.place(|event| event == Event::CheckTarget(0)), case.place(is_driver));
    case.refuses("begun without another reading of the target", without(check), is_driver);
    let margin_ms = case.trace.timings.stop_margin_ms;
    case.refuses("begun Ts after the reading", |steps| delay(steps, begin, margin_ms + TICK_MS), is_driver);
    case.refuses(
        "begun to a target that no longer receives",
        |steps| {
            let at = steps[check].at;
            let stopped = Write::Stopped { node: 1, current: true };
            steps.insert(check, Timed { at, event: Event::Write(stopped) });
            steps.insert(check, Timed { at, event: Event::End(1) });
        },
        is_driver,
    );
    let arrival = case.place(|event| event == Event::CutOver(0));
    let running = Write::Running { node: 0, current: true };
    case.refuses(
        "reported while the driver runs",
        |steps| {
            let at = steps[arrival].at;
            steps.insert(arrival, Timed { at, event: Event::Write(running) });
        },
        |event| event == Event::CutOver(0),
    );
}

/// Hold with one missing grant must be refused.
#[test]
fn a_node_that_goes_on_without_every_grant_is_refused() {
    let case = Case::of("store/held-over-ten-minutes", true, Some(90_000));
    for leads in [true, false] {
        case.refuses(
            "a candidate grants nothing",
            |steps| {
                steps.retain(|timed| !matches!(timed.event, Event::Grant { leads: own, .. } if own == leads));
            },
            |event| matches!(event, Event::Deadline { node: 0, .. }),
        );
    }
}
