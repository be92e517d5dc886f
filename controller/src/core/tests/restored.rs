//! Tests of a store that was restored from a backup (FENCING, R10.13 to R10.15).

use super::test_cluster::TestCluster;
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Incarnation, MIN_REVISION_RAISE, RestoreMarker, keys_deleted_by_restore};

#[test]
fn operations_from_before_a_restore_are_discarded() {
    let mut cluster = TestCluster::new(1, &["node1"]);
    cluster.wait_until_nodes_online();
    let spec = OperationSpec {
        action: OperationAction::FollowStore,
        node: Some("node9".into()),
        ..OperationSpec::default()
    };
    cluster.create_operation("old", spec);
    let marker = serde_json::to_vec(&RestoreMarker::default()).unwrap();
    let marker = (cluster.keys.restore_marker(), marker);
    cluster.state = cluster.state.restored(
        cluster.now.monotonic_raw,
        MIN_REVISION_RAISE,
        &keys_deleted_by_restore(&cluster.keys),
        marker,
    );
    cluster.replace_controller(0, "new", None);
    cluster.run_until(20_000, "ended", |cluster| cluster.operation("old").phase.is_final());
    let status = cluster.operation("old");
    assert_eq!((status.phase, status.reason), (OperationPhase::Failed, Reason::EtcdRestored));
    let incarnation: Incarnation = cluster.read(&cluster.keys.incarnation()).expect("kept");
    assert!(incarnation.followers.is_empty());
}
