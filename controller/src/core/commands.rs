//! What a command may not ask for as things stand (SEMANTICS, section 5).

use ha_api_types::node::NodeState;
use ha_api_types::reason::Reason;

/// Why maintenance of a node cannot begin now; its end is never refused.
///
/// `state` is the node's, `disarmed` whether the cluster is or is to be.
pub fn maintenance_refused(node: &str, state: NodeState, disarmed: bool) -> Option<(Reason, String)> {
    if disarmed {
        let message = format!(
            "the cluster is disarmed, so nothing can be moved away from {node}: hactl arm comes before maintenance"
        );
        return Some((Reason::Disarmed, message));
    }
    match state {
        NodeState::Online | NodeState::Maintenance => None,
        NodeState::Offline | NodeState::Unknown | NodeState::Fence | NodeState::Gone => {
            let message = format!(
                "{node} is {state:?}, so its services cannot be moved away: wait until it is Online, or see to it as it is"
            );
            Some((Reason::NodeNotOnline, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maintenance_begins_only_on_a_node_that_can_be_left() {
        let check = |state: NodeState, disarmed: bool, expected: Option<Reason>| {
            let refused = maintenance_refused("node1", state, disarmed);
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
