//! Tests of the HTTP API over a real etcd with the watch cache: the suite for every store, and properties that only a
//! server has.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../store/tests/support/etcd.rs"]
#[expect(dead_code, reason = "the store's own tests use the rest")]
mod etcd;
#[path = "support/http.rs"]
#[expect(dead_code, reason = "the tests over the in-memory store use the rest")]
mod http;
#[path = "support/suite.rs"]
mod suite;

use etcd::{Cluster, Flags};
use futures::StreamExt as _;
use ha_api_types::keys::Keys;
use ha_controller::api::ApiOptions;
use ha_store::cache::cache;
use ha_store::reflector::{Options, reflector};
use ha_store::{CachedStore, Config, EtcdStore};
use http::{Api, group};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// Starts an etcd with one member, and a watch cache as in a controller. The etcd ends when the cluster is dropped.
async fn store() -> (Cluster, CachedStore<EtcdStore>) {
    let cluster = Cluster::start(1, &Flags::default());
    let store = EtcdStore::connect(Config::new(cluster.endpoints())).await.unwrap();
    let keys = Keys::new("test");
    let (reader, writer) = cache(vec![keys.heartbeats(), keys.refreshes()]);
    let (_, mut items) = reflector(store.clone(), vec![keys.root().to_owned()], Options::default());
    tokio::spawn(async move {
        while let Some(item) = items.next().await {
            writer.apply(&item);
        }
    });
    (cluster, CachedStore::new(store, reader, keys.root(), keys.incarnation()))
}

#[tokio::test]
async fn clients_cannot_change_server_owned_fields() {
    let (_cluster, store) = store().await;
    suite::clients_cannot_change_server_owned_fields(store).await;
}

#[tokio::test]
async fn deletion_waits_for_leader_and_empty_node() {
    let (_cluster, store) = store().await;
    suite::deletion_waits_for_leader_and_empty_node(store).await;
}

#[tokio::test]
async fn a_list_has_the_requested_version() {
    let (_cluster, store) = store().await;
    suite::a_list_has_the_requested_version(store).await;
}

#[tokio::test]
async fn watch_continues_from_list_revision() {
    let (_cluster, store) = store().await;
    suite::watch_continues_from_list_revision(store).await;
}

#[tokio::test]
async fn a_log_is_answered_by_the_agent_of_the_node() {
    let (_cluster, store) = store().await;
    suite::a_log_is_answered_by_the_agent_of_the_node(store).await;
}

#[tokio::test]
async fn requests_that_wait_for_an_agent_are_limited() {
    let (_cluster, store) = store().await;
    suite::requests_that_wait_for_an_agent_are_limited(store).await;
}

#[tokio::test]
async fn concurrent_patches_are_all_applied() {
    let (_cluster, store) = store().await;
    suite::concurrent_patches_are_all_applied(store).await;
}

/// Returns the number of watchers in etcd, from its metrics.
fn watchers(cluster: &Cluster) -> u64 {
    let address = cluster.endpoints()[0].trim_start_matches("http://").to_owned();
    let mut connection = TcpStream::connect(&address).unwrap();
    write!(connection, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let line = answer.lines().find_map(|line| line.strip_prefix("etcd_debugging_mvcc_watcher_total "));
    line.expect("etcd reports its watchers").parse().unwrap()
}

#[tokio::test]
async fn watches_of_clients_need_no_watches_of_etcd() {
    let (cluster, store) = store().await;
    let mut options = ApiOptions::new("c1", "test");
    options.watches = 50;
    let api = Api::with(store, options);
    let mut watches = Vec::new();
    let mut open = async |count: usize| {
        while watches.len() < count {
            watches.push(api.watch("groups?watch=1").await);
        }
        for watch in &mut watches {
            watch.next().await.expect("the watch is open");
        }
        watchers(&cluster)
    };
    api.post("groups", &group("a")).await;
    let few = open(2).await;
    api.merge("groups/a", &json!({"metadata": {"labels": {"changed": "true"}}})).await;
    let many = open(50).await;
    assert!(many <= few, "{few} watchers with 2 watches, {many} with 50");
}
