//! Cases: watches.

use super::{CaseResult, Subject, apply, changes_until, check_that, create, expect, next_item};
use crate::store::{Store as _, StoreError, WatchItem};
use crate::transaction::{Guard, Transaction};
use futures::StreamExt as _;
use ha_api_types::id::Revision;

pub(super) async fn changes_come_in_order(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let start = store.list(&prefix).await.map_err(|error| error.to_string())?.revision + 1;
    let mut watch = store.watch(&prefix, start);
    let (a, b) = (format!("{prefix}a"), format!("{prefix}b"));
    let first = create(&store, &a, "1").await?;
    let second = create(&store, &b, "1").await?;
    let two_writes = Transaction::new()
        .put(&a, Guard::Unchanged(first), b"2".to_vec())
        .delete(&b, Guard::Unchanged(second));
    let third = apply(&store, two_writes).await?;
    let fourth = create(&store, &b, "3").await?;
    let put = |key: &String, value: &str, revision| (key.clone(), Some(value.to_owned()), revision);
    let expected = vec![
        put(&a, "1", first),
        put(&b, "1", second),
        put(&a, "2", third),
        (b.clone(), None, third),
        put(&b, "3", fourth),
    ];
    expect("changes", &changes_until(&mut watch, fourth).await?, &expected)
}

pub(super) async fn a_watch_begins_at_an_old_revision(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let mut revisions = Vec::new();
    for index in 0..5 {
        revisions.push(create(&store, &format!("{prefix}{index}"), "").await?);
    }
    let mut watch = store.watch(&prefix, revisions[2]);
    let seen_revisions: Vec<_> =
        changes_until(&mut watch, revisions[4]).await?.into_iter().map(|(_, _, revision)| revision).collect();
    expect("revisions from the start revision, inclusive", &seen_revisions, &revisions[2..].to_vec())
}

pub(super) async fn a_watch_may_begin_in_the_future(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let now = store.list(&prefix).await.map_err(|error| error.to_string())?.revision;
    let mut watch = store.watch(&prefix, now + 3);
    let mut last = Revision::default();
    for index in 0..4 {
        last = create(&store, &format!("{prefix}{index}"), "").await?;
    }
    let seen_revisions: Vec<_> =
        changes_until(&mut watch, last).await?.into_iter().map(|(_, _, revision)| revision).collect();
    expect("revisions", &seen_revisions, &vec![last - 1, last])
}

pub(super) async fn a_compacted_revision_is_reported(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let first = create(&store, &format!("{prefix}a"), "").await?;
    create(&store, &format!("{prefix}b"), "").await?;
    let third = create(&store, &format!("{prefix}c"), "").await?;
    subject.compact(third).await?;
    let mut watch = store.watch(&prefix, first);
    match watch.next().await {
        Some(Ok(_)) if subject.keeps_compacted_changes() => {
            let mut watch = store.watch(&prefix, first);
            expect("kept changes", &changes_until(&mut watch, third).await?.len(), &3)?;
        }
        Some(Err(StoreError::Compacted { oldest })) => {
            check_that(
                &format!("oldest revision {oldest} does not follow the compaction at {third}"),
                (third..=third + 1).contains(&oldest),
            )?;
        }
        other => return Err(format!("expected compacted, found {other:?}")),
    }
    // Revisions that are not compacted can still be watched.
    let fourth = create(&store, &format!("{prefix}d"), "").await?;
    let mut watch = store.watch(&prefix, fourth);
    expect("changes", &changes_until(&mut watch, fourth).await?.len(), &1)?;
    let snapshot = store.list(&prefix).await.map_err(|error| error.to_string())?;
    expect("number of keys after the compaction", &snapshot.entries.len(), &4)
}

pub(super) async fn a_prefix_watch_sees_only_its_prefix(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let start = store.list(&prefix).await.map_err(|error| error.to_string())?.revision + 1;
    let mut watch = store.watch(&format!("{prefix}node1/"), start);
    let mut last = Revision::default();
    for key in ["node1", "node10/x", "node1/x", "node1.5/x", "node2/x", "node1/y"] {
        last = create(&store, &format!("{prefix}{key}"), "").await?;
    }
    let seen_keys: Vec<_> =
        changes_until(&mut watch, last).await?.into_iter().map(|(key, _, _)| key).collect();
    expect("keys", &seen_keys, &vec![format!("{prefix}node1/x"), format!("{prefix}node1/y")])
}

