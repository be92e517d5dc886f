//! Tests of the identity of etcd's data (FENCING, R1.26, R1.32).

use super::test_cluster::TestCluster;
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec};
use ha_api_types::record::Incarnation;

fn serialized(cluster: &TestCluster) -> Option<Incarnation> {
    cluster.read(&cluster.keys.incarnation())
}

#[test]
fn only_the_first_leader_writes_the_incarnation() {
    let mut cluster = TestCluster::new(2, &["node1"]);
    cluster.wait_until_nodes_online();
    let first = serialized(&cluster).expect("named");
    assert!(!first.value.is_empty() && first.predecessors.is_empty() && !first.continues_any);
    let leader = cluster
        .controllers
        .iter()
        .position(|controller| controller.core.term().is_some())
        .expect("one controller is leader");
    cluster.controllers[leader].is_running = false;
    cluster.run_until(30_000, "another leads", |cluster| {
        cluster.controllers.iter().any(|controller| controller.is_running && controller.core.term().is_some())
    });
    cluster.run(5_000);
    assert_eq!(serialized(&cluster), Some(first));
}

#[test]
fn operator_lets_node_follow_replaced_store() {
    let mut cluster = TestCluster::new(1, &["node1"]);
    cluster.wait_until_nodes_online();
    let before = serialized(&cluster).expect("named");
    let spec = |node: &str| OperationSpec {
        action: OperationAction::FollowStore,
        node: Some(node.into()),
        ..OperationSpec::default()
    };
    // A node that refuses the data of this etcd has not registered there.
    for name in ["first", "again"] {
        cluster.create_operation(name, spec("node9"));
        cluster
            .run_until(5_000, "done", |cluster| cluster.operation(name).phase == OperationPhase::Succeeded);
    }
    assert_eq!(serialized(&cluster), Some(Incarnation { followers: vec!["node9".into()], ..before }));
}
