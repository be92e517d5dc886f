//! Tables with the columns of each kind: the only definition, for the API, `hactl get` and `kubectl get`.

use crate::driver::DriverSpec;
use crate::id::NodeName;
use crate::kind::Kind;
use crate::node::WatchdogStatus;
use crate::placement::NodePriorities;
use crate::resource::{RequestedState, ResourceStatus};
use crate::time::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Content of a Table row in addition to its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata of the object.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

/// Definition of a column in a Table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ColumnDefinition {
    /// Name of the column.
    pub name: String,
    /// Type of the cells, in OpenAPI's sense.
    #[serde(rename = "type")]
    pub cell_type: String,
    /// Format of the cells, in OpenAPI's sense: `name` for the name of the object.
    pub format: String,
    /// Description of the column.
    pub description: String,
    /// 0 for a column that is always shown; a higher number for one that is shown only with `-o wide`.
    pub priority: i32,
}

/// A column of a table. The format is a `format` of OpenAPI. A wide column is shown only with `-o wide`.
struct Column {
    name: &'static str,
    description: &'static str,
    format: &'static str,
    wide: bool,
    cell: fn(&Value, i64) -> Value,
}

impl Column {
    /// Marks the column with the name of the object.
    const fn named(self) -> Column {
        Column { format: "name", ..self }
    }
}

const fn column(name: &'static str, description: &'static str, cell: fn(&Value, i64) -> Value) -> Column {
    Column { name, description, format: "", wide: false, cell }
}

const fn wide(name: &'static str, description: &'static str, cell: fn(&Value, i64) -> Value) -> Column {
    Column { name, description, format: "", wide: true, cell }
}

const NAME: Column = column("Name", "Name of the object.", |object, _| json!(name(object))).named();
const AGE: Column = column("Age", "Time since the creation.", |object, now| {
    json!(age(object.pointer("/metadata/creationTimestamp").and_then(Value::as_str), now))
});
const READY: Column = column("Ready", "Whether the desired state is reached.", |object, _| {
    condition(object, "Ready", "status")
});
const REASON: Column = column("Reason", "CamelCase reason of the condition Ready.", |object, _| {
    condition(object, "Ready", "reason")
});
const MESSAGE: Column = wide("Message", "Explanation of the condition Ready, as a sentence.", |object, _| {
    condition(object, "Ready", "message")
});
const COMMENT: Column =
    wide("Comment", "Free-form description, not interpreted.", |object, _| text(object, "/spec/comment"));

const RESOURCE: &[Column] = &[
    column("Name", "Type and name of the resource.", |object, _| {
        json!(format!("{}:{}", type_name(object), name(object)))
    })
    .named(),
    READY,
    column("State", "State of the service.", |object, _| or_default(text(object, "/status/state"), "Queued")),
    column("Desired", "Requested state.", |object, _| {
        let state: Option<RequestedState> = read(object, "/spec/state");
        json!(format!("{:?}", state.unwrap_or_default()))
    }),
    column("Node", "Node on which the service runs or is being started.", |object, _| {
        text(object, "/status/node")
    }),
    REASON,
    AGE,
    wide("Type", "Type, which depends on the driver.", |object, _| json!(type_name(object))),
    wide("Running", "Whether the service runs, as reported by the agent.", |object, _| {
        boolean(object, "/status/running", false)
    }),
    wide("Group", "Group with the preferred nodes.", |object, _| text(object, "/spec/group")),
    wide("Priority", "Importance when capacity is insufficient.", |object, _| {
        or_default(number(object, "/spec/priority"), "0")
    }),
    wide("Target", "Target node of a move in progress.", |object, _| text(object, "/status/target")),
    wide("Secondary", "Node with the second copy of the data that is in use.", |object, _| {
        let status: ResourceStatus = read(object, "/status");
        json!(status.secondary().map_or("", NodeName::as_str))
    }),
    wide("Failed Nodes", "Nodes on which a start failed.", |object, _| list(object, "/status/failedNodes")),
    MESSAGE,
];

