//! Guarded writes to etcd that resolve an unknown outcome by reading again.

use super::error::ApiError;
use ha_api_types::id::Revision;
use ha_store::{Outcome, Store, Transaction};

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
