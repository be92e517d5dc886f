//! The metadata of every object, and conditions, following the Kubernetes conventions.

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
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Number of the spec's version, which grows by one with each change of the spec.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// Etcd revision of the last change of spec or status.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Time of the creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    /// Time of the request to delete the object. The object is removed once no finalizer is left.
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
    /// Type of the condition, such as `Ready`, `Reconciling`, `Stalled`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether the condition holds.
    pub status: ConditionStatus,
    /// CamelCase reason.
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

/// Adds or replaces a condition in a list that is kept sorted by type. The transition time changes only when the status
/// changes.
pub fn set_condition(conditions: &mut Vec<Condition>, mut new: Condition, now: &Timestamp) {
    match conditions.binary_search_by(|known| known.kind.as_str().cmp(&new.kind)) {
        Ok(at) => {
            let known = &conditions[at];
            new.last_transition_time = if known.status == new.status && known.last_transition_time.is_some() {
                known.last_transition_time.clone()
            } else {
                Some(now.clone())
            };
            conditions[at] = new;
        }
        Err(at) => {
            new.last_transition_time = Some(now.clone());
            conditions.insert(at, new);
        }
    }
}
