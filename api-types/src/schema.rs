//! The schemas of kinds and of other answers, generated from the Rust types: self-contained (no references), in the OpenAPI
//! 3.0 dialect.
//! The module also contains the texts about kinds and fields for `hactl explain` and the reference.

mod check;
mod simplify;

pub use check::{check_types, check_value, drop_unknown, prune_nulls, suggestion, unknown_fields};

use crate::cluster::Cluster;
use crate::git_sync::GitSync;
use crate::kind::Kind;
use crate::node::{Node, NodeGroup};
use crate::operation::Operation;
use crate::placement::{AffinityRule, Group};
use crate::renamed::{self, Conversion};
use crate::resource::Resource;
use crate::view::{
    AuditPage, BalancePlan, Explanation, Overview, PlacementHistory, Plan, ReservationReport, TimingReport,
    UsageOverview,
};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// Returns the schema of a kind.
///
/// Guarantees: no `$ref`, no lists of types (`nullable` instead), enumerations as `enum`. OpenAPI clients, the field check
/// and `kubectl explain` therefore use the same schema.
pub fn of(kind: Kind) -> &'static Value {
    static SCHEMAS: OnceLock<Vec<Value>> = OnceLock::new();
    let schemas = SCHEMAS.get_or_init(|| Kind::ALL.iter().map(|kind| generate(*kind)).collect());
    let index = Kind::ALL.iter().position(|other| *other == kind).unwrap_or_default();
    &schemas[index]
}

/// Returns the schema of a kind as a document for editors: strict, with title and dialect.
pub fn document(kind: Kind) -> Value {
    let mut schema = of(kind).clone();
    disallow_unknown_fields(&mut schema);
    schema["properties"]["apiVersion"]["enum"] = json!([crate::kind::API_VERSION]);
    schema["properties"]["kind"]["enum"] = json!([kind.name()]);
    let mut document = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": kind.name(),
    });
    if let (Some(document), Some(schema)) = (document.as_object_mut(), schema.as_object()) {
        document.extend(schema.clone());
    }
    document
}

