//! The conformance suite on the in-memory store, without and with the watch cache.

#[path = "support/cached.rs"]
mod cached;

use futures::future::BoxFuture;
use ha_api_types::id::Revision;
use ha_store::conformance::{Subject, run};
use ha_store::{Guard, MemoryStore, Outcome, Store as _, Transaction};

#[derive(Clone)]
struct Memory(MemoryStore);

impl Subject for Memory {
    type Store = MemoryStore;

    fn store(&self) -> MemoryStore {
        self.0.clone()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'static, Result<(), String>> {
        self.0.compact(revision);
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test(start_paused = true)]
async fn the_memory_store_conforms() {
    let failures = run(&Memory(MemoryStore::new())).await;
    assert!(failures.is_empty(), "{failures:#?}");
}

#[tokio::test(start_paused = true)]
async fn the_cached_memory_store_conforms() {
    let failures = run(&cached::Cached::over(Memory(MemoryStore::new()))).await;
    assert!(failures.is_empty(), "{failures:#?}");
}

/// A full store gives the same answer whether or not it has applied the write; only a later read shows whether it did
/// (FENCING, R1.10).
#[tokio::test(start_paused = true)]
async fn no_space_answer_has_unknown_outcome() {
    let check = async |applies_next: bool| {
        let store = MemoryStore::new();
        let created = store.commit(Transaction::new().put("a", Guard::Absent, vec![1])).await;
        let revision = created.applied().expect("the store has space");
        let put = |value: u8| Transaction::new().put("a", Guard::Unchanged(revision), vec![value]);
        store.fill(applies_next);
        let outcome = store.commit(put(2)).await;
        let stored_value = store.get("a").await.expect("reads still succeed").entries[0].value.to_vec();
        if applies_next {
            assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
            assert_eq!(stored_value, [2]);
        } else {
            assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
            assert_eq!(stored_value, [1]);
        }
        // From then on, puts are not applied, but deletes are.
        let outcome = store.commit(Transaction::new().put("b", Guard::Absent, vec![1])).await;
        assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
        assert!(store.get("b").await.expect("reads still succeed").entries.is_empty());
        assert!(store.grant_lease(10).await.is_err());
        let mod_revision = store.get("a").await.expect("reads still succeed").entries[0].mod_revision;
        let deleted = store.commit(Transaction::new().delete("a", Guard::Unchanged(mod_revision))).await;
        assert!(deleted.applied().is_some(), "{deleted:?}");
        store.make_space();
        let created = store.commit(Transaction::new().put("b", Guard::Absent, vec![1])).await;
        assert!(created.applied().is_some(), "{created:?}");
    };
    check(true).await;
    check(false).await;
}
