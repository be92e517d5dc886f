//! Tables with the columns of each kind, as `kubectl get` prints them.

use super::request::IncludeObject;
use ha_api_types::driver::DriverSpec;
use ha_api_types::kind::Kind;
use ha_api_types::placement::NodePriorities;
use ha_api_types::resource::ResourceStatus;
use ha_api_types::time::Timestamp;
use serde_json::{Value, json};

/// A column: its name, its description, and whether it is shown only with `-o wide`.
struct Column {
    name: &'static str,
    description: &'static str,
    wide: bool,
    cell: fn(&Value, i64) -> Value,
}

const fn column(name: &'static str, description: &'static str, cell: fn(&Value, i64) -> Value) -> Column {
    Column { name, description, wide: false, cell }
}

const fn wide(name: &'static str, description: &'static str, cell: fn(&Value, i64) -> Value) -> Column {
    Column { name, description, wide: true, cell }
}

const AGE: Column = column("Age", "Time since the creation.", |object, now| json!(age_of(object, now)));
const READY: Column = column("Ready", "Whether the desired state is reached.", |object, _| {
    condition(object, "Ready", "status")
});
const REASON: Column =
    column("Reason", "CamelCase reason.", |object, _| condition(object, "Ready", "reason"));
const MESSAGE: Column =
    wide("Message", "Explanation, as a sentence.", |object, _| condition(object, "Ready", "message"));
const COMMENT: Column =
    wide("Comment", "Free-form description, not interpreted.", |object, _| text(object, "/spec/comment"));

const RESOURCE: &[Column] = &[
    column("Type", "Type, which depends on the driver.", |object, _| {
        let driver: DriverSpec = object
            .pointer("/spec/driver")
            .and_then(|driver| serde_json::from_value(driver.clone()).ok())
            .unwrap_or_default();
        json!(driver.type_name())
    }),
    column("State", "State of the service.", |object, _| or(text(object, "/status/state"), "Queued")),
    column("Requested", "Requested state.", |object, _| or(text(object, "/spec/state"), "Started")),
    column("Node", "Node on which the service runs or is being started.", |object, _| {
        text(object, "/status/node")
    }),
    column("Running", "Whether the service runs, as reported by the agent.", |object, _| {
        json!(object.pointer("/status/running").and_then(Value::as_bool).unwrap_or(false).to_string())
    }),
    REASON,
    AGE,
    wide("Group", "Group with the preferred nodes.", |object, _| text(object, "/spec/group")),
    wide("Target", "Target node of a move in progress.", |object, _| text(object, "/status/target")),
    wide("Secondary", "Node with the second copy of the data that is in use.", |object, _| {
        let status: ResourceStatus = object
            .pointer("/status")
            .and_then(|status| serde_json::from_value(status.clone()).ok())
            .unwrap_or_default();
        json!(status.secondary().unwrap_or_default())
    }),
    wide("Failed", "Nodes on which a start failed.", |object, _| list(object, "/status/failedNodes")),
    MESSAGE,
];

const GROUP: &[Column] = &[
    column("Nodes", "Member nodes with priorities.", |object, _| priorities(object, "/spec/nodes")),
    column("Restricted", "Whether resources run on member nodes only.", |object, _| {
        truth(object, "/spec/restricted")
    }),
    column("Nofailback", "Whether resources stay when a preferred node returns.", |object, _| {
        truth(object, "/spec/nofailback")
    }),
    AGE,
    COMMENT,
];

const AFFINITY_RULE: &[Column] = &[
    column("Kind", "Kind of the rule: Node, Positive or Negative.", |object, _| {
        let affinity = text(object, "/spec/resourceAffinity/affinity");
        match (
            object.pointer("/spec/nodeAffinity").is_some(),
            affinity.as_str().is_some_and(|text| text.eq_ignore_ascii_case("negative")),
        ) {
            (true, _) => json!("Node"),
            (false, true) => json!("Negative"),
            (false, false) => json!("Positive"),
        }
    }),
    column("Resources", "Resources of the rule.", |object, _| {
        let nodes = list(object, "/spec/nodeAffinity/resources");
        if nodes == json!("") { list(object, "/spec/resourceAffinity/resources") } else { nodes }
    }),
    column("Nodes", "Nodes with priorities.", |object, _| priorities(object, "/spec/nodeAffinity/nodes")),
    column("Strict", "Whether the rule is required; otherwise preferred.", |object, _| {
        let own = object
            .pointer("/spec/nodeAffinity/strict")
            .or_else(|| object.pointer("/spec/resourceAffinity/strict"));
        let default = object.pointer("/spec/nodeAffinity").is_none();
        json!(own.and_then(Value::as_bool).unwrap_or(default).to_string())
    }),
    READY,
    AGE,
    wide("Disabled", "Whether the rule is ignored.", |object, _| truth(object, "/spec/disabled")),
    MESSAGE,
];

