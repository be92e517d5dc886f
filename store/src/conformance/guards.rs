//! Cases: guards, atomicity, revisions, reading, maximum size of a transaction.

use super::{CaseResult, Subject, apply, check_that, create, expect, expect_conflict};
use crate::store::{Store as _, StoreError};
use crate::transaction::{Guard, MAX_OPERATIONS, MAX_REQUEST_BYTES, Outcome, Transaction};
use ha_api_types::id::Revision;

pub(super) async fn absent_holds_only_without_the_key(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let key = format!("{prefix}key");
    let created = create(&store, &key, "1").await?;
    expect_conflict(
        &store,
        "Absent, but the key exists",
        Transaction::new().put(&key, Guard::Absent, vec![2]),
    )
    .await?;
    apply(&store, Transaction::new().delete(&key, Guard::Unchanged(created))).await?;
    create(&store, &key, "3").await.map(|_| ())
}

pub(super) async fn unchanged_holds_only_at_the_revision(
    subject: impl Subject,
    prefix: String,
) -> CaseResult {
    let store = subject.store();
    let key = format!("{prefix}key");
    let put = |guard, value| Transaction::new().put(&key, guard, vec![value]);
    expect_conflict(&store, "Unchanged, but the key does not exist", put(Guard::Unchanged(Revision(1)), 1))
        .await?;
    let created = create(&store, &key, "1").await?;
    let changed = apply(&store, put(Guard::Unchanged(created), 2)).await?;
    expect_conflict(&store, "Unchanged at an older revision", put(Guard::Unchanged(created), 3)).await?;
    expect_conflict(&store, "Unchanged at a future revision", put(Guard::Unchanged(changed + 1), 3)).await?;
    let snapshot = store.get(&key).await.map_err(|error| error.to_string())?;
    let entry = snapshot.entries.first().ok_or("key not found")?;
    expect("create revision", &entry.create_revision, &created)?;
    expect("mod revision", &entry.mod_revision, &changed)?;
    expect("value", &entry.value.to_vec(), &vec![2])?;
    check_that("revision of the reading is older than its entries", snapshot.revision >= changed)
}

pub(super) async fn created_holds_until_the_key_is_deleted(
    subject: impl Subject,
    prefix: String,
) -> CaseResult {
    let store = subject.store();
    let (key, other) = (format!("{prefix}key"), format!("{prefix}other"));
    let created = create(&store, &key, "1").await?;
    let changed = apply(&store, Transaction::new().put(&key, Guard::Unchanged(created), vec![2])).await?;
    let guarded = |guard, revision| {
        Transaction::new().put(&other, guard, vec![1]).guard(&key, Guard::Created(revision))
    };
    let other_at = apply(&store, guarded(Guard::Absent, created)).await?;
    expect_conflict(&store, "Created with a mod revision", guarded(Guard::Unchanged(other_at), changed))
        .await?;
    apply(&store, Transaction::new().delete(&key, Guard::Created(created))).await?;
    expect_conflict(&store, "Created, but the key is deleted", guarded(Guard::Unchanged(other_at), created))
        .await?;
    let recreated = create(&store, &key, "1").await?;
    expect_conflict(
        &store,
        "Created, but the key was created again",
        guarded(Guard::Unchanged(other_at), created),
    )
    .await?;
    let entry =
        store.get(&key).await.map_err(|error| error.to_string())?.entries.pop().ok_or("key not found")?;
    expect("create revision of a key that was created again", &entry.create_revision, &recreated)?;
    apply(&store, guarded(Guard::Unchanged(other_at), recreated)).await.map(|_| ())
}

pub(super) async fn a_failed_guard_stops_every_write(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let (first, second) = (format!("{prefix}first"), format!("{prefix}second"));
    let created = create(&store, &first, "1").await?;
    let two_writes = Transaction::new().put(&first, Guard::Unchanged(created), vec![2]).put(
        &second,
        Guard::Unchanged(created),
        vec![2],
    );
    expect_conflict(&store, "one of two guards fails", two_writes).await?;
    let snapshot = store.list(&prefix).await.map_err(|error| error.to_string())?;
    expect("number of keys after the conflict", &snapshot.entries.len(), &1)?;
    expect("mod revision after the conflict", &snapshot.entries[0].mod_revision, &created)
}