/// Returns the schemas of the answers that are not objects, with their names. A field that every answer contains is
/// `required`.
pub fn views() -> &'static [(&'static str, Value)] {
    static VIEWS: OnceLock<Vec<(&'static str, Value)>> = OnceLock::new();
    VIEWS.get_or_init(|| {
        let generator = || SchemaSettings::default().for_serialize().into_generator();
        let views = [
            ("AuditPage", generator().into_root_schema_for::<AuditPage>()),
            ("BalancePlan", generator().into_root_schema_for::<BalancePlan>()),
            ("Explanation", generator().into_root_schema_for::<Explanation>()),
            ("Overview", generator().into_root_schema_for::<Overview>()),
            ("PlacementHistory", generator().into_root_schema_for::<PlacementHistory>()),
            ("Plan", generator().into_root_schema_for::<Plan>()),
            ("ReservationReport", generator().into_root_schema_for::<ReservationReport>()),
            ("TimingReport", generator().into_root_schema_for::<TimingReport>()),
            ("UsageOverview", generator().into_root_schema_for::<UsageOverview>()),
        ];
        views.into_iter().map(|(name, root)| (name, simplify::simplify(&root.to_value()))).collect()
    })
}

fn generate(kind: Kind) -> Value {
    let generator = SchemaGenerator::default();
    let root = match kind {
        Kind::Resource => generator.into_root_schema_for::<Resource>(),
        Kind::Group => generator.into_root_schema_for::<Group>(),
        Kind::AffinityRule => generator.into_root_schema_for::<AffinityRule>(),
        Kind::Node => generator.into_root_schema_for::<Node>(),
        Kind::NodeGroup => generator.into_root_schema_for::<NodeGroup>(),
        Kind::Cluster => generator.into_root_schema_for::<Cluster>(),
        Kind::Operation => generator.into_root_schema_for::<Operation>(),
        Kind::GitSync => generator.into_root_schema_for::<GitSync>(),
    };
    let mut schema = simplify::simplify(&root.to_value());
    move_internal(kind, &mut schema);
    rename_defaults(kind, &mut schema, &mut Vec::new());
    schema["description"] = json!(describe(kind));
    schema["required"] = json!(["apiVersion", "kind", "metadata"]);
    if kind == Kind::Operation {
        require_action(&mut schema);
    }
    // Kubernetes clients also send these fields; the API checks or ignores them.
    let metadata = &mut schema["properties"]["metadata"]["properties"];
    metadata["generateName"] = json!({
        "type": "string",
        "description": "Prefix of a name that the API completes; used if `name` is empty."
    });
    metadata["namespace"] =
        json!({"type": "string", "description": "Must be empty: objects belong to the whole cluster."});
    metadata["ownerReferences"] = json!({
        "type": "array",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "description": "References for tools, not interpreted by hactl."
    });
    metadata["managedFields"] = json!({
        "type": "array",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "description": "Managers of the fields (server-side apply)."
    });
    schema
}

/// Requires the action of an Operation. Its type has a default, for operations that an earlier version stored without an
/// action.
fn require_action(schema: &mut Value) {
    schema["required"] = json!(["apiVersion", "kind", "metadata", "spec"]);
    let spec = &mut schema["properties"]["spec"];
    spec["required"] = json!(["action"]);
    for part in ["/properties/action", ""] {
        if let Some(Value::Object(part)) = spec.pointer_mut(part) {
            part.shift_remove("default");
        }
    }
}

/// Moves the internal fields of the status from their place in etcd, which the Rust types use, to their place in the
/// API ([`crate::renamed`]).
fn move_internal(kind: Kind, schema: &mut Value) {
    let status = schema.pointer_mut("/properties/status/properties").and_then(Value::as_object_mut);
    let Some(status) = status else { return };
    let fields = renamed::take_internal_status_fields(kind, status);
    if !fields.is_empty() {
        let description = "Internal state of the leader and the agents, for debugging. Its fields can change in any version.";
        let internal = json!({"type": "object", "description": description, "properties": fields});
        status.insert(renamed::INTERNAL.to_owned(), internal);
    }
}

/// Converts the field names in the defaults to the current names. The Rust types serialize the names in etcd
/// ([`crate::renamed`]).
fn rename_defaults(kind: Kind, schema: &mut Value, path: &mut Vec<String>) {
    if let Some(default) = schema.get_mut("default") {
        // The Rust types serialize the words and days in etcd.
        if let Some(renamed) = renamed::with_current_path(kind, path)
            && matches!(renamed.conversion, Conversion::Words(_) | Conversion::Date)
        {
            *default = renamed.to_current(default.take());
        }
        let mut object = path.iter().rev().fold(default.take(), |value, name| {
            if name == "*" { json!([value]) } else { json!({ name: value }) }
        });
        renamed::from_stored(kind, &mut object);
        let pointer = path.iter().map(|name| if name == "*" { "/0".to_owned() } else { format!("/{name}") });
        *default = object.pointer(&pointer.collect::<String>()).cloned().unwrap_or_default();
    }
    if let Some(items) = schema.get_mut("items") {
        path.push("*".to_owned());
        rename_defaults(kind, items, path);
        path.pop();
    }
    for (name, member) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        path.push(name.clone());
        rename_defaults(kind, member, path);
        path.pop();
    }
}

/// Returns the description of a kind, as printed by `kubectl explain`.
pub fn describe(kind: Kind) -> &'static str {
    match kind {
        Kind::Resource => {
            "A service that hactl keeps available, with its driver, requested state and preferred nodes."
        }
        Kind::Group => {
            "Nodes with priorities, on which the resources of the group preferably or exclusively run."
        }
        Kind::AffinityRule => {
            "A rule about the nodes of resources, or about resources that run together or apart."
        }
        Kind::Node => {
            "A machine that runs the agent. The leader creates the object when the agent first registers."
        }
        Kind::NodeGroup => "Nodes that share storage and load.",
        Kind::Cluster => "Settings of the whole cluster. The only object is named default.",
        Kind::Operation => {
            "A command such as migrate or restart. The command and its outcome are kept for a day."
        }
        Kind::GitSync => {
            "A Git repository from which hactl sync applies objects, and the outcome. hactl sync creates the object."
        }
    }
}

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