const NODE: &[Column] = &[
    column("State", "State of the node.", |object, _| or(text(object, "/status/state"), "Unknown")),
    column("Services", "Number of services assigned to the node.", |object, _| {
        number(object, "/status/services")
    }),
    column("Watchdog", "Kind of the watchdog, and whether the watchdog is armed.", |object, _| {
        let kind = or(text(object, "/status/watchdog/kind"), "None");
        let armed = object.pointer("/status/watchdog/armed").and_then(Value::as_bool).unwrap_or(false);
        json!(format!("{}{}", kind.as_str().unwrap_or("None"), if armed { " (armed)" } else { "" }))
    }),
    column("Fence", "State of the registration: Open, Fencing, Fenced or Closed.", |object, _| {
        text(object, "/status/fence")
    }),
    column("Epoch", "Number of the registration.", |object, _| number(object, "/status/epoch")),
    REASON,
    AGE,
    wide("Mode", "Mode of the agent.", |object, _| text(object, "/status/mode")),
    wide("Maintenance", "Whether maintenance is requested.", |object, _| truth(object, "/spec/maintenance")),
    wide("Schedulable", "Whether new services can be scheduled.", |object, _| {
        json!(object.pointer("/spec/schedulable").and_then(Value::as_bool).unwrap_or(true).to_string())
    }),
    wide("Version", "Version of the agent.", |object, _| text(object, "/status/version")),
    wide("Drivers", "Drivers that the node can serve.", |object, _| list(object, "/status/drivers")),
    wide("CPU", "Measured number of cores in use.", |object, _| text(object, "/status/usage/cpu")),
    wide("Memory", "Measured memory in use, in bytes.", |object, _| text(object, "/status/usage/memory")),
    MESSAGE,
];

const NODE_GROUP: &[Column] = &[
    column("Policy", "Whether new services are scheduled on the group's nodes.", |object, _| {
        or(text(object, "/spec/allocationPolicy"), "Preferred")
    }),
    column("Nodes", "Nodes of the group.", |object, _| list(object, "/status/nodes")),
    AGE,
    COMMENT,
];

const CLUSTER: &[Column] = &[
    column("Profile", "Timing profile.", |object, _| or(text(object, "/spec/timing/profile"), "Default")),
    column("Arming", "Armed, Disarming, Disarmed or Arming.", |object, _| text(object, "/status/arming")),
    column("Leader", "Id of the leader.", |object, _| text(object, "/status/leader")),
    AGE,
    wide("ShutdownPolicy", "Treatment of services when their node shuts down.", |object, _| {
        or(text(object, "/spec/shutdownPolicy"), "Conditional")
    }),
];

const OPERATION: &[Column] = &[
    column("Action", "Requested action.", |object, _| or(text(object, "/spec/action"), "Migrate")),
    column("Resource", "Resource that the action applies to.", |object, _| text(object, "/spec/resource")),
    column("Node", "Node that the action applies to, or target of a move.", |object, _| {
        text(object, "/spec/node")
    }),
    column("Phase", "Progress of the operation.", |object, _| or(text(object, "/status/phase"), "Pending")),
    column("Reason", "CamelCase reason.", |object, _| text(object, "/status/reason")),
    AGE,
    wide("RequestedBy", "User that requested the operation.", |object, _| text(object, "/spec/requestedBy")),
    wide("Message", "Explanation, as a sentence.", |object, _| text(object, "/status/message")),
];

/// Columns of core/v1 Events.
const EVENT: &[Column] = &[
    column("Last Seen", "Time since the last occurrence.", |object, now| {
        json!(age(object.get("lastTimestamp").and_then(Value::as_str), now))
    }),
    column("Type", "Normal or Warning.", |object, _| text(object, "/type")),
    column("Reason", "CamelCase reason.", |object, _| text(object, "/reason")),
    column("Object", "Object of the event.", |object, _| {
        let part = |path: &str| text(object, path).as_str().unwrap_or_default().to_owned();
        json!(format!("{}/{}", part("/involvedObject/kind").to_lowercase(), part("/involvedObject/name")))
    }),
    column("Message", "Description of the event.", |object, _| text(object, "/message")),
    wide("Source", "Writer of the event.", |object, _| text(object, "/source/component")),
    wide("Name", "Name of the event.", |object, _| text(object, "/metadata/name")),
];

/// Type of the rows of a Table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// hactl objects of a kind; the first column is the name.
    Of(Kind),
    /// core/v1 Events; the first column is the time.
    Events,
    /// core/v1 Namespaces.
    Namespaces,
}

fn columns(rows: Rows) -> &'static [Column] {
    match rows {
        Rows::Of(Kind::Resource) => RESOURCE,
        Rows::Of(Kind::Group) => GROUP,
        Rows::Of(Kind::AffinityRule) => AFFINITY_RULE,
        Rows::Of(Kind::Node) => NODE,
        Rows::Of(Kind::NodeGroup) => NODE_GROUP,
        Rows::Of(Kind::Cluster) => CLUSTER,
        Rows::Of(Kind::Operation) => OPERATION,
        Rows::Events => EVENT,
        Rows::Namespaces => &[AGE],
    }
}

