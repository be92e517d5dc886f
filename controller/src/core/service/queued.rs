//! Queued: it is not known yet where the service runs.

use super::assign::{start_on, stop_on};
use super::probe::{Answer, answers};
use super::start::wants_stop;
use super::{Draft, Planner, Service, error, recover};
use ha_api_types::reason::Reason;
use ha_api_types::resource::{RequestedState, ServiceState};

/// Ends when every place where it might already run has answered or is proven empty: none runs, one is adopted where it
/// is, two are an error.
pub(super) fn queued(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    let situation = planner.situation;
    if let Some(assignment) = service.assignment
        && assignment.value.definition.uid == service.uid()
        && draft.status.probe_generation.is_none()
        && draft.status.probe_arming.is_none()
    {
        // The status was lost, the assignment was not.
        recover::settle(service, draft, &assignment.value, service.phase(&situation));
        return;
    }
    if situation.world.settings().disarmed.is_some() {
        draft.wait(Reason::Disarmed, "the cluster is disarmed");
        return;
    }
    if service.resource.value.spec.driver.kind().is_none() {
        draft.infeasible = true;
        draft.wait(Reason::BadConfiguration, "set exactly one key under spec.driver");
        return;
    }
    let answers = answers(planner, service, &draft.status);
    if answers.is_empty() {
        draft.wait(Reason::NotSeenYet, "no node has registered yet");
        return;
    }
    let mut open: Vec<String> = Vec::new();
    let mut running: Vec<&str> = Vec::new();
    for (node, answer) in &answers {
        match answer {
            Answer::Running => running.push(node),
            Answer::Stopped => {}
            Answer::Empty(why) => draft.not_probed.push(format!("{node} ({why})")),
            Answer::Unknown(message) => open.push(format!("{node} cannot tell ({message})")),
            Answer::Missing(why) => open.push(format!("{node} {why}")),
        }
    }
    if let [first, second, ..] = running.as_slice() {
        let message = super::start::runs_twice(service.name, first, second);
        draft.status.node = Some((*first).to_owned());
        draft.status.probe_generation = None;
        draft.status.probe_arming = None;
        error::enter(planner, service, draft, Reason::RunsTwice, message, false);
        return;
    }
    if !open.is_empty() {
        draft.wait(Reason::NotProbed, format!("not yet known whether it runs: {}", open.join(", ")));
        return;
    }
    draft.status.probe_generation = None;
    draft.status.probe_arming = None;
    draft.remove_tombstone = true;
    match (running.first().map(|node| (*node).to_owned()), service.wanted()) {
        (None, RequestedState::Started) => {
            draft.go(ServiceState::RequestStart, Reason::Placed, "it runs nowhere yet".to_owned());
        }
        (None, RequestedState::Stopped | RequestedState::Disabled) => {
            wants_stop(service, draft);
        }
        (Some(node), RequestedState::Started) => {
            start_on(planner, service, draft, &node, Reason::Adopted);
        }
        (Some(node), RequestedState::Stopped | RequestedState::Disabled) => {
            if stop_on(planner, service, draft, &node) {
                draft.go(
                    ServiceState::Stopping,
                    Reason::Stopping,
                    format!("{node} runs it and is told to stop it"),
                );
            }
        }
        (_, RequestedState::Ignored) => {}
    }
}