const GROUP: &[Column] = &[
    NAME,
    column("Nodes", "Member nodes with priorities.", |object, _| priorities(object, "/spec/nodes")),
    column("Restricted", "Whether resources run on member nodes only.", |object, _| {
        boolean(object, "/spec/restricted", false)
    }),
    column("Nofailback", "Whether resources stay when a preferred node returns.", |object, _| {
        boolean(object, "/spec/nofailback", false)
    }),
    AGE,
    COMMENT,
];

const AFFINITY_RULE: &[Column] = &[
    NAME,
    column(
        "Rule",
        "Kind of the rule: Node, Positive or Negative, and whether it is disabled.",
        |object, _| {
            let affinity = text(object, "/spec/resourceAffinity/affinity");
            let kind = match (
                object.pointer("/spec/nodeAffinity").is_some(),
                affinity.as_str().is_some_and(|text| text.eq_ignore_ascii_case("negative")),
            ) {
                (true, _) => "Node",
                (false, true) => "Negative",
                (false, false) => "Positive",
            };
            let is_disabled = object.pointer("/spec/disabled").and_then(Value::as_bool).unwrap_or(false);
            json!(if is_disabled { format!("{kind} (disabled)") } else { kind.to_owned() })
        },
    ),
    column("Resources", "Resources of the rule.", |object, _| {
        or_default(
            list(object, "/spec/nodeAffinity/resources"),
            list(object, "/spec/resourceAffinity/resources").as_str().unwrap_or_default(),
        )
    }),
    column("Nodes", "Nodes with priorities.", |object, _| priorities(object, "/spec/nodeAffinity/nodes")),
    column("Strict", "Whether the rule is required; otherwise preferred.", |object, _| {
        if object.pointer("/spec/nodeAffinity").is_some() {
            boolean(object, "/spec/nodeAffinity/strict", false)
        } else {
            boolean(object, "/spec/resourceAffinity/strict", true)
        }
    }),
    READY,
    AGE,
    wide("Reason", "CamelCase reason of the condition Ready.", |object, _| {
        condition(object, "Ready", "reason")
    }),
    MESSAGE,
    COMMENT,
];

const NODE: &[Column] = &[
    NAME,
    column("State", "State of the node, with SchedulingDisabled if the node is cordoned.", |object, _| {
        let state = or_default(text(object, "/status/state"), "Unknown");
        let is_cordoned = object.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true);
        if is_cordoned {
            json!(format!("{},SchedulingDisabled", state.as_str().unwrap_or_default()))
        } else {
            state
        }
    }),
    column("Agent", "State of the agent.", |object, _| text(object, "/status/agent")),
    column("Watchdog", "Whether the watchdog is armed, and whether it is simulated.", |object, _| {
        let watchdog: Option<WatchdogStatus> = read(object, "/status/watchdog");
        json!(watchdog.map_or("", |watchdog| watchdog.summary()))
    }),
    column("Services", "Number of services assigned to the node.", |object, _| {
        or_default(number(object, "/status/services"), "0")
    }),
    column("Last Seen", "Time since the last heartbeat.", |object, now| json!(last_seen(object, now))),
    REASON,
    AGE,
    wide("Mode", "Mode of the agent.", |object, _| text(object, "/status/mode")),
    // The cell is empty in the usual state. The next columns show the armed state of the watchdog.
    wide("Arming", "Disarming, Disarmed or Arming; empty if armed.", |object, _| {
        let arming = text(object, "/status/arming");
        if arming == "Armed" { json!("") } else { arming }
    }),
    wide("Maintenance", "Whether maintenance is requested.", |object, _| {
        boolean(object, "/spec/maintenance", false)
    }),
    wide("Unschedulable", "Whether no new services are scheduled.", |object, _| {
        boolean(object, "/spec/unschedulable", false)
    }),
    wide("Registration State", "State of the registration: Open, Fencing, Fenced or Closed.", |object, _| {
        text(object, "/status/internal/fence")
    }),
    wide("Registration", "Number of the registration.", |object, _| number(object, "/status/internal/epoch")),
    wide("Version", "Version of the agent.", |object, _| text(object, "/status/version")),
    wide("CPU", "Number of cores.", |object, _| text(object, "/status/capacity/cpu")),
    wide("CPU Used", "Measured number of cores in use.", |object, _| text(object, "/status/usage/cpu")),
    wide("Memory", "Memory, in bytes.", |object, _| text(object, "/status/capacity/memory")),
    wide("Memory Used", "Measured memory in use, in bytes.", |object, _| {
        text(object, "/status/usage/memory")
    }),
    wide("Node Group", "Node group of the node.", |object, _| text(object, "/spec/nodeGroup")),
    wide("Drivers", "Drivers that are available on the node.", |object, _| list(object, "/status/drivers")),
    MESSAGE,
];

