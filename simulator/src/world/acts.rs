//! What each action of a step does to the world.

use super::World;
use crate::scenario::action::{Action, ProcessVerb};
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::kind::Kind;
use ha_api_types::operation::{OperationAction, OperationSpec};
use ha_api_types::record::{Fence, Leader, Leave};
use serde_json::{Value, json};

impl World {
    /// `leader` stands for the node whose controller leads.
    fn machine_named(&self, name: &str) -> Result<String, String> {
        let name = match name {
            "leader" => self.leader().ok_or("nobody leads")?,
            other => other.to_owned(),
        };
        if self.machines.contains_key(&name) { Ok(name) } else { Err(format!("there is no node {name:?}")) }
    }

    /// A machine whose processes can be told something.
    fn machine_at_work(&self, name: &str) -> Result<String, String> {
        let name = self.machine_named(name)?;
        let works = self.machines.get(&name).is_some_and(super::machine::Machine::works);
        if works { Ok(name) } else { Err(format!("{name} is not up")) }
    }

    pub(super) fn act(&mut self, text: &str, action: Action) -> Result<(), String> {
        match action {
            Action::Power { node, on } => {
                let node = self.machine_named(&node)?;
                self.power(&node, on);
            }
            Action::Network { node, on } => {
                let node = self.machine_named(&node)?;
                if let Some(machine) = self.machines.get_mut(&node) {
                    machine.network = on;
                }
            }
            Action::Reboot { node } => {
                let node = self.machine_named(&node)?;
                self.shut_down(&node, Leave::Reboot)?;
            }
            Action::Shutdown { node } => {
                let node = self.machine_named(&node)?;
                self.shut_down(&node, Leave::Poweroff)?;
            }
            Action::Replace { node } => {
                let node = self.machine_named(&node)?;
                self.replace(&node);
            }
            Action::Agent { node, verb } => {
                let node = self.machine_at_work(&node)?;
                self.agent_process(&node, verb);
            }
            Action::Controller { node, verb } => {
                let node = self.machine_at_work(&node)?;
                if verb == ProcessVerb::Start
                    && !self.machines.get(&node).is_some_and(|one| one.has_controller)
                {
                    return Err(format!("{node} has no controller"));
                }
                self.controller_process(&node, verb);
            }
            Action::Suspend { node, length_ms } => {
                let node = self.machine_at_work(&node)?;
                self.suspend(&node, length_ms);
            }
            Action::ClockRate { node, rate } => {
                let node = self.machine_named(&node)?;
                let now = self.now;
                if let Some(machine) = self.machines.get_mut(&node) {
                    machine.clock.set_rate(now, rate);
                }
            }
            Action::Journal { node, full } => {
                let node = self.machine_named(&node)?;
                if let Some(machine) = self.machines.get_mut(&node) {
                    machine.disk_full = full;
                }
            }
            Action::FenceDevice { node, broken } => {
                let node = self.machine_named(&node)?;
                if let Some(machine) = self.machines.get_mut(&node) {
                    machine.fence_broken = broken;
                }
            }
            Action::StoreOutage { length_ms } => self.store_away(length_ms),
            Action::StoreLeaderChange => self.election(),
            Action::StoreLeaderPause { length_ms } => self.pause_store_leader(length_ms),
            Action::StoreCompact => {
                let revision = self.store.revision();
                self.store.compact(revision);
            }
            Action::StoreLatency { length_ms } => self.store_latency_ms = length_ms,
            Action::Crash { resource } => self.crash(&resource),
            Action::Load { .. } => {
                return Err("agents of this version measure no usage: placement goes by requests".to_owned());
            }
            Action::MoveByHand { resource, node } => {
                let node = self.machine_named(&node)?;
                self.move_by_hand(&resource, &node)?;
            }
            Action::StartByHand { resource, node } => {
                let node = self.machine_named(&node)?;
                self.start_by_hand(&resource, &node)?;
            }
            Action::StopByHand { resource } => self.stop_by_hand(&resource)?,
            Action::Set { .. }
            | Action::Add { .. }
            | Action::Delete { .. }
            | Action::Migrate { .. }
            | Action::Relocate { .. }
            | Action::Stop { .. }
            | Action::Start { .. }
            | Action::Restart { .. }
            | Action::ClearError { .. }
            | Action::Maintenance { .. }
            | Action::ConfirmFenced { .. }
            | Action::Fence { .. }
            | Action::Disarm { .. }
            | Action::Arm => self.command(text, action)?,
        }
        Ok(())
    }