/// Returns a Table of these objects. `now_seconds` is the wall clock in seconds since 1970, for ages.
pub(crate) fn table(
    rows: Rows,
    objects: &[Value],
    list_metadata: &Value,
    include: IncludeObject,
    now_seconds: i64,
) -> Value {
    let named = rows != Rows::Events;
    let mut definitions = Vec::new();
    if named {
        definitions.push(json!({"name": "Name", "type": "string", "format": "name", "description": "Name of the object.", "priority": 0}));
    }
    definitions.extend(columns(rows).iter().map(|column| {
        let priority = i32::from(column.wide);
        json!({"name": column.name, "type": "string", "format": "", "description": column.description, "priority": priority})
    }));
    let body: Vec<Value> = objects
        .iter()
        .map(|object| {
            let mut cells = Vec::new();
            if named {
                cells.push(text(object, "/metadata/name"));
            }
            cells.extend(columns(rows).iter().map(|column| (column.cell)(object, now_seconds)));
            let mut row = json!({"cells": cells});
            match include {
                IncludeObject::None => {}
                IncludeObject::Metadata => row["object"] = partial(object),
                IncludeObject::Object => row["object"] = object.clone(),
            }
            row
        })
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_metadata,
        "columnDefinitions": definitions,
        "rows": body,
    })
}

/// Returns the object's metadata alone.
pub(crate) fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

fn text(object: &Value, pointer: &str) -> Value {
    json!(object.pointer(pointer).and_then(Value::as_str).unwrap_or_default())
}

fn number(object: &Value, pointer: &str) -> Value {
    json!(
        object.pointer(pointer).and_then(Value::as_i64).map(|number| number.to_string()).unwrap_or_default()
    )
}

fn truth(object: &Value, pointer: &str) -> Value {
    json!(object.pointer(pointer).and_then(Value::as_bool).unwrap_or(false).to_string())
}

fn or(value: Value, default: &str) -> Value {
    if value.as_str().is_some_and(str::is_empty) { json!(default) } else { value }
}

fn list(object: &Value, pointer: &str) -> Value {
    let texts: Vec<&str> = object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    json!(texts.join(","))
}

/// Returns priorities such as `node1:2,node2`, higher ones first.
fn priorities(object: &Value, pointer: &str) -> Value {
    let nodes: NodePriorities = object
        .pointer(pointer)
        .and_then(|nodes| serde_json::from_value(nodes.clone()).ok())
        .unwrap_or_default();
    let mut nodes: Vec<(String, i64)> = nodes.0.into_iter().collect();
    nodes.sort_by_key(|(_, priority)| std::cmp::Reverse(*priority));
    let texts: Vec<String> = nodes
        .into_iter()
        .map(|(node, priority)| if priority == 0 { node } else { format!("{node}:{priority}") })
        .collect();
    json!(texts.join(","))
}

fn condition(object: &Value, kind: &str, field: &str) -> Value {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let found = conditions
        .and_then(|all| all.iter().find(|one| one.get("type").and_then(Value::as_str) == Some(kind)));
    json!(found.and_then(|one| one.get(field)).and_then(Value::as_str).unwrap_or_default())
}

fn age_of(object: &Value, now_seconds: i64) -> String {
    age(object.pointer("/metadata/creationTimestamp").and_then(Value::as_str), now_seconds)
}

/// Returns the time since a timestamp, in its two largest units, as kubectl prints ages.
fn age(timestamp: Option<&str>, now_seconds: i64) -> String {
    let Some(then) = timestamp.and_then(|text| Timestamp(text.to_owned()).unix_seconds()) else {
        return "<unknown>".to_owned();
    };
    let seconds = (now_seconds - then).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if minutes % 60 != 0 => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        172_800..691_200 if hours % 24 != 0 => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_prints_them() {
        for (seconds, expected) in
            [(5, "5s"), (119, "119s"), (150, "2m30s"), (3600, "60m"), (10_860, "3h1m"), (200_000, "2d7h")]
        {
            let then = Timestamp::from_unix_ms(1_000_000_000_000).0;
            assert_eq!(age(Some(&then), 1_000_000_000 + seconds), expected);
        }
        assert_eq!(age(None, 0), "<unknown>");
    }

    #[test]
    fn every_row_has_a_cell_for_each_column() {
        for rows in Kind::ALL.map(Rows::Of).into_iter().chain([Rows::Events, Rows::Namespaces]) {
            let table = table(rows, &[json!({})], &json!({}), IncludeObject::Metadata, 0);
            let columns = table["columnDefinitions"].as_array().unwrap().len();
            assert_eq!(table["rows"][0]["cells"].as_array().unwrap().len(), columns, "{rows:?}");
        }
    }
}
