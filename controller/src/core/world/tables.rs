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
    let seen = match table.get(name) {
        Some(known) if known.modified == entry.mod_revision => known.seen,
        Some(_) | None => now,
    };
    let versioned = Versioned { value, created: entry.create_revision, modified: entry.mod_revision, seen };
    match table.get_mut(name) {
        Some(known) => *known = versioned,
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
    let seen = match table.get(name) {
        Some(known) if known.modified == entry.mod_revision => known.seen,
        Some(_) | None => now,
    };
    let versioned = Versioned { value, created: entry.create_revision, modified: entry.mod_revision, seen };
    match table.get_mut(name) {
        Some(known) => *known = versioned,
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
    let seen =
        slot.as_ref().filter(|known| known.modified == entry.mod_revision).map_or(now, |known| known.seen);
    *slot = Some(Versioned { value, created: entry.create_revision, modified: entry.mod_revision, seen });
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
