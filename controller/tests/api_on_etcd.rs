//! Tests of the HTTP API over a real etcd: the suite for every store, and properties that only a server has.

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
use ha_store::{Config, EtcdStore};

/// Starts an etcd with one member; it ends when the cluster is dropped.
async fn store() -> (Cluster, EtcdStore) {
    let cluster = Cluster::start(1, &Flags::default());
    let store = EtcdStore::connect(Config::new(cluster.endpoints())).await.unwrap();
    (cluster, store)
}

#[tokio::test]
async fn an_object_keeps_what_is_its_own() {
    let (_cluster, store) = store().await;
    suite::an_object_keeps_what_is_its_own(store).await;
}

#[tokio::test]
async fn a_resource_goes_with_its_leader_and_a_node_when_nothing_can_run_there() {
    let (_cluster, store) = store().await;
    suite::a_resource_goes_with_its_leader_and_a_node_when_nothing_can_run_there(store).await;
}

#[tokio::test]
async fn a_watch_goes_on_where_a_list_ended() {
    let (_cluster, store) = store().await;
    suite::a_watch_goes_on_where_a_list_ended(store).await;
}

#[tokio::test]
async fn a_log_is_what_the_agent_of_the_node_answers() {
    let (_cluster, store) = store().await;
    suite::a_log_is_what_the_agent_of_the_node_answers(store).await;
}

#[tokio::test]
async fn an_agent_that_does_not_answer_holds_up_few_requests() {
    let (_cluster, store) = store().await;
    suite::an_agent_that_does_not_answer_holds_up_few_requests(store).await;
}

#[tokio::test]
async fn concurrent_patches_all_arrive() {
    let (_cluster, store) = store().await;
    suite::concurrent_patches_all_arrive(store).await;
}
