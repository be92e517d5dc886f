//! Conformance suite that every implementation of [`Store`] must pass, so that results with one implementation are
//! valid for all implementations.

mod guards;
mod leases;
mod watches;

use crate::store::{Change, Store, WatchItem};
use crate::transaction::{Guard, Outcome, Transaction};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use ha_api_types::id::Revision;
use std::fmt::Debug;
use std::time::Duration;

/// Time limit of a case for an expected event.
const WATCH_TIMEOUT: Duration = Duration::from_secs(15);

/// Result of a case. The error describes the difference from the expected result.
pub type CaseResult = Result<(), String>;

/// A store under test, with the operations that the suite needs in addition to the trait. The suite must be its only
/// writer.
pub trait Subject: Clone + Send + Sync + 'static {
    /// Implementation of the trait.
    type Store: Store + Clone;

    /// Returns a client of the store.
    fn store(&self) -> Self::Store;

    /// Compacts the store's history up to a revision.
    fn compact(&self, revision: Revision) -> BoxFuture<'static, Result<(), String>>;

    /// Returns `true` if watches may begin before a compaction, because a cache has kept the changes.
    fn keeps_compacted_changes(&self) -> bool {
        false
    }
}

/// Runs every case under its own prefix, and returns the failures.
pub async fn run<S: Subject>(subject: &S) -> Vec<String> {
    let mut failures = Vec::new();
    for (name, case) in cases::<S>() {
        tracing::info!(name, "running the conformance test");
        let verdict =
            tokio::time::timeout(4 * WATCH_TIMEOUT, case(subject.clone(), format!("/conformance/{name}/")));
        match verdict.await {
            Ok(Ok(())) => {}
            Ok(Err(difference)) => failures.push(format!("{name}: {difference}")),
            Err(_) => failures.push(format!("{name}: timed out after {} s", 4 * WATCH_TIMEOUT.as_secs())),
        }
    }
    failures
}

type Case<S> = fn(S, String) -> BoxFuture<'static, CaseResult>;

macro_rules! list {
    ($($module:ident :: $case:ident),* $(,)?) => {
        vec![$((stringify!($case), |subject, prefix| Box::pin($module::$case(subject, prefix)))),*]
    };
}

fn cases<S: Subject>() -> Vec<(&'static str, Case<S>)> {
    list![
        guards::absent_holds_only_without_the_key,
        guards::unchanged_holds_only_at_the_revision,
        guards::created_holds_until_the_key_is_deleted,
        guards::a_failed_guard_stops_every_write,
        guards::all_keys_of_a_transaction_share_one_revision,
        guards::a_late_duplicate_conflicts,
        guards::guards_alone_write_nothing,
        guards::deleting_an_absent_key_changes_nothing,
        guards::an_empty_value_is_a_value,
        guards::several_selectors_are_read_at_one_revision,
        guards::a_prefix_ends_at_its_slash,
        guards::an_earlier_revision_is_read_until_it_is_compacted,
        leases::a_put_attaches_or_detaches_a_lease,
        leases::a_missing_lease_is_its_own_outcome,
        leases::a_broken_guard_comes_before_a_missing_lease,
        leases::revoking_deletes_all_keys_at_one_revision,
        leases::a_lease_that_is_not_kept_expires,
        leases::a_kept_lease_stays_alive,
        guards::a_hundred_and_twenty_eight_operations_fit,
        guards::a_larger_transaction_is_refused,
        guards::too_much_data_is_refused,
        watches::changes_come_in_order,
        watches::a_watch_begins_at_an_old_revision,
        watches::a_watch_may_begin_in_the_future,
        watches::a_compacted_revision_is_reported,
        watches::a_prefix_watch_sees_only_its_prefix,
        watches::a_key_watch_sees_only_its_key,
        watches::several_selectors_are_merged_in_order,
        watches::progress_is_reported_without_changes,
        watches::the_end_of_a_lease_is_seen,
    ]
}

/// Fails a case if the found value differs from the expected one.
fn expect<T: PartialEq + Debug>(description: &str, actual: &T, expected: &T) -> CaseResult {
    if actual == expected {
        Ok(())
    } else {
        Err(format!("{description}: found {actual:?}, expected {expected:?}"))
    }
}

fn check_that(description: &str, holds: bool) -> CaseResult {
    if holds { Ok(()) } else { Err(description.to_owned()) }
}

/// Commits a transaction, and expects it to be applied.
async fn apply(store: &impl Store, transaction: Transaction) -> Result<Revision, String> {
    let outcome = store.commit(transaction).await;
    outcome.applied().ok_or_else(|| format!("expected the transaction to be applied, found {outcome:?}"))
}

/// Commits a transaction, and expects a conflict.
async fn expect_conflict(store: &impl Store, description: &str, transaction: Transaction) -> CaseResult {
    let outcome = store.commit(transaction).await;
    let is_conflict = matches!(outcome, Outcome::Conflict(_));
    check_that(&format!("{description}: expected a conflict, found {outcome:?}"), is_conflict)
}

async fn create(store: &impl Store, key: &str, value: &str) -> Result<Revision, String> {
    apply(store, Transaction::new().put(key, Guard::Absent, value.as_bytes().to_vec())).await
}

/// Returns the next item of a watch.
async fn next_item(
    watch: &mut BoxStream<'static, Result<WatchItem, crate::StoreError>>,
) -> Result<WatchItem, String> {
    match tokio::time::timeout(WATCH_TIMEOUT, watch.next()).await {
        Ok(Some(Ok(item))) => Ok(item),
        Ok(other) => Err(format!("the watch ended: {other:?}")),
        Err(_) => Err("no item from the watch in time".to_owned()),
    }
}

/// Returns the changes up to a revision, each as key, value (`None` for a deletion) and revision.
async fn changes_until(
    watch: &mut BoxStream<'static, Result<WatchItem, crate::StoreError>>,
    last_revision: Revision,
) -> Result<Vec<(String, Option<String>, Revision)>, String> {
    let mut seen_changes = Vec::new();
    loop {
        match next_item(watch).await? {
            WatchItem::Progress(revision) if revision >= last_revision => return Ok(seen_changes),
            WatchItem::Progress(_) => {}
            WatchItem::Changes { changes, revision } => {
                for change in changes {
                    check_that("a change is newer than its item", change.revision() <= revision)?;
                    seen_changes.push(describe(change));
                }
                if revision >= last_revision {
                    return Ok(seen_changes);
                }
            }
        }
    }
}

fn describe(change: Change) -> (String, Option<String>, Revision) {
    match change {
        Change::Put(entry) => {
            (entry.key, Some(String::from_utf8_lossy(&entry.value).into_owned()), entry.mod_revision)
        }
        Change::Delete { key, revision } => (key, None, revision),
    }
}
