//! Fields that have another name, unit or path in etcd: one table each for names and paths, used for requests, files,
//! scenarios and stored objects.
//!
//! The API, its schemas and hactl use the current names and paths. The specs and statuses in etcd and the assignments
//! keep the earlier names and paths. Agents and controllers of the previous version support only these, and ignore
//! other fields. They can thus read every field during a rolling upgrade and after a downgrade.

use crate::availability::{date_of, day_of};
use crate::kind::Kind;
use crate::problem::{Problem, ProblemKind};
use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

/// Annotation in which kubectl keeps the last applied form of an object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A renamed field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenamedField {
    /// Kind of the object.
    pub kind: Kind,
    /// Path of the map with the field; `*` is every element of a list.
    pub parent: &'static [&'static str],
    /// Name until version 0.1, and in etcd.
    pub earlier: &'static str,
    /// Name in the API.
    pub current: &'static str,
    /// Difference between the earlier and the current value.
    pub conversion: Conversion,
}

/// Difference between the earlier and the current value of a renamed field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// The values are equal.
    None,
    /// The earlier value counts thousandths of the current unit.
    Thousandths,
    /// The earlier value counts days since 1970-01-01, and the current value is a date (RFC 3339).
    Date,
    /// The earlier value is `true` where the current value is `false`.
    Negation,
    /// Earlier and current word of each value that was renamed. The field itself may have kept its name.
    Words(&'static [(&'static str, &'static str)]),
}

const fn renamed_field(
    kind: Kind,
    parent: &'static [&'static str],
    earlier: &'static str,
    current: &'static str,
) -> RenamedField {
    RenamedField { kind, parent, earlier, current, conversion: Conversion::None }
}

const MIGRATION_PATH: &[&str] = &["spec", "driver", "libvirt", "migration"];
const COPY_PATH: &[&str] = &["status", "copies", "*", "definition"];
const COPY_MIGRATION_PATH: &[&str] =
    &["status", "copies", "*", "definition", "driver", "libvirt", "migration"];
const FENCING_PATH: &[&str] = &["spec", "fencing"];
const ACTIVE_FENCING_PATH: &[&str] = &["status", "active", "fencing"];
const TIMING_PATH: &[&str] = &["spec", "timing"];
const ACTIVE_TIMING_PATH: &[&str] = &["status", "active", "timing"];
const NODE_TIMING_PATH: &[&str] = &["status", "timing"];

const STATUS_PATH: &[&str] = &["status"];

const WATCHDOG_PATH: &[&str] = &["status", "watchdog"];
const CHECKS_PATH: &[&str] = &["status", "checks", "*"];
const AVAILABILITY_PATH: &[&str] = &["status", "availability"];
const SPANS_PATH: &[&str] = &["status", "availability", "spans", "*"];

const SMTP_PATH: &[&str] = &["spec", "notifications", "smtp"];
const ACTIVE_SMTP_PATH: &[&str] = &["status", "active", "notifications", "smtp"];
const TLS_WORDS: &[(&str, &str)] = &[("StartTls", "StartTLS"), ("Tls", "TLS")];
const PORTS_PATH: &[&str] = &["spec", "driver", "podman", "ports", "*"];
const COPY_PORTS_PATH: &[&str] = &["status", "copies", "*", "definition", "driver", "podman", "ports", "*"];
const PROTOCOL_WORDS: &[(&str, &str)] = &[("Tcp", "TCP"), ("Udp", "UDP")];

const fn renamed_words(
    kind: Kind,
    parent: &'static [&'static str],
    name: &'static str,
    words: &'static [(&'static str, &'static str)],
) -> RenamedField {
    RenamedField { kind, parent, earlier: name, current: name, conversion: Conversion::Words(words) }
}

