//! Guarded writes to etcd that resolve an unknown outcome by reading again.

use super::error::ApiError;
use ha_api_types::id::Revision;
use ha_store::{MAX_REQUEST_BYTES, Outcome, Store, Transaction};
use serde_json::Value;

/// Outcome of a write, after an unknown outcome was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Applied at this revision.
    Applied(Revision),
    /// Another write changed a guarded key; nothing was written.
    Conflict,
}

/// Commits a transaction that puts or deletes `key`.
///
/// After an unknown outcome, this function reads the key again. If the key is as this write would leave it, the write
/// counts as applied. No other writer produces the same value, because the value contains uids, generations and times.
/// Otherwise the client gets an error that states that the outcome is unknown.
pub(crate) async fn commit<S: Store>(
    store: &S,
    transaction: Transaction,
    key: &str,
    value: Option<&[u8]>,
) -> Result<Written, ApiError> {
    let size = transaction.size();
    if size > MAX_REQUEST_BYTES {
        let object: Value = value.and_then(|value| serde_json::from_slice(value).ok()).unwrap_or_default();
        return Err(ApiError::too_large_for_store(size, MAX_REQUEST_BYTES, largest_part(&object)));
    }
    match store.commit(transaction).await {
        Outcome::Applied(revision) => Ok(Written::Applied(revision)),
        Outcome::Conflict(_) => Ok(Written::Conflict),
        Outcome::LeaseNotFound => {
            Err(ApiError::internal("etcd reported a lease error, but the transaction used no lease"))
        }
        Outcome::Refused(message) => Err(ApiError::unavailable(format!("etcd refused the write: {message}"))),
        Outcome::Unknown(message) => {
            let reading = store.get(key).await.map_err(|_| ApiError::unknown_outcome(&message))?;
            let current_entry = reading.entries.first();
            if current_entry.map(|entry| &*entry.value) == value {
                Ok(Written::Applied(current_entry.map_or(reading.revision, |entry| entry.mod_revision)))
            } else {
                Err(ApiError::unknown_outcome(&message))
            }
        }
    }
}

/// Returns the path of the largest part of an object.
fn largest_part(object: &Value) -> &'static str {
    const PARTS: [(&str, &str); 5] = [
        ("spec", "/spec"),
        ("status", "/status"),
        ("metadata.labels", "/metadata/labels"),
        ("metadata.annotations", "/metadata/annotations"),
        ("metadata.managedFields", "/metadata/managedFields"),
    ];
    let size = |pointer: &str| object.pointer(pointer).map_or(0, |part| part.to_string().len());
    PARTS.into_iter().max_by_key(|(_, pointer)| size(pointer)).map_or("spec", |(name, _)| name)
}
