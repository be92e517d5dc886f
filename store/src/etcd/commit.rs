//! Commit of a guarded transaction, with the outcomes applied, conflict and unknown.
//!
//! Up to three attempts are made: a later attempt starts if an earlier one is slow, or failed without an answer. If a
//! transaction violates its own guards once applied, at most one attempt is applied.
//!
//! Two cases are special. A transaction that only creates keys is sent once, because a copy could be applied again
//! after the keys were deleted. A heartbeat, which puts under `Created`, may be applied several times: the deadline
//! that it proves counts from before the first attempt.

use super::Inner;
use super::failure::Failure;
use super::race::{Call, RetryPolicy, race};
use super::resolve::{Resolution, resolve, resolve_ended};
use crate::transaction::{Entry, Guard, MAX_REQUEST_BYTES, Outcome, Transaction, Write};
use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse};
use ha_api_types::id::Revision;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Answer of etcd to one attempt.
enum Answer {
    Applied(Revision),
    Conflict {
        revision: Revision,
        /// Guarded keys that exist at that revision.
        entries: BTreeMap<String, Entry>,
    },
}

pub(super) async fn commit(inner: &Arc<Inner>, transaction: Transaction) -> Outcome {
    if !transaction.fits() {
        return Outcome::Refused("too many operations in one transaction".to_owned());
    }
    if transaction.size() > MAX_REQUEST_BYTES {
        return Outcome::Refused("the transaction is too large".to_owned());
    }
    if let Err(failure) = inner.check_versions().await {
        return Outcome::Refused(failure.to_string());
    }
    if let Err(failure) = inner.check_followed(&[]) {
        return Outcome::Refused(failure.to_string());
    }
    let mut conflict = None;
    let mut refusal_reason = None;
    let mut no_space_reason = None;
    let request = to_request(&transaction);
    let inner_for_call = inner.clone();
    let call: Call<Answer> = Arc::new(move |client| {
        let (request, inner) = (request.clone(), inner_for_call.clone());
        Box::pin(async move {
            let response = super::kv_client(&client).txn(request).await?;
            inner.accept(response.header())?;
            Ok(to_answer(&response))
        })
    });
    let retry_policy =
        if transaction.may_be_sent_again() { RetryPolicy::Always } else { RetryPolicy::IfNotSent };
    let settled = race(inner, call, retry_policy, |result, unresolved| {
        if let Err(Failure::Full(reason)) = &result
            && unresolved == 0
        {
            no_space_reason = Some(reason.clone());
        }
        process_attempt(&transaction, result, unresolved, &mut conflict, &mut refusal_reason)
    })
    .await;
    if let Some(reason) = no_space_reason {
        return resolve_no_space(inner, &transaction, reason).await;
    }
    match (settled, refusal_reason) {
        (Ok(outcome), _) => outcome,
        // No attempt reached etcd, for this reason.
        (Err(Failure::NotSent(_)), Some(reason)) | (Err(Failure::Unsupported(reason)), _) => {
            Outcome::Refused(reason)
        }
        (Err(failure), _) => Outcome::Unknown(failure.to_string()),
    }
}

/// Determines the outcome of a transaction whose last answer was that etcd has no space left.
///
/// etcd may also give this answer after it has applied the transaction. No copy is still in progress, so one
/// linearizable read settles the outcome. If the read fails or is inconclusive, the outcome stays unknown.
async fn resolve_no_space(inner: &Arc<Inner>, transaction: &Transaction, reason: String) -> Outcome {
    let gets: Vec<TxnOp> =
        transaction.guards().keys().map(|key| TxnOp::get(key.as_str(), Some(GetOptions::new()))).collect();
    let read = Txn::new().and_then(gets);
    let inner_for_call = inner.clone();
    let call: Call<BTreeMap<String, Entry>> = Arc::new(move |client| {
        let read = read.clone();
        let inner = inner_for_call.clone();
        Box::pin(async move {
            let response = super::kv_client(&client).txn(read).await?;
            inner.accept(response.header())?;
            Ok(read_entries(&response))
        })
    });
    match super::request(inner, call).await.map(|entries| resolve_ended(transaction, &entries)) {
        Ok(Resolution::Applied(revision)) => Outcome::Applied(revision),
        Ok(Resolution::NotApplied) => Outcome::Refused(reason),
        Ok(Resolution::Inconclusive) | Err(_) => Outcome::Unknown(reason),
    }
}

