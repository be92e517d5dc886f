//! Meaning of a conflict after an earlier attempt of the same transaction with an unknown outcome: that attempt may be
//! the cause of the conflict.
//!
//! The conflicting attempt reads the guarded keys atomically with its guards. There are three results:
//!
//! - **Applied**: every written key has exactly the state that this transaction writes. All are at one revision that is
//!   newer than every guarded revision, and one of them has a lease. A lease belongs to one process, which has at most
//!   one write in progress for each key. No other process can therefore have written these keys. Without a lease,
//!   another process may have written the same values, for example a new leader with the same conclusion. Equal values
//!   then do not prove that the guards of *this* transaction were satisfied.
//! - **Not applied, now or later**: a written key is still at the revision of its `Unchanged` guard, so the transaction
//!   was not applied so far. In addition, an `Unchanged` or `Created` guard is violated. Revisions only grow, so no
//!   later write can make that guard hold again, and a late copy conflicts too. (A violated `Absent` may hold again
//!   after a delete, so it is not proof.)
//! - **Open**: all other cases. The outcome is reported as unknown; the writer reads again, and compares the result
//!   with its write.

use crate::transaction::{Entry, Guard, LeaseId, Transaction, Write};
use ha_api_types::id::Revision;
use std::collections::BTreeMap;

/// Result for the attempts before the conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolution {
    /// One attempt was applied, at this revision.
    Applied(Revision),
    /// No attempt was applied, and none will be.
    NotApplied,
    /// The keys prove neither result.
    Inconclusive,
}

/// Determines the result from the guarded keys that the conflict found. A key that is not in `stored_entries` does
/// not exist.
pub(super) fn resolve(transaction: &Transaction, stored_entries: &BTreeMap<String, Entry>) -> Resolution {
    if transaction.writes().is_empty() {
        return Resolution::NotApplied;
    }
    if let Some(revision) = applied_revision(transaction, stored_entries) {
        return Resolution::Applied(revision);
    }
    let untouched = is_untouched(transaction, stored_entries);
    let broken_for_good = transaction.guards().iter().any(|(key, guard)| match guard {
        Guard::Unchanged(revision) => {
            stored_entries.get(key).is_none_or(|entry| entry.mod_revision != *revision)
        }
        Guard::Created(revision) => {
            stored_entries.get(key).is_none_or(|entry| entry.create_revision != *revision)
        }
        Guard::Absent => false,
    });
    if untouched && broken_for_good { Resolution::NotApplied } else { Resolution::Inconclusive }
}

/// Determines the result after every attempt has ended, so that no copy arrives later. Then a written key that is
/// still at the revision of its `Unchanged` guard proves that the transaction was not applied.
pub(super) fn resolve_ended(
    transaction: &Transaction,
    stored_entries: &BTreeMap<String, Entry>,
) -> Resolution {
    if is_untouched(transaction, stored_entries) {
        return Resolution::NotApplied;
    }
    applied_revision(transaction, stored_entries).map_or(Resolution::Inconclusive, Resolution::Applied)
}

fn is_untouched(transaction: &Transaction, stored_entries: &BTreeMap<String, Entry>) -> bool {
    transaction.leaves_untouched(|key| stored_entries.get(key).map(|entry| entry.mod_revision))
}

/// Returns the revision at which the whole transaction was certainly applied.
fn applied_revision(transaction: &Transaction, stored_entries: &BTreeMap<String, Entry>) -> Option<Revision> {
    let mut applied_at: Option<Revision> = None;
    let mut leased = false;
    for (key, write) in transaction.writes() {
        match write {
            Write::Delete => {
                if stored_entries.contains_key(key) {
                    return None;
                }
            }
            Write::Put { value, lease } => {
                let entry = stored_entries.get(key)?;
                let guard = transaction.guards().get(key)?;
                if !is_result_of(entry, *guard, value, *lease) {
                    return None;
                }
                if applied_at.is_some_and(|revision| revision != entry.mod_revision) {
                    return None;
                }
                applied_at = Some(entry.mod_revision);
                leased |= *lease != LeaseId::NONE;
            }
        }
    }
    let newest_known = transaction.guards().values().map(|guard| match guard {
        Guard::Absent => Revision::default(),
        Guard::Unchanged(revision) | Guard::Created(revision) => *revision,
    });
    let is_newer = applied_at > newest_known.max();
    if leased && is_newer { applied_at } else { None }
}

