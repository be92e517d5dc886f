//! Writing to the store: guarded, with the unknown outcome resolved by reading again.

use super::error::ApiError;
use ha_api_types::record::Revision;
use ha_store::{Outcome, Store, Transaction};

/// What became of a write whose outcome is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Applied at this revision.
    Applied(Revision),
    /// Something else changed what it guards; nothing was written.
    Conflict,
}

/// Commits a transaction that puts or deletes `key`.
///
/// After an unknown outcome the key is read again: when it is as this write would leave it, the write is taken as
/// applied (no other writer produces the same value, since uids, generations and times are in it). Otherwise the client
/// is told that the outcome is not known.
pub(crate) async fn commit<S: Store>(
    store: &S,
    transaction: Transaction,
    key: &str,
    value: Option<&[u8]>,
) -> Result<Written, ApiError> {
    match store.commit(transaction).await {
        Outcome::Applied(revision) => Ok(Written::Applied(revision)),
        Outcome::Conflict(_) => Ok(Written::Conflict),
        Outcome::LeaseNotFound => Err(ApiError::internal("the store names a lease where none was used")),
        Outcome::Refused(message) => {
            Err(ApiError::unavailable(format!("the store refuses the write: {message}")))
        }
        Outcome::Unknown(message) => {
            let reading = store.get(key).await.map_err(|_| ApiError::unknown_outcome(&message))?;
            let found = reading.entries.first();
            if found.map(|entry| &*entry.value) == value {
                Ok(Written::Applied(found.map_or(reading.revision, |entry| entry.mod_revision)))
            } else {
                Err(ApiError::unknown_outcome(&message))
            }
        }
    }
}
