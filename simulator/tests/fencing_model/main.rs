//! A small model of the fencing protocol, which is checked exhaustively (`docs/model.md`).

mod action;
mod agent;
mod bounds;
mod check;
mod code_conformance;
mod configuration;
mod daemon;
mod hold;
mod leader;
mod model;
mod mutation;
mod network;
mod node;
mod progress;
mod properties;
mod replay;
mod state;
mod store;
mod stored_values;
mod trace;
mod traces;
mod world;
mod write;

use bounds::Device;
use check::{Outcome, assert_caught, assert_holds, list_steps};
use configuration::Configuration;
use model::Protocol;
use mutation::Mutation;
use progress::assert_progresses;
use state::State;
use stateright::Model;

#[test]
fn protocol_holds_with_any_stops_or_restarts() {
    assert_holds(Configuration::SHORT);
}

#[test]
fn the_protocol_holds_with_a_late_write() {
    assert_holds(Configuration::SHORT_LATE);
}

#[test]
fn the_protocol_holds_while_services_migrate() {
    assert_holds(Configuration::SHORT_MIGRATION);
}

#[test]
fn protocol_holds_while_candidates_grant_hold() {
    assert_holds(Configuration::SHORT_HOLD);
}

#[test]
fn the_protocol_holds_while_definitions_change() {
    assert_holds(Configuration::SHORT_DEFINITIONS);
}

/// From every state, it must be possible after the last fault that the service runs again on a machine that is on.
#[test]
fn service_can_run_again_from_every_state() {
    assert_progresses(Configuration::PROGRESS);
}

/// R9.16: if a restart deleted the candidate key, the only candidate would have joined later than the generation in the
/// node's report. The candidate could then draw no conclusion from the silence of a lost machine.
#[test]
fn restarted_candidate_keeps_its_key() {
    let steps = ["fault: CandidateRestart(0)", "fault: LeaderChange(0)", "fault: PowerLoss(0)"];
    let longest_way = |configuration| {
        let state = walk(configuration, &steps).expect("faults that may happen");
        progress::way_to_good(configuration, state)
    };
    let asymmetric = Configuration { symmetric: false, ..Configuration::PROGRESS_HOLD };
    assert!(longest_way(asymmetric).is_some(), "the service cannot run again");
    assert_eq!(longest_way(Configuration::detecting(Mutation::KeyDeletedAtRestart)), None);
}

#[test]
fn timely_agents_and_daemons_prevent_resets() {
    assert_holds(Configuration::SHORT_TIMELY);
}

/// Each of the other two inequalities must be sufficient, and a W that is one period shorter must not be. All other
/// tests use sliding timeouts.
#[test]
fn each_timing_inequality_is_tight() {
    for device in [Device::Fixed, Device::NotRetained] {
        let configuration = Configuration::SHORT_DEVICE.with_device(device);
        assert_holds(configuration);
        assert_caught(configuration.with_mutation(Mutation::OnePeriodLess));
    }
}

#[test]
fn removing_any_rule_breaks_the_protocol() {
    for mutation in Mutation::ALL {
        assert_caught(Configuration { symmetric: true, ..Configuration::detecting(mutation) });
    }
}

