//! The wait for services that a rule moves together with a partner. They arrive after the operation on the partner has
//! ended.

use crate::client::{Change, Watcher};
use crate::command::wait::status_line;
use crate::failure::Failure;
use crate::object::{AnyObject, TypedObject};
use crate::session::Session;
use ha_api_types::kind::Kind;
use ha_api_types::resource::{ResourceSpec, ServiceState};

/// Progress of a service on its way to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoveProgress {
    /// The service is on the target node and not in transition.
    OnTarget,
    /// The service is on another node and not in transition.
    OnOtherNode,
    /// The service is being moved, stopped or started.
    Moving,
    /// The service will not arrive automatically.
    CannotArrive,
}

/// Waits until a service has arrived on a node.
///
/// # Errors
/// Fails if the move ended on another node, or if the service is in Error or was deleted.
pub(super) async fn wait_for_arrival(session: &Session, service: &str, node: &str) -> Result<(), Failure> {
    let mut watcher = Watcher::for_object(session.client()?, Kind::Resource, service);
    let mut seen_moving = false;
    loop {
        let object = match watcher.next().await? {
            Change::Applied(object) => object,
            Change::Deleted(_) => return Err(Failure::failed(format!("{service} was deleted"))),
            Change::Synced => continue,
        };
        let failed = || {
            let status = status_line(Kind::Resource, &AnyObject::from_value(&object));
            Failure::failed(format!("{service} was not moved to {node}: {status}"))
                .help(format!("run \"hactl why {service}\""))
        };
        match move_progress(&TypedObject::from_value(object.clone()), node) {
            MoveProgress::OnTarget => return Ok(()),
            MoveProgress::CannotArrive => return Err(failed()),
            MoveProgress::OnOtherNode if seen_moving => return Err(failed()),
            // The move has not begun yet.
            MoveProgress::OnOtherNode => {}
            MoveProgress::Moving => seen_moving = true,
        }
    }
}

fn move_progress(resource: &TypedObject<ResourceSpec>, node: &str) -> MoveProgress {
    use ServiceState::{Deleting, Disabled, Error, Fence, Freeze, Ignored, Recovery, Started, Stopped};
    let current_node = resource.status.as_ref().and_then(|status| status.node.as_deref());
    let is_in = |states: &[ServiceState]| resource.state().is_some_and(|state| states.contains(&state));
    if is_in(&[Started, Stopped, Disabled]) {
        if current_node == Some(node) { MoveProgress::OnTarget } else { MoveProgress::OnOtherNode }
    } else if is_in(&[Error, Ignored, Fence, Recovery, Freeze, Deleting]) {
        MoveProgress::CannotArrive
    } else {
        MoveProgress::Moving
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_state_has_a_move_progress() {
        let check = |state: &str, node: &str, expected: MoveProgress| {
            let object = json!({"status": {"state": state, "node": node}});
            assert_eq!(move_progress(&TypedObject::from_value(object), "node2"), expected, "{state} {node}");
        };
        check("Started", "node2", MoveProgress::OnTarget);
        check("Stopped", "node2", MoveProgress::OnTarget);
        check("Started", "node1", MoveProgress::OnOtherNode);
        check("Relocate", "node1", MoveProgress::Moving);
        check("Starting", "node2", MoveProgress::Moving);
        check("Error", "node2", MoveProgress::CannotArrive);
        check("Recovery", "node2", MoveProgress::CannotArrive);
    }
}