const NODE_GROUP: &[Column] = &[
    NAME,
    column("Policy", "Whether new services are scheduled on the group's nodes.", |object, _| {
        or_default(text(object, "/spec/allocationPolicy"), "Preferred")
    }),
    column("Nodes", "Nodes of the group.", |object, _| list(object, "/status/nodes")),
    AGE,
    wide("Tags", "Tags of the group.", |object, _| list(object, "/spec/tags")),
    COMMENT,
];

const GIT_SYNC: &[Column] = &[
    NAME,
    READY,
    REASON,
    column("Applied", "Commit whose objects were applied last.", |object, _| {
        let revision = text(object, "/status/appliedRevision");
        json!(revision.as_str().unwrap_or_default().chars().take(10).collect::<String>())
    }),
    column("Drifted", "Whether others had changed objects before the last pass.", |object, _| {
        condition(object, "Drifted", "status")
    }),
    AGE,
    wide("Repository", "URL or directory of the repository.", |object, _| text(object, "/spec/repository")),
    wide("Path", "Directory of the files within the repository.", |object, _| text(object, "/spec/path")),
    MESSAGE,
];

const CLUSTER: &[Column] = &[
    NAME,
    column("Profile", "Timing profile.", |object, _| {
        or_default(text(object, "/spec/timing/profile"), "Default")
    }),
    column("Arming", "Armed, Disarming, Disarmed or Arming.", |object, _| text(object, "/status/arming")),
    column("Leader", "Id of the leader.", |object, _| text(object, "/status/leader")),
    wide("Term", "Number of the leader's term.", |object, _| number(object, "/status/term")),
    AGE,
    wide("Shutdown Policy", "Treatment of services when their node shuts down.", |object, _| {
        or_default(text(object, "/spec/shutdownPolicy"), "Conditional")
    }),
    wide("On Etcd Loss", "Treatment of services when etcd is unreachable.", |object, _| {
        or_default(text(object, "/spec/fencing/onEtcdLoss"), "Hold")
    }),
];

const OPERATION: &[Column] = &[
    NAME,
    column("Action", "Requested action.", |object, _| or_default(text(object, "/spec/action"), "Migrate")),
    column("Resource", "Resource that the action applies to.", |object, _| text(object, "/spec/resource")),
    column("Node", "Node that the action applies to, or target of a move.", |object, _| {
        text(object, "/spec/node")
    }),
    column("Phase", "Progress of the operation.", |object, _| {
        or_default(text(object, "/status/phase"), "Pending")
    }),
    column("Reason", "CamelCase reason.", |object, _| text(object, "/status/reason")),
    AGE,
    wide("Requested By", "User that requested the operation.", |object, _| text(object, "/spec/requestedBy")),
    wide("Message", "Explanation, as a sentence.", |object, _| text(object, "/status/message")),
];

/// Columns of core/v1 Events, in the order of `kubectl get events`.
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
    wide("Source", "Writer of the event.", |object, _| text(object, "/source/component")),
    column("Message", "Description of the event.", |object, _| text(object, "/message")),
    wide("Name", "Name of the event.", |object, _| text(object, "/metadata/name")),
];

/// Type of the rows of a Table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
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
        Rows::Of(Kind::GitSync) => GIT_SYNC,
        Rows::Events => EVENT,
        Rows::Namespaces => &[NAME, AGE],
    }
}

