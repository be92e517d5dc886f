//! Server-side apply: owners of fields, conflicts, and the fields that an apply adds and removes.
//!
//! Lists are atomic, maps are merged by name. A field is owned by its path; a path and any path below it overlap.

mod fields;

pub(crate) use fields::Author;
use fields::{Entry, Path, leaf_paths, paths_overlap};

use ha_api_types::time::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A field that another manager has set to another value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Conflict {
    pub(crate) manager: String,
    pub(crate) path: String,
}

/// Returns the object after a manager has applied its configuration.
///
/// Fields of the configuration are set. Fields that the manager applied before and no longer names are removed,
/// unless another manager owns them too. A field that another manager owns with another value is a conflict, unless
/// `force`.
pub(crate) fn apply(
    live: Option<&Value>,
    configuration: &Value,
    author: Author<'_>,
    force: bool,
    now: &Timestamp,
) -> Result<Value, Vec<Conflict>> {
    let manager = author.manager;
    let empty = json!({});
    let before = live.unwrap_or(&empty);
    let applied = leaf_paths(configuration);
    let mut entries = Entry::read(before);
    let changed: BTreeSet<&Path> =
        applied.iter().filter(|path| path.get(before) != path.get(configuration)).collect();

    let mut conflicts = BTreeSet::new();
    for entry in entries.iter_mut().filter(|entry| !entry.is_apply_of(manager)) {
        for path in &changed {
            if entry.owns_overlapping(path) {
                conflicts.insert(Conflict { manager: entry.manager.clone(), path: path.to_string() });
                entry.disown(path);
            }
            entry.removed.retain(|removed| !paths_overlap(removed, path));
        }
    }
    if !force && !conflicts.is_empty() {
        return Err(conflicts.into_iter().collect());
    }

    let mut after = before.clone();
    let previous: BTreeSet<Path> = entries
        .iter()
        .filter(|entry| entry.is_apply_of(manager))
        .flat_map(|entry| entry.fields.clone())
        .collect();
    for path in
        previous.iter().filter(|path| !applied.iter().any(|applied_path| paths_overlap(applied_path, path)))
    {
        let is_shared =
            entries.iter().any(|entry| !entry.is_apply_of(manager) && entry.owns_overlapping(path));
        if !is_shared {
            path.remove(&mut after);
        }
    }
    for path in &applied {
        if let Some(value) = path.get(configuration) {
            path.set(&mut after, value.clone());
        }
    }
    for field in ["apiVersion", "kind"] {
        if let Some(value) = configuration.get(field) {
            after[field] = value.clone();
        }
    }
    if let Some(name) = configuration.pointer("/metadata/name")
        && after.get("metadata").is_none_or(Value::is_object)
    {
        after["metadata"]["name"] = name.clone();
    }
    entries.retain(|entry| !entry.is_apply_of(manager));
    entries.push(Entry::new(author, "Apply", applied, now));
    Entry::write(&mut after, before, entries);
    Ok(after)
}

/// Records that a manager changed an object by a request other than apply. The manager owns the fields that it
/// changed; other managers lose them. Each user of a manager has an own entry, so that every field has one user.
pub(crate) fn record_update(before: Option<&Value>, after: &mut Value, author: Author<'_>, now: &Timestamp) {
    let empty = json!({});
    let before = before.unwrap_or(&empty);
    // A client that sends managedFields replaces them (kubectl does when it migrates an object to server-side
    // apply).
    let has_sent_managed_fields = after
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty());
    let mut entries = Entry::read(before);
    if has_sent_managed_fields {
        let mut sent = Entry::read(after);
        Entry::keep_recorded_users(&mut sent, &entries);
        entries = sent;
    }
    let (old_paths, new_paths) = (leaf_paths(before), leaf_paths(after));
    let changed: BTreeSet<Path> =
        new_paths.iter().filter(|path| path.get(before) != path.get(after)).cloned().collect();
    let removed: BTreeSet<Path> = old_paths
        .into_iter()
        .filter(|path| !new_paths.iter().any(|new_path| paths_overlap(new_path, path)))
        .collect();
    for entry in &mut entries {
        for path in changed.iter().chain(&removed) {
            entry.disown(path);
        }
    }
    let mut own = Entry::new(author, "Update", changed, now);
    own.add_removed(removed);
    entries.retain(|entry| {
        let is_own = entry.is_update_of(author);
        if is_own {
            own.fields.extend(entry.fields.iter().cloned());
            own.add_removed(entry.removed.clone());
        }
        !is_own
    });
    entries.push(own);
    Entry::write(after, before, entries);
}

#[cfg(test)]
mod tests;
