//! Tests of applies by several managers.

use super::fields::{Author, Entry, Path};
use super::{Conflict, apply, record_update};
use ha_api_types::time::Timestamp;
use serde_json::{Value, json};

fn at(second: u8) -> Timestamp {
    Timestamp(format!("2026-01-01T00:00:0{second}Z"))
}

fn by(manager: &str) -> Author<'_> {
    Author { manager, user: "ada" }
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "web"}, "spec": spec})
}

fn owners(object: &Value, names: &[&str]) -> Vec<String> {
    let path = Path::of(names);
    Entry::read(object)
        .into_iter()
        .filter(|entry| entry.fields.contains(&path))
        .map(|entry| format!("{}/{}", entry.manager, entry.operation))
        .collect()
}

#[test]
fn apply_sets_and_later_removes_owned_fields() {
    let first = apply(None, &object(&json!({"group": "g", "priority": 1})), by("a"), false, &at(1)).unwrap();
    assert_eq!(first["spec"], json!({"group": "g", "priority": 1}));
    let second = apply(Some(&first), &object(&json!({"priority": 1})), by("a"), false, &at(2)).unwrap();
    assert_eq!(second["spec"], json!({"priority": 1}));
    let reapplied = apply(Some(&second), &object(&json!({"priority": 1})), by("a"), false, &at(3)).unwrap();
    assert_eq!(reapplied, second);
}

#[test]
fn another_managers_value_is_a_conflict_unless_forced() {
    let first = apply(None, &object(&json!({"priority": 1, "group": "g"})), by("a"), false, &at(1)).unwrap();
    let shared = apply(Some(&first), &object(&json!({"priority": 1})), by("b"), false, &at(2)).unwrap();
    assert_eq!(owners(&shared, &["spec", "priority"]), ["a/Apply", "b/Apply"]);
    let refused = apply(Some(&shared), &object(&json!({"priority": 2})), by("b"), false, &at(3));
    assert_eq!(refused, Err(vec![Conflict { manager: "a".to_owned(), path: ".spec.priority".to_owned() }]));
    let forced = apply(Some(&shared), &object(&json!({"priority": 2})), by("b"), true, &at(3)).unwrap();
    assert_eq!(forced["spec"], json!({"priority": 2, "group": "g"}));
    assert_eq!(owners(&forced, &["spec", "priority"]), ["b/Apply"]);
    // A field with two owners stays when one of them no longer applies it.
    let released = apply(Some(&shared), &object(&json!({"group": "g"})), by("a"), false, &at(3)).unwrap();
    assert_eq!(released["spec"], json!({"priority": 1, "group": "g"}));
}

#[test]
fn update_takes_ownership_of_changed_fields() {
    let first = apply(None, &object(&json!({"priority": 1, "tags": ["x"]})), by("a"), false, &at(1)).unwrap();
    let mut second = first.clone();
    second["spec"]["priority"] = json!(5);
    second["spec"].as_object_mut().unwrap().shift_remove("tags");
    record_update(Some(&first), &mut second, by("editor"), &at(2));
    assert_eq!(owners(&second, &["spec", "priority"]), ["editor/Update"]);
    assert_eq!(owners(&second, &["spec", "tags"]), Vec::<String>::new());
    let refused = apply(Some(&second), &object(&json!({"priority": 1})), by("a"), false, &at(3));
    assert!(refused.is_err_and(|conflicts| conflicts[0].manager == "editor"));
    // An update without changes keeps all owners and times.
    let mut unchanged = second.clone();
    record_update(Some(&second), &mut unchanged, by("other"), &at(4));
    assert_eq!(unchanged, second);
}

#[test]
fn each_field_has_the_user_that_changed_it_last() {
    let users = |object: &Value, names: &[&str]| -> Vec<String> {
        let path = Path::of(names);
        let entries = Entry::read(object).into_iter();
        entries
            .filter(|entry| entry.fields.contains(&path) || entry.removed.contains(&path))
            .map(|entry| format!("{}/{}", entry.user, entry.manager))
            .collect()
    };
    let change = |before: &Value, user: &str, change: &dyn Fn(&mut Value)| {
        let mut after = before.clone();
        change(&mut after);
        record_update(Some(before), &mut after, Author { manager: "hactl", user }, &at(2));
        after
    };
    let first =
        apply(None, &object(&json!({"priority": 1, "group": "g"})), by("git"), false, &at(1)).unwrap();
    let second = change(&first, "bob", &|object| object["spec"]["priority"] = json!(2));
    let third = change(&second, "eve", &|object| object["spec"]["state"] = json!("Stopped"));
    assert_eq!(users(&third, &["spec", "priority"]), ["bob/hactl"]);
    assert_eq!(users(&third, &["spec", "state"]), ["eve/hactl"]);
    assert_eq!(users(&third, &["spec", "group"]), ["ada/git"]);
    let fourth = change(&third, "eve", &|object| object["spec"]["priority"] = json!(3));
    assert_eq!(users(&fourth, &["spec", "priority"]), ["eve/hactl"]);
    // The user that removed a field stays known until the field is set again.
    let removed = change(&fourth, "bob", &|object| {
        object["spec"].as_object_mut().unwrap().shift_remove("group");
    });
    assert_eq!(users(&removed, &["spec", "group"]), ["bob/hactl"]);
    let restored = change(&removed, "sync", &|object| object["spec"]["group"] = json!("g"));
    assert_eq!(users(&restored, &["spec", "group"]), ["sync/hactl"]);
    // A client cannot record another user.
    let forged = change(&first, "bob", &|object| {
        object["spec"]["priority"] = json!(2);
        object["metadata"]["managedFields"][0]["user"] = json!("root");
    });
    assert_eq!(users(&forged, &["spec", "group"]), ["/git"]);
    assert_eq!(users(&forged, &["spec", "priority"]), ["bob/hactl"]);
}

#[test]
fn a_list_and_a_map_in_one_field_conflict() {
    let first = apply(None, &object(&json!({"nodes": {"node1": 2}})), by("a"), false, &at(1)).unwrap();
    let refused = apply(Some(&first), &object(&json!({"nodes": ["node1"]})), by("b"), false, &at(2));
    assert!(refused.is_err());
    let reduced = apply(Some(&first), &object(&json!({"nodes": ["node1"]})), by("a"), false, &at(2)).unwrap();
    assert_eq!(reduced["spec"], json!({"nodes": ["node1"]}));
}

proptest::proptest! {
    /// Malformed managedFields cause no panic, and the configuration is then in the object.
    #[test]
    fn malformed_managed_fields_cause_no_panic(name in "[a-z:.]{0,6}", text in "\\PC{0,8}") {
        for fields in [json!(text), json!([text]), json!([{"manager": text, "fieldsV1": {format!("f:{name}"): {"k:{}": text}}}]), json!({})] {
            let live = json!({"metadata": {"name": "web", "managedFields": fields}, "spec": {name.as_str(): {"x": 1}}});
            let applied = object(&json!({name.as_str(): [1]}));
            let after = apply(Some(&live), &applied, by("m"), true, &at(1)).unwrap();
            assert_eq!(after["spec"][name.as_str()], json!([1]));
            let mut updated = applied.clone();
            record_update(Some(&live), &mut updated, by("m"), &at(1));
            assert_eq!(&updated["spec"], &applied["spec"]);
        }
    }
}
