//! The changes of objects that an apply would make, and their form for programs.

use crate::client::{Client, WriteMode};
use crate::command::apply::patch;
use crate::failure::Failure;
use crate::manifest::{self, ManifestObject};
use crate::merge;
use crate::render;
use ha_api_types::kind::Kind;
use serde::Serialize;
use serde_json::{Value, json};

/// Effect of an apply on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum ChangeKind {
    Create,
    Update,
    Delete,
}

/// A field whose value differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FieldChange {
    /// Path of the field, such as `spec.priority` or `metadata.labels["example.org/a"]`.
    pub(crate) path: String,
    /// Value before; `None` if the field is added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Value>,
    /// Value after; `None` if the field is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<Value>,
}

/// An object that an apply would create, update or delete.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ObjectChange {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) change: ChangeKind,
    /// Fields that differ, in the order of their paths. Empty for a deletion.
    pub(crate) fields: Vec<FieldChange>,
}

impl ObjectChange {
    /// Returns the change between two versions of an object, without the fields that only the API writes; `None` if
    /// they are equal.
    pub(crate) fn between(
        kind: Kind,
        name: &str,
        before: Option<&Value>,
        after: &Value,
    ) -> Option<ObjectChange> {
        let change = if before.is_some() { ChangeKind::Update } else { ChangeKind::Create };
        let before = before.map(comparable);
        let after = comparable(after);
        let mut fields = Vec::new();
        add_field_changes("", before.as_ref(), Some(&after), &mut fields);
        (!fields.is_empty()).then(|| ObjectChange { kind, name: name.to_owned(), change, fields })
    }
}

/// Returns the object after the apply, as changed by the server's admission.
pub(crate) async fn object_after_apply(
    client: &Client,
    entry: &ManifestObject,
    live: Option<&Value>,
) -> Result<Value, Failure> {
    let desired = merge::with_last_applied(&entry.object);
    let Some(live) = live else {
        return Ok(client.create(entry.kind, &desired, WriteMode::DryRun).await?);
    };
    let patch = patch(&desired, live);
    if patch == json!({}) {
        return Ok(live.clone());
    }
    Ok(client.patch(entry.kind, &entry.name, &patch, WriteMode::DryRun).await?)
}

/// Returns the fields of an object that users write, in a fixed order.
pub(super) fn comparable(object: &Value) -> Value {
    let mut object = render::readable(object);
    manifest::remove_server_fields(&mut object);
    // The order of fields and the list of their writers do not count as a difference.
    merge::with_sorted_fields(&object)
}

/// Adds the fields below a path that differ. A list is one field.
fn add_field_changes(
    path: &str,
    before: Option<&Value>,
    after: Option<&Value>,
    fields: &mut Vec<FieldChange>,
) {
    let is_map = |value: Option<&Value>| value.is_none_or(Value::is_object);
    if before == after {
        return;
    }
    let names = |value: Option<&Value>| -> Vec<String> {
        value.and_then(Value::as_object).into_iter().flat_map(|map| map.keys().cloned()).collect()
    };
    let mut all_names = names(before);
    all_names.extend(names(after));
    if !is_map(before) || !is_map(after) || all_names.is_empty() {
        fields.push(FieldChange { path: path.to_owned(), before: before.cloned(), after: after.cloned() });
        return;
    }
    all_names.sort();
    all_names.dedup();
    for name in all_names {
        let part = |value: Option<&Value>| value.and_then(|value| value.get(&name)).cloned();
        add_field_changes(&joined(path, &name), part(before).as_ref(), part(after).as_ref(), fields);
    }
}

/// Returns the path of a field of a map. A name with other characters than letters, digits, - and _ is in brackets.
fn joined(path: &str, name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_plain) {
        format!("{path}[{name:?}]")
    } else if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(before: Option<&Value>, after: &Value, expected: &Value) {
        let change = ObjectChange::between(Kind::Group, "g", before, after);
        assert_eq!(&json!(change), expected);
    }

    #[test]
    fn changed_fields_have_their_paths_and_values() {
        let before = json!({
            "metadata": {"name": "g", "uid": "u", "generation": 3, "labels": {"a.b/c": "1"}, "managedFields": []},
            "spec": {"nodes": {"node1": 1, "node2": 2}, "restricted": true},
            "status": {"observedGeneration": 3},
        });
        let after = json!({
            "metadata": {"name": "g", "uid": "u", "generation": 4, "labels": {"a.b/c": "2"}},
            "spec": {"nodes": {"node1": 1, "node2": 3}, "comment": "new"},
        });
        let fields = json!([
            {"path": "metadata.labels[\"a.b/c\"]", "before": "1", "after": "2"},
            {"path": "spec.comment", "after": "new"},
            {"path": "spec.nodes.node2", "before": 2, "after": 3},
            {"path": "spec.restricted", "before": true},
        ]);
        check(
            Some(&before),
            &after,
            &json!({"kind": "Group", "name": "g", "change": "Update", "fields": fields}),
        );
        check(Some(&before), &before, &Value::Null);
    }

    #[test]
    fn a_list_is_one_field_and_a_new_object_has_all_fields() {
        let fields = json!([
            {"path": "metadata.name", "after": "g"},
            {"path": "spec.tags", "after": ["a", "b"]},
            {"path": "spec.usage", "after": {}},
        ]);
        check(
            None,
            &json!({"metadata": {"name": "g"}, "spec": {"tags": ["a", "b"], "usage": {}}}),
            &json!({"kind": "Group", "name": "g", "change": "Create", "fields": fields}),
        );
    }
}