/// Every field of an object that has another name or unit in etcd.
pub const ALL: [RenamedField; 47] = [
    renamed_field(Kind::Cluster, FENCING_PATH, "onStoreLoss", "onEtcdLoss"),
    renamed_field(Kind::Cluster, FENCING_PATH, "allowStandIn", "allowSimulatedWatchdog"),
    renamed_field(Kind::Cluster, ACTIVE_FENCING_PATH, "onStoreLoss", "onEtcdLoss"),
    renamed_field(Kind::Cluster, ACTIVE_FENCING_PATH, "allowStandIn", "allowSimulatedWatchdog"),
    renamed_field(Kind::Cluster, TIMING_PATH, "heartbeatValidSeconds", "heartbeatLifetimeSeconds"),
    renamed_field(Kind::Cluster, TIMING_PATH, "stopMarginSeconds", "selfFenceMarginSeconds"),
    renamed_field(Kind::Cluster, TIMING_PATH, "returnGraceSeconds", "nodeReturnGracePeriodSeconds"),
    renamed_field(Kind::Cluster, TIMING_PATH, "watchdogRateErrorPercent", "watchdogClockSkewPercent"),
    renamed_field(Kind::Cluster, TIMING_PATH, "watchdogLatenessSeconds", "watchdogMaxDelaySeconds"),
    renamed_field(Kind::Cluster, ACTIVE_TIMING_PATH, "heartbeatValidSeconds", "heartbeatLifetimeSeconds"),
    renamed_field(Kind::Cluster, ACTIVE_TIMING_PATH, "stopMarginSeconds", "selfFenceMarginSeconds"),
    renamed_field(Kind::Cluster, ACTIVE_TIMING_PATH, "returnGraceSeconds", "nodeReturnGracePeriodSeconds"),
    renamed_field(Kind::Cluster, ACTIVE_TIMING_PATH, "watchdogRateErrorPercent", "watchdogClockSkewPercent"),
    renamed_field(Kind::Cluster, ACTIVE_TIMING_PATH, "watchdogLatenessSeconds", "watchdogMaxDelaySeconds"),
    renamed_field(Kind::Node, NODE_TIMING_PATH, "heartbeatValidSeconds", "heartbeatLifetimeSeconds"),
    renamed_field(Kind::Node, NODE_TIMING_PATH, "stopMarginSeconds", "selfFenceMarginSeconds"),
    renamed_field(Kind::Node, NODE_TIMING_PATH, "returnGraceSeconds", "nodeReturnGracePeriodSeconds"),
    renamed_field(Kind::Node, NODE_TIMING_PATH, "watchdogRateErrorPercent", "watchdogClockSkewPercent"),
    renamed_field(Kind::Node, NODE_TIMING_PATH, "watchdogLatenessSeconds", "watchdogMaxDelaySeconds"),
    renamed_field(Kind::Node, FENCING_PATH, "allowUnfenced", "trustWatchdogOnVirtualMachine"),
    renamed_words(Kind::Cluster, SMTP_PATH, "tls", TLS_WORDS),
    renamed_words(Kind::Cluster, ACTIVE_SMTP_PATH, "tls", TLS_WORDS),
    renamed_words(Kind::Resource, PORTS_PATH, "protocol", PROTOCOL_WORDS),
    renamed_words(Kind::Resource, COPY_PORTS_PATH, "protocol", PROTOCOL_WORDS),
    RenamedField {
        conversion: Conversion::Negation,
        ..renamed_field(Kind::Node, &["spec"], "schedulable", "unschedulable")
    },
    renamed_field(Kind::Resource, &["spec"], "after", "dependsOn"),
    renamed_field(Kind::Resource, COPY_PATH, "after", "dependsOn"),
    renamed_field(Kind::Resource, MIGRATION_PATH, "bandwidthMebibytes", "bandwidthMebibytesPerSecond"),
    renamed_field(Kind::Resource, COPY_MIGRATION_PATH, "bandwidthMebibytes", "bandwidthMebibytesPerSecond"),
    RenamedField {
        conversion: Conversion::Thousandths,
        ..renamed_field(Kind::Resource, MIGRATION_PATH, "downtimeMilliseconds", "maxDowntimeSeconds")
    },
    RenamedField {
        conversion: Conversion::Thousandths,
        ..renamed_field(Kind::Resource, COPY_MIGRATION_PATH, "downtimeMilliseconds", "maxDowntimeSeconds")
    },
    renamed_field(Kind::Resource, STATUS_PATH, "neverNodes", "incompatibleNodes"),
    renamed_field(Kind::Resource, STATUS_PATH, "displacedBy", "preemptedBy"),
    renamed_field(Kind::Node, STATUS_PATH, "lastSeen", "lastHeartbeatTime"),
    renamed_field(Kind::Node, STATUS_PATH, "lastEnd", "lastTermination"),
    renamed_field(Kind::Node, STATUS_PATH, "lastProof", "lastFencingReason"),
    renamed_field(Kind::Node, WATCHDOG_PATH, "sliding", "dynamicTimeout"),
    renamed_field(Kind::Node, WATCHDOG_PATH, "descriptorRetained", "fdStorePersistent"),
    renamed_field(Kind::Node, WATCHDOG_PATH, "seen", "observed"),
    RenamedField {
        conversion: Conversion::Words(&[("Ok", "Pass")]),
        ..renamed_field(Kind::Node, CHECKS_PATH, "verdict", "status")
    },
    renamed_field(Kind::Node, CHECKS_PATH, "seen", "message"),
    renamed_field(Kind::Node, CHECKS_PATH, "help", "remediation"),
    RenamedField {
        conversion: Conversion::Words(&[("NotWanted", "NotRequired")]),
        ..renamed_field(Kind::Resource, AVAILABILITY_PATH, "standing", "state")
    },
    renamed_field(Kind::Resource, SPANS_PATH, "notWantedSeconds", "notRequiredSeconds"),
    RenamedField {
        conversion: Conversion::Date,
        ..renamed_field(Kind::Resource, SPANS_PATH, "day", "startDate")
    },
    renamed_field(Kind::Operation, STATUS_PATH, "startedAt", "startTime"),
    renamed_field(Kind::Operation, STATUS_PATH, "finishedAt", "completionTime"),
];

