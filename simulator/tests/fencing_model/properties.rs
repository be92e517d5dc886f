//! The properties of the model: invariants, and states that must be reachable so that the invariants are meaningful.

use stateright::Property;

use crate::configuration::Configuration;
use crate::hold;
use crate::model::Protocol;
use crate::node::{Phase, Power, Service, Watchdog};
use crate::state::{Harm, Late, State};
use crate::store::{Fence, Mode, ModelServiceReport, NODE_IDS, Work, other_node};

/// Name of the property for guarantee 1.
pub(crate) const AT_MOST_ONE_COPY: &str = "never two";

/// Name of the property for guarantee 2 under Hold.
pub(crate) const NOT_ALONE: &str = "a node that is merely cut off is not held";

/// Name of the property for the wait before a migration.
pub(crate) const NOT_LOST: &str = "no driver begins to migrate to a target that was lost Ts before";

/// Returns the properties of a configuration; with a removed rule, only the invariants.
pub(crate) fn all_properties(configuration: &Configuration) -> Vec<Property<Protocol>> {
    let mut properties = vec![
        Property::always(AT_MOST_ONE_COPY, |_, state: &State| running(state) <= 1 || !state.store.exclusive),
        Property::always("epochs never go back", |_, state: &State| state.harm != Harm::EpochWentBack),
        Property::always("no reset while agents and daemons act in time", |_, state: &State| {
            state.harm != Harm::NeedlessReset
        }),
        Property::always(NOT_LOST, |_, state: &State| state.harm != Harm::BegunToLostTarget),
        Property::always(NOT_ALONE, |model: &Protocol, state: &State| {
            !hold::continues_without_commands(&model.configuration, state)
        }),
    ];
    if configuration.mutation.is_some() {
        return properties;
    }
    properties.extend([
        Property::sometimes("a failover completes", |_, state: &State| failed_over(state)),
        Property::sometimes("a node registers again", |_, state: &State| {
            NODE_IDS.into_iter().any(|node| {
                state.store.node_report(node).mode == Mode::Registering { admitted: true }
                    && state.node(node).is_registered
            })
        }),
        Property::sometimes("stop, then stay", |_, state: &State| stays(state)),
        Property::sometimes("an applied heartbeat whose sender does not know", |_, state: &State| {
            NODE_IDS.into_iter().any(|node| {
                state.node(node).answer_due.is_some()
                    && state.node(node).watchdog == Watchdog::PetWithoutDeadline
            })
        }),
    ]);
    if !configuration.timely {
        properties.push(Property::sometimes("a machine resets itself", |_, state: &State| {
            NODE_IDS.into_iter().any(|node| state.node(node).power == Power::Off { self_fenced: true })
        }));
    }
    if configuration.late > 0 {
        properties.push(Property::sometimes("a late write conflicts", |_, state: &State| {
            state.late.contains(&Some(Late::Refused))
        }));
    }
    if configuration.definitions {
        properties
            .push(Property::sometimes("two copies of what need not be exclusive", |_, state: &State| {
                running(state) > 1
            }));
        properties.push(Property::sometimes(
            "a service that ran twice is exclusive again",
            |_, state: &State| {
                let has_moved = state.store.assignment.work != Work::Halt(0);
                state.store.exclusive && has_moved && state.store.has_no_copy()
            },
        ));
    }
    if configuration.migration {
        properties.push(Property::sometimes("a migration completes", |_, state: &State| migrated(state)));
    }
    if configuration.hold {
        properties.push(Property::sometimes("all candidates hold", |_, state: &State| hold::is_held(state)));
    }
    if configuration.candidate_joins {
        properties.push(Property::sometimes("a newer candidate leads", |_, state: &State| {
            hold::is_led_by_a_newer_one(state)
        }));
    }
    if configuration.agent_restarts {
        properties.push(Property::sometimes("a new agent finds its service running", |_, state: &State| {
            NODE_IDS.into_iter().any(|node| {
                state.node(node).phase == Phase::Resuming && state.node(node).service == Service::Running
            })
        }));
    }
    properties
}

/// Returns the number of running copies.
pub(crate) fn running(state: &State) -> usize {
    state.nodes.iter().filter(|machine| machine.service == Service::Running).count()
}

/// Returns `true` if the service runs under a committed permit.
fn has_permit(state: &State, node: u8) -> bool {
    state.store.service_report(node) == ModelServiceReport::Active
        && state.node(node).service == Service::Running
}

/// Returns `true` if a node was active when it was fenced, and the service runs on the other node.
fn failed_over(state: &State) -> bool {
    NODE_IDS.into_iter().any(|node| {
        let is_outdated = state.store.service_report(other_node(node)) == ModelServiceReport::Outdated
            && state.store.fence(other_node(node)) == Fence::Released;
        is_outdated && has_permit(state, node)
    })
}

/// Returns `true` if a node has stopped the service of its action, and its daemon pets without a deadline.
fn stays(state: &State) -> bool {
    NODE_IDS.into_iter().any(|node| {
        let machine = state.node(node);
        machine.watchdog == Watchdog::PetWithoutDeadline
            && machine.is_spent
            && state.store.service_report(node) == ModelServiceReport::Active
    })
}

/// Returns `true` if the source has handed over and the target runs.
fn migrated(state: &State) -> bool {
    match state.store.assignment.work {
        Work::Run(_) | Work::Halt(_) => false,
        Work::Move { from } => {
            state.store.service_report(from) == ModelServiceReport::Stopped
                && has_permit(state, 1 - from)
                && state.node(from).is_on()
        }
    }
}
