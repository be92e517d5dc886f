//! Leases, which provide presence and cleanup, but no proof. An isolated member that was paused continues to answer
//! keep-alives of an expired lease (FENCING, section 3).

use super::Inner;
use super::failure::Failure;
use super::race::{Call, Repeat, race};
use crate::store::StoreError;
use crate::transaction::LeaseId;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Grants a lease. A lease that was granted to an attempt without an answer expires on its own.
pub(super) async fn grant(inner: &Arc<Inner>, ttl_seconds: i64) -> Result<LeaseId, StoreError> {
    let accepting = inner.clone();
    let call: Call<LeaseId> = Arc::new(move |mut client| {
        let inner = accepting.clone();
        Box::pin(async move {
            let granted = client.lease_grant(ttl_seconds, None).await?;
            inner.accept(granted.header())?;
            Ok(granted.id())
        })
    });
    super::request(inner, call).await
}

/// Sends one keep-alive, and returns the time to live in seconds.
pub(super) async fn keep_alive(inner: &Arc<Inner>, lease: LeaseId) -> Result<i64, StoreError> {
    let call: Call<i64> = Arc::new(move |mut client| {
        Box::pin(async move {
            // The client library discards the first answer, which has the time to live; so a second keep-alive is sent.
            let (mut keeper, mut answers) = client.lease_keep_alive(lease).await?;
            keeper.keep_alive().await?;
            Ok(answers.message().await?.map_or(0, |answer| answer.ttl()))
        })
    });
    match super::request(inner, call).await? {
        ttl if ttl > 0 => Ok(ttl),
        _ => Err(StoreError::LeaseNotFound),
    }
}

/// Revokes a lease. If the lease is gone after an attempt without an answer, that attempt counts as successful.
pub(super) async fn revoke(inner: &Arc<Inner>, lease: LeaseId) -> Result<(), StoreError> {
    inner.check_versions().await.map_err(Failure::into_store_error)?;
    let call: Call<()> =
        Arc::new(move |mut client| Box::pin(async move { client.lease_revoke(lease).await.map(|_| ()) }));
    let settled = race(inner, call, Repeat::Freely, |result, unresolved| match result {
        Err(Failure::LeaseNotFound) if unresolved > 0 => ControlFlow::Break(Ok(())),
        result => super::settle(result),
    });
    settled.await.and_then(|result| result).map_err(Failure::into_store_error)
}