/// Member of a served status that contains the [`internal`] fields.
pub const INTERNAL: &str = "internal";

/// Returns the fields of a status that only the leader and the agents use. The API serves them in [`INTERNAL`]; in etcd
/// they are among the other fields of the status.
pub fn internal_status_fields(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Cluster => &["disarm"],
        Kind::Resource => &[
            "uid",
            "epoch",
            "actionUid",
            "probeGeneration",
            "probeArming",
            "askedIdentity",
            "askedGeneration",
            "declaredSecondary",
        ],
        Kind::Node => &["epoch", "fence"],
        Kind::Group | Kind::AffinityRule | Kind::NodeGroup | Kind::Operation | Kind::GitSync => &[],
    }
}

/// Removes the [`internal`] fields from a map by field of the status, and returns them.
pub fn take_internal_status_fields(kind: Kind, status: &mut Map<String, Value>) -> Map<String, Value> {
    internal_status_fields(kind).iter().filter_map(|name| status.shift_remove_entry(*name)).collect()
}

impl RenamedField {
    /// Returns the path of a member of the parent, as in messages.
    fn path(&self, name: &str) -> String {
        format!("{}.{name}", self.parent.join("."))
    }

    /// Returns the JSON pointer of a member of the parent.
    fn pointer(&self, name: &str) -> String {
        format!("/{}/{name}", self.parent.join("/"))
    }

    /// Returns the warning about the earlier name in a request or file.
    pub fn warning(&self) -> String {
        format!("{}; \"hactl convert --write -f FILE\" rewrites the file", self.notice())
    }

