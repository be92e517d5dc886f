//! Ignored: not managed, never touched.

use super::{Assign, Draft, Service};
use crate::core::situation::Situation;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Phase};
use ha_api_types::resource::{RequestedState, ServiceState};

/// Stops managing the service and leaves it as it is; a hand-over that has begun ends first.
pub(super) fn enter(situation: &Situation<'_>, service: &Service<'_>, draft: &mut Draft) {
    if is_handing_over(situation, service) {
        draft.wait(Reason::Waiting, "it is being handed over, which ends first");
        return;
    }
    draft.assign = Assign::Delete;
    draft.forget_failures();
    draft.status.target = None;
    draft.status.maintenance_node = None;
    draft.status.displaced_by = None;
    draft.status.epoch = None;
    draft.status.action_uid = None;
    draft.go(ServiceState::Ignored, Reason::IgnoredAsWanted, String::new());
}

/// Whether the service may be on either of two nodes right now.
pub(super) fn is_handing_over(situation: &Situation<'_>, service: &Service<'_>) -> bool {
    let Some(assignment) = service.assignment.map(|assignment| &assignment.value) else { return false };
    match &assignment.action {
        Action::Migrate { .. } => service
            .phase(situation)
            .is_some_and(|phase| matches!(phase, Phase::HandingOver | Phase::HandedOver)),
        Action::Start | Action::Stop { .. } | Action::Restart | Action::Leave => false,
    }
}

/// Managed again: every place is asked anew, since anybody may have started it anywhere.
pub(super) fn ignored(service: &Service<'_>, draft: &mut Draft) {
    if service.wanted() == RequestedState::Ignored {
        draft.say(Reason::IgnoredAsWanted, String::new());
        return;
    }
    draft.status.probe_generation = Some(service.resource.value.metadata.generation);
    draft.go(ServiceState::Queued, Reason::NotProbed, "it is managed again".to_owned());
}
