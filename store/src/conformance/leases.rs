//! Cases: leases.

use super::{CaseResult, Subject, WATCH_TIMEOUT, apply, check_that, create, expect, expect_conflict};
use crate::store::{Store, StoreError};
use crate::transaction::{Guard, LeaseId, Outcome, Transaction};
use ha_api_types::id::Revision;
use std::time::Duration;
use tokio::time::Instant;

async fn keys(store: &impl Store, prefix: &str) -> Result<Vec<String>, String> {
    let snapshot = store.list(prefix).await.map_err(|error| error.to_string())?;
    Ok(snapshot.entries.iter().map(|entry| entry.key[prefix.len()..].to_owned()).collect())
}

pub(super) async fn a_put_attaches_or_detaches_a_lease(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let lease = store.grant_lease(60).await.map_err(|error| error.to_string())?;
    let key = |name: &str| format!("{prefix}{name}");
    let put = |name: &str, guard, lease| Transaction::new().put_leased(key(name), guard, vec![1], lease);
    let attached = apply(&store, put("attached", Guard::Absent, lease)).await?;
    let detached = apply(&store, put("detached", Guard::Absent, lease)).await?;
    let free = create(&store, &key("free"), "1").await?;
    apply(&store, put("attached", Guard::Unchanged(attached), lease)).await?;
    apply(&store, put("detached", Guard::Unchanged(detached), LeaseId::NONE)).await?;
    apply(&store, put("late", Guard::Absent, LeaseId::NONE)).await?;
    apply(&store, put("free", Guard::Unchanged(free), lease)).await?;
    let snapshot = store.list(&prefix).await.map_err(|error| error.to_string())?;
    let leases: Vec<_> = snapshot.entries.iter().map(|entry| entry.lease).collect();
    expect(
        "leases of attached, detached, free, late",
        &leases,
        &vec![lease, LeaseId::NONE, lease, LeaseId::NONE],
    )?;
    store.revoke_lease(lease).await.map_err(|error| error.to_string())?;
    expect("remaining keys", &keys(&store, &prefix).await?, &vec!["detached".to_owned(), "late".to_owned()])
}

pub(super) async fn a_missing_lease_is_its_own_outcome(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let lease = store.grant_lease(60).await.map_err(|error| error.to_string())?;
    store.revoke_lease(lease).await.map_err(|error| error.to_string())?;
    let two_writes = Transaction::new().put(format!("{prefix}a"), Guard::Absent, vec![1]).put_leased(
        format!("{prefix}b"),
        Guard::Absent,
        vec![1],
        lease,
    );
    expect("commit", &store.commit(two_writes).await, &Outcome::LeaseNotFound)?;
    expect("keys after the failed commit", &keys(&store, &prefix).await?, &Vec::new())?;
    expect("keep-alive", &store.keep_alive(lease).await, &Err(StoreError::LeaseNotFound))?;
    expect("revoke", &store.revoke_lease(lease).await, &Err(StoreError::LeaseNotFound))
}

pub(super) async fn a_broken_guard_comes_before_a_missing_lease(
    subject: impl Subject,
    prefix: String,
) -> CaseResult {
    let store = subject.store();
    let lease = store.grant_lease(60).await.map_err(|error| error.to_string())?;
    store.revoke_lease(lease).await.map_err(|error| error.to_string())?;
    let key = format!("{prefix}key");
    create(&store, &key, "1").await?;
    expect_conflict(&store, "guard", Transaction::new().put_leased(&key, Guard::Absent, vec![1], lease)).await
}

pub(super) async fn revoking_deletes_all_keys_at_one_revision(
    subject: impl Subject,
    prefix: String,
) -> CaseResult {
    let store = subject.store();
    let lease = store.grant_lease(60).await.map_err(|error| error.to_string())?;
    let mut last = Revision::default();
    for name in ["a", "b", "c"] {
        let put = Transaction::new().put_leased(format!("{prefix}{name}"), Guard::Absent, vec![1], lease);
        last = apply(&store, put).await?;
    }
    store.revoke_lease(lease).await.map_err(|error| error.to_string())?;
    let snapshot = store.list(&prefix).await.map_err(|error| error.to_string())?;
    expect("number of keys after the lease was revoked", &snapshot.entries.len(), &0)?;
    expect("revision of the deletions", &snapshot.revision, &(last + 1))
}

pub(super) async fn a_lease_that_is_not_kept_expires(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let lease = store.grant_lease(2).await.map_err(|error| error.to_string())?;
    apply(&store, Transaction::new().put_leased(format!("{prefix}key"), Guard::Absent, vec![1], lease))
        .await?;
    check_that("key does not exist before its lease expires", keys(&store, &prefix).await?.len() == 1)?;
    let deadline = Instant::now() + WATCH_TIMEOUT;
    while !keys(&store, &prefix).await?.is_empty() {
        check_that("key still exists after its lease expired", Instant::now() < deadline)?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    expect("keep-alive", &store.keep_alive(lease).await, &Err(StoreError::LeaseNotFound))
}

pub(super) async fn a_kept_lease_stays_alive(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let lease = store.grant_lease(2).await.map_err(|error| error.to_string())?;
    apply(&store, Transaction::new().put_leased(format!("{prefix}key"), Guard::Absent, vec![1], lease))
        .await?;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(4) {
        expect("time to live", &store.keep_alive(lease).await, &Ok(2))?;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    expect("number of keys while the lease is kept alive", &keys(&store, &prefix).await?.len(), &1)?;
    store.revoke_lease(lease).await.map_err(|error| error.to_string())
}