    /// Returns the current name of the field, as a sentence.
    pub fn notice(&self) -> String {
        let (earlier, current) = (self.path(self.earlier), self.path(self.current));
        match self.conversion {
            Conversion::None => format!("{earlier} is now {current}"),
            Conversion::Thousandths => format!("{earlier} is now {current} (in seconds)"),
            Conversion::Date => format!("{earlier} is now {current} (a date)"),
            Conversion::Negation => format!("{earlier} is now {current}, with the opposite value"),
            Conversion::Words(words) => {
                let words: Vec<String> =
                    words.iter().map(|(earlier, current)| format!("{earlier} is now {current}")).collect();
                format!("{current}: {}", words.join(", "))
            }
        }
    }

    /// Returns `true` if the field kept its name, and only its values were renamed.
    pub fn keeps_name(&self) -> bool {
        self.earlier == self.current
    }

    /// Returns the path of the field in the spec, with its current name.
    pub fn current_path(&self) -> String {
        self.parent[1..].iter().copied().chain([self.current]).collect::<Vec<_>>().join(".")
    }

    /// Returns the current value for a value of the earlier field.
    pub fn to_current(&self, value: Value) -> Value {
        match (self.conversion, &value) {
            (Conversion::Thousandths, Value::Number(number)) => {
                number.as_f64().map_or(value, |number| json!(number / 1000.0))
            }
            (Conversion::Date, Value::Number(number)) => number
                .as_u64()
                .and_then(|day| u32::try_from(day).ok())
                .map_or(value, |day| json!(date_of(day))),
            (Conversion::Negation, Value::Bool(is_true)) => json!(!is_true),
            (Conversion::Words(words), Value::String(text)) => {
                words.iter().find(|(earlier, _)| earlier == text).map_or(value, |(_, current)| json!(current))
            }
            _ => value,
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range first")]
    fn to_earlier(self, value: Value) -> Value {
        match (self.conversion, &value) {
            (Conversion::Thousandths, Value::Number(number)) => number
                .as_f64()
                .map_or(value, |number| json!((number * 1000.0).round().clamp(0.0, 1e12) as u64)),
            (Conversion::Date, Value::String(date)) => day_of(date).map_or(value, |day| json!(day)),
            (Conversion::Negation, Value::Bool(is_true)) => json!(!is_true),
            (Conversion::Words(words), Value::String(text)) => {
                words.iter().find(|(_, current)| current == text).map_or(value, |(earlier, _)| json!(earlier))
            }
            _ => value,
        }
    }
}

fn renamed_fields_of(kind: Kind) -> impl Iterator<Item = &'static RenamedField> {
    ALL.iter().filter(move |renamed| renamed.kind == kind)
}

/// Returns the renamed field with this path in the spec, such as `fencing.allowStandIn`.
pub fn renamed_field_of_spec_path(kind: Kind, path: &str) -> Option<&'static RenamedField> {
    renamed_field_in_schema(kind, &format!("spec.{path}"))
}

/// Returns the renamed field with this path in the schema of the kind, such as `status.copies.definition.after`.
pub fn renamed_field_in_schema(kind: Kind, path: &str) -> Option<&'static RenamedField> {
    renamed_fields_of(kind).filter(|renamed| !renamed.keeps_name()).find(|renamed| {
        let names = renamed.parent.iter().filter(|name| **name != "*").copied();
        names.chain([renamed.earlier]).eq(path.split('.'))
    })
}

/// Returns the renamed field whose current path in the object is this one; `*` is every element of a list.
pub(crate) fn with_current_path(kind: Kind, path: &[String]) -> Option<&'static RenamedField> {
    renamed_fields_of(kind).find(|renamed| renamed.parent.iter().chain([&renamed.current]).eq(path))
}