/// Sets `additionalProperties` to `false` in every schema that lists its properties.
fn disallow_unknown_fields(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    let open = map.get("x-kubernetes-preserve-unknown-fields").is_some();
    for (_, part) in map.iter_mut() {
        match part {
            Value::Object(_) => disallow_unknown_fields(part),
            Value::Array(parts) => parts.iter_mut().for_each(disallow_unknown_fields),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    if !open && map.get("properties").is_some_and(Value::is_object) && map.get("type").is_some() {
        map.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_schema_without_references() {
        for kind in Kind::ALL {
            let text = of(kind).to_string();
            assert!(!text.contains("$ref"), "{kind}");
            assert!(!text.contains("\"null\""), "{kind}");
            assert!(of(kind)["properties"]["spec"]["properties"].is_object(), "{kind}");
        }
    }

    /// Checks every field of a schema as `kubectl explain` (v1.27 to v1.33) reads it: it prints `description`, and follows
    /// `properties`, `items` and `additionalProperties`.
    fn check_fields(schema: &Value, path: &str, problems: &mut Vec<String>) {
        for shape in ["$ref", "allOf", "oneOf", "not"] {
            if schema.get(shape).is_some() {
                problems.push(format!("{path}: {shape}"));
            }
        }
        let has_type = schema["type"].is_string()
            || schema["anyOf"].is_array()
            || schema["x-kubernetes-preserve-unknown-fields"] == true;
        if !has_type || schema["additionalProperties"] == true {
            problems.push(format!("{path}: no type"));
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            let text = field["description"].as_str().unwrap_or_default();
            let sentence = text.split(". ").next().unwrap_or_default();
            if !text.ends_with('.') || sentence.split_whitespace().count() < 3 {
                problems.push(format!("{path}: {text:?} is not a description"));
            }
            check_fields(field, &path, problems);
        }
        let alternatives = schema["anyOf"].as_array().into_iter().flatten();
        let below = ["items", "additionalProperties"].map(|name| &schema[name]);
        for part in below.into_iter().filter(|part| part.is_object()).chain(alternatives) {
            check_fields(part, &format!("{path}[]"), problems);
        }
    }

    #[test]
    fn every_field_is_described() {
        let mut problems = Vec::new();
        for kind in Kind::ALL {
            check_fields(of(kind), kind.name(), &mut problems);
        }
        for (name, schema) in views() {
            check_fields(schema, name, &mut problems);
        }
        assert!(problems.is_empty(), "{problems:#?}");
    }

    #[test]
    fn only_operation_action_has_no_default() {
        let operation = of(Kind::Operation);
        let spec = &operation["properties"]["spec"];
        assert_eq!(spec["required"], json!(["action"]));
        assert_eq!(spec.pointer("/properties/action/default").or(spec.get("default")), None);
        let stored = json!({"apiVersion": "", "kind": "", "metadata": {}, "spec": {"resource": "web"}});
        let stored: Operation = serde_json::from_value(stored).expect("an operation of an earlier version");
        assert_eq!(stored.spec.action, crate::operation::OperationAction::Migrate);
    }

    #[test]
    fn schemas_contain_only_current_field_names() {
        for renamed in renamed::ALL {
            let place = renamed.parent.iter().fold(of(renamed.kind), |place, name| match *name {
                "*" => &place["items"],
                name => &place["properties"][name],
            });
            assert!(place["properties"][renamed.current].is_object(), "{renamed:?}");
            let text = of(renamed.kind).to_string();
            let has_earlier_name = text.contains(&format!("\"{}\":", renamed.earlier));
            assert!(renamed.keeps_name() || !has_earlier_name, "{renamed:?}");
            if let Conversion::Words(words) = renamed.conversion {
                let values = &place["properties"][renamed.current]["enum"];
                let has_value =
                    |word: &str| values.as_array().is_some_and(|values| values.contains(&json!(word)));
                for (earlier, current) in words {
                    assert!(has_value(current) && !has_value(earlier), "{earlier} {current}: {values}");
                }
            }
        }
    }

    #[test]
    fn internal_fields_have_separate_schemas() {
        for kind in Kind::ALL {
            let status = &of(kind)["properties"]["status"]["properties"];
            for name in renamed::internal_status_fields(kind) {
                assert_eq!(status[name], Value::Null, "{kind} {name}");
                assert!(status["internal"]["properties"][name].is_object(), "{kind} {name}");
            }
        }
    }

    #[test]
    fn the_requested_state_is_an_enumeration_with_a_default() {
        let state = &of(Kind::Resource)["properties"]["spec"]["properties"]["state"];
        assert_eq!(state["enum"], json!(["Started", "Stopped", "Disabled", "Ignored"]));
        assert_eq!(state["default"], "Started");
    }
}
