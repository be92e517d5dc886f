//! Progress: from every state that faults may lead to, steps without further faults lead to a state in which the
//! service runs.
//!
//! The whole graph is stored and searched backward from the good states. Unlike the checker's own `eventually`, this is
//! also correct for paths with cycles. The search shows that a path exists, not that the cluster takes it. The cluster
//! takes the path if every step that stays possible happens at some time.

use crate::action::{Action, AgentStep, Fault, LeaderStep};
use crate::configuration::Configuration;
use crate::model::Protocol;
use crate::node::{Right, Service};
use crate::state::State;
use crate::store::{Fence, ModelServiceReport, NODE_IDS, NodeId, Work, other_node};
use stateright::Model;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Property that a mutation violates if it keeps the guarantee of at most one copy.
pub(crate) const STUCK: &str = "the service can run again";

/// The result of a search.
pub(crate) struct ProgressResult {
    /// Number of different states.
    pub(crate) states: usize,
    /// Number of states in which the service runs as assigned.
    pub(crate) good: usize,
    /// Maximum over all states of the length of the shortest path to a good state, in steps.
    pub(crate) longest: usize,
    /// Duration of the search.
    pub(crate) time: Duration,
    /// State from which no path leads to a good state; `None` if the search found no such state.
    pub(crate) stuck: Option<State>,
}

/// Searches the whole graph of a configuration.
pub(crate) fn check(configuration: Configuration) -> ProgressResult {
    let begin = Instant::now();
    let model = Protocol { configuration };
    let mut numbers: HashMap<State, u32> = HashMap::new();
    let mut states: Vec<State> = Vec::new();
    // Healthy steps, as pairs of the next state and the previous state.
    let mut predecessors: Vec<(u32, u32)> = Vec::new();
    for state in model.init_states() {
        numbers.insert(state, 0);
        states.push(state);
    }
    let mut index = 0;
    let mut actions = Vec::new();
    while index < states.len() {
        let state = states[index];
        let number = u32::try_from(index).expect("fewer states than that");
        actions.clear();
        model.actions(&state, &mut actions);
        for action in actions.drain(..) {
            let Some(next) = model.next_state(&state, action) else { continue };
            let new_number = u32::try_from(states.len()).expect("fewer states than that");
            let reached = match numbers.entry(next) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(place) => {
                    states.push(next);
                    *place.insert(new_number)
                }
            };
            if is_healthy(&state, action) {
                predecessors.push((reached, number));
            }
        }
        index += 1;
    }
    drop(numbers);
    predecessors.sort_unstable();
    let mut reaches_good: Vec<bool> = states.iter().map(is_good).collect();
    let mut layer: Vec<u32> = (0..)
        .zip(&reaches_good)
        .filter(|(_, reaches_good)| **reaches_good)
        .map(|(number, _)| number)
        .collect();
    let good_count = layer.len();
    let mut longest = 0;
    loop {
        let mut previous_layer = Vec::new();
        for number in layer {
            let first = predecessors.partition_point(|(reached, _)| *reached < number);
            for (_, before) in predecessors[first..].iter().take_while(|(reached, _)| *reached == number) {
                let saved = &mut reaches_good[usize::try_from(*before).expect("an index")];
                if !*saved {
                    *saved = true;
                    previous_layer.push(*before);
                }
            }
        }
        if previous_layer.is_empty() {
            break;
        }
        longest += 1;
        layer = previous_layer;
    }
    let is_stuck = |(state, reaches_good): &(&State, &bool)| !**reaches_good && has_running_machine(state);
    let stuck = states.iter().zip(&reaches_good).find(is_stuck).map(|(state, _)| *state);
    ProgressResult { states: states.len(), good: good_count, longest, time: begin.elapsed(), stuck }
}

/// Returns the length of the shortest path without faults from this state to a good state; `None` if no such path
/// exists.
pub(crate) fn way_to_good(configuration: Configuration, from: State) -> Option<usize> {
    let model = Protocol { configuration };
    let mut visited = HashSet::from([from]);
    let mut layer = vec![from];
    let mut actions = Vec::new();
    for steps in 0.. {
        if layer.iter().any(is_good) {
            return Some(steps);
        }
        let mut next_layer = Vec::new();
        for state in layer {
            actions.clear();
            model.actions(&state, &mut actions);
            let healthy = actions.drain(..).filter(|action| is_healthy(&state, *action));
            next_layer.extend(healthy.filter_map(|action| model.next_state(&state, action)));
        }
        next_layer.retain(|state| visited.insert(*state));
        if next_layer.is_empty() {
            break;
        }
        layer = next_layer;
    }
    None
}

/// Asserts that the service cannot be stuck.
pub(crate) fn assert_progresses(configuration: Configuration) -> ProgressResult {
    let result = check(configuration);
    let ProgressResult { states, good, time, .. } = &result;
    assert!(
        result.stuck.is_none(),
        "{}: {states} states, {good} good, {time:?}: stuck in {:?}",
        configuration.name,
        result.stuck
    );
    assert!(result.longest > 0, "{}: every state is good", configuration.name);
    result
}

/// Returns `true` if the guarantee applies to a state: at least one machine is on. Machines that are off stay off.
fn has_running_machine(state: &State) -> bool {
    state.nodes.iter().any(crate::node::Node::is_on)
}

/// Returns `true` if the service runs on one node, under its permit and its assignment, and no other copy exists.
fn is_good(state: &State) -> bool {
    let runs = |node: &NodeId| {
        let other_machine = state.node(other_node(*node));
        state.store.assignment.work == Work::Run(*node)
            && state.store.is_assigned(*node)
            && state.store.fence(*node) == Fence::Open
            && state.store.service_report(*node) == ModelServiceReport::Active
            && state.node(*node).service == Service::Running
            && other_machine.service == Service::Absent
            && other_machine.right == Right::None
    };
    NODE_IDS.iter().any(runs)
}

/// Returns `true` if a step is neither a fault nor a command. Machines that are off stay off. Processes that have ended
/// are started again, and a leader is elected if no candidate is the leader.
fn is_healthy(state: &State, action: Action) -> bool {
    match action {
        Action::Fault(Fault::LeaderChange(_)) => !state.has_leader,
        Action::Fault(
            Fault::PowerLoss(_)
            | Fault::Boot(_)
            | Fault::AgentEnds(_)
            | Fault::DaemonEnds(_)
            | Fault::Crash(_)
            | Fault::CandidateRestart(_)
            | Fault::CandidateDies(_),
        )
        | Action::Agent(_, AgentStep::Lose(_))
        | Action::Leader(LeaderStep::Lose(_) | LeaderStep::Define) => false,
        Action::Fault(Fault::AgentStarts(_))
        | Action::Tick
        | Action::Agent(..)
        | Action::Watchdog(..)
        | Action::Leader(LeaderStep::Commit(_) | LeaderStep::PowerOff(_))
        | Action::Arrive(_)
        | Action::CutOver(_)
        | Action::Candidate(..) => true,
    }
}
