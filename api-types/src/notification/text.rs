//! The text of notifications: the summary, and subject and body of a mail.

use super::{Notification, NotificationItem, NotificationKind, Severity};
use std::fmt::Write;

/// Maximum number of names in a summary; the summary states how many more there are.
const MAX_NAMES: usize = 3;

impl Notification {
    /// Returns the summary for `items` and for `omitted` items that are not listed.
    pub fn summarize(kind: NotificationKind, items: &[NotificationItem], omitted: u32) -> String {
        let names: Vec<&str> = items.iter().map(|item| item.object.name.as_str()).collect();
        let count = names.len() + usize::try_from(omitted).unwrap_or_default();
        let name = names.first().copied().unwrap_or_default();
        match (kind, count) {
            (NotificationKind::NodeFenced, 1) => format!("node {name} was fenced"),
            (NotificationKind::NodeFenced, _) => {
                format!("{count} nodes were fenced: {}", listed(&names, count))
            }
            (NotificationKind::FenceUnconfirmed, 1) => format!("fencing of node {name} cannot be confirmed"),
            (NotificationKind::FenceUnconfirmed, _) => {
                format!("fencing of {count} nodes cannot be confirmed: {}", listed(&names, count))
            }
            (NotificationKind::NodeReturned, 1) => format!("node {name} is reachable again"),
            (NotificationKind::NodeReturned, _) => {
                format!("{count} nodes are reachable again: {}", listed(&names, count))
            }
            (NotificationKind::ResourceError, 1) => format!("resource {name} is in Error"),
            (NotificationKind::ResourceError, _) => {
                format!("{count} resources are in Error: {}", listed(&names, count))
            }
            (NotificationKind::ResourceRecovered, 1) => format!("resource {name} is no longer in Error"),
            (NotificationKind::ResourceRecovered, _) => {
                format!("{count} resources are no longer in Error: {}", listed(&names, count))
            }
            (NotificationKind::ReservationFailed, _) => {
                "if a node fails, some services cannot be restarted elsewhere".to_owned()
            }
            (NotificationKind::ReservationRecovered, _) => {
                "failover capacity is sufficient again for the failure of any one node".to_owned()
            }
            (NotificationKind::Test, _) => "test notification from hactl".to_owned(),
        }
    }

    /// Returns the subject of the mail: the cluster, the severity unless it is Info, and the summary.
    pub fn subject(&self) -> String {
        let urgent = match self.severity {
            Severity::Critical => "CRITICAL: ",
            Severity::Warning => "Warning: ",
            Severity::Info => "",
        };
        format!("[hactl {}] {urgent}{}", self.cluster, self.summary)
    }

    /// Returns the body of the mail: the summary, the items, and source, time and id of the notification.
    pub fn text(&self) -> String {
        let mut text = format!("Cluster {}: {}.\n", self.cluster, self.summary);
        for item in &self.items {
            text.push('\n');
            item.write(&mut text);
        }
        if self.omitted > 0 {
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(text, "\nAnd {} more: hactl status", self.omitted);
        }
        let _ = writeln!(text, "\n-- \n{} at {}, notification {}", self.source, self.time, self.id);
        text
    }
}

impl NotificationItem {
    fn write(&self, text: &mut String) {
        let kind = self.object.kind.singular();
        let _ = writeln!(text, "{kind} {}", self.object.name);
        if let Some(node) = self.node.as_ref().filter(|node| **node != self.object.name) {
            let _ = writeln!(text, "  where: node {node}");
        }
        if let Some(since) = &self.since {
            let _ = writeln!(text, "  since: {since}");
        }
        let _ = writeln!(text, "  why:   {} ({})", self.message, self.reason);
        if !self.action.is_empty() {
            let _ = writeln!(text, "  do:    {}", self.action);
        }
    }
}

fn listed(names: &[&str], count: usize) -> String {
    let shown: Vec<&str> = names.iter().take(MAX_NAMES).copied().collect();
    let omitted = count - shown.len();
    let suffix = if omitted > 0 { format!(" and {omitted} more") } else { String::new() };
    format!("{}{suffix}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;
    use crate::notification::NotificationObject;
    use crate::reason::Reason;
    use crate::time::Timestamp;

    fn item(name: &str) -> NotificationItem {
        NotificationItem {
            object: NotificationObject { kind: Kind::Resource, name: name.to_owned() },
            node: Some("node2".into()),
            since: Some(Timestamp("2026-01-01T00:00:00Z".to_owned())),
            reason: Reason::StartFailed,
            message: "node2 could not start it: exit status 3".to_owned(),
            action: format!("hactl why {name}"),
        }
    }

    #[test]
    fn mail_contains_all_problem_facts_and_actions() {
        let items = vec![item("web")];
        let notification = Notification {
            id: "c1-7".to_owned(),
            cluster: "default".to_owned(),
            kind: NotificationKind::ResourceError,
            severity: Severity::Critical,
            summary: Notification::summarize(NotificationKind::ResourceError, &items, 0),
            time: Timestamp("2026-01-01T00:00:05Z".to_owned()),
            source: "controller/c1".to_owned(),
            items,
            ..Notification::default()
        };
        assert_eq!(notification.subject(), "[hactl default] CRITICAL: resource web is in Error");
        assert_eq!(
            notification.text(),
            "Cluster default: resource web is in Error.\n\nresource web\n  where: node node2\n  since: 2026-01-01T00:00:00Z\n  \
             why:   node2 could not start it: exit status 3 (StartFailed)\n  do:    hactl why web\n\n-- \n\
             controller/c1 at 2026-01-01T00:00:05Z, notification c1-7\n"
        );
    }

    #[test]
    fn summary_lists_some_problems_and_counts_others() {
        let check = |names: &[&str], omitted: u32, expected: &str| {
            let items: Vec<NotificationItem> = names.iter().map(|name| item(name)).collect();
            assert_eq!(Notification::summarize(NotificationKind::ResourceError, &items, omitted), expected);
        };
        check(&["a"], 0, "resource a is in Error");
        check(&["a", "b"], 0, "2 resources are in Error: a, b");
        check(&["a", "b", "c", "d"], 0, "4 resources are in Error: a, b, c and 1 more");
        check(&["a", "b", "c", "d"], 10, "14 resources are in Error: a, b, c and 11 more");
    }
}
