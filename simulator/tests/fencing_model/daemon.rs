//! The watchdog daemon and its device (FENCING 4). Reading the clock and petting are two separate steps.

use crate::action::WatchdogStep;
use crate::agent;
use crate::configuration::Configuration;
use crate::node::Watchdog;
use crate::state::{Harm, State};
use crate::store::NodeId;

/// Collects every step that this node's daemon or device may take now.
pub(crate) fn steps(
    configuration: &Configuration,
    state: &State,
    node: NodeId,
    watchdog_steps: &mut Vec<WatchdogStep>,
) {
    if !state.node(node).is_on() {
        return;
    }
    match state.node(node).watchdog {
        Watchdog::Off | Watchdog::Free => {}
        Watchdog::Follow { timer, checked, .. } => {
            if checked.is_some() {
                watchdog_steps.push(WatchdogStep::Pet);
            }
            if timer == 0 && !(configuration.timely && acts_in_time(configuration, state, node)) {
                watchdog_steps.push(WatchdogStep::Reset);
            }
        }
        Watchdog::Orphan { timer, remaining } => {
            watchdog_steps.extend(configuration.bounds.pet(remaining).map(|_| WatchdogStep::Reopen));
            if timer == 0 {
                watchdog_steps.push(WatchdogStep::Reset);
            }
        }
    }
}

pub(crate) fn apply_step(configuration: &Configuration, state: &mut State, node: NodeId, step: WatchdogStep) {
    let timeout = configuration.bounds.timeout;
    match (step, state.node_mut(node).watchdog) {
        (WatchdogStep::Pet, Watchdog::Follow { remaining, checked: Some(timer), .. }) => {
            state.node_mut(node).watchdog = Watchdog::Follow { timer, remaining, checked: None };
        }
        (WatchdogStep::Reopen, Watchdog::Orphan { remaining, .. }) => {
            state.node_mut(node).watchdog = Watchdog::Follow { timer: timeout, remaining, checked: None };
        }
        (WatchdogStep::Reset, _) => {
            if configuration.timely {
                state.harm = Harm::NeedlessReset;
            }
            state.node_mut(node).power_off(true);
        }
        (WatchdogStep::Pet | WatchdogStep::Reopen, _) => {}
    }
}

/// Returns `true` if this node must act before more time passes, provided that its processes act in time. The daemon
/// pets before the device's timeout; the agent stops and stays from D − Ts.
pub(crate) fn acts_in_time(configuration: &Configuration, state: &State, node: NodeId) -> bool {
    let machine = state.node(node);
    match machine.watchdog {
        Watchdog::Off | Watchdog::Free | Watchdog::Orphan { .. } => false,
        Watchdog::Follow { timer, remaining, checked } => {
            let late = remaining <= configuration.bounds.margin && machine.has_agent();
            let pets = timer == 0 && checked.is_some();
            (late && (agent::may_stop(state, node) || agent::may_stay(configuration, state, node))) || pets
        }
    }
}
