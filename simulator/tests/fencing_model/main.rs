//! The fencing protocol as a small model of its own, checked exhaustively (`docs/model.md`).

mod action;
mod agent;
mod bounds;
mod check;
mod configuration;
mod daemon;
mod leader;
mod model;
mod mutation;
mod network;
mod node;
mod properties;
mod state;
mod store;
mod world;
mod write;

use bounds::Device;
use check::{Outcome, assert_holds, assert_two_run, listed};
use configuration::Configuration;
use mutation::Mutation;

#[test]
fn the_protocol_holds_whatever_stops_or_restarts() {
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
fn nobody_is_reset_while_agents_and_daemons_act_in_time() {
    assert_holds(Configuration::SHORT_TIMELY);
}

/// Sliding timeouts are what all the others use.
#[test]
fn each_inequality_is_enough_and_none_has_a_period_to_spare() {
    for device in [Device::Fixed, Device::NotRetained] {
        let configuration = Configuration::SHORT_DEVICE.with_device(device);
        assert_holds(configuration);
        assert_two_run(configuration.with(Mutation::OnePeriodLess));
    }
}

#[test]
fn every_rule_that_is_taken_away_is_missed() {
    for mutation in Mutation::ALL {
        assert_two_run(Configuration { symmetric: true, ..Configuration::catching(mutation) });
    }
}

/// `dev/model`: prints what the larger configurations came to.
#[test]
#[ignore = "takes minutes: dev/model runs it, optimized"]
fn larger() {
    for configuration in Configuration::LARGER {
        row(configuration.name, &assert_holds(configuration), "holds");
    }
    for mutation in Mutation::ALL {
        let (outcome, steps) = assert_two_run(Configuration::catching(mutation));
        row(&format!("{mutation:?}"), &outcome, &format!("two run after {} steps", steps.len()));
    }
}

/// `dev/model --trace`: prints the counterexample of every mutation.
#[test]
#[ignore = "prints, for people: dev/model --trace"]
fn counterexamples() {
    for mutation in Mutation::ALL {
        let (_, steps) = assert_two_run(Configuration::catching(mutation));
        line(&format!("{mutation:?}\n{}\n", listed(&steps)));
    }
}

/// One line of the table.
fn row(name: &str, outcome: &Outcome, result: &str) {
    let Outcome { states, depth, time, .. } = outcome;
    line(&format!(
        "{name:<24} {states:>10} states  depth {depth:>3}  {:>7.1} s  {result}",
        time.as_secs_f64()
    ));
}

/// One line to the person at the terminal.
#[expect(clippy::print_stdout, reason = "what dev/model is run for")]
fn line(text: &str) {
    println!("{text}");
}
