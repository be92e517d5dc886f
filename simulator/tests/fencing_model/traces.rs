//! Tests of traces: recorded traces must be paths of the model, and changed traces must be refused.

use crate::configuration::Configuration;
use crate::replay::{Refused, TICK_MS, configuration, replay};
use crate::store::Work;
use crate::trace::{Event, Timed, Trace, trace_of_scenario};
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

/// In these scenarios, the model must allow every step of the cores at the time of the step.
#[test]
fn simulator_traces_are_valid_model_paths() {
    let mut problems = Vec::new();
    for (name, hold) in SCENARIOS {
        let trace = trace_of_scenario(name, SERVICE);
        if let Err(refused) = replay(configuration(&trace, hold), &trace.steps) {
            problems.push(format!("{name}: {}", describe_refusal(&trace.steps, &refused)));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

/// Describes a refusal with the steps before it. Frequently repeated steps are omitted.
fn describe_refusal(steps: &[Timed], refused: &Refused) -> String {
    let is_rare = |timed: &&Timed| match timed.event {
        Event::Pet(_)
        | Event::Deadline { .. }
        | Event::Ask(_)
        | Event::Grant { .. }
        | Event::Write(Write::Heartbeat(_, Change::Keep)) => false,
        Event::Write(_)
        | Event::Arm(_)
        | Event::Release(_)
        | Event::PetWithoutDeadline(_)
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
struct TraceCase {
    trace: Trace,
    configuration: Configuration,
}

impl TraceCase {
    /// Returns the trace up to `until_ms`, or the whole trace.
    fn checked(name: &str, hold: bool, until_ms: Option<Millis>) -> TraceCase {
        let mut trace = trace_of_scenario(name, SERVICE);
        let configuration = configuration(&trace, hold);
        if let Some(end_ms) = until_ms {
            trace.steps.retain(|timed| timed.at <= end_ms);
        }
        let outcome = replay(configuration, &trace.steps);
        assert!(
            outcome.is_ok(),
            "{name}: {}",
            outcome.map_or_else(|refused| describe_refusal(&trace.steps, &refused), |_| String::new())
        );
        TraceCase { trace, configuration }
    }

    /// Returns the index of the first step with a matching event.
    fn step_index(&self, matches: impl Fn(Event) -> bool) -> usize {
        self.trace.steps.iter().position(|timed| matches(timed.event)).expect("such a step")
    }

    /// Asserts that the changed trace is refused at a step with a matching event.
    fn assert_refused(
        &self,
        broken_rule: &str,
        edit: impl FnOnce(&mut Vec<Timed>),
        is_refused: impl Fn(Event) -> bool,
    ) {
        let mut steps = self.trace.steps.clone();
        edit(&mut steps);
        let refused = replay(self.configuration, &steps).expect_err(broken_rule);
        let step = refused.step.map(|timed| timed.event);
        assert!(step.is_some_and(is_refused), "{broken_rule}: {}", describe_refusal(&steps, &refused));
    }
}

fn move_earlier(steps: &mut Vec<Timed>, index: usize, by_ms: Millis) {
    let mut timed = steps.remove(index);
    timed.at -= by_ms;
    let earlier = steps.partition_point(|other| other.at <= timed.at);
    steps.insert(earlier, timed);
}

fn move_later(steps: &mut Vec<Timed>, index: usize, by_ms: Millis) {
    let mut timed = steps.remove(index);
    timed.at += by_ms;
    let later = steps.partition_point(|other| other.at <= timed.at);
    steps.insert(later, timed);
}

/// Removes a step.
fn without_step(index: usize) -> impl FnOnce(&mut Vec<Timed>) {
    move |steps| {
        steps.remove(index);
    }
}

fn is_assign_to_the_other(event: Event) -> bool {
    matches!(event, Event::Write(Write::Assign { work: Work::Run(1), .. }))
}

/// A node is isolated and its service fails over. The model must refuse each step at a wrong position or time.
#[test]
fn trace_with_invalid_failover_is_refused() {
    let case = TraceCase::checked("fencing/node-is-cut-off", false, None);
    let is_close = |event| matches!(event, Event::Write(Write::Close { node: 0, .. }));
    let is_release = |event| event == Event::Write(Write::Release(0, Proof::Silence));
    let is_permit = |node| move |event| event == Event::Write(Write::Permit(node));
    let is_beat = |event| event == Event::Write(Write::Heartbeat(0, Change::Keep));
    let (close, release) = (case.step_index(is_close), case.step_index(is_release));
    case.assert_refused("declared dead before Th", |steps| move_earlier(steps, close, 500), is_close);
    case.assert_refused("released before W", |steps| move_earlier(steps, release, 500), is_release);
    let assign = case.step_index(is_assign_to_the_other);
    case.assert_refused(
        "assigned before it is released",
        |steps| {
            let early_step = Timed { at: steps[release].at, ..steps[assign] };
            steps.insert(release, early_step);
        },
        is_assign_to_the_other,
    );
    case.assert_refused("released without a close", without_step(close), is_release);
    let after_close =
        |event| move |steps: &mut Vec<Timed>| steps.insert(close + 1, Timed { at: steps[close].at, event });
    for write in [
        Write::Permit(0),
        Write::Heartbeat(0, Change::Keep),
        Write::Stopped { node: 0, current: true },
        Write::CleanShutdown(0),
    ] {
        let broken_rule = format!("{write:?} under a closed epoch");
        case.assert_refused(&broken_rule, after_close(Event::Write(write)), |event| {
            event == Event::Write(write)
        });
    }
    let armed = case.step_index(|event| event == Event::Write(Write::Heartbeat(0, Change::Arm)));
    case.assert_refused("permitted before armed is committed", without_step(armed), |event| {
        matches!(event, Event::Deadline { node: 0, .. }) || is_permit(0)(event)
    });
    let permit = case.step_index(is_permit(0));
    case.assert_refused("begun without a permit", without_step(permit), |event| event == Event::Begin(0));
    let beats = case.trace.steps.iter().filter(|timed| is_beat(timed.event)).count();
    assert!(beats > 5, "{beats} heartbeats");
    case.assert_refused(
        "a deadline that no heartbeat gives",
        |steps| {
            let beat = steps.iter().position(|timed| is_beat(timed.event)).expect("a heartbeat");
            steps.remove(beat);
        },
        |event| matches!(event, Event::Deadline { node: 0, .. }),
    );
    let stay = case.step_index(|event| event == Event::PetWithoutDeadline(0));
    case.assert_refused("petted after D", without_step(stay), |event| event == Event::Pet(0));
    let end = case.step_index(|event| event == Event::End(0));
    case.assert_refused("stays with what runs", without_step(end), |event| {
        event == Event::PetWithoutDeadline(0)
    });
}

/// A live migration with steps in a wrong order must be refused.
#[test]
fn trace_with_invalid_migration_is_refused() {
    let case = TraceCase::checked("moves/migrate-live", false, None);
    let is_hand_over = |event| event == Event::Write(Write::HandOver(0));
    let hand_over = case.step_index(is_hand_over);
    case.assert_refused("migrated before it is handed over", without_step(hand_over), |event| {
        event == Event::CheckTarget(0)
    });
    let receiving = case.step_index(|event| event == Event::Write(Write::Permit(1)));
    case.assert_refused(
        "handed over before the target receives",
        |steps| {
            let early_step = Timed { at: steps[receiving].at, ..steps[hand_over] };
            steps.insert(receiving, early_step);
        },
        is_hand_over,
    );
    let stopped = case.step_index(|event| matches!(event, Event::Write(Write::Stopped { node: 0, .. })));
    let assign = case.step_index(is_assign_to_the_other);
    case.assert_refused(
        "assigned before the source says that it is gone",
        |steps| {
            let early_step = Timed { at: steps[stopped].at, ..steps[assign] };
            steps.insert(stopped, early_step);
        },
        is_assign_to_the_other,
    );
    case.assert_refused("disarmed before the source says that it is gone", without_step(stopped), |event| {
        event == Event::Write(Write::Heartbeat(0, Change::Disarm))
    });
}

/// The model must refuse a driver that begins without the second read of its target, or too late after that read. It
/// must also refuse a source that reports its end while the driver runs.
#[test]
fn trace_with_early_migration_driver_is_refused() {
    let case = TraceCase::checked("moves/a-target-that-dies-after-the-hand-over", false, None);
    let is_driver = |event| event == Event::BeginDriver(0);
    let (check, begin) =
        (case.step_index(|event| event == Event::CheckTarget(0)), case.step_index(is_driver));
    case.assert_refused("begun without another reading of the target", without_step(check), is_driver);
    let margin_ms = case.trace.timings.stop_margin_ms;
    case.assert_refused(
        "begun Ts after the reading",
        |steps| move_later(steps, begin, margin_ms + TICK_MS),
        is_driver,
    );
    case.assert_refused(
        "begun to a target that no longer receives",
        |steps| {
            let at = steps[check].at;
            let stopped = Write::Stopped { node: 1, current: true };
            steps.insert(check, Timed { at, event: Event::Write(stopped) });
            steps.insert(check, Timed { at, event: Event::End(1) });
        },
        is_driver,
    );
    let arrival = case.step_index(|event| event == Event::CutOver(0));
    let running = Write::Running { node: 0, current: true };
    case.assert_refused(
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
fn trace_with_missing_hold_grant_is_refused() {
    let case = TraceCase::checked("store/held-over-ten-minutes", true, Some(90_000));
    for leads in [true, false] {
        case.assert_refused(
            "a candidate grants nothing",
            |steps| {
                steps.retain(|timed| !matches!(timed.event, Event::Grant { leads: grant_leads, .. } if grant_leads == leads));
            },
            |event| matches!(event, Event::Deadline { node: 0, .. }),
        );
    }
}
