//! A lease for keys that live for seconds: the keys of one process share the lease, which is replaced before half of
//! its time has passed.

use crate::store::{Store, StoreError};
use crate::transaction::LeaseId;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// A lease that is granted when it is needed. The lease is not kept alive, so its keys expire after its time to live at
/// the latest, and after half of that time at the earliest.
#[derive(Debug)]
pub struct ShortLease {
    ttl_seconds: i64,
    granted_lease: Mutex<Option<(LeaseId, Instant)>>,
}

impl ShortLease {
    /// Creates the lease with a time to live in seconds, without a request to the store.
    pub fn new(ttl_seconds: i64) -> ShortLease {
        ShortLease { ttl_seconds, granted_lease: Mutex::new(None) }
    }

    /// Returns the id of a lease with at least half of its time to live left.
    ///
    /// # Errors
    /// Fails if the store does not grant a lease.
    pub async fn id<S: Store>(&self, store: &S) -> Result<LeaseId, StoreError> {
        let reuse_period = Duration::from_secs(self.ttl_seconds.unsigned_abs()) / 2;
        let mut granted_lease = self.granted_lease.lock().await;
        if let Some((id, since)) = *granted_lease
            && since.elapsed() < reuse_period
        {
            return Ok(id);
        }
        // The time counts from before the request, because the store may grant the lease long before its answer arrives.
        let since = Instant::now();
        let id = store.grant_lease(self.ttl_seconds).await?;
        *granted_lease = Some((id, since));
        Ok(id)
    }

    /// Removes a lease that no longer exists in the store, such as after a restore of its data.
    pub async fn forget(&self, id: LeaseId) {
        let mut granted_lease = self.granted_lease.lock().await;
        if granted_lease.is_some_and(|(granted_id, _)| granted_id == id) {
            *granted_lease = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;

    #[tokio::test]
    async fn lease_is_reused_until_half_expired() {
        let store = MemoryStore::new();
        let lease = ShortLease::new(3600);
        let first = lease.id(&store).await.expect("a lease");
        assert_eq!(lease.id(&store).await, Ok(first));
        lease.forget(LeaseId(first.0 + 1000)).await;
        assert_eq!(lease.id(&store).await, Ok(first));
        lease.forget(first).await;
        assert_ne!(lease.id(&store).await, Ok(first));
        let brief = ShortLease::new(0);
        assert_ne!(brief.id(&store).await, brief.id(&store).await);
    }
}