/// Converts an object, or a merge patch for one, from a request or a file to the current names. Returns the renamed
/// fields that have their earlier names.
///
/// A null under one of the two names only removes the field, so the value under the other name counts. A three-way
/// merge sends both names if the file contains one of them and the object contains the other.
///
/// # Errors
/// Returns a problem for each field that is given under both names.
pub fn convert_to_current_names(
    kind: Kind,
    value: &mut Value,
) -> Result<Vec<&'static RenamedField>, Vec<Problem>> {
    let (mut renamed_fields, mut problems) = (Vec::new(), Vec::new());
    for renamed in renamed_fields_of(kind).filter(|renamed| renamed.parent[0] == "spec") {
        change_maps_at(value, renamed.parent, &mut |map| {
            let Some(earlier) = map.get(renamed.earlier) else { return };
            if renamed.keeps_name() {
                let current = renamed.to_current(earlier.clone());
                if current != *earlier {
                    map.insert(renamed.current.to_owned(), current);
                    renamed_fields.push(renamed);
                }
                return;
            }
            let is_both = map.get(renamed.current).is_some_and(|current| !current.is_null());
            if is_both && !earlier.is_null() {
                let message = format!("also given as {}: remove this field", renamed.path(renamed.current));
                let path = renamed.path(renamed.earlier);
                // Later checks of the object do not report it again.
                map.shift_remove(renamed.earlier);
                return problems.push(Problem::new(path, ProblemKind::FieldValueDuplicate, message));
            }
            renamed_fields.push(renamed);
            if is_both {
                map.shift_remove(renamed.earlier);
            } else {
                map.shift_remove(renamed.current);
                rename(map, renamed.earlier, renamed.current, |value| renamed.to_current(value));
            }
        });
    }
    if problems.is_empty() { Ok(renamed_fields) } else { Err(problems) }
}

/// Converts the operations of a JSON patch to the current names. Returns the renamed fields that have their earlier names.
pub fn convert_json_patch_to_current_names(kind: Kind, patch: &mut Value) -> Vec<&'static RenamedField> {
    let mut renamed_fields = Vec::new();
    let operations = patch.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
    for operation in operations {
        for renamed in renamed_fields_of(kind).filter(|renamed| !renamed.keeps_name()) {
            let (earlier, current) = (renamed.pointer(renamed.earlier), renamed.pointer(renamed.current));
            for field in ["path", "from"] {
                let Some(Value::String(path)) = operation.get_mut(field) else { continue };
                let Some(rest) = path.strip_prefix(&earlier) else { continue };
                if !rest.is_empty() && !rest.starts_with('/') {
                    continue;
                }
                *path = format!("{current}{rest}");
                renamed_fields.push(renamed);
                if field == "path"
                    && let Some(value) = operation.get_mut("value")
                {
                    *value = renamed.to_current(value.take());
                }
            }
        }
    }
    renamed_fields
}

/// Converts an object, or a part of one, from its form in etcd to the current names and places. This includes
/// `managedFields` and the last applied form. If etcd contains both names of a field, the value under the current name
/// counts.
pub fn from_stored(kind: Kind, value: &mut Value) {
    for renamed in renamed_fields_of(kind) {
        change_maps_at(value, renamed.parent, &mut |map| {
            if map.contains_key(renamed.current) && !renamed.keeps_name() {
                map.shift_remove(renamed.earlier);
            } else {
                rename(map, renamed.earlier, renamed.current, |value| renamed.to_current(value));
            }
        });
        rename_managed_field(value, renamed, renamed.earlier, renamed.current);
    }
    if let Some(Value::Object(status)) = value.get_mut("status") {
        let fields = take_internal_status_fields(kind, status);
        if !fields.is_empty() {
            status.insert(INTERNAL.to_owned(), Value::Object(fields));
        }
    }
    let annotation = value.pointer_mut("/metadata/annotations").and_then(|all| all.get_mut(LAST_APPLIED));
    if let Some(Value::String(text)) = annotation
        && renamed_fields_of(kind).any(|renamed| text.contains(renamed.earlier))
        && let Ok(mut applied) = serde_json::from_str::<Value>(text)
        && convert_to_current_names(kind, &mut applied).is_ok_and(|renamed_fields| !renamed_fields.is_empty())
    {
        *text = format!("{applied}\n");
    }
}

