//! Refusals of commands that the current state does not allow (docs/services.md, Commands).

use ha_api_types::id::NodeName;
use ha_api_types::node::NodeState;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Assignment, FenceState};
use ha_api_types::time::Millis;

/// Returns why maintenance of a node cannot begin now. The end of maintenance is never refused.
///
/// `state` is the state of the node. `disarmed` is `true` if the cluster is disarmed or is being disarmed.
pub fn maintenance_refusal(node: &NodeName, state: NodeState, disarmed: bool) -> Option<(Reason, String)> {
    if disarmed {
        let message = format!(
            "cannot drain {node} because the cluster is disarmed: run \"hactl arm\" before maintenance"
        );
        return Some((Reason::Disarmed, message));
    }
    match state {
        NodeState::Online | NodeState::Maintenance => None,
        NodeState::Offline | NodeState::Unknown | NodeState::Fence | NodeState::Gone => {
            let message = format!(
                "cannot drain {node} in state {state:?}: wait until the node is Online, or repair the node without a \
                 drain"
            );
            Some((Reason::NodeNotOnline, message))
        }
    }
}

/// Returns why a node cannot be deleted now: a service may run there under its epoch, or is assigned to it.
///
/// `assigned` are the services whose assignment names the node ([`names_node`]).
pub fn node_deletion_refusal(
    node: &NodeName,
    fence: Option<FenceState>,
    assigned: &[&str],
) -> Option<String> {
    match fence {
        Some(FenceState::Open) => Some(format!(
            "registration is active: the node may run services. Run \"hactl node maintenance enable \
             {node} --wait\", shut the node down, and try again"
        )),
        Some(FenceState::Fencing) => Some(format!(
            "node is being fenced: wait until fencing is confirmed, or power the node off and run \
             \"hactl node confirm-fenced {node}\""
        )),
        Some(FenceState::Fenced | FenceState::Closed) | None => (!assigned.is_empty()).then(|| {
            format!(
                "services are still assigned to the node: {}. Run \"hactl relocate NAME NODE\" for each of them; if that is refused, run \"hactl why NAME\"",
                assigned.join(", ")
            )
        }),
    }
}

/// Returns why a controller cannot be deleted now: its keys were refreshed less than Th ago, or were not watched for
/// that long.
///
/// `heartbeat_age_ms` is the time without a refresh that this process has observed; `None` if unknown.
pub fn controller_deletion_refusal(
    id: &str,
    heartbeat_age_ms: Option<Millis>,
    valid_ms: Millis,
) -> Option<String> {
    let seconds = |ms: Millis| ms as f64 / 1000.0;
    match heartbeat_age_ms {
        Some(heartbeat_age_ms) if heartbeat_age_ms >= valid_ms => None,
        Some(heartbeat_age_ms) => Some(format!(
            "controller {id} is running: last seen {:.1} s ago. Stop it, wait {:.1} s, and try again",
            seconds(heartbeat_age_ms),
            seconds(valid_ms)
        )),
        None => Some(format!(
            "controller {id} has been observed for less than {:.1} s: try again later",
            seconds(valid_ms)
        )),
    }
}

/// Returns `true` if an assignment names a node, as its node or as its target. An unreadable assignment counts as
/// naming every node.
pub fn names_node(assignment: Option<&Assignment>, node: &NodeName) -> bool {
    assignment.is_none_or(|assignment| {
        let target = match &assignment.action {
            Action::Migrate { target, .. } => target == node,
            Action::Start | Action::Stop { .. } | Action::Restart | Action::DoNothing => false,
        };
        assignment.node == *node || target
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::id::{BootId, Epoch};

    #[test]
    fn a_node_is_deleted_only_if_no_service_can_run_there() {
        let check = |fence: Option<FenceState>, assigned: &[&str], expected: Option<&str>| {
            let refused = node_deletion_refusal(&"node1".into(), fence, assigned);
            assert_eq!(refused.is_some(), expected.is_some(), "{refused:?}");
            assert!(refused.unwrap_or_default().contains(expected.unwrap_or_default()), "{fence:?}");
        };
        check(None, &[], None);
        check(Some(FenceState::Closed), &[], None);
        check(Some(FenceState::Fenced), &[], None);
        check(Some(FenceState::Fenced), &["web"], Some("assigned to the node: web"));
        check(Some(FenceState::Open), &[], Some("registration is active"));
        check(Some(FenceState::Fencing), &[], Some("being fenced"));
    }

    #[test]
    fn a_controller_that_refreshes_its_key_is_not_deleted() {
        let check = |heartbeat_age_ms: Option<Millis>, expected: Option<&str>| {
            let refused = controller_deletion_refusal("c1", heartbeat_age_ms, 6_000);
            assert_eq!(refused.is_some(), expected.is_some(), "{refused:?}");
            assert!(
                refused.unwrap_or_default().contains(expected.unwrap_or_default()),
                "{heartbeat_age_ms:?}"
            );
        };
        check(Some(900), Some("last seen 0.9 s ago"));
        check(Some(5_999), Some("is running"));
        check(Some(6_000), None);
        check(None, Some("has been observed for less than"));
    }

    #[test]
    fn assignment_refers_to_node_and_target() {
        let check = |assignment: Option<Assignment>, expected: bool| {
            assert_eq!(names_node(assignment.as_ref(), &"node1".into()), expected, "{assignment:?}");
        };
        let assignment_on = |node: &str| Assignment { node: node.into(), ..Assignment::default() };
        let to = |target: &str| Action::Migrate {
            target: target.into(),
            target_epoch: Epoch(1),
            target_boot_id: BootId::default(),
        };
        check(Some(assignment_on("node1")), true);
        check(Some(assignment_on("node2")), false);
        check(Some(Assignment { action: to("node1"), ..assignment_on("node2") }), true);
        check(Some(Assignment { action: to("node3"), ..assignment_on("node2") }), false);
        check(None, true);
    }

    #[test]
    fn maintenance_begins_only_on_an_online_node() {
        let check = |state: NodeState, disarmed: bool, expected: Option<Reason>| {
            let refused = maintenance_refusal(&"node1".into(), state, disarmed);
            assert_eq!(refused.map(|(reason, _)| reason), expected, "{state:?} {disarmed}");
        };
        check(NodeState::Online, false, None);
        check(NodeState::Maintenance, false, None);
        check(NodeState::Online, true, Some(Reason::Disarmed));
        for state in [NodeState::Offline, NodeState::Unknown, NodeState::Fence, NodeState::Gone] {
            check(state, false, Some(Reason::NodeNotOnline));
        }
    }
}
