//! `hactl node not-here`: an operator confirms that services do not run on a node that cannot answer.

use crate::command::operate::{OperationWaitFlags, run_operation};
use crate::failure::{Exit, Failure, Outcome};
use crate::object::TypedObject;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::Args;
use ha_api_types::operation::{OperationAction, OperationSpec};
use ha_api_types::resource::{ResourceSpec, ServiceState};

#[derive(Args, Debug)]
pub(super) struct NotHere {
    /// Name of the node
    node: String,
    /// Select services of this driver, such as libvirt
    #[arg(long, value_name = "KIND")]
    driver: Option<String>,
    /// Confirm that none of these services runs on the node; do not ask
    #[arg(long, short = 'y')]
    yes: bool,
}

impl NotHere {
    /// Asks for confirmation unless `--yes` is given, then records the answer for each affected service.
    pub(super) async fn run(&self, session: &Session) -> Outcome {
        let target = crate::command::parse_node(&self.node)?;
        session.client()?.get_target(&target).await?;
        let node = &target.name.name;
        let mut affected = session.client()?.all().await?;
        affected.retain(|resource| is_affected(resource, node, self.driver.as_deref()));
        let affected: Vec<&str> = affected.iter().map(TypedObject::name).collect();
        if affected.is_empty() {
            return Err(Failure::failed(format!("no resource is waiting for an answer from node {node}")));
        }
        let question = format!(
            "WARNING: data loss if one of these services runs on {node}: {}.\n\
             Confirm that none of them runs there.",
            affected.join(", ")
        );
        if !self.yes && !Terminal::confirm(&question)? {
            return Err(Failure::failed("not confirmed: nothing was changed"));
        }
        for resource in affected {
            let spec = OperationSpec {
                action: OperationAction::Start,
                resource: Some(resource.to_owned()),
                not_on: Some(node.as_str().into()),
                ..OperationSpec::default()
            };
            run_operation(session, spec, &OperationWaitFlags::no_wait()).await?;
        }
        Ok(Exit::Done)
    }
}

/// Returns `true` if the resource is requested to run, and either waits for answers of nodes or has counted this node
/// as empty.
fn is_affected(resource: &TypedObject<ResourceSpec>, node: &str, driver: Option<&str>) -> bool {
    let is_requested_to_run = matches!(resource.text_at("/spec/state"), "" | "Started");
    let is_queued = resource.state() == Some(ServiceState::Queued);
    let counted = resource.status.iter().flat_map(|status| &status.counted_empty);
    let is_counted = counted.into_iter().any(|counted_node| counted_node == node);
    // The name as the user wrote it, because the driver may be unknown to this version.
    let has_driver = driver.is_none_or(|kind| resource.value["spec"]["driver"].get(kind).is_some());
    is_requested_to_run && has_driver && (is_queued || is_counted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn only_resources_that_wait_for_the_node_are_affected() {
        let check = |spec: Value, status: Value, driver: Option<&str>, expected: bool| {
            let resource = TypedObject::from_value(json!({"spec": spec, "status": status}));
            assert_eq!(is_affected(&resource, "node1", driver), expected, "{resource:?}");
        };
        let queued = || json!({"state": "Queued"});
        check(json!({"driver": {"libvirt": {}}}), queued(), None, true);
        check(json!({"driver": {"libvirt": {}}}), queued(), Some("libvirt"), true);
        check(json!({"driver": {"libvirt": {}}}), queued(), Some("systemd"), false);
        check(json!({"state": "Stopped"}), queued(), None, false);
        check(json!({}), json!({"state": "Started"}), None, false);
        check(json!({}), json!({"state": "Started", "countedEmpty": ["node1"]}), None, true);
        check(json!({}), json!({"state": "Started", "countedEmpty": ["node2"]}), None, false);
    }
}
