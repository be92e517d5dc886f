//! Composition of a notification from collected items, short enough to be stored.

use crate::core::plan::Plan;
use crate::core::plan_input::PlanInput;
use ha_api_types::notification::{Notification, NotificationItem, NotificationKind, SCHEMA};

/// Maximum number of listed items; the rest is stated as a number.
const MAX_ITEMS: usize = 20;
/// Maximum length of an item's message, in characters.
const MAX_MESSAGE_CHARS: usize = 600;

/// Composes a notification. Its number makes the id unique within this process, and the process's instance makes it
/// globally unique.
pub(super) fn compose(
    input: &PlanInput<'_>,
    plan: &mut Plan,
    kind: NotificationKind,
    items: Vec<NotificationItem>,
) -> Notification {
    let number = input.next_uid + plan.uids;
    plan.uids += 1;
    let mut notification = without_id(input, kind, items);
    notification.id = format!("{}-{number}", input.config.instance);
    notification
}

/// Composes a notification without an id.
pub(super) fn without_id(
    input: &PlanInput<'_>,
    kind: NotificationKind,
    mut items: Vec<NotificationItem>,
) -> Notification {
    let omitted = u32::try_from(items.len().saturating_sub(MAX_ITEMS)).unwrap_or(u32::MAX);
    items.truncate(MAX_ITEMS);
    for item in &mut items {
        if item.message.chars().count() > MAX_MESSAGE_CHARS {
            item.message = item.message.chars().take(MAX_MESSAGE_CHARS).chain("…".chars()).collect();
        }
    }
    Notification {
        schema: SCHEMA.to_owned(),
        id: String::new(),
        cluster: input.config.cluster.clone(),
        kind,
        severity: kind.severity(),
        summary: Notification::summarize(kind, &items, omitted),
        time: input.now.timestamp(),
        source: format!("controller/{}", input.config.id),
        items,
        omitted,
    }
}
