//! The columns of a list of each kind.

use super::table::{Cell, Table};
use super::{age, last_seen};
use crate::names::shown;
use crate::terminal::Style;
use ha_api_types::kind::Kind;
use ha_api_types::resource::{RequestedState, ResourceStatus};
use serde_json::Value;

/// Returns an empty table for objects of a kind.
pub(crate) fn table(kind: Kind, wide: bool) -> Table {
    let (narrow, more): (&[&str], &[&str]) = match kind {
        Kind::Resource => (
            &["NAME", "REQUESTED", "STATE", "NODE", "READY", "AGE"],
            &[
                "TARGET",
                "SECONDARY",
                "CPU-USED",
                "MEMORY-USED",
                "GROUP",
                "PRIORITY",
                "FAILED-NODES",
                "REASON",
                "MESSAGE",
            ],
        ),
        Kind::Node => (
            &["NAME", "STATE", "AGENT", "WATCHDOG", "SERVICES", "LAST-SEEN", "AGE"],
            &[
                "MODE",
                "ARMING",
                "EPOCH",
                "FENCE",
                "VERSION",
                "CPU",
                "CPU-USED",
                "MEMORY",
                "MEMORY-USED",
                "NODE-GROUP",
                "DRIVERS",
                "REASON",
            ],
        ),
        Kind::Group => (&["NAME", "NODES", "RESTRICTED", "NOFAILBACK", "AGE"], &["READY", "COMMENT"]),
        Kind::AffinityRule => {
            (&["NAME", "RULE", "RESOURCES", "NODES", "STRICT", "READY", "AGE"], &["REASON", "COMMENT"])
        }
        Kind::NodeGroup => (&["NAME", "POLICY", "NODES", "AGE"], &["TAGS", "COMMENT"]),
        Kind::Cluster => {
            (&["NAME", "PROFILE", "LEADER", "TERM", "ARMING", "AGE"], &["SHUTDOWN", "ON-STORE-LOSS"])
        }
        Kind::Operation => (&["NAME", "ACTION", "RESOURCE", "NODE", "PHASE", "AGE"], &["REASON", "MESSAGE"]),
    };
    let more = if wide { more } else { &[] };
    Table::new(&[narrow, more].concat())
}

/// Returns the active secondary of a replicated service.
fn secondary(object: &Value) -> String {
    let status: ResourceStatus = object
        .get("status")
        .and_then(|status| serde_json::from_value(status.clone()).ok())
        .unwrap_or_default();
    status.secondary().unwrap_or_default().to_owned()
}

/// Returns the row of an object; `deleted` marks an object whose deletion a watch has reported.
pub(crate) fn row(kind: Kind, object: &Value, wide: bool, deleted: bool) -> Vec<Cell> {
    let name = Cell::plain(&shown(kind, object));
    let at = |path: &str| Cell::plain(&text(object, path));
    let state = |path: &str| {
        if deleted { Cell::styled("(deleted)", Style::Dim) } else { state_cell(&text(object, path)) }
    };
    let older = Cell::plain(&age(object.pointer("/metadata/creationTimestamp").and_then(Value::as_str)));
    let ready = condition(object, "Ready");
    let ready_cell = match ready {
        Some(condition) => match condition["status"].as_str().unwrap_or_default() {
            "True" => Cell::styled("True", Style::Good),
            "False" => Cell::styled("False", Style::Bad),
            other => Cell::styled(other, Style::Warn),
        },
        None => Cell::plain(""),
    };
    let of_ready =
        |field: &str| Cell::plain(ready.and_then(|ready| ready[field].as_str()).unwrap_or_default());
    let (narrow, more) = match kind {
        Kind::Resource => (
            vec![
                name,
                Cell::plain(&requested(object)),
                state("/status/state"),
                at("/status/node"),
                ready_cell,
                older,
            ],
            vec![
                at("/status/target"),
                Cell::plain(&secondary(object)),
                at("/status/usage/cpu"),
                at("/status/usage/memory"),
                at("/spec/group"),
                or(object, "/spec/priority", "0"),
                at("/status/failedNodes"),
                of_ready("reason"),
                of_ready("message"),
            ],
        ),
        Kind::Node => (
            vec![
                name,
                state("/status/state"),
                at("/status/agent"),
                Cell::plain(&watchdog(object.pointer("/status/watchdog"))),
                or(object, "/status/services", "0"),
                Cell::plain(&last_seen(object)),
                older,
            ],
            vec![
                at("/status/mode"),
                at("/status/arming"),
                at("/status/epoch"),
                at("/status/fence"),
                at("/status/version"),
                at("/status/capacity/cpu"),
                at("/status/usage/cpu"),
                at("/status/capacity/memory"),
                at("/status/usage/memory"),
                at("/spec/nodeGroup"),
                at("/status/drivers"),
                of_ready("reason"),
            ],
        ),
        Kind::Group => (
            vec![
                name,
                Cell::plain(&priorities(object.pointer("/spec/nodes"))),
                or(object, "/spec/restricted", "false"),
                or(object, "/spec/nofailback", "false"),
                older,
            ],
            vec![ready_cell, at("/spec/comment")],
        ),
        Kind::AffinityRule => {
            let by_node = object.pointer("/spec/nodeAffinity");
            let rule = by_node.or_else(|| object.pointer("/spec/resourceAffinity")).unwrap_or(&Value::Null);
            let sort = match (by_node, rule["affinity"].as_str()) {
                (Some(_), _) => "Node",
                (None, Some(affinity)) => affinity,
                (None, None) => "Positive",
            };
            let disabled = object.pointer("/spec/disabled").and_then(Value::as_bool).unwrap_or(false);
            let strict = rule["strict"].as_bool().unwrap_or(by_node.is_none());
            (
                vec![
                    name,
                    Cell::plain(&if disabled { format!("{sort} (disabled)") } else { sort.to_owned() }),
                    Cell::plain(&joined(&rule["resources"])),
                    Cell::plain(&priorities(rule.get("nodes"))),
                    Cell::plain(&strict.to_string()),
                    ready_cell,
                    older,
                ],
                vec![of_ready("reason"), at("/spec/comment")],
            )
        }
        Kind::NodeGroup => (
            vec![name, or(object, "/spec/allocationPolicy", "Preferred"), at("/status/nodes"), older],
            vec![at("/spec/tags"), at("/spec/comment")],
        ),
        Kind::Cluster => (
            vec![
                name,
                or(object, "/spec/timing/profile", "Default"),
                at("/status/leader"),
                at("/status/term"),
                at("/status/arming"),
                older,
            ],
            vec![
                or(object, "/spec/shutdownPolicy", "Conditional"),
                or(object, "/spec/fencing/onStoreLoss", "Hold"),
            ],
        ),
        Kind::Operation => (
            vec![
                name,
                or(object, "/spec/action", "Migrate"),
                at("/spec/resource"),
                at("/spec/node"),
                if deleted { state("") } else { state_cell(&text_or(object, "/status/phase", "Pending")) },
                older,
            ],
            vec![at("/status/reason"), at("/status/message")],
        ),
    };
    if wide { narrow.into_iter().chain(more).collect() } else { narrow }
}

