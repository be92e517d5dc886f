//! Runs of the checker on a configuration, and their results.

use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};

use crate::action::Action;
use crate::configuration::Configuration;
use crate::model::Protocol;
use crate::mutation::Mutation;
use crate::properties::{self, AT_MOST_ONE_COPY};
use crate::state::State;

/// The result of a run of the checker.
pub(crate) struct Outcome {
    /// Number of different states.
    pub(crate) states: usize,
    /// Maximum over all states of the length of the shortest path to the state, in steps.
    pub(crate) depth: usize,
    /// Duration of the run.
    pub(crate) duration: Duration,
    /// Violated invariants, each with a shortest counterexample.
    pub(crate) broken: Vec<(&'static str, Vec<Action>)>,
    /// Properties that must be reachable, but that no state satisfies.
    pub(crate) unreached: Vec<&'static str>,
}

/// Checks a configuration completely, or until an invariant is violated. The check uses one thread, so counterexamples
/// are as short as possible and do not change between runs.
pub(crate) fn check(configuration: Configuration) -> Outcome {
    let started_at = Instant::now();
    let checker =
        Protocol { configuration }.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let mut outcome = Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        duration: started_at.elapsed(),
        broken: Vec::new(),
        unreached: Vec::new(),
    };
    for property in properties::all_properties(&configuration) {
        let discovered_path: Option<Path<State, Action>> = checker.discovery(property.name);
        match (property.expectation, discovered_path) {
            (Expectation::Always, Some(path)) => outcome.broken.push((property.name, path.into_actions())),
            (Expectation::Sometimes, None) => outcome.unreached.push(property.name),
            (Expectation::Always, None) | (Expectation::Sometimes | Expectation::Eventually, _) => {}
        }
    }
    outcome
}

/// Asserts that every invariant holds and every property that must be reachable is reached.
pub(crate) fn assert_holds(configuration: Configuration) -> Outcome {
    let outcome = check(configuration);
    for (property, steps) in &outcome.broken {
        assert!(steps.is_empty(), "{}: {property} is broken by\n{}", configuration.name, list_steps(steps));
    }
    assert!(
        outcome.broken.is_empty(),
        "{}: {} are broken in the first state",
        configuration.name,
        outcome.broken.len()
    );
    assert!(outcome.unreached.is_empty(), "{}: not reached: {:?}", configuration.name, outcome.unreached);
    outcome
}

/// Asserts that the removal of a rule violates the property that the rule protects. Returns the counterexample.
pub(crate) fn assert_caught(configuration: Configuration) -> (Outcome, Vec<Action>) {
    let outcome = check(configuration);
    let expected = configuration.mutation.map_or(AT_MOST_ONE_COPY, Mutation::violated_property);
    let broken = outcome.broken.iter().find(|(property, _)| *property == expected);
    let steps = broken.map(|(_, steps)| steps.clone());
    assert!(steps.is_some(), "{}: {:?} is not caught", configuration.name, configuration.mutation);
    (outcome, steps.unwrap_or_default())
}

/// Returns the steps as text, one per line.
pub(crate) fn list_steps(steps: &[Action]) -> String {
    let lines: Vec<String> =
        steps.iter().enumerate().map(|(number, step)| format!("{:>4}  {step}", number + 1)).collect();
    lines.join("\n")
}
