//! The next version of the programs, which reads all values of this version and writes values that this version cannot read.
//!
//! A process of the next version is the core of this version with translated values. Its records get a field that this
//! version does not support. Once every reader supports the next version, the process also writes new words. With
//! `writes_new_values`, the process writes new words immediately, like a version that violates the upgrade rule.

use super::World;
use super::process::Client;
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::keys::Key;
use ha_api_types::kind::Kind;
use ha_api_types::protocol::Protocol;
use ha_store::{Change, Entry, Transaction, Write};
use memchr::memmem;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

/// Field that the next version adds to every record.
const NEXT_FIELD: &str = "sinceNext";
/// Suffix of the new words of the next version.
const NEXT_WORD_SUFFIX: &str = "Next";
/// Fields for which the next version has new words.
const WORD_FIELDS: [&str; 4] = ["state", "phase", "mode", "action"];

/// Version of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    /// This version.
    #[default]
    This,
    /// The next version.
    Next {
        /// `true` if the process writes new words before every reader supports them.
        writes_new_values: bool,
    },
}

fn next_protocol() -> Protocol {
    Protocol(Protocol::CURRENT.0 + 1)
}

impl World {
    fn version_of(&self, client: &Client) -> Version {
        let machine = self.machines.get(client.node());
        machine.map_or(Version::This, |machine| match client {
            Client::Agent(_) => machine.agent_version,
            Client::Controller(_) => machine.controller_version,
        })
    }

    /// Changes the version of a machine's process. Answers already on their way keep the values for the previous version.
    pub(super) fn set_version(&mut self, client: &Client, version: Version) {
        self.has_next_version |= version != Version::This;
        self.log(client.node(), "machine", &format!("runs another version of {client}"));
        if let Some(machine) = self.machines.get_mut(client.node()) {
            match client {
                Client::Agent(_) => machine.agent_version = version,
                Client::Controller(_) => machine.controller_version = version,
            }
        }
    }

    /// Returns a process's transaction as it is stored.
    pub(super) fn encoded_transaction(&self, client: &Client, transaction: Transaction) -> Transaction {
        let Version::Next { writes_new_values } = self.version_of(client) else { return transaction };
        let writes_new_values = writes_new_values || self.common_protocol() >= next_protocol();
        let mut written = Transaction::new();
        for (key, guard) in transaction.guards() {
            written = match transaction.writes().get(key) {
                Some(Write::Put { value, lease }) => written.put_leased(
                    key.clone(),
                    *guard,
                    self.encoded_value(key, value, writes_new_values),
                    *lease,
                ),
                Some(Write::Delete) => written.delete(key.clone(), *guard),
                None => written.guard(key.clone(), *guard),
            };
        }
        // The heartbeat's key is guarded by its creation, so every write has a guard.
        let unguarded =
            transaction.writes().iter().filter(|(key, _)| !transaction.guards().contains_key(*key));
        debug_assert_eq!(unguarded.count(), 0, "every write guards its key");
        written
    }

    /// Returns the protocol version that every controller and registered node reads. Each write of the next version
    /// reads it, so this function does not parse the other fields of the status.
    fn common_protocol(&self) -> Protocol {
        #[derive(Deserialize)]
        struct Common {
            #[serde(default)]
            protocol: Protocol,
        }
        let stored = self.store.get(&self.keys.status(Kind::Cluster, CLUSTER_NAME));
        let common =
            stored.entries.first().and_then(|entry| serde_json::from_slice::<Common>(&entry.value).ok());
        common.map_or(Protocol::FIRST, |common| common.protocol)
    }

    fn encoded_value(&self, key: &str, value: &[u8], writes_new_values: bool) -> Vec<u8> {
        let Ok(Value::Object(mut record)) = serde_json::from_slice(value) else { return value.to_vec() };
        let parsed = self.keys.parse(key);
        // The specs belong to users, so no program adds fields to them.
        if matches!(parsed, Some(Key::Spec(..))) {
            return value.to_vec();
        }
        record.insert(NEXT_FIELD.to_owned(), json!({"any": 1}));
        if matches!(parsed, Some(Key::Candidate(_) | Key::NodeReport(_))) {
            record.insert("protocol".to_owned(), json!(next_protocol()));
        }
        if writes_new_values {
            for field in WORD_FIELDS {
                if let Some(value) = record.get_mut(field) {
                    map_words(value, &|word| format!("{word}{NEXT_WORD_SUFFIX}"));
                }
            }
        }
        Value::Object(record).to_string().into_bytes()
    }

    /// Returns entries as a process reads them.
    pub(super) fn decoded_entries(&self, client: &Client, entries: Vec<Entry>) -> Vec<Entry> {
        match self.version_of(client) {
            Version::This => entries,
            Version::Next { .. } => entries
                .into_iter()
                .map(|entry| Entry { value: decoded_value(&entry.value), ..entry })
                .collect(),
        }
    }

    /// Parses a stored value written by either version.
    pub(super) fn decoded_record<T: DeserializeOwned>(&self, value: &Arc<[u8]>) -> Option<T> {
        if self.has_next_version {
            return serde_json::from_slice(&decoded_value(value)).ok();
        }
        serde_json::from_slice(value).ok()
    }

    /// Returns changes as a process receives them.
    pub(super) fn decoded_changes(&self, client: &Client, changes: Vec<Change>) -> Vec<Change> {
        match self.version_of(client) {
            Version::This => changes,
            Version::Next { .. } => all_decoded_changes(changes),
        }
    }
}

/// Returns changes as the next version reads them, with values of both versions.
pub(super) fn all_decoded_changes(changes: Vec<Change>) -> Vec<Change> {
    let read = |change: Change| match change {
        Change::Put(entry) => Change::Put(Entry { value: decoded_value(&entry.value), ..entry }),
        Change::Delete { key, revision } => Change::Delete { key, revision },
    };
    changes.into_iter().map(read).collect()
}

/// Returns a value as the next version reads it.
pub(super) fn decoded_value(value: &Arc<[u8]>) -> Arc<[u8]> {
    if memmem::find(value, NEXT_FIELD.as_bytes()).is_none() {
        return Arc::clone(value);
    }
    let Ok(Value::Object(mut record)) = serde_json::from_slice(value) else { return Arc::clone(value) };
    record.remove(NEXT_FIELD);
    let plain = |word: &str| word.strip_suffix(NEXT_WORD_SUFFIX).unwrap_or(word).to_owned();
    for field in WORD_FIELDS {
        if let Some(value) = record.get_mut(field) {
            map_words(value, &plain);
        }
    }
    Value::Object(record).to_string().into_bytes().into()
}

/// Renames a word: the value itself, or its `kind`.
fn map_words(value: &mut Value, renamed: &dyn Fn(&str) -> String) {
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
