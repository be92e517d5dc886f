//! Conversion of changes of spec and status keys to changes of objects: pure.

use crate::api::authentication::SecretValues;
use crate::api::read::{StoredKeys, join_keys};
use crate::api::selector::Selector;
use ha_api_types::id::Revision;
use ha_api_types::keys::{Key, Keys};
use ha_api_types::kind::{API_VERSION, Kind};
use ha_store::{Change, Entry};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Change of an object in one revision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ObjectChange {
    pub(super) revision: Revision,
    pub(super) name: String,
    pub(super) before: Before,
    pub(super) after: After,
}

/// Object before a change.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Before {
    Absent,
    /// The client may have seen the object: the watch resumed from the past, and this is the first change since.
    Unknown,
    Known(Arc<StoredKeys>),
}

/// Object after a change.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum After {
    Changed(Arc<StoredKeys>),
    /// Deleted, with the last content if it is known.
    Deleted(Option<Arc<StoredKeys>>),
}

/// The objects of one kind.
///
/// Guarantees: one change for each revision in which an object changed, in order, with the spec and the status. The
/// resourceVersion of an object never decreases. When a table resumes from the past, a change contains the changed part
/// as it was at that revision. The other part may already be the current one, and its change follows.
pub(super) struct ObjectTable {
    kind: Kind,
    keys: Keys,
    objects: BTreeMap<String, Arc<StoredKeys>>,
    /// Names of objects that changed since the table resumed from the past; `None` if it did not resume.
    changed_names: Option<BTreeSet<String>>,
}

impl ObjectTable {
    /// Creates a table from the keys of a kind. `is_resumed`: the changes begin before the keys were read.
    pub(super) fn new(kind: Kind, keys: Keys, entries: &[Entry], is_resumed: bool) -> ObjectTable {
        let objects = join_keys(&keys, entries);
        let objects = objects.into_iter().map(|(name, stored)| (name, Arc::new(stored))).collect();
        ObjectTable { kind, keys, objects, changed_names: is_resumed.then(BTreeSet::new) }
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<StoredKeys>> {
        self.objects.values()
    }

    /// Applies changes of keys, which are in the order of their revisions, and returns the changes of objects.
    pub(super) fn apply(&mut self, changes: &[Change]) -> Vec<Arc<ObjectChange>> {
        let mut object_changes = Vec::new();
        for of_revision in changes.chunk_by(|one, other| one.revision() == other.revision()) {
            self.apply_revision(of_revision, &mut object_changes);
        }
        object_changes
    }

    /// Applies the changes of one revision. A transaction that writes both keys of an object makes one change.
    fn apply_revision(&mut self, changes: &[Change], object_changes: &mut Vec<Arc<ObjectChange>>) {
        let Some(revision) = changes.first().map(Change::revision) else { return };
        let mut changes_by_name: BTreeMap<&str, KeyChanges<'_>> = BTreeMap::new();
        for change in changes {
            let (name, is_spec) = match self.keys.parse(change.key()) {
                Some(Key::Spec(kind, name)) if kind == self.kind => (name, true),
                Some(Key::Status(kind, name)) if kind == self.kind => (name, false),
                _ => continue,
            };
            let key_change = match change {
                Change::Put(entry) => KeyChange::Put(entry),
                Change::Delete { .. } => KeyChange::Removed,
            };
            let key_changes = changes_by_name.entry(name).or_default();
            if is_spec {
                key_changes.spec = key_change;
            } else {
                key_changes.status = key_change;
            }
        }
        let changed: Vec<_> =
            changes_by_name.into_iter().map(|(name, changes)| (name.to_owned(), changes)).collect();
        for (name, key_changes) in changed {
            object_changes.extend(self.apply_to_object(revision, name, &key_changes).map(Arc::new));
        }
    }

    fn apply_to_object(
        &mut self,
        revision: Revision,
        name: String,
        key_changes: &KeyChanges<'_>,
    ) -> Option<ObjectChange> {
        let known = self.objects.get(&name).cloned();
        // A repeated change adds no information.
        if self.changed_names.is_none() && key_changes.are_known(known.as_deref()) {
            return None;
        }
        let status_of_known = || known.as_ref().and_then(|known| known.status.clone());
        let mut is_created = false;
        let after = match (&key_changes.spec, &key_changes.status) {
            (KeyChange::Removed, status) => {
                self.objects.remove(&name);
                let last = known.as_ref().map(|known| match status {
                    KeyChange::Put(status) => {
                        let status = Some((*status).clone());
                        Arc::new(StoredKeys { spec: known.spec.clone(), status })
                    }
                    KeyChange::Removed | KeyChange::Untouched => Arc::clone(known),
                });
                After::Deleted(last)
            }
            (KeyChange::Put(spec), status) => {
                is_created = spec.create_revision == spec.mod_revision;
                let status = match status {
                    KeyChange::Put(status) => Some((*status).clone()),
                    KeyChange::Untouched if !is_created => status_of_known(),
                    KeyChange::Untouched | KeyChange::Removed => None,
                };
                After::Changed(Arc::new(StoredKeys { spec: (*spec).clone(), status }))
            }
            (KeyChange::Untouched, status) => {
                // A status of an object that has been deleted since: its deletion follows.
                let spec = known.as_ref()?.spec.clone();
                let status = match status {
                    KeyChange::Put(status) => Some((*status).clone()),
                    KeyChange::Removed => None,
                    KeyChange::Untouched => return None,
                };
                After::Changed(Arc::new(StoredKeys { spec, status }))
            }
        };
        if let After::Changed(stored) = &after {
            self.objects.insert(name.clone(), Arc::clone(stored));
        }
        let is_first = self.changed_names.as_mut().is_some_and(|names| names.insert(name.clone()));
        let before = match known {
            _ if is_first && is_created => Before::Absent,
            _ if is_first => Before::Unknown,
            Some(known) => Before::Known(known),
            None => Before::Absent,
        };
        Some(ObjectChange { revision, name, before, after })
    }
}

/// Effect of one revision on a key.
#[derive(Default)]
enum KeyChange<'a> {
    #[default]
    Untouched,
    Removed,
    Put(&'a Entry),
}

/// Effect of one revision on the two keys of an object.
#[derive(Default)]
struct KeyChanges<'a> {
    spec: KeyChange<'a>,
    status: KeyChange<'a>,
}

