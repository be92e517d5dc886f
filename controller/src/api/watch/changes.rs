//! Conversion of changes of spec and status keys to watch events of objects: pure.

use crate::api::authentication::SecretValues;
use crate::api::read::{KeyContent, Stored};
use crate::api::selector::Selector;
use ha_api_types::id::Revision;
use ha_api_types::keys::{Key, Keys};
use ha_api_types::kind::{API_VERSION, Kind};
use ha_store::Change;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Change of an object, as the client sees it through its selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventType {
    Added,
    Modified,
    Deleted,
}

/// A watch event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    pub(super) event_type: EventType,
    pub(super) object: Value,
}

/// The objects of one kind, as one watch has reported them.
///
/// Guarantees: one event for each revision in which an object changed, in order, with the spec and the status. The
/// resourceVersion of an object never decreases. When a watch resumes from the past, an event contains the changed part
/// as it was at that revision. The other part may already be the current one, and the event for its change follows.
pub(super) struct WatchedObjects {
    kind: Kind,
    keys: Keys,
    objects: BTreeMap<String, Stored>,
    selector: Selector,
    secret_values: SecretValues,
    /// Names of objects that were sent to the client, or may have been sent before it resumed.
    shown_names: BTreeSet<String>,
    /// `true` if the watch resumed from the past. The client's state of an object is then unknown before its first
    /// event.
    is_resumed: bool,
    /// Names of objects that had an event since the watch resumed.
    names_with_event: BTreeSet<String>,
}

impl WatchedObjects {
    pub(super) fn new(
        kind: Kind,
        keys: Keys,
        mut objects: BTreeMap<String, Stored>,
        selector: Selector,
        secret_values: SecretValues,
        is_resumed: bool,
    ) -> WatchedObjects {
        if let Some(name) = selector.name() {
            objects.retain(|object_name, _| object_name == name);
        }
        WatchedObjects {
            kind,
            keys,
            objects,
            selector,
            secret_values,
            shown_names: BTreeSet::new(),
            is_resumed,
            names_with_event: BTreeSet::new(),
        }
    }

    /// Returns an object as the client may read it. Selectors see the same, so that they reveal no secret value.
    fn visible_object(&self, stored: &Stored) -> Value {
        self.secret_values.in_object(stored.object(self.kind))
    }

