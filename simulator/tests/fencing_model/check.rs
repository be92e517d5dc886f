//! Running the checker over a configuration, and what it found.

use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};

use crate::action::Action;
use crate::configuration::Configuration;
use crate::model::Protocol;
use crate::mutation::Mutation;
use crate::properties::{self, NEVER_TWO};
use crate::state::State;

/// What the checker found.
pub(crate) struct Outcome {
    /// Different states seen.
    pub(crate) states: usize,
    /// The longest of the shortest ways to a state, in steps.
    pub(crate) depth: usize,
    /// How long it took.
    pub(crate) time: Duration,
    /// Properties that must always hold and do not, each with a shortest way to break it.
    pub(crate) broken: Vec<(&'static str, Vec<Action>)>,
    /// Properties that must be reachable and were not reached.
    pub(crate) unreached: Vec<&'static str>,
}

/// Checks a configuration whole, or until something that must always hold is broken. One thread, so that a counterexample is
/// as short as can be and the same each time.
pub(crate) fn check(configuration: Configuration) -> Outcome {
    let begin = Instant::now();
    let checker =
        Protocol { configuration }.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let mut outcome = Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        time: begin.elapsed(),
        broken: Vec::new(),
        unreached: Vec::new(),
    };
    for property in properties::of(&configuration) {
        let found: Option<Path<State, Action>> = checker.discovery(property.name);
        match (property.expectation, found) {
            (Expectation::Always, Some(path)) => outcome.broken.push((property.name, path.into_actions())),
            (Expectation::Sometimes, None) => outcome.unreached.push(property.name),
            (Expectation::Always, None) | (Expectation::Sometimes | Expectation::Eventually, _) => {}
        }
    }
    outcome
}

/// Fails unless everything holds, and everything that should be reachable is.
pub(crate) fn assert_holds(configuration: Configuration) -> Outcome {
    let outcome = check(configuration);
    for (property, steps) in &outcome.broken {
        assert!(steps.is_empty(), "{}: {property} is broken by\n{}", configuration.name, listed(steps));
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

/// Fails unless what the rule that is taken away is for is broken; the steps that do it.
pub(crate) fn assert_caught(configuration: Configuration) -> (Outcome, Vec<Action>) {
    let outcome = check(configuration);
    let expected = configuration.mutation.map_or(NEVER_TWO, Mutation::breaks);
    let broken = outcome.broken.iter().find(|(property, _)| *property == expected);
    let steps = broken.map(|(_, steps)| steps.clone());
    assert!(steps.is_some(), "{}: {:?} is not caught", configuration.name, configuration.mutation);
    (outcome, steps.unwrap_or_default())
}

/// Steps, one a line.
pub(crate) fn listed(steps: &[Action]) -> String {
    let lines: Vec<String> =
        steps.iter().enumerate().map(|(number, step)| format!("{:>4}  {step}", number + 1)).collect();
    lines.join("\n")
}