/// Serializes the part of an object at a path, given in its form in etcd, with the current names.
///
/// # Errors
/// Fails if the serializer fails.
pub fn serialize_part<T: Serialize, S: Serializer>(
    kind: Kind,
    path: &[&str],
    part: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let part = serde_json::to_value(part).map_err(S::Error::custom)?;
    let mut object = path.iter().rev().fold(part, |part, name| json!({ *name: part }));
    from_stored(kind, &mut object);
    path.iter().fold(&object, |part, name| &part[name]).serialize(serializer)
}

/// Converts an object without a status to its form in etcd. Call this for every object that is written to a spec key.
pub fn to_stored(kind: Kind, value: &mut Value) {
    for renamed in renamed_fields_of(kind) {
        change_maps_at(value, renamed.parent, &mut |map| {
            rename(map, renamed.current, renamed.earlier, |value| renamed.to_earlier(value));
        });
        rename_managed_field(value, renamed, renamed.current, renamed.earlier);
    }
}

/// Renames a field in the owners of fields (server-side apply).
fn rename_managed_field(value: &mut Value, renamed: &RenamedField, from: &str, to: &str) {
    let owned: Vec<String> = renamed.parent.iter().map(|name| format!("f:{name}")).collect();
    let owned: Vec<&str> = owned.iter().map(String::as_str).collect();
    let entries = value.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
    for fields in entries.into_iter().flatten().filter_map(|entry| entry.get_mut("fieldsV1")) {
        change_maps_at(fields, &owned, &mut |map| {
            rename(map, &format!("f:{from}"), &format!("f:{to}"), |tree| tree);
        });
    }
}