pub(super) async fn all_keys_of_a_transaction_share_one_revision(
    subject: impl Subject,
    prefix: String,
) -> CaseResult {
    let store = subject.store();
    let key = |name: &str| format!("{prefix}{name}");
    let before = create(&store, &key("old"), "1").await?;
    let revision = apply(
        &store,
        Transaction::new()
            .put(key("a"), Guard::Absent, vec![1])
            .put(key("b"), Guard::Absent, vec![2])
            .delete(key("old"), Guard::Unchanged(before)),
    )
    .await?;
    expect("revision of the transaction", &revision, &(before + 1))?;
    let snapshot = store.list(&prefix).await.map_err(|error| error.to_string())?;
    let revisions: Vec<_> =
        snapshot.entries.iter().map(|entry| (entry.create_revision, entry.mod_revision)).collect();
    expect("the keys' revisions", &revisions, &vec![(revision, revision); 2])
}

pub(super) async fn a_late_duplicate_conflicts(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let key = format!("{prefix}key");
    let created = create(&store, &key, "1").await?;
    let write = Transaction::new().put(&key, Guard::Unchanged(created), vec![2]);
    let applied = apply(&store, write.clone()).await?;
    expect_conflict(&store, "duplicate", write.clone()).await?;
    apply(&store, Transaction::new().delete(&key, Guard::Unchanged(applied))).await?;
    expect_conflict(&store, "duplicate after the key was deleted", write.clone()).await?;
    create(&store, &key, "1").await?;
    expect_conflict(&store, "duplicate after the key was created again", write).await
}

pub(super) async fn guards_alone_write_nothing(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let key = format!("{prefix}key");
    let created = create(&store, &key, "1").await?;
    let guard_revision = apply(&store, Transaction::new().guard(&key, Guard::Unchanged(created))).await?;
    expect("unchanged revision", &guard_revision, &created)?;
    expect_conflict(&store, "guard alone", Transaction::new().guard(&key, Guard::Absent)).await
}

pub(super) async fn deleting_an_absent_key_changes_nothing(
    subject: impl Subject,
    prefix: String,
) -> CaseResult {
    let store = subject.store();
    let revision = create(&store, &format!("{prefix}key"), "1").await?;
    let deleted = apply(&store, Transaction::new().delete(format!("{prefix}none"), Guard::Absent)).await?;
    expect("unchanged revision", &deleted, &revision)
}

pub(super) async fn an_empty_value_is_a_value(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let key = format!("{prefix}key");
    create(&store, &key, "").await?;
    let snapshot = store.get(&key).await.map_err(|error| error.to_string())?;
    expect(
        "values",
        &snapshot.entries.iter().map(|entry| entry.value.to_vec()).collect::<Vec<_>>(),
        &vec![vec![]],
    )?;
    expect_conflict(
        &store,
        "Absent, but the key exists with an empty value",
        Transaction::new().put(&key, Guard::Absent, vec![1]),
    )
    .await
}

pub(super) async fn several_selectors_are_read_at_one_revision(
    subject: impl Subject,
    prefix: String,
) -> CaseResult {
    let store = subject.store();
    for key in ["b/2", "a/1", "c", "cc", "d/1"] {
        create(&store, &format!("{prefix}{key}"), key).await?;
    }
    let selectors: Vec<String> =
        ["b/", "a/", "c", "none", "a/1"].iter().map(|part| format!("{prefix}{part}")).collect();
    let snapshot = store.list_all(&selectors).await.map_err(|error| error.to_string())?;
    let keys: Vec<_> = snapshot.entries.iter().map(|entry| entry.key.clone()).collect();
    expect(
        "keys, sorted, once",
        &keys,
        &["a/1", "b/2", "c"].iter().map(|key| format!("{prefix}{key}")).collect(),
    )?;
    let last = snapshot.entries.iter().map(|entry| entry.mod_revision).max();
    check_that("revision of the reading is older than its entries", Some(snapshot.revision) > last)?;
    let now = apply(&store, Transaction::new().guard(format!("{prefix}none"), Guard::Absent)).await?;
    expect("revision", &snapshot.revision, &now)
}

