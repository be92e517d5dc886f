//! The model in the form that the checker requires: initial state, possible actions, next state, properties.

use stateright::{Model, Property};

use crate::action::Action;
use crate::configuration::Configuration;
use crate::properties;
use crate::state::{Late, State};
use crate::store::NODE_IDS;
use crate::{agent, daemon, hold, leader, world};

/// The protocol in one configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    pub(crate) configuration: Configuration,
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let configuration = &self.configuration;
        vec![if configuration.starts_running {
            State::running(configuration)
        } else {
            State::initial(configuration)
        }]
    }

    fn actions(&self, state: &State, possible_actions: &mut Vec<Action>) {
        // A write that etcd will refuse has no effect. It arrives immediately, so that it does not multiply the states.
        if let Some(index) = state.late.iter().position(|late| *late == Some(Late::Refused)) {
            possible_actions.push(Action::Arrive(index));
            return;
        }
        let configuration = &self.configuration;
        for node in NODE_IDS {
            let mut steps = Vec::new();
            agent::collect_steps(configuration, state, node, &mut steps);
            possible_actions.extend(steps.drain(..).map(|step| Action::Agent(node, step)));
            let mut steps = Vec::new();
            daemon::collect_steps(configuration, state, node, &mut steps);
            possible_actions.extend(steps.drain(..).map(|step| Action::Watchdog(node, step)));
        }
        let mut steps = Vec::new();
        leader::collect_steps(configuration, state, &mut steps);
        possible_actions.extend(steps.drain(..).map(Action::Leader));
        world::arrivals(configuration, state, possible_actions);
        hold::events(configuration, state, &mut |index, event| {
            possible_actions.push(Action::Candidate(index, event));
        });
        world::faults(configuration, state, possible_actions);
        if world::may_tick(configuration, state) {
            possible_actions.push(Action::Tick);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let configuration = &self.configuration;
        let mut next = *state;
        match action {
            Action::Tick => world::tick(configuration, &mut next),
            Action::Agent(node, step) => agent::apply_step(configuration, &mut next, node, step),
            Action::Watchdog(node, step) => daemon::apply_step(configuration, &mut next, node, step),
            Action::Leader(step) => leader::apply_step(configuration, &mut next, step),
            Action::Arrive(index) => world::arrive(configuration, &mut next, index),
            Action::CutOver(node) => world::cut_over(&mut next, node),
            Action::Candidate(index, event) => hold::apply_step(configuration, &mut next, index, event),
            Action::Fault(fault) => world::apply_fault(configuration, &mut next, fault),
        }
        let next = next.normalized(configuration);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all_properties(&self.configuration)
    }
}
