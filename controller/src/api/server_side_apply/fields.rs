//! Paths of fields, and the entries of `metadata.managedFields` (`FieldsV1`).

use ha_api_types::problem::field_path;
use ha_api_types::time::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fmt;

/// Names from the object's root to a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Path(Vec<String>);

impl Path {
    #[cfg(test)]
    pub(super) fn of(names: &[&str]) -> Path {
        Path(names.iter().map(|name| (*name).to_owned()).collect())
    }

    pub(crate) fn get<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, |value, name| value.get(name))
    }

    /// Sets the field. Replaces every value on the path that is not a map.
    pub(crate) fn set(&self, object: &mut Value, value: Value) {
        let mut target = object;
        for name in &self.0 {
            if !target.is_object() {
                *target = json!({});
            }
            target = &mut target[name.as_str()];
        }
        *target = value;
    }

    /// Removes the field, and the maps above it that become empty (except the object's top-level parts).
    pub(crate) fn remove(&self, object: &mut Value) {
        if let Some((last, parents)) = self.0.split_last() {
            let parent = parents.iter().try_fold(&mut *object, |value, name| value.get_mut(name));
            let Some(map) = parent.and_then(Value::as_object_mut) else { return };
            map.shift_remove(last);
            if map.is_empty() && parents.len() > 1 {
                Path(parents.to_vec()).remove(object);
            }
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.0.iter().fold(String::new(), |path, name| field_path(&path, name));
        write!(f, ".{path}")
    }
}

/// Returns `true` if one path equals the other or is a prefix of it.
pub(crate) fn paths_overlap(left: &Path, right: &Path) -> bool {
    left.0.iter().zip(&right.0).all(|(a, b)| a == b)
}

/// Returns the paths of all fields that a manager can own: scalars, lists, and empty maps.
pub(crate) fn leaf_paths(object: &Value) -> BTreeSet<Path> {
    let mut paths = BTreeSet::new();
    collect(object, &mut Vec::new(), &mut paths);
    paths
}

fn collect(value: &Value, path: &mut Vec<String>, paths: &mut BTreeSet<Path>) {
    if is_unowned(path) {
        return;
    }
    match value {
        Value::Object(map) if path.is_empty() || !map.is_empty() => {
            for (name, part) in map {
                path.push(name.clone());
                collect(part, path, paths);
                path.pop();
            }
        }
        Value::Object(_)
        | Value::Array(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_) => {
            paths.insert(Path(path.clone()));
        }
    }
}

/// Returns `true` for fields without an owner: the API writes them, or they name the object.
fn is_unowned(path: &[String]) -> bool {
    match path {
        [first] => matches!(first.as_str(), "apiVersion" | "kind" | "status"),
        [first, second] => {
            first == "metadata"
                && !matches!(second.as_str(), "labels" | "annotations" | "finalizers" | "ownerReferences")
        }
        _ => false,
    }
}

/// Author of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Author<'a> {
    /// Field manager, as the client sent it.
    pub(crate) manager: &'a str,
    /// Name of the user, as the API authenticated it. Empty if there is none.
    pub(crate) user: &'a str,
}

/// One entry of `metadata.managedFields`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) manager: String,
    pub(crate) operation: String,
    pub(crate) subresource: String,
    pub(crate) fields: BTreeSet<Path>,
    /// Fields that the manager removed last, at most [`MAX_REMOVED`].
    pub(crate) removed: BTreeSet<Path>,
    /// Name of the user that made the changes, as authenticated. Empty if the API did not record it.
    pub(crate) user: String,
    time: String,
}

/// Maximum number of removed fields of an entry, so that entries do not grow with each removed label.
const MAX_REMOVED: usize = 16;

impl Entry {
    pub(crate) fn new(author: Author<'_>, operation: &str, fields: BTreeSet<Path>, now: &Timestamp) -> Entry {
        Entry {
            manager: author.manager.to_owned(),
            operation: operation.to_owned(),
            subresource: String::new(),
            fields,
            removed: BTreeSet::new(),
            user: author.user.to_owned(),
            time: now.0.clone(),
        }
    }

    pub(crate) fn is_apply_of(&self, manager: &str) -> bool {
        self.manager == manager && self.operation == "Apply"
    }

    /// Returns `true` for the entry of an author's requests other than apply.
    pub(crate) fn is_update_of(&self, author: Author<'_>) -> bool {
        self.manager == author.manager
            && self.user == author.user
            && self.operation == "Update"
            && self.subresource.is_empty()
    }

    /// Records the fields that the manager has removed. If they are too many together with earlier ones, the earlier
    /// ones are dropped.
    pub(crate) fn add_removed(&mut self, removed: BTreeSet<Path>) {
        if self.removed.len() + removed.len() > MAX_REMOVED {
            self.removed.clear();
        }
        self.removed.extend(removed.into_iter().take(MAX_REMOVED));
    }

