//! Insertion of read values into the tables of the view.

use super::{Table, Versioned};
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::lenient::{self, Partial};
use ha_api_types::time::MonotonicTime;
use ha_store::Entry;
use serde::de::DeserializeOwned;

/// Inserts an object, which is readable as a whole or not at all.
pub(super) fn put<K: Ord + Clone, T: DeserializeOwned>(
    table: &mut Table<K, T>,
    name: &K,
    entry: &Entry,
    now: MonotonicTime,
) -> Result<(), String> {
    let value = serde_json::from_slice(&entry.value).map_err(|error| error.to_string())?;
    let first_seen_at = match table.get(name) {
        Some(stored) if stored.mod_revision == entry.mod_revision => stored.first_seen_at,
        Some(_) | None => now,
    };
    let versioned = Versioned {
        value,
        create_revision: entry.create_revision,
        mod_revision: entry.mod_revision,
        first_seen_at,
    };
    match table.get_mut(name) {
        Some(stored) => *stored = versioned,
        None => drop(table.insert(name.clone(), versioned)),
    }
    Ok(())
}

/// Inserts a record, with those fields that are readable.
pub(super) fn put_record<K: Ord + Clone, T: DeserializeOwned + Default>(
    table: &mut Table<K, T>,
    name: &K,
    entry: &Entry,
    now: MonotonicTime,
) -> Result<(), Partial<()>> {
    let (value, result) = read_leniently(entry);
    let first_seen_at = match table.get(name) {
        Some(stored) if stored.mod_revision == entry.mod_revision => stored.first_seen_at,
        Some(_) | None => now,
    };
    let versioned = Versioned {
        value,
        create_revision: entry.create_revision,
        mod_revision: entry.mod_revision,
        first_seen_at,
    };
    match table.get_mut(name) {
        Some(stored) => *stored = versioned,
        None => drop(table.insert(name.clone(), versioned)),
    }
    result
}

pub(super) fn put_single<T: DeserializeOwned + Default>(
    slot: &mut Option<Versioned<T>>,
    name: &str,
    entry: &Entry,
    now: MonotonicTime,
) -> Result<(), Partial<()>> {
    if name != CLUSTER_NAME {
        return Ok(());
    }
    let (value, result) = read_leniently(entry);
    let first_seen_at = slot
        .as_ref()
        .filter(|stored| stored.mod_revision == entry.mod_revision)
        .map_or(now, |stored| stored.first_seen_at);
    *slot = Some(Versioned {
        value,
        create_revision: entry.create_revision,
        mod_revision: entry.mod_revision,
        first_seen_at,
    });
    result
}

/// Returns the readable part of a value, and the unreadable fields.
fn read_leniently<T: DeserializeOwned + Default>(entry: &Entry) -> (T, Result<(), Partial<()>>) {
    match lenient::read(&entry.value) {
        Ok(value) => (value, Ok(())),
        Err(Partial { value, unreadable_fields, error }) => {
            (value, Err(Partial { value: (), unreadable_fields, error }))
        }
    }
}

/// Returns the error of an unreadable record, for callers that need no list of fields.
pub(super) fn error_text(partial: Partial<()>) -> String {
    partial.error
}
