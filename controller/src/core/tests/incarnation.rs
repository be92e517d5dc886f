//! Tests of the identity of etcd's data (FENCING, R1.26, R1.32).

use super::lab::Lab;
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec};
use ha_api_types::record::Incarnation;

fn serialized(lab: &Lab) -> Option<Incarnation> {
    lab.read(&lab.keys.incarnation())
}

#[test]
fn only_the_first_leader_writes_the_incarnation() {
    let mut lab = Lab::new(2, &["node1"]);
    lab.wait_until_nodes_online();
    let first = serialized(&lab).expect("named");
    assert!(!first.value.is_empty() && first.predecessors.is_empty() && !first.continues_any);
    let leader =
        lab.members.iter().position(|member| member.core.term().is_some()).expect("one member is leader");
    lab.members[leader].running = false;
    lab.run_until(30_000, "another leads", |lab| {
        lab.members.iter().any(|member| member.running && member.core.term().is_some())
    });
    lab.run(5_000);
    assert_eq!(serialized(&lab), Some(first));
}

#[test]
fn operator_lets_node_follow_replaced_store() {
    let mut lab = Lab::new(1, &["node1"]);
    lab.wait_until_nodes_online();
    let before = serialized(&lab).expect("named");
    let spec = |node: &str| OperationSpec {
        action: OperationAction::FollowStore,
        node: Some(node.into()),
        ..OperationSpec::default()
    };
    // A node that refuses the data of this etcd has not registered there.
    for name in ["first", "again"] {
        lab.create_operation(name, spec("node9"));
        lab.run_until(5_000, "done", |lab| lab.operation(name).phase == OperationPhase::Succeeded);
    }
    assert_eq!(serialized(&lab), Some(Incarnation { followers: vec!["node9".into()], ..before }));
}
