//! The wait for services that a rule moves along, which arrive after the operation on their partner has ended.

use crate::client::{Change, Watcher};
use crate::command::wait::where_it_is;
use crate::failure::Failure;
use crate::object::{AnyObject, Served};
use crate::session::Session;
use ha_api_types::kind::Kind;
use ha_api_types::resource::{ResourceSpec, ServiceState};

/// Progress of a service on its way to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The service is on the target node and not in transition.
    There,
    /// The service is on another node and not in transition.
    Elsewhere,
    /// The service is being moved, stopped or started.
    Moving,
    /// The service will not arrive automatically.
    Lost,
}

/// Waits until a service has arrived on a node.
///
/// # Errors
/// Fails if the move ended on another node, or if the service is in Error or was deleted.
pub(super) async fn arrival(session: &Session, service: &str, node: &str) -> Result<(), Failure> {
    let mut watcher = Watcher::object(session.client()?, Kind::Resource, service);
    let mut seen_moving = false;
    loop {
        let object = match watcher.next().await? {
            Change::Applied(object) => object,
            Change::Deleted(_) => return Err(Failure::refused(format!("{service} was deleted"))),
            Change::Synced => continue,
        };
        let failed = || {
            let is = where_it_is(Kind::Resource, &AnyObject::of(&object));
            Failure::refused(format!("{service} was not moved to {node}: {is}"))
                .help(format!("run \"hactl why {service}\""))
        };
        match way(&Served::of(object.clone()), node) {
            Way::There => return Ok(()),
            Way::Lost => return Err(failed()),
            Way::Elsewhere if seen_moving => return Err(failed()),
            // The move has not begun yet.
            Way::Elsewhere => {}
            Way::Moving => seen_moving = true,
        }
    }
}

fn way(resource: &Served<ResourceSpec>, node: &str) -> Way {
    use ServiceState::{Deleting, Disabled, Error, Fence, Freeze, Ignored, Recovery, Started, Stopped};
    let place = resource.status.as_ref().and_then(|status| status.node.as_deref());
    let is_in = |states: &[ServiceState]| resource.state().is_some_and(|state| states.contains(&state));
    if is_in(&[Started, Stopped, Disabled]) {
        if place == Some(node) { Way::There } else { Way::Elsewhere }
    } else if is_in(&[Error, Ignored, Fence, Recovery, Freeze, Deleting]) {
        Way::Lost
    } else {
        Way::Moving
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ways() {
        let check = |state: &str, node: &str, expected: Way| {
            let object = json!({"status": {"state": state, "node": node}});
            assert_eq!(way(&Served::of(object), "node2"), expected, "{state} {node}");
        };
        check("Started", "node2", Way::There);
        check("Stopped", "node2", Way::There);
        check("Started", "node1", Way::Elsewhere);
        check("Relocate", "node1", Way::Moving);
        check("Starting", "node2", Way::Moving);
        check("Error", "node2", Way::Lost);
        check("Recovery", "node2", Way::Lost);
    }
}