/// Calls a function with every map at a path.
fn change_maps_at(value: &mut Value, path: &[&str], change: &mut dyn FnMut(&mut Map<String, Value>)) {
    match (path.split_first(), value) {
        (None, Value::Object(map)) => change(map),
        (Some((&"*", rest)), Value::Array(parts)) => {
            for part in parts {
                change_maps_at(part, rest, change);
            }
        }
        (Some((name, rest)), Value::Object(map)) => {
            if let Some(part) = map.get_mut(*name) {
                change_maps_at(part, rest, change);
            }
        }
        (_, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {}
    }
}

/// Renames a member, which keeps its position.
fn rename(map: &mut Map<String, Value>, from: &str, to: &str, convert: impl Fn(Value) -> Value) {
    if map.contains_key(from) {
        let members = std::mem::take(map).into_iter();
        *map = members
            .map(|(name, value)| if name == from { (to.to_owned(), convert(value)) } else { (name, value) })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::availability::Availability;
    use crate::node::NodeStatus;

    /// Returns an object with a value of each renamed field in the spec, under the earlier or the current names.
    fn object(kind: Kind, is_current: bool) -> Value {
        let mut object = json!({"metadata": {"name": "a"}});
        for renamed in renamed_fields_of(kind).filter(|renamed| renamed.parent[0] == "spec") {
            let place = renamed.parent.iter().fold(&mut object, |place, name| match *name {
                "*" => {
                    if place.is_null() {
                        *place = json!([{}]);
                    }
                    &mut place[0]
                }
                name => &mut place[name],
            });
            let (earlier, current) = match renamed.conversion {
                Conversion::None => (json!("x"), json!("x")),
                Conversion::Thousandths => (json!(250), json!(0.25)),
                Conversion::Date => (json!(20_000), json!("2024-10-04")),
                Conversion::Negation => (json!(false), json!(true)),
                Conversion::Words(words) => (json!(words[0].0), json!(words[0].1)),
            };
            let (name, value) =
                if is_current { (renamed.current, current) } else { (renamed.earlier, earlier) };
            place[name] = value;
        }
        object
    }

    #[test]
    fn each_former_field_name_round_trips() {
        for kind in [Kind::Cluster, Kind::Node, Kind::Resource] {
            let (earlier, current) = (object(kind, false), object(kind, true));
            let mut value = earlier.clone();
            let renamed_fields = convert_to_current_names(kind, &mut value).expect("one name each");
            assert_eq!(value, current);
            assert_eq!(
                renamed_fields.len(),
                renamed_fields_of(kind).filter(|renamed| renamed.parent[0] == "spec").count()
            );
            assert_eq!(
                convert_to_current_names(kind, &mut value),
                Ok(Vec::new()),
                "the current names are not renamed"
            );
            to_stored(kind, &mut value);
            assert_eq!(value, earlier);
            from_stored(kind, &mut value);
            assert_eq!(value, current);
        }
    }

    #[test]
    fn former_and_current_name_together_are_refused() {
        let mut both_names = json!({"spec": {"after": ["db"], "dependsOn": ["db"]}});
        let problems = convert_to_current_names(Kind::Resource, &mut both_names).expect_err("both names");
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].to_string(), "spec.after: also given as spec.dependsOn: remove this field");
        from_stored(Kind::Resource, &mut both_names);
        assert_eq!(both_names, json!({"spec": {"dependsOn": ["db"]}}));
    }

    #[test]
    fn a_merge_patch_removes_and_sets_under_either_name() {
        let check = |patch: Value, expected: Value| {
            let mut value = patch;
            let renamed_fields = convert_to_current_names(Kind::Resource, &mut value).expect("one name");
            assert_eq!((value, renamed_fields.len()), (expected, 1));
        };
        check(json!({"spec": {"after": null}}), json!({"spec": {"dependsOn": null}}));
        check(json!({"spec": {"after": null, "dependsOn": ["a"]}}), json!({"spec": {"dependsOn": ["a"]}}));
        check(json!({"spec": {"after": ["a"], "dependsOn": null}}), json!({"spec": {"dependsOn": ["a"]}}));
    }

    #[test]
    fn json_patches_name_the_current_fields() {
        let mut patch = json!([
            {"op": "add", "path": "/spec/after/0", "value": "db"},
            {"op": "copy", "from": "/spec/after", "path": "/spec/tags"},
            {"op": "replace", "path": "/spec/driver/libvirt/migration/downtimeMilliseconds", "value": 300},
            {"op": "remove", "path": "/spec/afterwards"},
        ]);
        let renamed_fields = convert_json_patch_to_current_names(Kind::Resource, &mut patch);
        assert_eq!(renamed_fields.len(), 3);
        assert_eq!(
            patch,
            json!([
                {"op": "add", "path": "/spec/dependsOn/0", "value": "db"},
                {"op": "copy", "from": "/spec/dependsOn", "path": "/spec/tags"},
                {"op": "replace", "path": "/spec/driver/libvirt/migration/maxDowntimeSeconds", "value": 0.3},
                {"op": "remove", "path": "/spec/afterwards"},
            ])
        );
    }

    #[test]
    fn statuses_are_read_under_both_names() {
        let watchdog = json!({"sliding": true, "descriptorRetained": true, "seen": {"nowayout": true}});
        let checks = json!([{"name": "a", "verdict": "Ok", "seen": "b"}, {"name": "c", "verdict": "Fail", "seen": "d", "help": "e"}]);
        let stored = json!({"epoch": 3, "fence": "Open", "watchdog": watchdog, "checks": checks});
        let mut node = json!({"status": stored});
        from_stored(Kind::Node, &mut node);
        let status = &node["status"];
        assert_eq!(status[INTERNAL], json!({"epoch": 3, "fence": "Open"}));
        assert_eq!(
            status["watchdog"],
            json!({"dynamicTimeout": true, "fdStorePersistent": true, "observed": {"nowayout": true}})
        );
        assert_eq!(
            status["checks"],
            json!([{"name": "a", "status": "Pass", "message": "b"},
                {"name": "c", "status": "Fail", "message": "d", "remediation": "e"}])
        );
        let read = |value: &Value| serde_json::from_value::<NodeStatus>(value.clone()).expect("a status");
        let (of_stored, of_current) = (read(&stored), read(status));
        assert_eq!((&of_stored.watchdog, &of_stored.checks), (&of_current.watchdog, &of_current.checks));
        assert_eq!(of_stored.checks[1].help, "e");

        let stored =
            json!({"standing": "NotWanted", "spans": [{"day": 20_000, "days": 1, "notWantedSeconds": 5}]});
        let mut resource = json!({"status": {"availability": stored}});
        from_stored(Kind::Resource, &mut resource);
        let current = &resource["status"]["availability"];
        let spans = json!([{"startDate": "2024-10-04", "days": 1, "notRequiredSeconds": 5}]);
        assert_eq!(*current, json!({"state": "NotRequired", "spans": spans}));
        let read = |value: &Value| serde_json::from_value::<Availability>(value.clone()).expect("a record");
        assert_eq!(read(&stored), read(current));
        assert_eq!((read(current).spans[0].day, read(current).spans[0].not_desired_seconds), (20_000, 5));
        assert!(serde_json::from_value::<Availability>(json!({"spans": [{"startDate": "x"}]})).is_err());
    }

    #[test]
    fn managed_fields_and_last_applied_are_converted() {
        let stored = json!({
            "metadata": {
                "annotations": {LAST_APPLIED: r#"{"spec":{"after":["db"]}}"#},
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {"f:state": {}, "f:after": {}}}}],
            },
            "spec": {"after": ["db"], "state": "Started"},
            "status": {"copies": [{"definition": {"name": "web", "after": ["db"]}}]},
        });
        let mut value = stored.clone();
        from_stored(Kind::Resource, &mut value);
        assert_eq!(
            value["metadata"]["managedFields"][0]["fieldsV1"],
            json!({"f:spec": {"f:state": {}, "f:dependsOn": {}}})
        );
        assert_eq!(value["metadata"]["annotations"][LAST_APPLIED], "{\"spec\":{\"dependsOn\":[\"db\"]}}\n");
        assert_eq!(value["status"]["copies"][0]["definition"]["dependsOn"], json!(["db"]));
        let names: Vec<&String> = value["spec"].as_object().expect("a map").keys().collect();
        assert_eq!(names, ["dependsOn", "state"], "the field keeps its position");
        to_stored(Kind::Resource, &mut value);
        assert_eq!(value["metadata"]["managedFields"], stored["metadata"]["managedFields"]);
        assert_eq!(value["spec"], stored["spec"]);
    }

    #[test]
    fn the_api_serves_internal_fields_separately() {
        for kind in Kind::ALL {
            let fields: Map<String, Value> =
                internal_status_fields(kind).iter().map(|name| ((*name).to_owned(), json!(name))).collect();
            let mut value = json!({"status": fields});
            value["status"]["observedGeneration"] = json!(1);
            let mut served = json!({"status": {"observedGeneration": 1}});
            if !fields.is_empty() {
                served["status"][INTERNAL] = json!(fields);
            }
            for place in ["etcd", "the API"] {
                from_stored(kind, &mut value);
                assert_eq!(value, served, "{kind} from {place}");
            }
        }
    }

    #[test]
    fn values_of_wrong_type_are_not_renamed() {
        for spec in [json!(null), json!([1]), json!({"after": 1}), json!({"driver": {"libvirt": "x"}})] {
            let mut value = json!({"spec": spec, "metadata": {"managedFields": 1, "annotations": []}});
            assert!(convert_to_current_names(Kind::Resource, &mut value).is_ok());
            from_stored(Kind::Resource, &mut value);
            to_stored(Kind::Resource, &mut value);
        }
    }
}
