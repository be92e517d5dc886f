//! The conditions of a resource, in the form that kstatus expects: Reconciling and Stalled only while they hold.

use super::{Service, ServiceUpdate};
use crate::core::plan_input::PlanInput;
use ha_api_types::event::EventType;
use ha_api_types::id::{ObjectUid, ResourceName};
use ha_api_types::meta::{Condition, ConditionStatus, set_condition};
use ha_api_types::reason::Reason;
use ha_api_types::record::Phase;
use ha_api_types::resource::{ResourceStatus, ServiceDefinition, ServiceState};

/// Sets the conditions that follow from the other fields of the draft.
pub(super) fn set_conditions(input: &PlanInput<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let generation = service.resource.value.metadata.generation;
    update.status.observed_generation = generation;
    update.status.running = is_reported_running(input, service.name, service.uid(), &update.status);
    let (reason, message) = match update.reason {
        Some(reason) if update.message.is_empty() => (reason, reason.sentence().to_owned()),
        Some(reason) => (reason, update.message.clone()),
        None => stable_reason(update),
    };
    let ready = is_ready(update, reason);
    let stalled = update.status.state == ServiceState::Error || update.is_stalled;
    let reconciling = !ready && !stalled;
    let now = input.now.timestamp();
    let before = update
        .status
        .conditions
        .iter()
        .find(|condition| condition.kind == "Ready")
        .map(|condition| (condition.reason, condition.message.clone()));
    update.status.conditions.retain(|condition| match condition.kind.as_str() {
        "Reconciling" => reconciling,
        "Stalled" => stalled,
        _ => true,
    });
    let mut set_status = |kind: &str, holds: bool, reason: Reason, message: &str| {
        let condition = Condition {
            kind: kind.to_owned(),
            status: if holds { ConditionStatus::True } else { ConditionStatus::False },
            reason,
            message: message.to_owned(),
            last_transition_time: None,
            observed_generation: generation,
        };
        set_condition(&mut update.status.conditions, condition, &now);
    };
    set_status("Ready", ready, reason, &message);
    for (kind, holds) in [("Reconciling", reconciling), ("Stalled", stalled)] {
        if holds {
            set_status(kind, true, reason, &message);
        }
    }
    if update.unprobed_texts.is_empty() {
        if update.status.state != ServiceState::Queued {
            let had_counted_empty =
                service.status.is_some_and(|status| !status.value.counted_empty.is_empty());
            let all_answered = had_counted_empty && update.status.counted_empty.is_empty();
            update.status.conditions.retain(|condition| {
                condition.kind != "Probed" || (generation == condition.observed_generation && !all_answered)
            });
        }
    } else {
        let message = format!("Nodes not probed: {}", update.unprobed_texts.join(", "));
        set_status("Probed", false, Reason::NotProbed, &message);
    }
    let resource = &service.resource.value;
    match update.status.copies.iter().find(|copy| !copy.definition.may_become(resource)) {
        None => update.status.conditions.retain(|condition| condition.kind != "DefinitionDiffers"),
        Some(copy) => {
            let definition_text = |definition: &ServiceDefinition| {
                let identity = definition
                    .identity()
                    .map_or("an unknown service".to_owned(), |identity| identity.to_string());
                format!("{identity}, exclusive {}", definition.exclusive)
            };
            let message = format!(
                "Node {} runs {}; the spec defines {}. The copy continues until the resource is stopped",
                copy.node,
                definition_text(&copy.definition),
                definition_text(&ServiceDefinition::of(resource))
            );
            let condition = Condition {
                kind: "DefinitionDiffers".to_owned(),
                status: ConditionStatus::True,
                reason: Reason::DefinitionDiffers,
                message,
                last_transition_time: None,
                observed_generation: generation,
            };
            set_condition(&mut update.status.conditions, condition, &now);
        }
    }
    // A blocking reason is reported once, when it begins.
    let needs_event = matches!(reason, Reason::Unschedulable | Reason::MultipleActive | Reason::Preempting)
        || (update.is_stalled && matches!(reason, Reason::Draining | Reason::WatchdogFailed));
    let is_new = before.as_ref().is_none_or(|(old_reason, _)| *old_reason != reason)
        || (update.is_deadlocked && before.is_none_or(|(_, old_message)| old_message != message));
    if update.events.is_empty() && is_new && (needs_event || update.is_deadlocked) {
        update.events.push((EventType::Warning, reason, message));
    }
}

/// Returns the reason and message of a state without progress.
fn stable_reason(update: &ServiceUpdate) -> (Reason, String) {
    let node = update.status.node.clone().unwrap_or_default();
    match update.status.state {
        ServiceState::Started => (Reason::Running, format!("Running on {node}")),
        ServiceState::Stopped => (Reason::Stopped, Reason::Stopped.sentence().to_owned()),
        ServiceState::Disabled => (Reason::Disabled, Reason::Disabled.sentence().to_owned()),
        ServiceState::Ignored => (Reason::Unmanaged, Reason::Unmanaged.sentence().to_owned()),
        ServiceState::Queued
        | ServiceState::RequestStart
        | ServiceState::Starting
        | ServiceState::RequestStop
        | ServiceState::Stopping
        | ServiceState::Migrate
        | ServiceState::Relocate
        | ServiceState::Fence
        | ServiceState::Recovery
        | ServiceState::Freeze
        | ServiceState::Error
        | ServiceState::Deleting => (Reason::Waiting, Reason::Waiting.sentence().to_owned()),
    }
}

fn is_ready(update: &ServiceUpdate, reason: Reason) -> bool {
    match update.status.state {
        ServiceState::Started => update.status.running && reason != Reason::MultipleActive,
        ServiceState::Stopped => reason != Reason::StartedExternally,
        ServiceState::Disabled | ServiceState::Ignored => true,
        ServiceState::Queued
        | ServiceState::RequestStart
        | ServiceState::Starting
        | ServiceState::RequestStop
        | ServiceState::Stopping
        | ServiceState::Migrate
        | ServiceState::Relocate
        | ServiceState::Fence
        | ServiceState::Recovery
        | ServiceState::Freeze
        | ServiceState::Error
        | ServiceState::Deleting => false,
    }
}

/// Returns `true` if the service runs, according to reports under current epochs.
pub(super) fn is_reported_running(
    input: &PlanInput<'_>,
    name: &ResourceName,
    uid: &ObjectUid,
    status: &ResourceStatus,
) -> bool {
    if status.state == ServiceState::Ignored {
        return false;
    }
    status.node.iter().chain(&status.target).any(|node| {
        input.cluster_view.service_report(name, node).is_some_and(|report| {
            report.value.uid == *uid
                && input.cluster_view.is_report_current(name, node, report)
                && matches!(report.value.phase, Phase::Running | Phase::HandingOver | Phase::MoveFailed)
        })
    })
}
