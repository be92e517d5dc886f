//! Parsers of values that occur in several of ha-manager's files.

use super::imported::ImportResult;
use super::section::{Problem, Property, list};
use serde_json::{Map, Value, json};

/// Parses nodes with priorities, such as `node2:1,node4`.
pub(super) fn node_priorities(
    property: &Property,
    path: &str,
    imported: &mut ImportResult,
) -> Result<Value, Problem> {
    let location = format!("{path}:{}", property.line);
    let mut nodes = Map::new();
    for part in list(&property.value) {
        let (name, priority) = match part.split_once(':') {
            None => (part, 0),
            Some((name, number)) => {
                let number: i64 = number.parse().map_err(|_| {
                    property.expected("nodes such as node1:2,node2, with integers as priorities")
                })?;
                (name, number)
            }
        };
        if nodes.insert(imported.node_name(&location, name), json!(priority)).is_some() {
            return Err(Problem::new(property.line, format!("nodes: {name} is specified twice")));
        }
    }
    if nodes.is_empty() {
        return Err(property.expected("at least one node"));
    }
    Ok(Value::Object(nodes))
}

/// Parses an item of a list of resources: its type and its name.
pub(super) fn typed_resource<'a>(text: &'a str, property: &Property) -> Result<(&'a str, &'a str), Problem> {
    match text.split_once(':') {
        Some((type_name, name)) if !type_name.is_empty() && !name.is_empty() => Ok((type_name, name)),
        Some(_) | None => Err(property.expected("resources such as vm:100,ct:101")),
    }
}