/// A new candidate must not complete another candidate's declaration by silence, because that would start a second
/// copy. The declaration was late, and its restarted sender grants the node's question before it has read the
/// declaration.
#[test]
fn new_candidate_completes_no_declaration_by_silence() {
    let hold_steps = [
        "a tick passes",
        "?node 0, watchdog: Pet",
        "node 0, agent: Ask",
        "Grant(0)",
        "node 0, agent: HoldOn",
    ];
    let declared = [
        "a tick passes",
        "node 0, watchdog: Pet",
        "a tick passes",
        "leader: Lose(Close { node: 0, on_missed_heartbeats: true })",
        "fault: CandidateRestart(0)",
        "?node 0, watchdog: Pet",
        "node 0, agent: Ask",
        "Grant(0)",
        "node 0, agent: HoldOn",
        "the late write arrives",
        "Join",
        "fault: LeaderChange(",
        "?node 0, watchdog: Pet",
    ];
    let released = [
        "leader: Commit(Release(0, Silence))",
        "leader: Commit(Assign { work: Run(1)",
        "node 1, agent: Arm",
        "node 1, agent: Commit(Heartbeat(1, Arm))",
        "node 1, agent: LearnDeadline",
        "node 1, agent: Commit(Permit(1))",
        "node 1, agent: Begin",
    ];
    let waited = hold_steps
        .repeat(usize::try_from(Configuration::LATE_JOINS.bounds.fencing_delay()).unwrap_or_default());
    let mut steps = [&declared[..], &waited[..]].concat();
    let held_state = walk(Configuration::LATE_JOINS, &steps).expect("so far it is as it must be");
    assert_eq!(properties::running(&held_state), 1);
    steps.extend(released);
    let refused = walk(Configuration::LATE_JOINS, &steps).expect_err("the release must be refused");
    assert!(refused.contains("Release(0, Silence)"), "{refused}");
    let mutated = Configuration::LATE_JOINS.with_mutation(Mutation::GenerationForClosingOnly);
    assert_eq!(walk(mutated, &steps).map(|state| properties::running(&state)), Ok(2));
}

/// For `dev/model`: prints the results of the larger configurations.
#[test]
#[ignore = "takes minutes: dev/model runs it, optimized"]
fn larger() {
    for configuration in Configuration::LARGER {
        print_row(configuration.name, &assert_holds(configuration), "holds");
    }
    for configuration in Configuration::PROGRESS_CONFIGURATIONS {
        let progress = assert_progresses(configuration);
        print_line(&format!(
            "{:<24} {:>10} states  {:>8} good  longest way {:>3}  {:>7.1} s  progresses",
            configuration.name,
            progress.states,
            progress.good,
            progress.longest,
            progress.time.as_secs_f64()
        ));
    }
    for mutation in Mutation::ALL {
        let (outcome, steps) = assert_caught(Configuration::detecting(mutation));
        print_row(
            &format!("{mutation:?}"),
            &outcome,
            &format!("{}: broken after {} steps", mutation.violated_property(), steps.len()),
        );
    }
}

/// For `dev/model --joins`: candidates that join and leave, by far the largest configuration.
#[test]
#[ignore = "takes very long: dev/model --joins runs it, optimized"]
fn joins() {
    print_row(Configuration::JOINS.name, &assert_holds(Configuration::JOINS), "holds");
}

/// For `dev/model --trace`: prints the counterexample of every mutation.
#[test]
#[ignore = "prints, for people: dev/model --trace"]
fn counterexamples() {
    for mutation in Mutation::ALL {
        let (_, steps) = assert_caught(Configuration::detecting(mutation));
        print_line(&format!("{mutation:?}\n{}\n", list_steps(&steps)));
    }
}

/// Prints one line of the table.
fn print_row(name: &str, outcome: &Outcome, result: &str) {
    let Outcome { states, depth, duration, .. } = outcome;
    print_line(&format!(
        "{name:<24} {states:>10} states  depth {depth:>3}  {:>7.1} s  {result}",
        duration.as_secs_f64()
    ));
}

/// Prints one line to the terminal.
#[expect(clippy::print_stdout, reason = "the purpose of dev/model")]
fn print_line(text: &str) {
    println!("{text}");
}

/// Follows one path from the initial state, for counterexamples that are too long for a search. Each step is a part of
/// an action's text; the last matching action is taken. A step after a question mark is optional.
fn walk(configuration: Configuration, steps: &[&str]) -> Result<State, String> {
    let model = Protocol { configuration };
    let mut state = model.init_states().remove(0);
    for (number, step) in steps.iter().enumerate() {
        let (text, is_optional) = match step.strip_prefix('?') {
            Some(text) => (text, true),
            None => (*step, false),
        };
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        let matching_action = actions.into_iter().rev().find(|action| action.to_string().contains(text));
        match matching_action.and_then(|action| model.next_state(&state, action)) {
            Some(next) => state = next,
            None if is_optional => {}
            None => return Err(format!("step {}: {text} is not possible", number + 1)),
        }
    }
    Ok(state)
}
