//! Composition of a notification from collected items, short enough to be stored.

use crate::core::plan::Plan;
use crate::core::situation::Situation;
use ha_api_types::notification::{Notification, NotificationItem, NotificationKind, SCHEMA};

/// Maximum number of listed items; further items are only counted.
const MOST_ITEMS: usize = 20;
/// Maximum length of an item's message, in characters.
const LONGEST: usize = 600;

/// Composes a notification. Its number makes the id unique within this process, and the process's instance makes it
/// globally unique.
pub(super) fn compose(
    situation: &Situation<'_>,
    plan: &mut Plan,
    kind: NotificationKind,
    items: Vec<NotificationItem>,
) -> Notification {
    let number = situation.next_uid + plan.uids;
    plan.uids += 1;
    let mut notification = of(situation, kind, items);
    notification.id = format!("{}-{number}", situation.config.instance);
    notification
}

/// Composes a notification without an id.
pub(super) fn of(
    situation: &Situation<'_>,
    kind: NotificationKind,
    mut items: Vec<NotificationItem>,
) -> Notification {
    let more = u32::try_from(items.len().saturating_sub(MOST_ITEMS)).unwrap_or(u32::MAX);
    items.truncate(MOST_ITEMS);
    for item in &mut items {
        if item.message.chars().count() > LONGEST {
            item.message = item.message.chars().take(LONGEST).chain("…".chars()).collect();
        }
    }
    Notification {
        schema: SCHEMA.to_owned(),
        id: String::new(),
        cluster: situation.config.cluster.clone(),
        kind,
        severity: kind.severity(),
        summary: Notification::summarize(kind, &items, more),
        time: situation.now.timestamp(),
        source: format!("controller/{}", situation.config.id),
        items,
        more,
    }
}