pub(super) async fn an_earlier_revision_is_read_until_it_is_compacted(
    subject: impl Subject,
    prefix: String,
) -> CaseResult {
    let store = subject.store();
    let (changed, deleted) = (format!("{prefix}b"), format!("{prefix}c"));
    create(&store, &format!("{prefix}a"), "first").await?;
    let changed_at = create(&store, &changed, "first").await?;
    let deleted_at = create(&store, &deleted, "first").await?;
    let before = store.list(&prefix).await.map_err(|error| error.to_string())?;
    let change = Transaction::new()
        .put(&changed, Guard::Unchanged(changed_at), b"second".to_vec())
        .delete(&deleted, Guard::Unchanged(deleted_at));
    apply(&store, change).await?;
    let newest = create(&store, &format!("{prefix}d"), "later").await?;
    let read = || store.list_at(std::slice::from_ref(&prefix), before.revision);
    expect("reading", &read().await.map_err(|error| error.to_string())?, &before)?;
    subject.compact(before.revision).await?;
    expect("reading at the compacted revision", &read().await.map_err(|error| error.to_string())?, &before)?;
    subject.compact(newest).await?;
    match read().await {
        Err(StoreError::Compacted { .. }) => Ok(()),
        other => Err(format!("reading after the compaction: {other:?}")),
    }
}

pub(super) async fn a_prefix_ends_at_its_slash(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    for key in ["node1", "node1/x", "node10", "node10/x", "node1.5/x"] {
        create(&store, &format!("{prefix}{key}"), key).await?;
    }
    let keys = |selector: &str| {
        let selector = format!("{prefix}{selector}");
        let store = store.clone();
        async move {
            let snapshot = store.list(&selector).await.map_err(|error| error.to_string())?;
            Ok::<_, String>(snapshot.entries.into_iter().map(|entry| entry.key).collect::<Vec<_>>())
        }
    };
    expect("below node1/", &keys("node1/").await?, &vec![format!("{prefix}node1/x")])?;
    expect("node1", &keys("node1").await?, &vec![format!("{prefix}node1")])?;
    expect("nothing", &keys("node2/").await?, &Vec::new())
}

fn transaction_with_puts(prefix: &str, count: usize) -> Transaction {
    (0..count).fold(Transaction::new(), |transaction, index| {
        transaction.put(format!("{prefix}{index}"), Guard::Absent, vec![1])
    })
}

fn expect_refusal(description: &str, outcome: &Outcome) -> CaseResult {
    check_that(
        &format!("{description}: expected to be refused, found {outcome:?}"),
        matches!(outcome, Outcome::Refused(_)),
    )
}

pub(super) async fn a_hundred_and_twenty_eight_operations_fit(
    subject: impl Subject,
    prefix: String,
) -> CaseResult {
    let store = subject.store();
    apply(&store, transaction_with_puts(&prefix, MAX_OPERATIONS)).await?;
    let snapshot = store.list(&prefix).await.map_err(|error| error.to_string())?;
    expect("keys", &snapshot.entries.len(), &MAX_OPERATIONS)
}

pub(super) async fn a_larger_transaction_is_refused(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    expect_refusal(
        "129 operations",
        &store.commit(transaction_with_puts(&prefix, MAX_OPERATIONS + 1)).await,
    )?;
    let snapshot = store.list(&prefix).await.map_err(|error| error.to_string())?;
    expect("keys", &snapshot.entries.len(), &0)
}

pub(super) async fn too_much_data_is_refused(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let put = |bytes| Transaction::new().put(format!("{prefix}key"), Guard::Absent, vec![b'x'; bytes]);
    expect_refusal("too much data", &store.commit(put(MAX_REQUEST_BYTES)).await)?;
    apply(&store, put(MAX_REQUEST_BYTES - 4096)).await.map(|_| ())
}
