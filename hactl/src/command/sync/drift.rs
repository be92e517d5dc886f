//! Drift: fields of an object that others changed since the last apply, with the users that changed them.

use crate::command::diff::changes::ObjectChange;
use crate::manifest::ManifestObject;
use ha_api_types::git_sync::Drift;
use serde_json::Value;
use std::collections::BTreeSet;

/// Field manager of the changes that `hactl sync` makes.
pub(super) const MANAGER: &str = "hactl-sync";

/// Returns the drift of an object of the applied commit. `after` is the object that an apply of that commit would
/// restore; `None` if it is unknown. Returns `None` without drift.
pub(super) fn drift_of(entry: &ManifestObject, live: Option<&Value>, after: Option<&Value>) -> Option<Drift> {
    let mut drift = Drift {
        kind: entry.kind,
        name: entry.name.clone(),
        fields: Vec::new(),
        users: Vec::new(),
        managers: Vec::new(),
        deleted: false,
    };
    let Some(live) = live.filter(|live| live.pointer("/metadata/deletionTimestamp").is_none()) else {
        drift.deleted = true;
        return Some(drift);
    };
    let change = ObjectChange::between(entry.kind, &entry.name, Some(live), after?)?;
    let (mut users, mut managers) = (BTreeSet::new(), BTreeSet::new());
    for field in change.fields {
        let author = author_of(live, &field.path);
        // A pass that failed halfway has applied a part of a later commit.
        if author.as_ref().is_some_and(|author| author.manager == MANAGER) {
            continue;
        }
        if let Some(author) = author {
            users.extend(Some(author.user).filter(|user| !user.is_empty()));
            managers.extend(Some(author.manager).filter(|manager| !manager.is_empty()));
        }
        drift.fields.push(field.path);
    }
    drift.users = users.into_iter().collect();
    drift.managers = managers.into_iter().collect();
    (!drift.fields.is_empty()).then_some(drift)
}

struct Author {
    manager: String,
    /// Name of the user, as the API recorded it. Empty if the API did not.
    user: String,
}

/// Returns the author that changed or removed a field last, from `metadata.managedFields`.
fn author_of(live: &Value, path: &str) -> Option<Author> {
    let names = names_of(path);
    let entries = live.pointer("/metadata/managedFields")?.as_array()?;
    let entry = entries
        .iter()
        .find(|entry| ["fieldsV1", "removedFields"].iter().any(|member| contains(&entry[*member], &names)))?;
    let text = |member: &str| entry[member].as_str().unwrap_or_default().to_owned();
    Some(Author { manager: text("manager"), user: text("user") })
}

/// Returns `true` if a tree of fields contains a path, or a part of the path's field.
fn contains(tree: &Value, names: &[String]) -> bool {
    let mut tree = tree;
    for (depth, name) in names.iter().enumerate() {
        let Some(part) = tree.get(format!("f:{name}")) else {
            // A leaf above the path owns everything below it.
            return depth > 0 && tree.as_object().is_some_and(serde_json::Map::is_empty);
        };
        tree = part;
    }
    true
}

/// Returns the names in the path of a field, such as `metadata.labels["example.org/a"]`.
fn names_of(path: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix('[') {
            let mut read = serde_json::Deserializer::from_str(quoted).into_iter::<String>();
            let Some(Ok(name)) = read.next() else { break };
            let end = read.byte_offset();
            names.push(name);
            rest = quoted[end..].strip_prefix(']').unwrap_or_default();
        } else {
            let plain = rest.strip_prefix('.').unwrap_or(rest);
            let end = plain.find(['.', '[']).unwrap_or(plain.len());
            names.push(plain[..end].to_owned());
            rest = &plain[end..];
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::kind::Kind;
    use serde_json::json;

    fn check(live: Option<&Value>, after: &Value, expected: Option<&str>) {
        let (kind, name) = (Kind::Resource, "web".to_owned());
        let location = "web.yaml:1".to_owned();
        let entry = ManifestObject { kind, name, object: json!({}), location, renamed_fields: Vec::new() };
        let drift = drift_of(&entry, live, Some(after));
        assert_eq!(drift.map(|drift| drift.sentence()).as_deref(), expected);
    }

    #[test]
    fn drift_names_the_users_of_its_fields() {
        let live = json!({
            "metadata": {"name": "web", "labels": {"a.b/c": "2"}, "managedFields": [
                {"manager": MANAGER, "user": "gitops", "fieldsV1": {"f:spec": {"f:maxRestart": {}}}},
                {"manager": "kubectl", "user": "bob", "fieldsV1": {"f:metadata": {"f:labels": {"f:a.b/c": {}}}}},
                {"manager": "hactl", "user": "ada", "fieldsV1": {"f:spec": {"f:priority": {}}},
                    "removedFields": {"f:spec": {"f:group": {}}}},
            ]},
            "spec": {"priority": 2, "maxRestart": 3},
        });
        let mut after = live.clone();
        after["spec"]["priority"] = json!(1);
        check(Some(&live), &after, Some("spec.priority changed by ada (hactl)"));
        after["spec"]["group"] = json!("g");
        after["metadata"]["labels"]["a.b/c"] = json!("1");
        check(
            Some(&live),
            &after,
            Some(
                "metadata.labels[\"a.b/c\"], spec.group, spec.priority changed by ada, bob (hactl, kubectl)",
            ),
        );
        let mut after = live.clone();
        after["spec"]["maxRestart"] = json!(4);
        check(Some(&live), &after, None);
        after["spec"]["comment"] = json!("old");
        check(Some(&live), &after, Some("spec.comment changed by an unknown user"));
        check(Some(&live), &live, None);
        // An entry that has only removed fields owns no field.
        let entry = json!({"manager": "m", "user": "bob", "fieldsV1": {}, "removedFields": {"f:spec": {"f:tags": {}}}});
        let removed =
            json!({"metadata": {"name": "web", "managedFields": [entry]}, "spec": {"state": "Stopped"}});
        check(
            Some(&removed),
            &json!({"metadata": {"name": "web"}}),
            Some("spec.state changed by an unknown user"),
        );
    }

    #[test]
    fn a_deleted_object_is_drift() {
        let after = json!({});
        let text = Some("Object of the Git repository was deleted, see the audit log for the user");
        check(None, &after, text);
        check(Some(&json!({"metadata": {"deletionTimestamp": "now"}})), &after, text);
    }

    #[test]
    fn paths_are_split_into_names() {
        assert_eq!(names_of("spec.nodes.node1"), ["spec", "nodes", "node1"]);
        assert_eq!(names_of("metadata.labels[\"a.b/c\"]"), ["metadata", "labels", "a.b/c"]);
        assert_eq!(names_of("metadata.labels[\"a\\\"]\"].x"), ["metadata", "labels", "a\"]", "x"]);
    }
}
