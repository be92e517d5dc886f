//! The watchdog daemon and its device (FENCING 4). Reading the clock and petting are two separate steps.

use crate::action::WatchdogStep;
use crate::agent;
use crate::configuration::Configuration;
use crate::node::Watchdog;
use crate::state::{Harm, State};
use crate::store::NodeId;

/// Collects every step that this node's daemon or device may take now.
pub(crate) fn collect_steps(
    configuration: &Configuration,
    state: &State,
    node: NodeId,
    watchdog_steps: &mut Vec<WatchdogStep>,
) {
    if !state.node(node).is_on() {
        return;
    }
    match state.node(node).watchdog {
        Watchdog::Off | Watchdog::PetWithoutDeadline => {}
        Watchdog::PetUntilDeadline { timer, decided_timeout, .. } => {
            if decided_timeout.is_some() {
                watchdog_steps.push(WatchdogStep::Pet);
            }
            if timer == 0 && !(configuration.timely && must_act_before_tick(configuration, state, node)) {
                watchdog_steps.push(WatchdogStep::Reset);
            }
        }
        Watchdog::Unattended { timer, remaining } => {
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
        (WatchdogStep::Pet, Watchdog::PetUntilDeadline { remaining, decided_timeout: Some(timer), .. }) => {
            state.node_mut(node).watchdog =
                Watchdog::PetUntilDeadline { timer, remaining, decided_timeout: None };
        }
        (WatchdogStep::Reopen, Watchdog::Unattended { remaining, .. }) => {
            state.node_mut(node).watchdog =
                Watchdog::PetUntilDeadline { timer: timeout, remaining, decided_timeout: None };
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
pub(crate) fn must_act_before_tick(configuration: &Configuration, state: &State, node: NodeId) -> bool {
    let machine = state.node(node);
    match machine.watchdog {
        Watchdog::Off | Watchdog::PetWithoutDeadline | Watchdog::Unattended { .. } => false,
        Watchdog::PetUntilDeadline { timer, remaining, decided_timeout } => {
            let is_late = remaining <= configuration.bounds.margin && machine.has_agent();
            let must_pet = timer == 0 && decided_timeout.is_some();
            (is_late
                && (agent::may_stop(state, node)
                    || agent::may_pet_without_deadline(configuration, state, node)))
                || must_pet
        }
    }
}
