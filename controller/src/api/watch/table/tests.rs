//! Tests of the watch events that changes of stored keys cause.

use super::{ClientView, Event, EventType, ObjectTable};
use crate::api::authentication::SecretValues;
use crate::api::selector::Selector;
use ha_api_types::id::Revision;
use ha_api_types::keys::Keys;
use ha_api_types::kind::Kind;
use ha_api_types::table::Rows;
use ha_store::{Change, Entry};
use serde_json::{Value, json};

fn put(key: String, value: &Value, create: i64, revision: i64) -> Change {
    Change::Put(Entry {
        key,
        value: value.to_string().into_bytes().into(),
        create_revision: Revision(create),
        mod_revision: Revision(revision),
        lease: ha_store::LeaseId::NONE,
    })
}

fn spec(name: &str, tier: &str, create: i64, revision: i64) -> Change {
    let value = json!({"metadata": {"name": name, "labels": {"tier": tier}}, "spec": {}});
    put(Keys::new("c").spec(Kind::Resource, name), &value, create, revision)
}

fn status(name: &str, state: &str, revision: i64) -> Change {
    put(Keys::new("c").status(Kind::Resource, name), &json!({"state": state}), revision, revision)
}

fn deleted(name: &str, revision: i64) -> [Change; 2] {
    let keys = Keys::new("c");
    [keys.spec(Kind::Resource, name), keys.status(Kind::Resource, name)]
        .map(|key| Change::Delete { key, revision: Revision(revision) })
}

fn stored(name: &str, tier: &str, revision: i64) -> Entry {
    match spec(name, tier, revision, revision) {
        Change::Put(entry) => entry,
        Change::Delete { .. } => panic!("no entry"),
    }
}

/// A watch: the objects, and what its client sees of them.
struct Watch {
    table: ObjectTable,
    view: ClientView,
}

fn view(entries: &[Entry], labels: &str, fields: &str, resumed: bool) -> Watch {
    let selector = Selector::parse(Rows::Of(Kind::Resource), labels, fields).unwrap();
    let table = ObjectTable::new(Kind::Resource, Keys::new("c"), entries, resumed);
    Watch { table, view: ClientView { kind: Kind::Resource, selector, secret_values: SecretValues::Shown } }
}

impl Watch {
    fn take_initial_events(&mut self) -> Vec<Event> {
        self.table.objects().filter_map(|stored| self.view.initial_event(stored)).collect()
    }

    fn apply_changes(&mut self, changes: &[Change]) -> Vec<Event> {
        self.table.apply(changes).iter().filter_map(|change| self.view.event(change)).collect()
    }
}

fn check(events: &[Event], expected: &[(EventType, &str, &str, &str)]) {
    let text = |object: &Value, pointer: &str| {
        object.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned()
    };
    let actual: Vec<_> = events
        .iter()
        .map(|event| {
            let field = |pointer: &str| text(&event.object, pointer);
            (
                event.event_type,
                field("/metadata/name"),
                field("/metadata/resourceVersion"),
                field("/status/state"),
            )
        })
        .collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(t, name, revision, state)| {
            (*t, (*name).to_owned(), (*revision).to_owned(), (*state).to_owned())
        })
        .collect();
    assert_eq!(actual, expected);
}

use EventType::{Added, Deleted, Modified};

#[test]
fn watch_combines_spec_and_status() {
    let mut view = view(&[stored("a", "x", 3)], "", "", false);
    check(&view.take_initial_events(), &[(Added, "a", "3", "")]);
    let mut changes = vec![
        status("a", "Starting", 5),
        spec("b", "x", 6, 6),
        spec("a", "y", 3, 7),
        status("a", "Started", 7),
    ];
    changes.extend(deleted("a", 9));
    check(
        &view.apply_changes(&changes),
        &[
            (Modified, "a", "5", "Starting"),
            (Added, "b", "6", ""),
            (Modified, "a", "7", "Started"),
            (Deleted, "a", "9", "Started"),
        ],
    );
}

#[test]
fn watch_skips_changes_contained_in_list() {
    let mut view = view(&[stored("a", "x", 5)], "", "", false);
    view.take_initial_events();
    check(
        &view.apply_changes(&[spec("a", "x", 5, 5), status("a", "Queued", 6)]),
        &[(Modified, "a", "6", "Queued")],
    );
}

#[test]
fn resumed_watch_replays_missed_changes() {
    // Only b exists now. Since the client's last read, a was created, changed and deleted.
    let mut view = view(&[stored("b", "x", 4)], "", "", true);
    let mut changes = vec![spec("a", "x", 6, 6), spec("a", "y", 6, 7), status("b", "Started", 8)];
    changes.extend(deleted("a", 9));
    changes.extend(deleted("old", 10));
    check(
        &view.apply_changes(&changes),
        &[
            (Added, "a", "6", ""),
            (Modified, "a", "7", ""),
            (Modified, "b", "8", "Started"),
            (Deleted, "a", "9", ""),
            (Deleted, "old", "10", ""),
        ],
    );
}

#[test]
fn selectors_turn_changes_into_additions_and_deletions() {
    let mut view = view(&[stored("a", "front", 3), stored("b", "back", 3)], "tier=front", "", false);
    check(&view.take_initial_events(), &[(Added, "a", "3", "")]);
    check(
        &view.apply_changes(&[
            spec("b", "front", 3, 5),
            spec("a", "back", 3, 6),
            spec("a", "back", 3, 7),
            spec("c", "back", 8, 8),
        ]),
        &[(Added, "b", "5", ""), (Deleted, "a", "6", "")],
    );
}

#[test]
fn watch_omits_other_names_and_kinds() {
    let mut view = view(&[stored("a", "x", 3), stored("b", "x", 3)], "", "metadata.name=a", false);
    check(&view.take_initial_events(), &[(Added, "a", "3", "")]);
    let other = put(Keys::new("c").spec(Kind::Node, "a"), &json!({}), 6, 6);
    check(
        &view.apply_changes(&[spec("b", "x", 3, 5), other, spec("a", "y", 3, 7)]),
        &[(Modified, "a", "7", "")],
    );
}
