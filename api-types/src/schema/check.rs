//! The check of a value against a schema: unknown fields with the nearest known name, wrong types, values out of range.

use crate::problem::{Problem, ProblemKind, element_path, field_path};
use crate::quantity::Quantity;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Minimum similarity of a suggested name (Jaro–Winkler, 0 to 1).
const MIN_SIMILARITY: f64 = 0.75;

/// Returns every field that the schema does not contain, each with the nearest known name.
pub fn unknown_fields(schema: &Value, value: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    walk_unknown(schema, value, "", &mut problems);
    problems
}

/// Returns every value whose type or range does not match the schema. Unknown fields are not reported.
pub fn check_types(schema: &Value, value: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    walk_types(schema, value, "", &mut problems);
    problems
}

/// Returns every problem of a value at this path: unknown fields, types, ranges, missing fields.
pub fn check_value(schema: &Value, value: &Value, path: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    walk_unknown(schema, value, path, &mut problems);
    walk_types(schema, value, path, &mut problems);
    problems
}

/// Removes members that are null although the schema does not allow null: such a null counts as absent.
pub fn prune_nulls(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|name, part| !part.is_null() || member_schema(schema, name).is_some_and(is_nullable));
            for (name, part) in map.iter_mut() {
                if let Some(schema) = member_schema(schema, name) {
                    prune_nulls(schema, part);
                }
            }
        }
        Value::Array(parts) => {
            if let Some(schema) = alternative(schema, "array").get("items") {
                for part in parts {
                    prune_nulls(schema, part);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the known name that is most similar to the written name; `None` if no known name is similar enough.
pub fn suggestion<'a>(written: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = written.to_ascii_lowercase();
    candidates
        .map(|name| (strsim::jaro_winkler(&lower, &name.to_ascii_lowercase()), name))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        // If several names are equally similar, the first is selected, so that the result is deterministic.
        .fold(None, |best: Option<(f64, &str)>, next| match best {
            Some(best) if best.0 >= next.0 => Some(best),
            Some(_) | None => Some(next),
        })
        .map(|(_, name)| name)
}

fn is_open(schema: &Value) -> bool {
    schema.get("x-kubernetes-preserve-unknown-fields").is_some() && schema.get("anyOf").is_none()
}

fn is_nullable(schema: &Value) -> bool {
    schema.get("nullable").and_then(Value::as_bool).unwrap_or(false)
}

/// Returns the alternative of a schema for this type. If the schema has no alternative for the type, returns the schema
/// itself.
fn alternative<'a>(schema: &'a Value, type_name: &str) -> &'a Value {
    let fits = |alternative: &&Value| alternative.get("type").and_then(Value::as_str) == Some(type_name);
    schema
        .get("anyOf")
        .and_then(Value::as_array)
        .and_then(|alternatives| alternatives.iter().find(fits))
        .unwrap_or(schema)
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object)
}

fn member_schema<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let schema = alternative(schema, "object");
    properties(schema)
        .and_then(|properties| properties.get(name))
        .or_else(|| schema.get("additionalProperties").filter(|further| further.is_object()))
}

