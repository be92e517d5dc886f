//! The texts for a field of a schema, used by `hactl explain` and the reference.

use serde_json::Value;

/// Returns the type of a field, such as `list of string`.
pub fn type_of(field: &Value) -> String {
    if let Some(values) = field["enum"].as_array() {
        return values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" | ");
    }
    if field["x-kubernetes-int-or-string"] == true {
        return "quantity".to_owned();
    }
    if let Some(alternatives) = field["anyOf"].as_array() {
        return alternatives.iter().map(type_of).collect::<Vec<_>>().join(" or ");
    }
    match field["type"].as_str().unwrap_or("any") {
        "array" => format!("list of {}", type_of(&field["items"])),
        "object" if field["additionalProperties"].is_object() => {
            format!("map of {}", type_of(&field["additionalProperties"]))
        }
        other => other.to_owned(),
    }
}

/// Returns the default of a field if it is a single value; `None` if there is none or it is empty.
pub fn default_of(field: &Value) -> Option<String> {
    match field.get("default") {
        Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
        Some(default @ (Value::Number(_) | Value::Bool(_))) => Some(default.to_string()),
        Some(Value::String(_) | Value::Null | Value::Array(_) | Value::Object(_)) | None => None,
    }
}
