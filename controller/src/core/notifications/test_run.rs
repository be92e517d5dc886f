//! `hactl notify test`: sends a test to all targets at the same time, and reports the outcome of each.

use super::compose;
use super::deliveries::{Delivery, DeliveryId, DeliveryOutcome};
use crate::core::plan::Plan;
use crate::core::plan_input::PlanInput;
use ha_api_types::cluster::NotificationsSpec;
use ha_api_types::id::OperationName;
use ha_api_types::names::count_with_noun;
use ha_api_types::notification::{NotificationItem, NotificationKind};
use ha_api_types::operation::OperationPhase;
use ha_api_types::reason::Reason;

/// Starts a test, or returns its progress. A new leader has no record of a running test, and sends the test again under
/// the same id.
pub(in crate::core) fn run_test(
    input: &PlanInput<'_>,
    operation: &OperationName,
    plan: &mut Plan,
) -> (OperationPhase, Reason, String) {
    let settings = input.cluster_view.settings();
    let targets = settings.notifications.as_ref().map(NotificationsSpec::targets).unwrap_or_default();
    let Some(results) = input.deliveries.test_outcomes(operation) else {
        if targets.is_empty() {
            let message =
                "No notification target configured: set spec.notifications of the Cluster".to_owned();
            return (OperationPhase::Refused, Reason::NotFound, message);
        }
        let item = NotificationItem {
            reason: Reason::UserRequested,
            message: "Test requested by an operator; no action is needed".to_owned(),
            since: Some(input.now.timestamp()),
            ..NotificationItem::default()
        };
        let mut notification = compose::without_id(input, NotificationKind::Test, vec![item]);
        notification.id = format!("test-{operation}");
        let message = format!("Sending a test to {}", count_with_noun(targets.len(), "target"));
        plan.deliveries.extend(targets.into_iter().map(|target| Delivery {
            id: DeliveryId::default(),
            target,
            notification: notification.clone(),
            operation: Some(operation.to_owned()),
        }));
        return (OperationPhase::Running, Reason::InProgress, message);
    };
    let waiting: Vec<&str> =
        results.iter().filter(|(_, outcome)| outcome.is_none()).map(|(name, _)| name.as_str()).collect();
    if !waiting.is_empty() {
        let message = format!("Waiting for the test to be delivered to {}", waiting.join(", "));
        return (OperationPhase::Running, Reason::InProgress, message);
    }
    let lines: Vec<String> = results
        .iter()
        .map(|(name, outcome)| match outcome {
            Some(DeliveryOutcome::Delivered(answer)) => format!("{name}: delivered ({answer})"),
            Some(DeliveryOutcome::Failed(cause) | DeliveryOutcome::Refused(cause)) => {
                format!("{name}: failed: {cause}")
            }
            None => name.clone(),
        })
        .collect();
    let all_delivered =
        results.values().all(|outcome| matches!(outcome, Some(DeliveryOutcome::Delivered(_))));
    if all_delivered {
        (OperationPhase::Succeeded, Reason::Completed, lines.join("\n"))
    } else {
        (OperationPhase::Failed, Reason::NotificationFailed, lines.join("\n"))
    }
}