pub(super) async fn a_key_watch_sees_only_its_key(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let start = store.list(&prefix).await.map_err(|error| error.to_string())?.revision + 1;
    let mut watch = store.watch(&format!("{prefix}node1"), start);
    let mut last = Revision::default();
    for key in ["node1/x", "node1", "node10"] {
        last = create(&store, &format!("{prefix}{key}"), "").await?;
    }
    let seen_keys: Vec<_> =
        changes_until(&mut watch, last).await?.into_iter().map(|(key, _, _)| key).collect();
    expect("keys", &seen_keys, &vec![format!("{prefix}node1")])
}

pub(super) async fn several_selectors_are_merged_in_order(
    subject: impl Subject,
    prefix: String,
) -> CaseResult {
    let store = subject.store();
    let start = store.list(&prefix).await.map_err(|error| error.to_string())?.revision + 1;
    let key = |name: &str| format!("{prefix}{name}");
    let mut watch = store.watch_all(&[key("a/"), key("b/"), key("c")], start);
    let mut expected = Vec::new();
    let mut last = Revision::default();
    for round in 0..20 {
        let all = Transaction::new()
            .put(key(&format!("a/{round}")), Guard::Absent, vec![])
            .put(key(&format!("b/{round}")), Guard::Absent, vec![])
            .put(key(&format!("d/{round}")), Guard::Absent, vec![]);
        let with_both = apply(&store, all).await?;
        expected.push((key(&format!("a/{round}")), with_both));
        expected.push((key(&format!("b/{round}")), with_both));
        last = create(&store, &key(&format!("b/more{round}")), "").await?;
        expected.push((key(&format!("b/more{round}")), last));
    }
    let mut seen_changes = Vec::new();
    let mut complete = Revision::default();
    while complete < last {
        match next_item(&mut watch).await? {
            WatchItem::Progress(revision) => complete = revision,
            WatchItem::Changes { changes, revision } => {
                for change in changes {
                    check_that(
                        "a change is not newer than the last complete revision",
                        change.revision() > complete,
                    )?;
                    check_that("a change is newer than its item", change.revision() <= revision)?;
                    seen_changes.push((change.key().to_owned(), change.revision()));
                }
                complete = revision;
            }
        }
    }
    expect("changes", &seen_changes, &expected)
}

pub(super) async fn progress_is_reported_without_changes(
    subject: impl Subject,
    prefix: String,
) -> CaseResult {
    let store = subject.store();
    let start = store.list(&prefix).await.map_err(|error| error.to_string())?.revision + 1;
    for selectors in
        [vec![format!("{prefix}quiet/")], vec![format!("{prefix}quiet/"), format!("{prefix}silent")]]
    {
        let mut watch = store.watch_all(&selectors, start);
        let elsewhere = create(&store, &format!("{prefix}loud/{}", selectors.len()), "").await?;
        let seen_changes = changes_until(&mut watch, elsewhere).await?;
        expect("changes", &seen_changes, &Vec::new())?;
    }
    Ok(())
}

pub(super) async fn the_end_of_a_lease_is_seen(subject: impl Subject, prefix: String) -> CaseResult {
    let store = subject.store();
    let lease = store.grant_lease(2).await.map_err(|error| error.to_string())?;
    let key = format!("{prefix}key");
    let created = apply(&store, Transaction::new().put_leased(&key, Guard::Absent, vec![], lease)).await?;
    let mut watch = store.watch(&prefix, created);
    loop {
        if let WatchItem::Changes { changes, revision } = next_item(&mut watch).await?
            && revision > created
        {
            let seen_changes: Vec<_> = changes.into_iter().map(super::describe).collect();
            return expect("changes", &seen_changes, &vec![(key, None, revision)]);
        }
    }
}
