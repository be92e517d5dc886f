//! The values in etcd during a recording, from which transactions are interpreted.

use ha_store::{Transaction, Write};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// The value of each key.
#[derive(Debug, Default)]
pub(crate) struct StoredValues(BTreeMap<String, Vec<u8>>);

/// Reads a stored value; `None` if it has another type.
pub(crate) fn parse<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    serde_json::from_slice(value).ok()
}

impl StoredValues {
    pub(crate) fn contains(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Returns the value of a key; `None` if it does not exist or has another type.
    pub(crate) fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        parse(self.0.get(key)?)
    }

    pub(crate) fn apply(&mut self, transaction: &Transaction) {
        for (key, write) in transaction.writes() {
            match write {
                Write::Put { value, .. } => self.0.insert(key.clone(), value.to_vec()),
                Write::Delete => self.0.remove(key),
            };
        }
    }
}