impl KeyChanges<'_> {
    /// Returns `true` if the table already has this change or a newer one.
    fn are_known(&self, known: Option<&StoredKeys>) -> bool {
        let is_known = |change: &KeyChange<'_>, known: Option<&Entry>| match change {
            KeyChange::Untouched => true,
            KeyChange::Put(entry) => known.is_some_and(|known| known.mod_revision >= entry.mod_revision),
            KeyChange::Removed => false,
        };
        is_known(&self.spec, known.map(|known| &known.spec))
            && is_known(&self.status, known.and_then(|known| known.status.as_ref()))
    }
}

/// Change of an object, as the client sees it through its selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventType {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    pub(super) event_type: EventType,
    pub(super) object: Value,
}

/// The part of the objects of a kind that one client may see and has selected.
pub(super) struct ClientView {
    pub(super) kind: Kind,
    pub(super) selector: Selector,
    pub(super) secret_values: SecretValues,
}

impl ClientView {
    /// Returns an object as the client may read it, and whether the selector matches. Selectors see the same, so that
    /// they reveal no secret value.
    fn object(&self, stored: &StoredKeys) -> (Value, bool) {
        let object = self.secret_values.in_object(stored.parse(self.kind).object(self.kind));
        let matches = self.selector.matches(&object);
        (object, matches)
    }

    /// Returns the ADDED event for an existing object; `None` if the selector does not match.
    pub(super) fn initial_event(&self, stored: &StoredKeys) -> Option<Event> {
        let (object, matches) = self.object(stored);
        matches.then_some(Event { event_type: EventType::Added, object })
    }

    /// Returns the event for a change; `None` if the client sees none.
    pub(super) fn event(&self, change: &ObjectChange) -> Option<Event> {
        if self.selector.name().is_some_and(|required_name| required_name != change.name) {
            return None;
        }
        let may_be_shown = match &change.before {
            Before::Absent => false,
            Before::Unknown => true,
            Before::Known(stored) => self.selector == Selector::default() || self.object(stored).1,
        };
        let (mut object, event_type) = match &change.after {
            After::Changed(stored) => {
                let (object, matches) = self.object(stored);
                let event_type = match (matches, may_be_shown) {
                    (true, true) => EventType::Modified,
                    (true, false) => EventType::Added,
                    (false, true) => EventType::Deleted,
                    (false, false) => return None,
                };
                (object, event_type)
            }
            After::Deleted(_) if !may_be_shown => return None,
            After::Deleted(Some(stored)) => (self.object(stored).0, EventType::Deleted),
            After::Deleted(None) => {
                let metadata = json!({"name": change.name});
                let object =
                    json!({"apiVersion": API_VERSION, "kind": self.kind.name(), "metadata": metadata});
                (object, EventType::Deleted)
            }
        };
        object["metadata"]["resourceVersion"] = json!(change.revision.to_string());
        Some(Event { event_type, object })
    }
}

#[cfg(test)]
mod tests;