/// Processes one more answer. `conflict` stores a conflict that another attempt of this process may have caused.
fn process_attempt(
    transaction: &Transaction,
    result: Result<Answer, Failure>,
    unresolved: usize,
    conflict: &mut Option<Revision>,
    refusal_reason: &mut Option<String>,
) -> ControlFlow<Outcome> {
    match result {
        Ok(Answer::Applied(revision)) => return ControlFlow::Break(Outcome::Applied(revision)),
        Ok(Answer::Conflict { revision, entries }) => {
            *conflict = Some(revision);
            if unresolved > 0 {
                match resolve(transaction, &entries) {
                    Resolution::Applied(revision) => {
                        return ControlFlow::Break(Outcome::Applied(revision));
                    }
                    Resolution::NotApplied => return ControlFlow::Break(Outcome::Conflict(revision)),
                    Resolution::Inconclusive => {}
                }
            }
        }
        // The guards were satisfied when etcd reported the missing lease, so no earlier attempt was applied. A lease
        // that has ended does not return.
        Err(Failure::LeaseNotFound) if unresolved == 0 || transaction.conflicts_when_repeated() => {
            return ControlFlow::Break(Outcome::LeaseNotFound);
        }
        Err(failure @ Failure::LeaseNotFound) => {
            return ControlFlow::Break(Outcome::Unknown(failure.to_string()));
        }
        Err(Failure::Refused(reason) | Failure::Configuration(reason)) => {
            return ControlFlow::Break(if unresolved == 0 {
                Outcome::Refused(reason)
            } else {
                Outcome::Unknown(reason)
            });
        }
        // Only a read shows whether the transaction was applied.
        Err(Failure::Full(reason)) => return ControlFlow::Break(Outcome::Unknown(reason)),
        Err(Failure::Unsupported(reason)) => *refusal_reason = Some(reason),
        Err(Failure::NotSent(_) | Failure::TokenExpired(_) | Failure::Unknown(_) | Failure::Compacted(_)) => {
        }
    }
    match conflict {
        // Every attempt that may have reached etcd has reported that it was not applied.
        Some(revision) if unresolved == 0 => ControlFlow::Break(Outcome::Conflict(*revision)),
        Some(_) | None => ControlFlow::Continue(()),
    }
}

fn to_request(transaction: &Transaction) -> Txn {
    let compares: Vec<Compare> = transaction
        .guards()
        .iter()
        .map(|(key, guard)| match guard {
            Guard::Absent => Compare::create_revision(key.as_str(), CompareOp::Equal, 0),
            Guard::Unchanged(revision) => Compare::mod_revision(key.as_str(), CompareOp::Equal, revision.0),
            Guard::Created(revision) => Compare::create_revision(key.as_str(), CompareOp::Equal, revision.0),
        })
        .collect();
    let writes: Vec<TxnOp> = transaction
        .writes()
        .iter()
        .map(|(key, write)| match write {
            Write::Put { value, lease } => {
                TxnOp::put(key.as_str(), value.to_vec(), Some(PutOptions::new().with_lease(lease.0)))
            }
            Write::Delete => TxnOp::delete(key.as_str(), None::<DeleteOptions>),
        })
        .collect();
    // The guarded keys are read atomically if a guard fails, so that a conflict caused by an earlier attempt can be
    // recognized.
    let reads: Vec<TxnOp> = transaction
        .guards()
        .keys()
        .map(|key| {
            let options = GetOptions::new();
            let options = if transaction.writes_key(key) { options } else { options.with_keys_only() };
            TxnOp::get(key.as_str(), Some(options))
        })
        .collect();
    Txn::new().when(compares).and_then(writes).or_else(reads)
}

fn to_answer(response: &etcd_client::TxnResponse) -> Answer {
    let revision = response.header().map_or(0, etcd_client::ResponseHeader::revision);
    if response.succeeded() {
        return Answer::Applied(Revision(revision));
    }
    Answer::Conflict { revision: Revision(revision), entries: read_entries(response) }
}

