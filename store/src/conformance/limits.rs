//! Cases: maximum size of a transaction.

use super::{Subject, Verdict, apply, expect, hold};
use crate::store::Store as _;
use crate::transaction::{Guard, MAX_OPERATIONS, MAX_REQUEST_BYTES, Outcome, Transaction};

fn many(at: &str, count: usize) -> Transaction {
    (0..count).fold(Transaction::new(), |transaction, index| {
        transaction.put(format!("{at}{index}"), Guard::Absent, vec![1])
    })
}

fn refused(what: &str, outcome: &Outcome) -> Verdict {
    hold(
        &format!("{what}: expected to be refused, found {outcome:?}"),
        matches!(outcome, Outcome::Refused(_)),
    )
}

pub(super) async fn a_hundred_and_twenty_eight_operations_fit(subject: impl Subject, at: String) -> Verdict {
    let store = subject.store();
    apply(&store, many(&at, MAX_OPERATIONS)).await?;
    let found = store.list(&at).await.map_err(|error| error.to_string())?;
    expect("keys", &found.entries.len(), &MAX_OPERATIONS)
}

pub(super) async fn a_larger_transaction_is_refused(subject: impl Subject, at: String) -> Verdict {
    let store = subject.store();
    refused("129 operations", &store.commit(many(&at, MAX_OPERATIONS + 1)).await)?;
    let found = store.list(&at).await.map_err(|error| error.to_string())?;
    expect("keys", &found.entries.len(), &0)
}

pub(super) async fn too_much_data_is_refused(subject: impl Subject, at: String) -> Verdict {
    let store = subject.store();
    let put = |bytes| Transaction::new().put(format!("{at}key"), Guard::Absent, vec![b'x'; bytes]);
    refused("too much data", &store.commit(put(MAX_REQUEST_BYTES)).await)?;
    apply(&store, put(MAX_REQUEST_BYTES - 4096)).await.map(|_| ())
}
