//! Lenient reading of stored records, field by field, so that a word of a newer version does not hide the other fields
//! (FENCING, R1.16).

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A record of which some fields could not be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial<T> {
    /// The readable part; unreadable fields have their defaults.
    pub value: T,
    /// Stored names of the unreadable fields. Empty if the value is not a JSON object at all.
    pub unreadable_fields: Vec<String>,
    /// Description of the error for an operator.
    pub error: String,
}

impl<T> Partial<T> {
    /// Returns `true` if this field could not be read.
    pub fn is_unreadable(&self, field: &str) -> bool {
        self.unreadable_fields.is_empty()
            || self.unreadable_fields.iter().any(|unreadable| unreadable == field)
    }

    /// Returns `true` if only fields of this list could not be read.
    pub fn has_only_unreadable(&self, fields: &[&str]) -> bool {
        !self.unreadable_fields.is_empty()
            && self.unreadable_fields.iter().all(|unreadable| fields.contains(&unreadable.as_str()))
    }
}

/// Reads a record.
///
/// # Errors
/// Returns the readable part of the record if this version cannot read some of its fields.
pub fn read<T: DeserializeOwned + Default>(text: &[u8]) -> Result<T, Partial<T>> {
    let error = match serde_json::from_slice(text) {
        Ok(value) => return Ok(value),
        Err(error) => error.to_string(),
    };
    let nothing = |error: String| Partial { value: T::default(), unreadable_fields: Vec::new(), error };
    let Ok(Value::Object(fields)) = serde_json::from_slice(text) else { return Err(nothing(error)) };
    let mut readable_fields = Map::new();
    let mut unreadable_fields = Vec::new();
    let mut errors = Vec::new();
    for (name, value) in fields {
        let single_field: Map<String, Value> = [(name.clone(), value)].into_iter().collect();
        match serde_json::from_value::<T>(Value::Object(single_field.clone())) {
            Ok(_) => readable_fields.extend(single_field),
            Err(error) => {
                errors.push(format!("{name}: {error}"));
                unreadable_fields.push(name);
            }
        }
    }
    match serde_json::from_value(Value::Object(readable_fields)) {
        Ok(value) if !unreadable_fields.is_empty() => {
            Err(Partial { value, unreadable_fields, error: errors.join("; ") })
        }
        Ok(_) | Err(_) => Err(nothing(error)),
    }
}

/// Returns the readable part of a value from a program that may be newer, for display and for requests. Fields that
/// this version cannot read have their defaults; unreadable elements of a list are removed. Code that reads protocol
/// records must know which fields are missing, and uses [`read`].
///
/// ```
/// use ha_api_types::{lenient, resource::ResourceSpec};
///
/// let newer = serde_json::json!({"priority": 3, "state": "Hibernated", "driver": {"libvirt": {"uri": 5, "domain": "100"}}});
/// let spec: ResourceSpec = lenient::read_part(&newer);
/// assert_eq!((spec.priority, spec.driver.type_name().as_str()), (3, "vm"));
/// ```
pub fn read_part<T: DeserializeOwned + Default>(value: &Value) -> T {
    if let Ok(readable) = T::deserialize(value) {
        return readable;
    }
    let part = readable_part(value, &|part| T::deserialize(part).is_ok());
    part.and_then(|part| T::deserialize(part).ok()).unwrap_or_default()
}

/// Returns the readable part of a value; `None` if no part of the value is readable.
fn readable_part(value: &Value, reads: &dyn Fn(&Value) -> bool) -> Option<Value> {
    if reads(value) {
        return Some(value.clone());
    }
    let part = match value {
        Value::Object(fields) => {
            let readable_field = |(name, field): (&String, &Value)| {
                let single_field =
                    |part: &Value| reads(&Value::Object(Map::from_iter([(name.clone(), part.clone())])));
                Some((name.clone(), readable_part(field, &single_field)?))
            };
            Value::Object(fields.iter().filter_map(readable_field).collect())
        }
        Value::Array(items) => {
            let readable_item =
                |item: &Value| readable_part(item, &|part| reads(&Value::Array(vec![part.clone()])));
            items.iter().filter_map(readable_item).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    };
    reads(&part).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Epoch;
    use crate::record::{Mode, NodeReport};

    #[test]
    fn an_unknown_word_hides_no_other_field() {
        let text = br#"{"mode": {"kind": "Draining"}, "armed": true, "epoch": 7, "watchdog": {"kind": "Quantum"}, "more": 1}"#;
        let partial = read::<NodeReport>(text).expect_err("two words are unknown");
        assert_eq!(partial.unreadable_fields, ["mode", "watchdog"]);
        assert_eq!((partial.value.armed, partial.value.epoch), (true, Epoch(7)));
        assert!(partial.error.contains("Draining") && partial.error.contains("Quantum"), "{}", partial.error);
        assert!(partial.is_unreadable("mode") && !partial.is_unreadable("armed"));
        assert!(
            partial.has_only_unreadable(&["mode", "watchdog", "version"])
                && !partial.has_only_unreadable(&["mode"])
        );
    }

    #[test]
    fn unknown_enum_value_keeps_other_fields() {
        let status = serde_json::json!({"state": "Hibernated", "node": "node1", "copies": [
            {"node": "node1", "definition": {"driver": {"podman": {"container": "c", "ports": 5}}}}], "conditions": [
            {"type": "Ready", "status": "True", "reason": "Moonstruck"}, {"type": "Cold", "status": "Perhaps"}]});
        let view: crate::resource::ResourceStatus = super::read_part(&status);
        assert_eq!((view.node.as_deref(), view.copies[0].node.as_str()), (Some("node1"), "node1"));
        assert!(view.copies[0].definition.driver.podman.is_some());
        assert_eq!(
            view.conditions.iter().map(|condition| condition.kind.as_str()).collect::<Vec<_>>(),
            ["Ready"]
        );
        assert_eq!(super::read_part::<NodeReport>(&Value::Null), NodeReport::default());
    }

    #[test]
    fn invalid_record_yields_default_fields() {
        for text in [&b"null"[..], b"[1]", b"{\"mode\":", b"\xff"] {
            let partial = read::<NodeReport>(text).expect_err("not a record");
            assert!(
                partial.unreadable_fields.is_empty()
                    && partial.is_unreadable("epoch")
                    && !partial.has_only_unreadable(&["epoch"])
            );
        }
        let complete =
            read::<NodeReport>(br#"{"mode": {"kind": "Active"}, "more": 1}"#).expect("a newer field alone");
        assert_eq!(complete.mode, Mode::Active);
    }
}
