//! Typed views of the server's objects. The server may be newer than hactl: a view ignores unknown fields, and an
//! unknown word counts as the default of its field ([`lenient::read_part`]). Changes are sent as patches, so unknown fields
//! are kept.

use crate::failure::Failure;
use ha_api_types::lenient;
use ha_api_types::meta::ObjectMeta;
use ha_api_types::object::{Object, Spec};
use ha_api_types::renamed::INTERNAL;
use ha_api_types::resource::{ResourceSpec, ServiceState};
use ha_api_types::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// An object of a known kind, parsed leniently, together with the JSON as received.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TypedObject<S: Spec> {
    /// The object as received, for output and for fields that are unknown to this version.
    pub(crate) value: Value,
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: S,
    /// `None` if the leader has not written a status yet.
    pub(crate) status: Option<S::Status>,
}

impl<S: Spec> TypedObject<S> {
    pub(crate) fn from_value(value: Value) -> TypedObject<S> {
        let mut status = value.get("status").cloned().filter(Value::is_object);
        if let Some(Value::Object(fields)) = &mut status
            && let Some(Value::Object(internal)) = fields.remove(INTERNAL)
        {
            fields.extend(internal);
        }
        TypedObject {
            metadata: value.get("metadata").map(lenient::read_part).unwrap_or_default(),
            spec: value.get("spec").map(lenient::read_part).unwrap_or_default(),
            status: status.as_ref().map(lenient::read_part),
            value,
        }
    }

    /// Returns the whole object, for results that a default must not replace.
    ///
    /// # Errors
    /// Fails if this version cannot read a part of the object.
    pub(crate) fn into_strict(self) -> Result<Object<S>, Failure> {
        serde_json::from_value(self.value)
            .map_err(|error| Failure::failed(format!("cannot read the response: {error}")))
    }

    pub(crate) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Returns a word of the object as received, for output and comparison, because the word may be unknown to this
    /// version. Empty if there is none.
    pub(crate) fn text_at(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }
}

impl TypedObject<ResourceSpec> {
    /// Returns the state of the service; `None` without a status, or if the state is unknown to this version. In the
    /// latter case, `status.state` is Queued.
    pub(crate) fn state(&self) -> Option<ServiceState> {
        ServiceState::deserialize(self.value.pointer("/status/state")?).ok()
    }
}

/// An object of any kind: its metadata, and the fields that the statuses of several kinds have. Words are kept as text,
/// so that words of a newer server are shown unchanged.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct AnyObject {
    pub(crate) metadata: ObjectMeta,
    pub(crate) status: AnyStatus,
}

/// See [`AnyObject`]; missing words are empty.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AnyStatus {
    pub(crate) observed_generation: Option<i64>,
    pub(crate) state: String,
    pub(crate) phase: String,
    pub(crate) node: String,
    pub(crate) message: String,
    pub(crate) conditions: Vec<AnyCondition>,
}

/// See [`AnyObject`]; missing words are empty.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AnyCondition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) last_transition_time: Option<Timestamp>,
    pub(crate) observed_generation: Option<i64>,
}

impl AnyObject {
    pub(crate) fn from_value(value: &Value) -> AnyObject {
        lenient::read_part(value)
    }

    /// Returns the condition of a type.
    pub(crate) fn condition(&self, kind: &str) -> Option<&AnyCondition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }
}

impl AnyCondition {
    pub(crate) fn is_true(&self) -> bool {
        self.status == "True"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_enum_values_hide_no_other_fields() {
        let value = json!({
            "metadata": {"name": "web", "generation": 3},
            "spec": {"state": "Paused", "priority": 5, "novel": true},
            "status": {"state": "Hibernated", "node": "node1", "internal": {"actionUid": "a0"}, "conditions": [
                {"type": "Ready", "status": "Perhaps", "reason": "Moonstruck"}]},
        });
        let untyped = AnyObject::from_value(&value);
        assert_eq!((untyped.status.state.as_str(), untyped.metadata.generation), ("Hibernated", 3));
        assert_eq!(untyped.condition("Ready").map(|ready| ready.reason.as_str()), Some("Moonstruck"));
        let resource: TypedObject<ResourceSpec> = TypedObject::from_value(value.clone());
        assert_eq!((resource.name(), resource.spec.priority), ("web", 5));
        assert_eq!((resource.state(), resource.text_at("/status/state")), (None, "Hibernated"));
        let status = resource.status.clone().expect("a status");
        assert_eq!(status.action_uid.map(|uid| uid.to_string()).as_deref(), Some("a0"));
        assert_eq!((status.node.as_deref(), &resource.value), (Some("node1"), &value));
        assert!(resource.into_strict().is_err());
    }
}