/// Returns the condition of a type.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Returns a cell with a state in the color of its meaning.
pub(crate) fn state_cell(state: &str) -> Cell {
    Cell::styled(state, state_style(state))
}

/// Returns the style of a state of a service, node, operation or controller.
pub(crate) fn state_style(state: &str) -> Style {
    match state {
        "Started" | "Online" | "Succeeded" | "Leading" | "Active" => Style::Good,
        "Error" | "Fence" | "Failed" | "Refused" | "Unknown" | "Lost" | "LostLock" => Style::Bad,
        "Queued" | "RequestStart" | "Starting" | "RequestStop" | "Stopping" | "Migrate" | "Relocate"
        | "Recovery" | "Freeze" | "Deleting" | "Maintenance" | "Pending" | "Running" | "Offline"
        | "WaitForLock" => Style::Warn,
        _ => Style::Plain,
    }
}

/// Returns a word for a watchdog's kind and whether it is armed.
pub(crate) fn watchdog(watchdog: Option<&Value>) -> String {
    let Some(watchdog) = watchdog else { return String::new() };
    let kind = watchdog["kind"].as_str().unwrap_or_default();
    match (kind, watchdog["armed"].as_bool().unwrap_or(false)) {
        ("" | "None", _) => "none".to_owned(),
        ("Kernel", true) => "armed".to_owned(),
        ("Kernel", false) => "idle".to_owned(),
        (_, true) => "armed (simulated)".to_owned(),
        (_, false) => "idle (simulated)".to_owned(),
    }
}

/// Returns nodes with priorities, such as `node1:2,node2`.
pub(crate) fn priorities(nodes: Option<&Value>) -> String {
    match nodes {
        Some(Value::Object(nodes)) => {
            let shown: Vec<String> = nodes
                .iter()
                .map(|(name, priority)| match priority.as_i64() {
                    Some(0) | None => name.clone(),
                    Some(priority) => format!("{name}:{priority}"),
                })
                .collect();
            shown.join(",")
        }
        Some(other) => joined(other),
        None => String::new(),
    }
}

/// Returns the requested state in its stored form: users may write it in lower case, or as `Enabled`.
fn requested(object: &Value) -> String {
    let written = object.pointer("/spec/state").cloned().unwrap_or_default();
    match serde_json::from_value::<Option<RequestedState>>(written.clone()) {
        Ok(state) => format!("{:?}", state.unwrap_or_default()),
        Err(_) => joined(&written),
    }
}

fn or(object: &Value, path: &str, default: &str) -> Cell {
    Cell::plain(&text_or(object, path, default))
}

fn text_or(object: &Value, path: &str, default: &str) -> String {
    let found = text(object, path);
    if found.is_empty() { default.to_owned() } else { found }
}

fn text(object: &Value, path: &str) -> String {
    object.pointer(path).map(joined).unwrap_or_default()
}

fn joined(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(joined).collect::<Vec<_>>().join(","),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}