    /// Returns an ADDED event for each existing object.
    pub(super) fn take_initial_events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for (name, stored) in &self.objects {
            let object = self.visible_object(stored);
            if self.selector.matches(&object) {
                self.shown_names.insert(name.clone());
                events.push(Event { event_type: EventType::Added, object });
            }
        }
        events
    }

    /// Returns the events for changes, which are in the order of their revisions.
    pub(super) fn apply_changes(&mut self, changes: &[Change]) -> Vec<Event> {
        let mut events = Vec::new();
        let mut remaining = changes;
        while let Some(revision) = remaining.first().map(Change::revision) {
            let count = remaining.iter().take_while(|change| change.revision() == revision).count();
            let (of_revision, later) = remaining.split_at(count);
            self.apply(revision, of_revision, &mut events);
            remaining = later;
        }
        events
    }

    /// Applies the changes of one revision. A transaction that writes both keys of an object makes one event.
    fn apply(&mut self, revision: Revision, changes: &[Change], events: &mut Vec<Event>) {
        let mut changes_by_name: BTreeMap<String, ObjectChange> = BTreeMap::new();
        for change in changes {
            let key = match change {
                Change::Put(entry) => &entry.key,
                Change::Delete { key, .. } => key,
            };
            let (name, is_spec) = match self.keys.parse(key) {
                Some(Key::Spec(kind, name)) if kind == self.kind => (name, true),
                Some(Key::Status(kind, name)) if kind == self.kind => (name, false),
                _ => continue,
            };
            if self.selector.name().is_some_and(|required_name| required_name != name) {
                continue;
            }
            let key_change = match change {
                Change::Put(entry) if is_spec => KeyChange::Put(KeyContent::of_spec(self.kind, entry)),
                Change::Put(entry) => KeyChange::Put(KeyContent::of(entry)),
                Change::Delete { .. } => KeyChange::Removed,
            };
            let object_change = changes_by_name.entry(name.to_owned()).or_default();
            if is_spec {
                object_change.spec = key_change;
            } else {
                object_change.status = key_change;
            }
        }
        for (name, object_change) in changes_by_name {
            self.apply_to_object(revision, name, object_change, events);
        }
    }

    fn apply_to_object(
        &mut self,
        revision: Revision,
        name: String,
        object_change: ObjectChange,
        events: &mut Vec<Event>,
    ) {
        let known_object = self.objects.get(&name);
        // A repeated change adds no information.
        if !self.is_resumed && object_change.is_known(known_object) {
            return;
        }
        let mut created = false;
        match (object_change.spec, object_change.status) {
            (KeyChange::Removed, status) => {
                let status = match status {
                    KeyChange::Put(key_content) => Some(key_content),
                    KeyChange::Removed | KeyChange::Untouched => None,
                };
                self.delete(revision, &name, status, events);
                return;
            }
            (KeyChange::Put(spec), status) => {
                created = spec.create_revision == spec.mod_revision;
                let status = match status {
                    KeyChange::Put(key_content) => Some(key_content),
                    KeyChange::Removed => None,
                    KeyChange::Untouched => {
                        known_object.and_then(|known_object| known_object.status.clone()).filter(|_| !created)
                    }
                };
                self.objects.insert(name.clone(), Stored { spec, status });
            }
            (KeyChange::Untouched, status) => {
                // A status of an object that has been deleted since: its deletion follows.
                let Some(stored) = self.objects.get_mut(&name) else { return };
                match status {
                    KeyChange::Put(key_content) => stored.status = Some(key_content),
                    KeyChange::Removed => stored.status = None,
                    KeyChange::Untouched => return,
                }
            }
        }
        let Some(stored) = self.objects.get(&name) else { return };
        let mut object = self.visible_object(stored);
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        let is_first_event = self.names_with_event.insert(name.clone());
        let is_shown = self.shown_names.contains(&name);
        let may_be_shown = is_shown || (self.is_resumed && is_first_event && !created);
        let event_type = match (self.selector.matches(&object), may_be_shown) {
            (true, true) => EventType::Modified,
            (true, false) => EventType::Added,
            (false, true) => EventType::Deleted,
            (false, false) => return,
        };
        if event_type == EventType::Deleted {
            self.shown_names.remove(&name);
        } else {
            self.shown_names.insert(name);
        }
        events.push(Event { event_type, object });
    }

    fn delete(
        &mut self,
        revision: Revision,
        name: &str,
        status: Option<KeyContent>,
        events: &mut Vec<Event>,
    ) {
        let known_object = self.objects.remove(name);
        let is_first_event = self.names_with_event.insert(name.to_owned());
        let is_shown = self.shown_names.remove(name);
        let may_be_shown = is_shown || (self.is_resumed && is_first_event);
        if !may_be_shown {
            return;
        }
        let mut object = match known_object {
            Some(mut stored) => {
                stored.status = status.or(stored.status);
                self.visible_object(&stored)
            }
            None => json!({"apiVersion": API_VERSION, "kind": self.kind.name(), "metadata": {"name": name}}),
        };
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        events.push(Event { event_type: EventType::Deleted, object });
    }
}

/// Effect of one revision on a key.
#[derive(Default)]
enum KeyChange {
    #[default]
    Untouched,
    Removed,
    Put(KeyContent),
}

/// Effect of one revision on the two keys of an object.
#[derive(Default)]
struct ObjectChange {
    spec: KeyChange,
    status: KeyChange,
}

impl ObjectChange {
    /// Returns `true` if the view already has this change or a newer one.
    fn is_known(&self, known_object: Option<&Stored>) -> bool {
        let is_known_key = |change: &KeyChange, known_object: Option<&KeyContent>| match change {
            KeyChange::Untouched => true,
            KeyChange::Put(key_content) => {
                known_object.is_some_and(|known_object| known_object.mod_revision >= key_content.mod_revision)
            }
            KeyChange::Removed => false,
        };
        is_known_key(&self.spec, known_object.map(|known_object| &known_object.spec))
            && is_known_key(&self.status, known_object.and_then(|known_object| known_object.status.as_ref()))
    }
}

#[cfg(test)]
mod tests;
