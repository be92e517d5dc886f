//! Stored records of a machine that is off at time 0 and has services: it was a member and is now unreachable.

use super::World;
use super::machine::Machine;
use crate::scenario::{Device, InitialPlacement};
use ha_api_types::id::{Epoch, NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::record::{
    Action, Assignment, Fence, FenceState, Mode, NodeReport, Phase, ServiceReport, WatchdogKind,
    WatchdogReport,
};
use ha_api_types::resource::{Resource, ServiceDefinition, ServiceState};
use ha_api_types::timing::Timings;
use ha_store::{Guard, Transaction};
use serde::Serialize;
use serde_json::json;

/// Epoch and action of the machine's last registration.
const EARLIER_EPOCH: u64 = 1;
const EARLIER_ACTION_UID: &str = "before";

impl World {
    /// Records that a node lost power before time 0 with these services. A service whose stored state means that it ran
    /// was reported running under an armed watchdog, so it needs fencing. The other services need no fencing.
    pub(super) fn record_failed_node(
        &mut self,
        node: &NodeName,
        services: &[(ResourceName, InitialPlacement)],
    ) -> Result<(), String> {
        if self.spec_of(Kind::Node, node).is_none() {
            let object =
                json!({"apiVersion": "hactl.io/v1", "kind": "Node", "metadata": {"name": node}, "spec": {}});
            self.apply(&object)?;
        }
        let Some(machine) = self.machines.get(node) else { return Err(format!("node {node:?} not found")) };
        let running_services = services.iter().filter(|(_, place)| place.state.is_some_and(is_running_state));
        let running_services: Vec<ResourceName> = running_services.map(|(name, _)| name.clone()).collect();
        let report = final_node_report(
            machine,
            node,
            Timings::from(&self.scenario.timing),
            !running_services.is_empty(),
        );
        let (machine_id, boot_id) = (report.machine_id.clone(), report.boot_id.clone());
        let product_id = report.product_id.clone();
        self.store_record(self.keys.node_report(node), &report)?;
        let fence = Fence {
            epoch: Epoch(EARLIER_EPOCH),
            machine_id,
            product_id,
            boot_id: boot_id.clone(),
            request: Some(self.store.revision()),
            state: FenceState::Open,
            ..Fence::default()
        };
        self.store_record(self.keys.fence(node), &fence)?;
        for name in running_services {
            let spec = self.spec_of(Kind::Resource, &name).unwrap_or_default();
            let resource: Resource = serde_json::from_value(spec).map_err(|error| error.to_string())?;
            let report = ServiceReport {
                uid: resource.metadata.uid.clone(),
                action_uid: Some(EARLIER_ACTION_UID.into()),
                epoch: Epoch(EARLIER_EPOCH),
                boot_id: boot_id.clone(),
                exclusive: resource.spec.exclusive,
                phase: Phase::Running,
                ..ServiceReport::default()
            };
            self.store_record(self.keys.service_report(node, &name), &report)?;
            let assignment = Assignment {
                node: node.to_owned(),
                epoch: Epoch(EARLIER_EPOCH),
                boot_id: boot_id.clone(),
                action_uid: EARLIER_ACTION_UID.into(),
                action: Action::Start,
                definition: ServiceDefinition::of(&resource),
                accepts_external_stop: false,
                replacement: None,
                in_place: None,
                source_end_revision: None,
            };
            self.store_record(self.keys.assignment(&name), &assignment)?;
        }
        Ok(())
    }

    fn store_record(&mut self, key: String, value: &impl Serialize) -> Result<(), String> {
        let value = serde_json::to_vec(value).map_err(|error| error.to_string())?;
        let revision_before = self.store.revision();
        self.store.commit(&Transaction::new().put(key, Guard::Absent, value));
        self.handle_commit(revision_before + 1);
        Ok(())
    }
}

/// Returns `true` if a service in this state may have been running.
fn is_running_state(state: ServiceState) -> bool {
    match state {
        ServiceState::Starting
        | ServiceState::Started
        | ServiceState::RequestStop
        | ServiceState::Stopping
        | ServiceState::Migrate
        | ServiceState::Relocate
        | ServiceState::Fence => true,
        ServiceState::Queued
        | ServiceState::RequestStart
        | ServiceState::Stopped
        | ServiceState::Recovery
        | ServiceState::Freeze
        | ServiceState::Error
        | ServiceState::Disabled
        | ServiceState::Ignored
        | ServiceState::Deleting => false,
    }
}

fn final_node_report(machine: &Machine, node: &NodeName, timings: Timings, armed: bool) -> NodeReport {
    let kind = match machine.device {
        Device::Sliding | Device::Fixed => WatchdogKind::Kernel,
        Device::Simulated => WatchdogKind::Simulated,
        // A watchdog that was never armed has reported no device.
        Device::Missing | Device::Busy | Device::Coarse => WatchdogKind::None,
    };
    NodeReport {
        instance: EARLIER_ACTION_UID.into(),
        machine_id: machine.machine_id(node),
        product_id: Some(machine.product_id(node)),
        boot_id: machine.boot_id(node),
        epoch: Epoch(EARLIER_EPOCH),
        mode: Mode::Active,
        armed: armed && kind != WatchdogKind::None,
        watchdog: WatchdogReport {
            kind,
            timeout_ms: timings.watchdog_timeout_ms,
            sliding: machine.device == Device::Sliding,
            descriptor_retained: true,
            ..WatchdogReport::default()
        },
        timings,
        is_virtual: machine.is_virtual,
        capacity: machine.capacity,
        drivers: machine.drivers.clone(),
        policy: machine.policy.clone(),
        ..NodeReport::default()
    }
}