    pub(crate) fn owns_overlapping(&self, path: &Path) -> bool {
        self.fields.iter().any(|owned| paths_overlap(owned, path))
    }

    pub(crate) fn disown(&mut self, path: &Path) {
        self.fields.retain(|owned| !paths_overlap(owned, path));
        self.removed.retain(|removed| !paths_overlap(removed, path));
    }

    /// Clears users that a client sent and that the API has not recorded: only the API records users.
    pub(crate) fn keep_recorded_users(entries: &mut [Entry], recorded: &[Entry]) {
        for entry in entries {
            let is_recorded = recorded.iter().any(|old| {
                (&old.manager, &old.operation, &old.user) == (&entry.manager, &entry.operation, &entry.user)
            });
            if !is_recorded {
                entry.user.clear();
                entry.removed.clear();
            }
        }
    }

    /// Returns the entries of an object, except unreadable entries.
    pub(crate) fn read(object: &Value) -> Vec<Entry> {
        let list = object.pointer("/metadata/managedFields").and_then(Value::as_array);
        let text = |entry: &Value, field: &str| {
            entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        list.into_iter()
            .flatten()
            .map(|entry| {
                let paths = |member: &str| {
                    let mut paths = BTreeSet::new();
                    if let Some(tree) = entry.get(member) {
                        from_tree(tree, &mut Vec::new(), &mut paths);
                    }
                    paths
                };
                Entry {
                    manager: text(entry, "manager"),
                    operation: text(entry, "operation"),
                    subresource: text(entry, "subresource"),
                    fields: paths("fieldsV1"),
                    removed: paths("removedFields"),
                    user: text(entry, "user"),
                    time: text(entry, "time"),
                }
            })
            .filter(|entry: &Entry| !entry.manager.is_empty() || !entry.fields.is_empty())
            .collect()
    }

    /// Writes entries into an object, sorted. An entry whose fields have not changed keeps its time.
    pub(crate) fn write(object: &mut Value, before: &Value, mut entries: Vec<Entry>) {
        let existing_entry = Entry::read(before);
        entries.retain(|entry| !entry.fields.is_empty() || !entry.removed.is_empty());
        for entry in &mut entries {
            let same_entry =
                existing_entry.iter().find(|old| differs_at_most_in_time(old, entry) && !old.time.is_empty());
            if let Some(old) = same_entry {
                entry.time.clone_from(&old.time);
                entry.user.clone_from(&old.user);
            }
        }
        entries.sort_by(|a, b| (&a.manager, &a.operation, &a.user).cmp(&(&b.manager, &b.operation, &b.user)));
        let list: Vec<Value> = entries.iter().map(Entry::to_value).collect();
        if object.get("metadata").is_none_or(Value::is_object) {
            object["metadata"]["managedFields"] = Value::Array(list);
        }
    }

    fn to_value(&self) -> Value {
        let mut value = json!({
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": ha_api_types::kind::API_VERSION,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_tree(&self.fields),
        });
        if !self.subresource.is_empty() {
            value["subresource"] = json!(self.subresource);
        }
        if !self.user.is_empty() {
            value["user"] = json!(self.user);
        }
        if !self.removed.is_empty() {
            value["removedFields"] = to_tree(&self.removed);
        }
        value
    }
}

/// Returns `true` if two entries differ at most in their times. Of an apply, the user may differ, too: an apply without
/// a change is not recorded.
fn differs_at_most_in_time(left: &Entry, right: &Entry) -> bool {
    (&left.manager, &left.operation, &left.subresource, &left.fields, &left.removed)
        == (&right.manager, &right.operation, &right.subresource, &right.fields, &right.removed)
        && (left.user == right.user || left.operation == "Apply")
}

fn to_tree(paths: &BTreeSet<Path>) -> Value {
    let mut tree = Map::new();
    for path in paths {
        let mut target = &mut tree;
        for name in &path.0 {
            let entry = target.entry(format!("f:{name}")).or_insert_with(|| json!({}));
            match entry {
                Value::Object(map) => target = map,
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => break,
            }
        }
    }
    Value::Object(tree)
}

fn from_tree(tree: &Value, path: &mut Vec<String>, fields: &mut BTreeSet<Path>) {
    let members: Vec<(&str, &Value)> = tree
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, part)| Some((name.strip_prefix("f:")?, part)))
        .collect();
    if members.is_empty() {
        // A leaf, or a list with an owner for each element. hactl treats lists as atomic.
        if !path.is_empty() {
            fields.insert(Path(path.clone()));
        }
        return;
    }
    for (name, part) in members {
        path.push(name.to_owned());
        from_tree(part, path, fields);
        path.pop();
    }
}
