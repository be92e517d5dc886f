//! The conversion of a derived schema to one self-contained OpenAPI 3.0 schema.

use serde_json::{Map, Value, json};

/// Maximum depth, greater than that of any type, as a guard against circular references.
const MAX_DEPTH: usize = 32;
/// Maximum number of enumeration values that are listed with their descriptions.
const MAX_DESCRIBED_VALUES: usize = 16;

/// Returns the root schema with references resolved and nulls converted to `nullable`.
pub(super) fn simplify(root: &Value) -> Value {
    let empty = Map::new();
    let definitions = root.get("$defs").and_then(Value::as_object).unwrap_or(&empty);
    let mut schema = simplify_part(root, definitions, 0);
    if let Some(map) = schema.as_object_mut() {
        for unwanted in ["$schema", "$defs", "title"] {
            map.shift_remove(unwanted);
        }
    }
    schema
}

fn simplify_part(schema: &Value, definitions: &Map<String, Value>, depth: usize) -> Value {
    let Some(map) = schema.as_object() else {
        // `true` allows any value.
        return json!({"x-kubernetes-preserve-unknown-fields": true});
    };
    if depth > MAX_DEPTH {
        return json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    if let Some(target) = map.get("$ref").and_then(Value::as_str) {
        let name = target.rsplit('/').next().unwrap_or_default();
        let definition = definitions
            .get(name)
            .map_or(json!({}), |definition| simplify_part(definition, definitions, depth + 1));
        return overlay(definition, map, definitions, depth);
    }
    if let Some([only]) = map.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        return overlay(simplify_part(only, definitions, depth + 1), map, definitions, depth);
    }
    if let Some(alternatives) = map.get("anyOf").and_then(Value::as_array) {
        let (nulls, other_schemas): (Vec<&Value>, Vec<&Value>) = alternatives
            .iter()
            .partition(|alternative| alternative.get("type").and_then(Value::as_str) == Some("null"));
        if let ([only], false) = (other_schemas.as_slice(), nulls.is_empty()) {
            let mut definition =
                overlay(simplify_part(only, definitions, depth + 1), map, definitions, depth);
            definition["nullable"] = json!(true);
            return definition;
        }
    }
    if let Some(values) = map.get("oneOf").and_then(Value::as_array).and_then(|all| enumeration_values(all)) {
        return enumeration_schema(map, &values);
    }
    let mut result = Map::new();
    for (name, part) in map {
        add_keyword(&mut result, name, part, definitions, depth);
    }
    Value::Object(result)
}

fn add_keyword(
    result: &mut Map<String, Value>,
    name: &str,
    part: &Value,
    definitions: &Map<String, Value>,
    depth: usize,
) {
    match (name, part) {
        ("properties", Value::Object(members)) => {
            let simplified = members
                .iter()
                .map(|(name, member)| (name.clone(), simplify_part(member, definitions, depth + 1)))
                .collect();
            result.insert(name.to_owned(), Value::Object(simplified));
        }
        // `kubectl explain` cannot follow a truth value.
        ("additionalProperties", Value::Bool(true)) => {
            result.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
        }
        ("additionalProperties", Value::Bool(false)) => {
            result.insert(name.to_owned(), part.clone());
        }
        ("items" | "additionalProperties", schema) => {
            result.insert(name.to_owned(), simplify_part(schema, definitions, depth + 1));
        }
        ("anyOf" | "oneOf" | "allOf", Value::Array(all)) => {
            let simplified =
                all.iter().map(|alternative| simplify_part(alternative, definitions, depth + 1)).collect();
            result.insert(name.to_owned(), Value::Array(simplified));
        }
        ("type", Value::Array(types)) => {
            let mut other_types = types.iter().filter(|type_name| type_name.as_str() != Some("null"));
            if let Some(first) = other_types.next() {
                result.insert("type".to_owned(), first.clone());
            }
            result.insert("nullable".to_owned(), json!(true));
        }
        ("format", Value::String(format)) => {
            if format == "uint32" {
                result.entry("maximum").or_insert(json!(u32::MAX));
            }
            let format = match format.as_str() {
                "uint8" | "uint16" | "uint32" | "uint64" | "uint" | "int64" => "int64",
                "int8" | "int16" | "int32" => "int32",
                other => other,
            };
            result.insert("format".to_owned(), json!(format));
        }
        ("description", Value::String(text)) => {
            result.insert("description".to_owned(), json!(join_lines(text)));
        }
        (other, part) => {
            result.insert(other.to_owned(), part.clone());
        }
    }
}

/// Merges the keywords next to a reference into the referenced schema. These keywords take precedence.
fn overlay(
    mut definition: Value,
    siblings: &Map<String, Value>,
    definitions: &Map<String, Value>,
    depth: usize,
) -> Value {
    let values = definition.get("x-hactl-values").and_then(Value::as_str).map(str::to_owned);
    if let Some(result) = definition.as_object_mut() {
        for (name, part) in siblings {
            if !matches!(name.as_str(), "$ref" | "allOf" | "anyOf" | "$schema" | "$defs") {
                add_keyword(result, name, part, definitions, depth);
            }
        }
        // An enumeration keeps the list of its values after the field's own description.
        if let (Some(values), Some(Value::String(text))) = (values, siblings.get("description")) {
            result.insert("description".to_owned(), json!(format!("{} {values}", join_lines(text))));
        }
    }
    definition
}

/// Returns the values and descriptions of an enumeration; `None` if an alternative is not a string constant.
fn enumeration_values(alternatives: &[Value]) -> Option<Vec<(String, String)>> {
    let mut values = Vec::new();
    for alternative in alternatives {
        let description = alternative.get("description").and_then(Value::as_str).unwrap_or_default();
        match (alternative.get("const"), alternative.get("enum").and_then(Value::as_array)) {
            (Some(Value::String(value)), _) => values.push((value.clone(), join_lines(description))),
            (None, Some(enum_values)) => {
                for value in enum_values {
                    values.push((value.as_str()?.to_owned(), String::new()));
                }
            }
            _ => return None,
        }
    }
    Some(values)
}

fn enumeration_schema(map: &Map<String, Value>, values: &[(String, String)]) -> Value {
    let mut result = Map::new();
    result.insert("type".to_owned(), json!("string"));
    let text = map.get("description").and_then(Value::as_str).map(join_lines).unwrap_or_default();
    let is_described = values.iter().any(|(_, description)| !description.is_empty());
    if is_described && values.len() <= MAX_DESCRIBED_VALUES {
        let list: Vec<String> = values
            .iter()
            .map(|(value, description)| format!("{value}: {}", description.trim_end_matches('.')))
            .collect();
        let list = format!("{}.", list.join("; "));
        result.insert("x-hactl-values".to_owned(), json!(list));
        result.insert("description".to_owned(), json!(format!("{text} {list}")));
    } else {
        result.insert("description".to_owned(), json!(text));
    }
    result.insert("enum".to_owned(), values.iter().map(|(value, _)| json!(value)).collect());
    for (name, part) in map.iter().filter(|(name, _)| name.starts_with("x-") || *name == "default") {
        result.insert(name.clone(), part.clone());
    }
    Value::Object(result)
}

/// Joins the lines of each paragraph of a comment.
fn join_lines(text: &str) -> String {
    text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect::<Vec<_>>().join("\n\n")
}