/// Returns the keys that a transaction has read.
fn read_entries(response: &etcd_client::TxnResponse) -> BTreeMap<String, Entry> {
    let mut entries = BTreeMap::new();
    for operation in response.op_responses() {
        if let TxnOpResponse::Get(got) = operation {
            entries.extend(got.kvs().iter().map(super::to_entry).map(|entry| (entry.key.clone(), entry)));
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write() -> Transaction {
        Transaction::new().put("key", Guard::Unchanged(Revision(5)), vec![1]).guard("other", Guard::Absent)
    }

    fn heartbeat() -> Transaction {
        Transaction::new().put_leased("key", Guard::Created(Revision(5)), vec![1], crate::LeaseId(7))
    }

    fn conflict() -> Answer {
        Answer::Conflict { revision: Revision(9), entries: BTreeMap::new() }
    }

    fn unknown() -> Failure {
        Failure::Unknown("no answer".to_owned())
    }

    /// Checks attempts that end one at a time, each with the number of unresolved attempts at that time. `None` if the
    /// outcome is not settled.
    fn check(
        transaction: &Transaction,
        ends: impl IntoIterator<Item = (Result<Answer, Failure>, usize)>,
        expected: Option<&Outcome>,
    ) {
        let (mut conflict, mut refusal_reason) = (None, None);
        let settled = ends.into_iter().find_map(|(result, unresolved)| {
            process_attempt(transaction, result, unresolved, &mut conflict, &mut refusal_reason).break_value()
        });
        assert_eq!(settled.as_ref(), expected);
    }

    #[test]
    fn conflict_needs_every_attempt_resolved() {
        let conflicted = Outcome::Conflict(Revision(9));
        check(&write(), [(Ok(conflict()), 0)], Some(&conflicted));
        check(&write(), [(Err(unknown()), 1), (Ok(conflict()), 1)], None);
        // The conflict is final once every other attempt has also reported that it was not applied.
        check(&write(), [(Ok(conflict()), 1), (Ok(conflict()), 0)], Some(&conflicted));
        check(&write(), [(Ok(conflict()), 1), (Err(Failure::NotSent(String::new())), 0)], Some(&conflicted));
        check(&write(), [(Ok(conflict()), 1), (Err(unknown()), 1), (Ok(conflict()), 1)], None);
        // The other attempt was applied.
        check(
            &write(),
            [(Ok(conflict()), 1), (Ok(Answer::Applied(Revision(8))), 0)],
            Some(&Outcome::Applied(Revision(8))),
        );
    }

    #[test]
    fn refusal_does_not_resolve_earlier_attempts() {
        let refusal = || Err::<Answer, _>(Failure::Refused("no".to_owned()));
        check(&write(), [(refusal(), 0)], Some(&Outcome::Refused("no".to_owned())));
        check(&write(), [(Err(unknown()), 1), (refusal(), 1)], Some(&Outcome::Unknown("no".to_owned())));
    }

    #[test]
    fn full_etcd_answer_is_not_a_refusal() {
        let full = || Err::<Answer, _>(Failure::Full("no space".to_owned()));
        let unknown_for = Outcome::Unknown("no space".to_owned());
        check(&write(), [(full(), 0)], Some(&unknown_for));
        check(&write(), [(Err(unknown()), 1), (full(), 1)], Some(&unknown_for));
        check(&heartbeat(), [(Ok(conflict()), 1), (full(), 0)], Some(&unknown_for));
    }

    #[test]
    fn missing_lease_proves_commit_was_not_applied() {
        let missing = || Err(Failure::LeaseNotFound);
        check(&write(), [(Err(unknown()), 1), (missing(), 1)], Some(&Outcome::LeaseNotFound));
        check(&heartbeat(), [(missing(), 0)], Some(&Outcome::LeaseNotFound));
        let doubtful = Outcome::Unknown("the lease does not exist".to_owned());
        check(&heartbeat(), [(Err(unknown()), 1), (missing(), 1)], Some(&doubtful));
    }
}
