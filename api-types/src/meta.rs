//! The metadata of every object, and conditions, following the Kubernetes conventions.

use crate::reason::Reason;
use crate::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Metadata of an object. Users write `name`, `labels`, `annotations` and `finalizers`; the API writes the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Unique among the objects of one kind; for resources, over all types.
    pub name: String,
    /// Key and value pairs to select objects by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Key and value pairs for tools; hactl attaches no meaning to them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Tells this object from an earlier one of the same name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Grows by one whenever the spec changes.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// The etcd revision of the last change, of spec or status.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// When the object was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    /// When its deletion was asked for; it goes once no finalizer is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Timestamp>,
    /// What must still be done before the object may go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Who set which field (server-side apply); kept as it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_fields: Option<serde_json::Value>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The value of a condition.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    #[default]
    Unknown,
}

/// One observed fact about an object, in the form that kstatus and `kubectl wait` understand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is stated, as `Ready`, `Reconciling`, `Stalled`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, from the closed vocabulary.
    pub reason: Reason,
    /// Why, in a sentence.
    #[serde(default)]
    pub message: String,
    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    /// The generation that this was computed from.
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
