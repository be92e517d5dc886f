//! The requests that each command of a step sends to the cluster.

use super::World;
use crate::scenario::action::Command;
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::operation::{OperationAction, OperationSpec};
use ha_api_types::reason::Reason;
use ha_api_types::record::Fence;
use serde_json::{Value, json};

impl World {
    /// Sends a user's command to the cluster.
    pub(super) fn command(&mut self, text: &str, command: Command) -> Result<(), String> {
        match command {
            Command::Set { kind, name, fields, in_place } => {
                self.change_spec(kind, &name, &fields)?;
                if in_place {
                    let stored = self.spec_of(kind, &name).unwrap_or_default();
                    let spec = OperationSpec {
                        action: OperationAction::UpdateInPlace,
                        resource: Some(name),
                        generation: stored.pointer("/metadata/generation").and_then(Value::as_i64),
                        ..OperationSpec::default()
                    };
                    self.submit_operation(text, spec);
                }
            }
            Command::Add { resource, node, running } => {
                self.add_resource(&resource, node.as_ref(), running)?;
            }
            Command::Delete { resource } => self.delete(&resource)?,
            Command::DeleteNode { node } => {
                let node = self.resolve_leader(&node)?;
                self.delete_node(&node)?;
            }
            Command::DeleteController { node } => {
                let node = self.resolve_leader(&node)?;
                self.delete_controller(&node.as_str().into())?;
            }
            Command::Migrate { resource, node } => {
                let node = self.resolve_leader(&node)?;
                self.submit_resource_operation(text, OperationAction::Migrate, &resource, Some(&node));
            }
            Command::Relocate { resource, node } => {
                let node = self.resolve_leader(&node)?;
                self.submit_resource_operation(text, OperationAction::Relocate, &resource, Some(&node));
            }
            Command::ReplaceSecondary { resource, node } => {
                let node = self.resolve_leader(&node)?;
                self.submit_resource_operation(
                    text,
                    OperationAction::ReplaceSecondary,
                    &resource,
                    Some(&node),
                );
            }
            Command::Stop { resource, timeout_ms } => {
                let spec = OperationSpec {
                    action: OperationAction::Stop,
                    resource: Some(resource.to_string()),
                    timeout_seconds: timeout_ms.and_then(|ms| u32::try_from(ms.div_ceil(1000)).ok()),
                    ..OperationSpec::default()
                };
                self.submit_operation(text, spec);
                self.request_state(&resource, "Stopped")?;
            }
            Command::Start { resource } => {
                self.submit_resource_operation(text, OperationAction::Start, &resource, None);
                self.request_state(&resource, "Started")?;
            }
            Command::Restart { resource } => {
                self.submit_resource_operation(text, OperationAction::Restart, &resource, None);
            }
            Command::ClearError { resource } => {
                self.submit_resource_operation(text, OperationAction::ClearError, &resource, None);
            }
            Command::Maintenance { node, is_enabled } => {
                let node = self.resolve_node(&node)?;
                if is_enabled && let Some((reason, message)) = self.refused_maintenance(&node) {
                    self.record_refusal_reason(text, reason);
                    return Err(message);
                }
                self.change_spec(Kind::Node, &node, &[("maintenance".to_owned(), json!(is_enabled))])?;
            }
            Command::TestWatchdog { node } => {
                let node = self.resolve_node(&node)?;
                let spec = OperationSpec {
                    action: OperationAction::TestWatchdog,
                    boot_id: Some(self.stored_fence(&node).boot_id),
                    node: Some(node),
                    ..OperationSpec::default()
                };
                self.submit_operation(text, spec);
            }
            Command::ConfirmFenced { node } => {
                self.submit_fence_operation(text, OperationAction::ConfirmFenced, &node)?;
            }
            Command::Unfence { node } => {
                self.submit_fence_operation(text, OperationAction::Unfence, &node)?;
            }
            Command::Fence { node } => {
                let node = self.resolve_node(&node)?;
                let spec = OperationSpec {
                    action: OperationAction::Fence,
                    node: Some(node),
                    ..OperationSpec::default()
                };
                self.submit_operation(text, spec);
            }
            Command::Disarm { keeps_services_frozen } => {
                self.disarm(&json!(if keeps_services_frozen { "Freeze" } else { "Ignore" }))?;
            }
            Command::Arm => self.disarm(&Value::Null)?,
        }
        Ok(())
    }

    /// Creates an operation for the current epoch of a node.
    fn submit_fence_operation(
        &mut self,
        text: &str,
        action: OperationAction,
        node: &NodeName,
    ) -> Result<(), String> {
        let node = self.resolve_node(node)?;
        let fence = self.stored_fence(&node);
        let spec = OperationSpec {
            action,
            node: Some(node),
            epoch: Some(fence.epoch),
            boot_id: Some(fence.boot_id),
            ..OperationSpec::default()
        };
        self.submit_operation(text, spec);
        Ok(())
    }

    /// Returns the fence record of a node on which a user bases a decision.
    fn stored_fence(&self, node: &NodeName) -> Fence {
        self.read_record(&self.keys.fence(node)).unwrap_or_default()
    }

    /// Sets the requested state for a Start or Stop. A stop leaves a Disabled resource Disabled. For a missing
    /// resource, the leader refuses the operation, and the operation records the refusal.
    fn request_state(&mut self, resource: &ResourceName, requested_state: &str) -> Result<(), String> {
        let Some(stored) = self.spec_of(Kind::Resource, resource) else { return Ok(()) };
        let current = stored.pointer("/spec/state").and_then(Value::as_str).unwrap_or("Started");
        if current == requested_state || (current == "Disabled" && requested_state == "Stopped") {
            return Ok(());
        }
        self.change_spec(Kind::Resource, resource, &[("state".to_owned(), json!(requested_state))])
    }

    /// Returns the reason why the API refuses maintenance of a node now.
    fn refused_maintenance(&self, node: &NodeName) -> Option<(Reason, String)> {
        let state = self.node_states.get(node).copied().unwrap_or_default();
        let cluster = self.spec_of(Kind::Cluster, CLUSTER_NAME).unwrap_or_default();
        let disarmed = cluster.pointer("/spec/disarmed").is_some_and(Value::is_string);
        ha_controller::core::commands::maintenance_refusal(node, state, disarmed)
    }

    /// Sets or clears `Cluster.spec.disarmed`, or logs that the cluster already has this setting.
    fn disarm(&mut self, disarm_mode: &Value) -> Result<(), String> {
        let stored = self.spec_of(Kind::Cluster, CLUSTER_NAME).unwrap_or_default();
        if stored.pointer("/spec/disarmed").unwrap_or(&Value::Null) == disarm_mode {
            self.log(&"script".into(), "", "the requested value is already set");
            return Ok(());
        }
        self.change_spec(Kind::Cluster, CLUSTER_NAME, &[("disarmed".to_owned(), disarm_mode.clone())])
    }

    /// Creates an object given under `later`. Its service may already run on a node.
    fn add_resource(
        &mut self,
        resource: &ResourceName,
        node: Option<&NodeName>,
        running: bool,
    ) -> Result<(), String> {
        let object = self
            .scenario
            .later
            .iter()
            .find(|object| object["metadata"]["name"] == resource.as_str())
            .cloned()
            .ok_or_else(|| format!("{resource} is not listed under `later`"))?;
        if let Some(node) = node {
            let node = self.resolve_node(node)?;
            if running {
                self.add_running_copy(&object, &node)?;
                return self.apply(&object);
            }
            self.apply(&object)?;
            return self.store_stopped_placement(resource, &node);
        }
        self.apply(&object)
    }
}