fn is_result_of(entry: &Entry, guard: Guard, value: &[u8], lease: LeaseId) -> bool {
    let created_as_expected = match guard {
        Guard::Absent => entry.create_revision == entry.mod_revision,
        Guard::Unchanged(revision) => entry.create_revision <= revision,
        Guard::Created(revision) => entry.create_revision == revision,
    };
    created_as_expected && *entry.value == *value && entry.lease == lease
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: u8, create_revision: Revision, mod_revision: Revision, lease: i64) -> Entry {
        Entry {
            key: key.to_owned(),
            value: [value].into(),
            create_revision,
            mod_revision,
            lease: LeaseId(lease),
        }
    }

    fn check(transaction: &Transaction, stored_entries: &[Entry], expected: Resolution) {
        let stored_entries = stored_entries.iter().map(|entry| (entry.key.clone(), entry.clone())).collect();
        assert_eq!(resolve(transaction, &stored_entries), expected, "{transaction:?} {stored_entries:?}");
    }

    #[test]
    fn an_own_leased_write_is_recognized() {
        let heartbeat = Transaction::new()
            .put_leased("alive", Guard::Unchanged(Revision(7)), vec![2], LeaseId(9))
            .guard("fence", Guard::Unchanged(Revision(3)));
        let fence = entry("fence", 0, Revision(3), Revision(3), 0);
        check(
            &heartbeat,
            &[entry("alive", 2, Revision(5), Revision(8), 9), fence.clone()],
            Resolution::Applied(Revision(8)),
        );
        // Another value, another lease, or a key that was created again: not this write.
        check(
            &heartbeat,
            &[entry("alive", 3, Revision(5), Revision(8), 9), fence.clone()],
            Resolution::Inconclusive,
        );
        check(
            &heartbeat,
            &[entry("alive", 2, Revision(5), Revision(8), 1), fence.clone()],
            Resolution::Inconclusive,
        );
        check(&heartbeat, &[entry("alive", 2, Revision(8), Revision(8), 9), fence], Resolution::Inconclusive);
    }

    #[test]
    fn equal_write_without_lease_proves_nothing() {
        let close = Transaction::new()
            .put("fence", Guard::Unchanged(Revision(3)), vec![2])
            .guard("leader", Guard::Created(Revision(1)));
        check(
            &close,
            &[
                entry("fence", 2, Revision(1), Revision(8), 0),
                entry("leader", 0, Revision(6), Revision(6), 4),
            ],
            Resolution::Inconclusive,
        );
    }

    #[test]
    fn an_unchanged_key_with_a_broken_guard_was_not_written() {
        let close = Transaction::new()
            .put("fence", Guard::Unchanged(Revision(3)), vec![2])
            .guard("leader", Guard::Created(Revision(1)));
        let fence = entry("fence", 1, Revision(1), Revision(3), 0);
        check(
            &close,
            &[fence.clone(), entry("leader", 0, Revision(6), Revision(6), 4)],
            Resolution::NotApplied,
        );
        check(&close, std::slice::from_ref(&fence), Resolution::NotApplied);
        // `Absent` may hold again later, and then a late copy would be applied.
        let create = Transaction::new()
            .put("fence", Guard::Unchanged(Revision(3)), vec![2])
            .guard("other", Guard::Absent);
        check(&create, &[fence, entry("other", 0, Revision(6), Revision(6), 0)], Resolution::Inconclusive);
    }

    #[test]
    fn unchanged_key_after_last_attempt_proves_failure() {
        let close = Transaction::new()
            .put("fence", Guard::Unchanged(Revision(3)), vec![2])
            .guard("leader", Guard::Created(Revision(6)));
        let check = |fence: Option<Entry>, expected: Resolution| {
            let stored_entries =
                [fence, Some(entry("leader", 0, Revision(6), Revision(6), 4))].into_iter().flatten();
            let stored_entries = stored_entries.map(|entry| (entry.key.clone(), entry)).collect();
            assert_eq!(resolve_ended(&close, &stored_entries), expected, "{stored_entries:?}");
        };
        check(Some(entry("fence", 1, Revision(1), Revision(3), 0)), Resolution::NotApplied);
        // The transaction was applied, or another process has written the key.
        check(Some(entry("fence", 2, Revision(1), Revision(8), 0)), Resolution::Inconclusive);
        check(None, Resolution::Inconclusive);
    }

    #[test]
    fn written_keys_must_share_one_revision() {
        let both = Transaction::new()
            .put_leased("alive", Guard::Unchanged(Revision(7)), vec![2], LeaseId(9))
            .put("report", Guard::Unchanged(Revision(6)), vec![1])
            .delete("old", Guard::Unchanged(Revision(2)));
        let alive = entry("alive", 2, Revision(5), Revision(8), 9);
        check(
            &both,
            &[alive.clone(), entry("report", 1, Revision(4), Revision(8), 0)],
            Resolution::Applied(Revision(8)),
        );
        check(
            &both,
            &[alive.clone(), entry("report", 1, Revision(4), Revision(9), 0)],
            Resolution::Inconclusive,
        );
        check(
            &both,
            &[
                alive,
                entry("report", 1, Revision(4), Revision(8), 0),
                entry("old", 0, Revision(2), Revision(2), 0),
            ],
            Resolution::NotApplied,
        );
    }

    #[test]
    fn a_transaction_that_writes_nothing_was_not_applied() {
        check(
            &Transaction::new().guard("a", Guard::Absent),
            &[entry("a", 0, Revision(1), Revision(1), 0)],
            Resolution::NotApplied,
        );
    }
}
