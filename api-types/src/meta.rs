//! The metadata of every object, and conditions, following the Kubernetes conventions.

use crate::id::ObjectUid;
use crate::reason::Reason;
use crate::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Metadata of an object. Users write `name`, `labels`, `annotations` and `finalizers`; the API writes the
/// rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Name of the object, unique among the objects of its kind; for resources, unique across all types.
    pub name: String,
    /// Key-value pairs for selecting objects.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Key-value pairs for tools, not interpreted by hactl.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Unique id of the object, different from that of an earlier object with the same name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub uid: ObjectUid,
    /// Number of the spec's version, which grows by one with each change of the spec.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// Etcd revision of the last change of spec or status.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Time of the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    /// Time of the request to delete the object. The object is removed once no finalizer remains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Timestamp>,
    /// Tasks that must be completed before the object is removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Managers of the fields (server-side apply), stored as received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_fields: Option<serde_json::Value>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Status of a condition.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The status of the condition cannot be determined.
    #[default]
    Unknown,
}

/// One observed fact about an object, in the form that kstatus and `kubectl wait` read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition, such as `Ready`, `Fenceable` or `Complete`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status of the condition.
    pub status: ConditionStatus,
    /// CamelCase reason of the status.
    pub reason: Reason,
    /// Explanation, as a sentence.
    #[serde(default)]
    pub message: String,
    /// Time when `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    /// Generation of the object from which this condition was computed.
    #[serde(default)]
    pub observed_generation: i64,
}

/// Renames of condition types: as earlier versions stored them, and their current names.
const RENAMED_CONDITIONS: [(&str, &str); 3] = [
    ("FenceDevices", "FenceDevicesHealthy"),
    ("Reservation", "FailoverCapacityAvailable"),
    ("Watchdog", "Fenceable"),
];

/// Renames conditions that an earlier version stored. An old condition is removed if one with the current name exists.
/// During an upgrade, a leader of an earlier version set both.
pub fn rename_conditions(conditions: &mut Vec<Condition>) {
    for (old, new) in RENAMED_CONDITIONS {
        if conditions.iter().any(|condition| condition.kind == new) {
            conditions.retain(|condition| condition.kind != old);
        }
        for condition in conditions.iter_mut().filter(|condition| condition.kind == old) {
            new.clone_into(&mut condition.kind);
        }
    }
    conditions.sort_by(|left, right| left.kind.cmp(&right.kind));
}

/// Adds or replaces a condition in a list that is sorted by type. The transition time changes only when the status
/// changes. The sentence of the reason replaces an empty message.
pub fn set_condition(conditions: &mut Vec<Condition>, mut new: Condition, now: &Timestamp) {
    if new.message.is_empty() {
        new.reason.sentence().clone_into(&mut new.message);
    }
    match conditions.binary_search_by(|existing| existing.kind.as_str().cmp(&new.kind)) {
        Ok(index) => {
            let existing = &conditions[index];
            new.last_transition_time =
                if existing.status == new.status && existing.last_transition_time.is_some() {
                    existing.last_transition_time.clone()
                } else {
                    Some(now.clone())
                };
            conditions[index] = new;
        }
        Err(index) => {
            new.last_transition_time = Some(now.clone());
            conditions.insert(index, new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(kind: &str, status: ConditionStatus, message: &str) -> Condition {
        Condition {
            kind: kind.to_owned(),
            status,
            reason: Reason::WatchdogIdle,
            message: message.to_owned(),
            last_transition_time: None,
            observed_generation: 1,
        }
    }

    #[test]
    fn a_condition_has_a_message_and_keeps_its_transition_time() {
        let at = |text: &str| Timestamp(text.to_owned());
        let mut list = Vec::new();
        set_condition(&mut list, condition("Ready", ConditionStatus::True, ""), &at("1"));
        set_condition(&mut list, condition("Fenceable", ConditionStatus::True, "m"), &at("1"));
        set_condition(&mut list, condition("Ready", ConditionStatus::True, "n"), &at("2"));
        set_condition(&mut list, condition("Fenceable", ConditionStatus::False, ""), &at("2"));
        let conditions: Vec<_> = list
            .iter()
            .map(|condition| {
                (condition.kind.as_str(), condition.message.as_str(), condition.last_transition_time.clone())
            })
            .collect();
        let sentence = Reason::WatchdogIdle.sentence();
        assert_eq!(conditions, [("Fenceable", sentence, Some(at("2"))), ("Ready", "n", Some(at("1")))]);
    }

    #[test]
    fn conditions_of_earlier_versions_get_current_names() {
        let check = |stored: &[&str], expected: &[&str]| {
            let mut list: Vec<_> =
                stored.iter().map(|kind| condition(kind, ConditionStatus::True, kind)).collect();
            rename_conditions(&mut list);
            let kinds: Vec<&str> = list.iter().map(|condition| condition.kind.as_str()).collect();
            assert_eq!(kinds, expected);
        };
        check(
            &["Awake", "FenceDevices", "Ready", "Watchdog"],
            &["Awake", "FenceDevicesHealthy", "Fenceable", "Ready"],
        );
        check(&["Ready", "Reservation"], &["FailoverCapacityAvailable", "Ready"]);
        check(&["Fenceable", "Ready", "Watchdog"], &["Fenceable", "Ready"]);
        check(&["Ready"], &["Ready"]);
    }
}