/// Returns a `meta.k8s.io/v1` Table of these objects. `now_seconds` is the wall clock in seconds since 1970, for ages.
pub fn table(
    rows: Rows,
    objects: &[Value],
    list_metadata: &Value,
    include: IncludeObject,
    now_seconds: i64,
) -> Value {
    let definition = |column: &Column| ColumnDefinition {
        name: column.name.to_owned(),
        cell_type: "string".to_owned(),
        format: column.format.to_owned(),
        description: column.description.to_owned(),
        priority: i32::from(column.wide),
    };
    let definitions: Vec<ColumnDefinition> = columns(rows).iter().map(definition).collect();
    let body: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells: Vec<Value> =
                columns(rows).iter().map(|column| (column.cell)(object, now_seconds)).collect();
            let mut row = json!({"cells": cells});
            match include {
                IncludeObject::None => {}
                IncludeObject::Metadata => row["object"] = partial_metadata(object),
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
pub fn partial_metadata(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

fn type_name(resource: &Value) -> String {
    read::<DriverSpec>(resource, "/spec/driver").type_name()
}

/// Returns the typed value at a pointer. For a missing value, or a value that this version cannot read, returns the
/// default.
fn read<T: DeserializeOwned + Default>(object: &Value, pointer: &str) -> T {
    object.pointer(pointer).and_then(|value| serde_json::from_value(value.clone()).ok()).unwrap_or_default()
}

fn text(object: &Value, pointer: &str) -> Value {
    json!(object.pointer(pointer).and_then(Value::as_str).unwrap_or_default())
}

fn number(object: &Value, pointer: &str) -> Value {
    json!(
        object.pointer(pointer).and_then(Value::as_i64).map(|number| number.to_string()).unwrap_or_default()
    )
}

fn boolean(object: &Value, pointer: &str, default: bool) -> Value {
    json!(object.pointer(pointer).and_then(Value::as_bool).unwrap_or(default).to_string())
}

fn or_default(value: Value, default: &str) -> Value {
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

/// Returns priorities such as `node1:2,node2`, the highest priority first.
fn priorities(object: &Value, pointer: &str) -> Value {
    let mut nodes: Vec<(NodeName, i64)> = read::<NodePriorities>(object, pointer).0.into_iter().collect();
    nodes.sort_by_key(|(_, priority)| std::cmp::Reverse(*priority));
    let texts: Vec<String> = nodes
        .into_iter()
        .map(|(node, priority)| if priority == 0 { node.to_string() } else { format!("{node}:{priority}") })
        .collect();
    json!(texts.join(","))
}

fn condition(object: &Value, kind: &str, field: &str) -> Value {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let condition = conditions.and_then(|all| {
        all.iter().find(|condition| condition.get("type").and_then(Value::as_str) == Some(kind))
    });
    json!(condition.and_then(|condition| condition.get(field)).and_then(Value::as_str).unwrap_or_default())
}

/// Interval in seconds at which the leader stores the time of an Online node's last heartbeat, plus a margin for the
/// write.
const LAST_SEEN_INTERVAL: i64 = 65;

/// Returns the time since a node's last heartbeat. If the stored time is recent, only an upper bound is known.
fn last_seen(node: &Value, now_seconds: i64) -> String {
    let at = node.pointer("/status/lastHeartbeatTime").and_then(Value::as_str);
    let state = node.pointer("/status/state").and_then(Value::as_str);
    let is_in_time = matches!(state, Some("Online" | "Maintenance"));
    match at.and_then(seconds) {
        Some(then) if is_in_time && now_seconds - then <= LAST_SEEN_INTERVAL => "<1m".to_owned(),
        Some(_) => age(at, now_seconds),
        None => String::new(),
    }
}

fn seconds(timestamp: &str) -> Option<i64> {
    Timestamp(timestamp.to_owned()).unix_seconds()
}

/// Returns the time since a timestamp.
fn age(timestamp: Option<&str>, now_seconds: i64) -> String {
    timestamp.and_then(seconds).map_or_else(|| "<unknown>".to_owned(), |then| duration(now_seconds - then))
}

/// Returns a duration in its two largest units, such as `3h12m`, as kubectl prints ages.
pub fn duration(seconds: i64) -> String {
    let seconds = seconds.max(0);
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
    fn ages_use_the_kubectl_format() {
        for (seconds, expected) in
            [(5, "5s"), (119, "119s"), (150, "2m30s"), (3600, "60m"), (10_860, "3h1m"), (200_000, "2d7h")]
        {
            let then = Timestamp::from_unix_ms(1_000_000_000_000).0;
            assert_eq!(age(Some(&then), 1_000_000_000 + seconds), expected);
        }
        assert_eq!(age(None, 0), "<unknown>");
    }

    #[test]
    fn timely_heartbeats_are_not_shown_as_late() {
        let node =
            |state: &str| json!({"status": {"state": state, "lastHeartbeatTime": "1970-01-01T00:00:10Z"}});
        assert_eq!(last_seen(&node("Online"), 68), "<1m");
        assert_eq!(last_seen(&node("Maintenance"), 68), "<1m");
        assert_eq!(last_seen(&node("Online"), 130), "2m");
        assert_eq!(last_seen(&node("Unknown"), 40), "30s");
        assert_eq!(last_seen(&json!({"status": {"state": "Online"}}), 40), "");
    }

    /// Returns a row as `NAME=cell` pairs, without empty cells.
    fn row(kind: Kind, object: &Value) -> String {
        let table = table(Rows::Of(kind), std::slice::from_ref(object), &json!({}), IncludeObject::None, 100);
        let columns = table["columnDefinitions"].as_array().unwrap();
        let cells = table["rows"][0]["cells"].as_array().unwrap();
        let shown = columns.iter().zip(cells).filter(|(_, cell)| **cell != "");
        let pairs = shown
            .map(|(column, cell)| format!("{}={}", column["name"].as_str().unwrap(), cell.as_str().unwrap()));
        pairs.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn table_rows_show_types_defaults_and_conditions() {
        let check = |kind: Kind, object: Value, expected: &str| {
            let actual = row(kind, &object);
            assert!(actual.starts_with(expected), "{actual}");
        };
        let metadata = json!({"name": "100", "creationTimestamp": "1970-01-01T00:00:40Z"});
        check(
            Kind::Resource,
            json!({"metadata": metadata, "spec": {"driver": {"libvirt": {"domain": "x"}}, "state": "stopped"},
                "status": {"state": "Stopped", "conditions": [{"type": "Ready", "status": "True", "reason": "Stopped"}]}}),
            "Name=vm:100 Ready=True State=Stopped Desired=Stopped Reason=Stopped Age=60s Type=vm Running=false Priority=0",
        );
        check(
            Kind::Node,
            json!({"metadata": metadata, "status": {"watchdog": {"kind": "Simulated", "armed": true}, "drivers": ["exec"]}}),
            "Name=100 State=Unknown Watchdog=armed (simulated) Services=0 Age=60s",
        );
        check(
            Kind::Node,
            json!({"metadata": metadata, "spec": {"unschedulable": true}, "status": {"state": "Online"}}),
            "Name=100 State=Online,SchedulingDisabled Services=0 Age=60s",
        );
        check(
            Kind::AffinityRule,
            json!({"metadata": metadata, "spec": {"disabled": true,
                "resourceAffinity": {"affinity": "negative", "resources": ["a", "b"]}}}),
            "Name=100 Rule=Negative (disabled) Resources=a,b Strict=true Age=60s",
        );
        check(
            Kind::AffinityRule,
            json!({"metadata": metadata, "spec": {"nodeAffinity": {"resources": ["a"], "nodes": {"n1": 0, "n2": 2}}}}),
            "Name=100 Rule=Node Resources=a Nodes=n2:2,n1 Strict=false Age=60s",
        );
        check(
            Kind::Cluster,
            json!({"metadata": metadata}),
            "Name=100 Profile=Default Age=60s Shutdown Policy=Conditional On Etcd Loss=Hold",
        );
    }

    #[test]
    fn every_table_row_fills_every_column() {
        for rows in Kind::ALL.map(Rows::Of).into_iter().chain([Rows::Events, Rows::Namespaces]) {
            let table = table(rows, &[json!({})], &json!({}), IncludeObject::Metadata, 0);
            let columns = table["columnDefinitions"].as_array().unwrap().len();
            assert_eq!(table["rows"][0]["cells"].as_array().unwrap().len(), columns, "{rows:?}");
        }
    }
}