fn walk_unknown(schema: &Value, value: &Value, path: &str, problems: &mut Vec<Problem>) {
    if is_open(schema) {
        return;
    }
    match value {
        Value::Object(map) => {
            let schema = alternative(schema, "object");
            for (name, part) in map {
                let path = field_path(path, name);
                match (member_schema(schema, name), properties(schema)) {
                    (Some(schema), _) => walk_unknown(schema, part, &path, problems),
                    (None, Some(valid_fields)) => {
                        let message = match suggestion(name, valid_fields.keys().map(String::as_str)) {
                            Some(near) => format!("unknown field \"{path}\", did you mean \"{near}\"?"),
                            None => format!("unknown field \"{path}\", valid fields: {}", list(valid_fields)),
                        };
                        problems.push(Problem::new(path, ProblemKind::FieldValueUnknown, message));
                    }
                    // The schema expects another type here; [`walk_types`] reports the problem.
                    (None, None) => {}
                }
            }
        }
        Value::Array(parts) => {
            if let Some(schema) = alternative(schema, "array").get("items") {
                for (index, part) in parts.iter().enumerate() {
                    walk_unknown(schema, part, &element_path(path, index), problems);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn list(fields: &Map<String, Value>) -> String {
    fields.keys().cloned().collect::<Vec<_>>().join(", ")
}

fn walk_types(schema: &Value, value: &Value, path: &str, problems: &mut Vec<Problem>) {
    if value.is_null() && is_nullable(schema) {
        return;
    }
    if schema.get("x-kubernetes-int-or-string").is_some() && (value.is_string() || value.is_number()) {
        // Quantity is the only type with this marker; its parser reports the problem.
        if let Err(error) = serde_json::from_value::<Quantity>(value.clone()) {
            problems.push(Problem::invalid(path, error.to_string()));
        }
        return;
    }
    if let Some(alternatives) = schema.get("anyOf").and_then(Value::as_array) {
        let mut problems_by_alternative = Vec::new();
        for alternative in alternatives {
            let mut alternative_problems = Vec::new();
            walk_types(alternative, value, path, &mut alternative_problems);
            if alternative_problems.is_empty() {
                return;
            }
            problems_by_alternative.push((alternative, alternative_problems));
        }
        // If an alternative has the right type, its problems are reported. Otherwise, all possible types are listed.
        let type_match =
            problems_by_alternative.into_iter().find(|(alternative, _)| type_fits(alternative, value));
        if let Some((_, alternative_problems)) = type_match {
            problems.extend(alternative_problems);
        } else {
            let types: Vec<&str> =
                alternatives.iter().filter_map(|alternative| alternative.get("type")?.as_str()).collect();
            problems.push(wrong_type(path, &types.join(" or "), value));
        }
        return;
    }
    if !type_fits(schema, value) {
        let expected = schema.get("type").and_then(Value::as_str).unwrap_or("another value");
        problems.push(wrong_type(path, expected, value));
        return;
    }
    match value {
        Value::Object(map) => walk_members(schema, map, path, problems),
        Value::Array(parts) => {
            if let Some(schema) = schema.get("items") {
                for (index, part) in parts.iter().enumerate() {
                    walk_types(schema, part, &element_path(path, index), problems);
                }
            }
        }
        Value::String(text) => check_enumeration(schema, text, path, problems),
        Value::Number(number) => check_range(schema, number.as_f64(), path, problems),
        Value::Null | Value::Bool(_) => {}
    }
}

fn walk_members(schema: &Value, map: &Map<String, Value>, path: &str, problems: &mut Vec<Problem>) {
    for (name, part) in map {
        if let Some(schema) = member_schema(schema, name) {
            walk_types(schema, part, &field_path(path, name), problems);
        }
    }
    for name in strings(schema, "required").into_iter().filter(|name| !map.contains_key(*name)) {
        missing(schema, name, path, problems);
    }
}

/// Reports a missing required field. If the field is an object with required fields, reports these fields instead.
fn missing(schema: &Value, name: &str, path: &str, problems: &mut Vec<Problem>) {
    let path = field_path(path, name);
    let schema = member_schema(schema, name).unwrap_or(&Value::Null);
    let required = strings(schema, "required");
    for name in &required {
        missing(schema, name, &path, problems);
    }
    if required.is_empty() {
        let message = match strings(schema, "enum").as_slice() {
            [] => "is missing".to_owned(),
            known => format!("is missing: must be one of {}", known.join(", ")),
        };
        problems.push(Problem::required(path, message));
    }
}

fn strings<'a>(schema: &'a Value, name: &str) -> Vec<&'a str> {
    let list = schema.get(name).and_then(Value::as_array);
    list.map(|all| all.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

fn type_fits(schema: &Value, value: &Value) -> bool {
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        // 2.0 is not an integer for the readers of stored objects either.
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some(_) | None => true,
    }
}

fn wrong_type(path: &str, expected: &str, value: &Value) -> Problem {
    let actual = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => format!("the string {:?}", shorten(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
    };
    let expected = match expected {
        "object" => "a map",
        "array" => "a list",
        "string" => "a string",
        "boolean" => "true or false",
        "integer" => "an integer",
        "number" => "a number",
        other => other,
    };
    Problem::new(path, ProblemKind::FieldValueTypeInvalid, format!("must be {expected}, got {actual}"))
}

fn shorten(text: &str) -> String {
    if text.chars().count() <= 60 { text.to_owned() } else { text.chars().take(59).chain(['…']).collect() }
}

fn check_enumeration(schema: &Value, text: &str, path: &str, problems: &mut Vec<Problem>) {
    let accepted = strings(schema, "enum");
    if accepted.is_empty() || accepted.contains(&text) || strings(schema, "x-hactl-aliases").contains(&text) {
        return;
    }
    let near = suggestion(text, accepted.iter().copied())
        .map_or(String::new(), |near| format!(" (did you mean {near}?)"));
    problems.push(Problem::new(
        path,
        ProblemKind::FieldValueNotSupported,
        format!("{:?} is not a valid value: must be one of {}{near}", shorten(text), accepted.join(", ")),
    ));
}

fn check_range(schema: &Value, number: Option<f64>, path: &str, problems: &mut Vec<Problem>) {
    let Some(number) = number else { return };
    // The bounds of the number format, so that the number also fits into the Rust type.
    let (format_least, format_most) = match schema.get("format").and_then(Value::as_str) {
        Some("int32") => (f64::from(i32::MIN), f64::from(i32::MAX)),
        Some(_) | None => (f64::MIN, f64::MAX),
    };
    let bound = |name: &str, fallback: f64| schema.get(name).and_then(Value::as_f64).unwrap_or(fallback);
    let (minimum, maximum) = (bound("minimum", format_least), bound("maximum", format_most));
    if number < minimum {
        problems.push(Problem::invalid(path, format!("must be at least {minimum}")));
    }
    if number > maximum {
        problems.push(Problem::invalid(path, format!("must be at most {maximum}")));
    }
}

/// Removes every field that the schema does not contain, except those whose paths are in `keep`.
pub fn drop_unknown(schema: &Value, value: &mut Value, keep: &BTreeSet<String>) {
    walk_drop(schema, value, "", keep);
}

fn walk_drop(schema: &Value, value: &mut Value, path: &str, keep: &BTreeSet<String>) {
    if is_open(schema) {
        return;
    }
    match value {
        Value::Object(map) => {
            let closed = properties(alternative(schema, "object")).is_some();
            map.retain(|name, part| {
                let path = field_path(path, name);
                match member_schema(schema, name) {
                    Some(schema) => {
                        walk_drop(schema, part, &path, keep);
                        true
                    }
                    None => !closed || keep.contains(&path),
                }
            });
        }
        Value::Array(parts) => {
            if let Some(schema) = alternative(schema, "array").get("items") {
                for (index, part) in parts.iter_mut().enumerate() {
                    walk_drop(schema, part, &element_path(path, index), keep);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
