//! The conformance suite on the in-memory store.

use futures::future::BoxFuture;
use ha_api_types::record::Revision;
use ha_store::MemoryStore;
use ha_store::conformance::{Subject, run};

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
