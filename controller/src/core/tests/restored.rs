//! Tests of a store that was restored from a backup (FENCING, R10.13 to R10.15).

use super::lab::Lab;
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Incarnation, MIN_REVISION_RAISE, RestoreMarker, keys_deleted_by_restore};

#[test]
fn operations_from_before_a_restore_are_discarded() {
    let mut lab = Lab::new(1, &["node1"]);
    lab.wait_until_nodes_online();
    let spec = OperationSpec {
        action: OperationAction::FollowStore,
        node: Some("node9".into()),
        ..OperationSpec::default()
    };
    lab.create_operation("old", spec);
    let marker = serde_json::to_vec(&RestoreMarker::default()).unwrap();
    let marker = (lab.keys.restore_marker(), marker);
    lab.state = lab.state.restored(
        lab.now.monotonic_raw,
        MIN_REVISION_RAISE,
        &keys_deleted_by_restore(&lab.keys),
        marker,
    );
    lab.replace_controller(0, "new", None);
    lab.run_until(20_000, "ended", |lab| lab.operation("old").phase.is_final());
    let status = lab.operation("old");
    assert_eq!((status.phase, status.reason), (OperationPhase::Failed, Reason::EtcdRestored));
    let incarnation: Incarnation = lab.read(&lab.keys.incarnation()).expect("kept");
    assert!(incarnation.followers.is_empty());
}
