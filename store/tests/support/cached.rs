//! A store under test behind the watch cache.

use futures::StreamExt as _;
use futures::future::BoxFuture;
use ha_api_types::id::Revision;
use ha_store::CachedStore;
use ha_store::cache::cache;
use ha_store::conformance::Subject;
use ha_store::reflector::{Options, reflector};

/// Prefix of all keys of the conformance suite.
const PREFIX: &str = "/conformance/";

#[derive(Clone)]
pub(crate) struct Cached<T: Subject> {
    subject: T,
    store: CachedStore<T::Store>,
}

impl<T: Subject> Cached<T> {
    /// Starts a cache over the subject's store.
    pub(crate) fn over(subject: T) -> Cached<T> {
        let (reader, writer) = cache(Vec::new());
        let (_, mut items) = reflector(subject.store(), vec![PREFIX.to_owned()], Options::default());
        tokio::spawn(async move {
            while let Some(item) = items.next().await {
                writer.apply(&item);
            }
        });
        let store = CachedStore::new(subject.store(), reader, PREFIX, format!("{PREFIX}probe"));
        Cached { subject, store }
    }
}

impl<T: Subject> Subject for Cached<T> {
    type Store = CachedStore<T::Store>;

    fn store(&self) -> CachedStore<T::Store> {
        self.store.clone()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'static, Result<(), String>> {
        self.subject.compact(revision)
    }

    fn keeps_compacted_changes(&self) -> bool {
        true
    }
}