    /// What a user asks of the cluster.
    fn command(&mut self, text: &str, action: Action) -> Result<(), String> {
        match action {
            Action::Set { resource, fields } => self.change_spec(Kind::Resource, &resource, &fields)?,
            Action::Add { resource, node, running } => self.add(&resource, node.as_deref(), running)?,
            Action::Delete { resource } => self.delete(&resource)?,
            Action::Migrate { resource, node } => {
                self.operate_on(text, OperationAction::Migrate, &resource, Some(&node));
            }
            Action::Relocate { resource, node } => {
                self.operate_on(text, OperationAction::Relocate, &resource, Some(&node));
            }
            Action::Stop { resource, timeout_ms } => {
                let spec = OperationSpec {
                    action: OperationAction::Stop,
                    resource: Some(resource.clone()),
                    timeout_seconds: timeout_ms.and_then(|ms| u32::try_from(ms.div_ceil(1000)).ok()),
                    ..OperationSpec::default()
                };
                self.operate(text, spec);
                self.request(&resource, "Stopped")?;
            }
            Action::Start { resource } => {
                self.operate_on(text, OperationAction::Start, &resource, None);
                self.request(&resource, "Started")?;
            }
            Action::Restart { resource } => self.operate_on(text, OperationAction::Restart, &resource, None),
            Action::ClearError { resource } => {
                self.operate_on(text, OperationAction::ClearError, &resource, None);
            }
            Action::Maintenance { node, enable } => {
                let node = self.machine_named(&node)?;
                if enable && let Some(message) = self.refuses_maintenance(&node) {
                    return Err(message);
                }
                self.change_spec(Kind::Node, &node, &[("maintenance".to_owned(), json!(enable))])?;
            }
            Action::ConfirmFenced { node } => {
                let node = self.machine_named(&node)?;
                let reading = self.store.get(&self.keys.fence(&node));
                let seen = reading.entries.first();
                let fence: Fence =
                    seen.and_then(|one| serde_json::from_slice(&one.value).ok()).unwrap_or_default();
                let spec = OperationSpec {
                    action: OperationAction::ConfirmFenced,
                    node: Some(node),
                    epoch: Some(fence.epoch),
                    boot_id: Some(fence.boot_id),
                    ..OperationSpec::default()
                };
                self.operate(text, spec);
            }
            Action::Fence { node } => {
                let node = self.machine_named(&node)?;
                let spec = OperationSpec {
                    action: OperationAction::Fence,
                    node: Some(node),
                    ..OperationSpec::default()
                };
                self.operate(text, spec);
            }
            Action::Disarm { freeze } => self.disarm(&json!(if freeze { "Freeze" } else { "Ignore" }))?,
            Action::Arm => self.disarm(&Value::Null)?,
            Action::Power { .. }
            | Action::Network { .. }
            | Action::Reboot { .. }
            | Action::Shutdown { .. }
            | Action::Replace { .. }
            | Action::Agent { .. }
            | Action::Controller { .. }
            | Action::Suspend { .. }
            | Action::ClockRate { .. }
            | Action::Journal { .. }
            | Action::FenceDevice { .. }
            | Action::StoreOutage { .. }
            | Action::StoreLeaderChange
            | Action::StoreLeaderPause { .. }
            | Action::StoreCompact
            | Action::StoreLatency { .. }
            | Action::Crash { .. }
            | Action::Load { .. }
            | Action::MoveByHand { .. }
            | Action::StartByHand { .. }
            | Action::StopByHand { .. } => {}
        }
        Ok(())
    }

    /// The requested state that goes with a Start or Stop; a Disabled resource stays Disabled when it is stopped again. The
    /// leader refuses what does not exist, with the operation as its record.
    fn request(&mut self, resource: &str, wanted: &str) -> Result<(), String> {
        let Some(stored) = self.spec_of(Kind::Resource, resource) else { return Ok(()) };
        let current = stored.pointer("/spec/state").and_then(Value::as_str).unwrap_or("Started");
        if current == wanted || (current == "Disabled" && wanted == "Stopped") {
            return Ok(());
        }
        self.change_spec(Kind::Resource, resource, &[("state".to_owned(), json!(wanted))])
    }

    /// Why maintenance of a node cannot begin now, as the API says it.
    fn refuses_maintenance(&self, node: &str) -> Option<String> {
        let state = self.node_states.get(node).copied().unwrap_or_default();
        let cluster = self.spec_of(Kind::Cluster, CLUSTER_NAME).unwrap_or_default();
        let disarmed = cluster.pointer("/spec/disarmed").is_some_and(Value::is_string);
        ha_controller::core::commands::maintenance_refused(node, state, disarmed).map(|(_, message)| message)
    }

    /// Sets or clears `Cluster.spec.disarmed`; a notice if that is already so.
    fn disarm(&mut self, how: &Value) -> Result<(), String> {
        let stored = self.spec_of(Kind::Cluster, CLUSTER_NAME).unwrap_or_default();
        if stored.pointer("/spec/disarmed").unwrap_or(&Value::Null) == how {
            self.log("script", "", "that is so already");
            return Ok(());
        }
        self.change_spec(Kind::Cluster, CLUSTER_NAME, &[("disarmed".to_owned(), how.clone())])
    }

    /// Applies an object given under `later`, which may run somewhere already.
    fn add(&mut self, resource: &str, node: Option<&str>, running: bool) -> Result<(), String> {
        let object = self
            .scenario
            .later
            .iter()
            .find(|object| object["metadata"]["name"] == resource)
            .cloned()
            .ok_or_else(|| format!("{resource} is not under `later`"))?;
        if let Some(node) = node {
            let node = self.machine_named(node)?;
            if running {
                self.place_running(&object, &node)?;
                return self.apply(&object);
            }
            self.apply(&object)?;
            return self.lie(resource, &node);
        }
        self.apply(&object)
    }

    /// The node whose controller leads.
    pub fn leader(&self) -> Option<String> {
        let reading = self.store.get(&self.keys.leader());
        let leader = reading.entries.first()?;
        serde_json::from_slice::<Leader>(&leader.value).ok().map(|leader| leader.id)
    }
}
