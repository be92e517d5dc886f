//! The conformance suite on real etcd: with one member and with three, and with the watch cache.

#[path = "support/cached.rs"]
mod cached;
#[path = "support/etcd.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod etcd;

use etcd::{Cluster, Flags, etcdctl};
use futures::future::BoxFuture;
use ha_api_types::id::Revision;
use ha_store::conformance::{Subject, run};
use ha_store::{Config, EtcdStore};

#[derive(Clone)]
struct Real {
    store: EtcdStore,
    endpoint: String,
}

impl Subject for Real {
    type Store = EtcdStore;

    fn store(&self) -> EtcdStore {
        self.store.clone()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'static, Result<(), String>> {
        let done = etcdctl(&self.endpoint, &["compaction", &revision.to_string()]).map(|_| ());
        Box::pin(async { done })
    }
}

async fn connect(cluster: &Cluster) -> Real {
    let store = EtcdStore::connect(Config::new(cluster.endpoints())).await.expect("good settings");
    Real { store, endpoint: cluster.endpoints()[0].clone() }
}

async fn check(size: u32) {
    let cluster = Cluster::start(size, &Flags::default());
    let failures = run(&connect(&cluster).await).await;
    assert!(failures.is_empty(), "{failures:#?}");
}

#[tokio::test]
async fn one_member_with_the_watch_cache_conforms() {
    let cluster = Cluster::start(1, &Flags::default());
    let failures = run(&cached::Cached::over(connect(&cluster).await)).await;
    assert!(failures.is_empty(), "{failures:#?}");
}

#[tokio::test]
async fn one_member_conforms() {
    check(1).await;
}

#[tokio::test]
async fn three_members_conform() {
    check(3).await;
}
