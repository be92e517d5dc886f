//! Another version of the programs, which reads everything that this one writes, and writes what this one cannot read.
//!
//! A process of the next version is this version's core behind a lens: what it writes gets a field that this version does not
//! know, and, once every reader says that it reads the next version, words that this version does not know. With `words` a
//! process writes them at once, as a version without that rule would.

use super::World;
use super::process::Who;
use ha_api_types::cluster::{CLUSTER_NAME, ClusterStatus};
use ha_api_types::keys::Key;
use ha_api_types::kind::Kind;
use ha_api_types::protocol::Protocol;
use ha_store::{Change, Entry, Transaction, Write};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

/// What the next version adds to every record.
const FIELD: &str = "sinceNext";
/// What the words of the next version end in.
const WORD: &str = "Next";
/// The fields whose words the next version has more of.
const FIELDS: [&str; 4] = ["state", "phase", "mode", "action"];

/// Which version a process is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    /// This one.
    #[default]
    This,
    /// The next one.
    Next {
        /// It writes its own words at once.
        words: bool,
    },
}

fn next() -> Protocol {
    Protocol(Protocol::CURRENT.0 + 1)
}

impl World {
    fn version_of(&self, who: &Who) -> Version {
        let machine = self.machines.get(who.node());
        machine.map_or(Version::This, |machine| match who {
            Who::Agent(_) => machine.agent_version,
            Who::Controller(_) => machine.controller_version,
        })
    }

    /// Gives the process of a machine another version. What the last process has on its way is still told to it as before.
    pub(super) fn set_version(&mut self, who: &Who, version: Version) {
        self.has_next |= version != Version::This;
        self.log(who.node(), "machine", &format!("has another version of its {who}"));
        if let Some(machine) = self.machines.get_mut(who.node()) {
            match who {
                Who::Agent(_) => machine.agent_version = version,
                Who::Controller(_) => machine.controller_version = version,
            }
        }
    }

    /// What a process writes, as it is stored.
    pub(super) fn as_written(&self, who: &Who, transaction: Transaction) -> Transaction {
        let Version::Next { words } = self.version_of(who) else { return transaction };
        let status: ClusterStatus = self.status_of(Kind::Cluster, CLUSTER_NAME).unwrap_or_default();
        let words = words || status.allows(next());
        let mut written = Transaction::new();
        for (key, guard) in transaction.guards() {
            written = match transaction.writes().get(key) {
                Some(Write::Put { value, lease }) => {
                    written.put_leased(key.clone(), *guard, self.encoded(key, value, words), *lease)
                }
                Some(Write::Delete) => written.delete(key.clone(), *guard),
                None => written.guard(key.clone(), *guard),
            };
        }
        // The key of a heartbeat is guarded by its creation, which is a guard too: nothing is left over.
        let unguarded =
            transaction.writes().iter().filter(|(key, _)| !transaction.guards().contains_key(*key));
        debug_assert_eq!(unguarded.count(), 0, "every write guards its key");
        written
    }

    fn encoded(&self, key: &str, value: &[u8], words: bool) -> Vec<u8> {
        let Ok(Value::Object(mut record)) = serde_json::from_slice(value) else { return value.to_vec() };
        let parsed = self.keys.parse(key);
        // What users write is theirs.
        if matches!(parsed, Some(Key::Spec(..))) {
            return value.to_vec();
        }
        record.insert(FIELD.to_owned(), json!({"any": 1}));
        if matches!(parsed, Some(Key::Candidate(_) | Key::NodeReport(_))) {
            record.insert("protocol".to_owned(), json!(next()));
        }
        if words {
            for field in FIELDS {
                if let Some(value) = record.get_mut(field) {
                    rename(value, &|word| format!("{word}{WORD}"));
                }
            }
        }
        Value::Object(record).to_string().into_bytes()
    }

    /// What a process reads.
    pub(super) fn as_read(&self, who: &Who, entries: Vec<Entry>) -> Vec<Entry> {
        match self.version_of(who) {
            Version::This => entries,
            Version::Next { .. } => {
                entries.into_iter().map(|entry| Entry { value: decoded(&entry.value), ..entry }).collect()
            }
        }
    }

    /// What a stored value says, whichever version has written it.
    pub(super) fn seen<T: DeserializeOwned>(&self, value: &Arc<[u8]>) -> Option<T> {
        if self.has_next {
            return serde_json::from_slice(&decoded(value)).ok();
        }
        serde_json::from_slice(value).ok()
    }

    /// What a process is told of changes.
    pub(super) fn as_told(&self, who: &Who, changes: Vec<Change>) -> Vec<Change> {
        match self.version_of(who) {
            Version::This => changes,
            Version::Next { .. } => all_told(changes),
        }
    }
}

/// Changes as the next version reads them: it reads everything.
pub(super) fn all_told(changes: Vec<Change>) -> Vec<Change> {
    let read = |change: Change| match change {
        Change::Put(entry) => Change::Put(Entry { value: decoded(&entry.value), ..entry }),
        Change::Delete { key, revision } => Change::Delete { key, revision },
    };
    changes.into_iter().map(read).collect()
}

/// A value as the next version reads it.
pub(super) fn decoded(value: &Arc<[u8]>) -> Arc<[u8]> {
    let is_of_next = value.windows(FIELD.len()).any(|part| part == FIELD.as_bytes());
    if !is_of_next {
        return Arc::clone(value);
    }
    let Ok(Value::Object(mut record)) = serde_json::from_slice(value) else { return Arc::clone(value) };
    record.remove(FIELD);
    let plain = |word: &str| word.strip_suffix(WORD).unwrap_or(word).to_owned();
    for field in FIELDS {
        if let Some(value) = record.get_mut(field) {
            rename(value, &plain);
        }
    }
    Value::Object(record).to_string().into_bytes().into()
}

/// Renames a word: the value itself, or its `kind`.
fn rename(value: &mut Value, renamed: &dyn Fn(&str) -> String) {
    match value {
        Value::String(word) => *word = renamed(word),
        Value::Object(fields) => {
            if let Some(Value::String(word)) = fields.get_mut("kind") {
                *word = renamed(word);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {}
    }
}
