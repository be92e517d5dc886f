//! Simulated fence devices, which power machines off and on or disconnect them from storage, unless a step breaks them.

use super::World;
use super::event::Event;
use super::process::Generation;
use crate::scenario::action::FenceDeviceCondition;
use ha_api_types::id::NodeName;
use ha_api_types::node::FenceKind;
use ha_api_types::time::Millis;
use ha_controller::core::{FencerAction, FencerOutcome, FencerRun, Input};

/// Time that a device takes to switch and to check the result, in milliseconds.
const SWITCH_DURATION_MS: Millis = 1_000;
/// Time from power-on until the daemons run, in milliseconds.
const BOOT_DURATION_MS: Millis = 20_000;

impl World {
    pub(super) fn begin_fencer(&mut self, node: &NodeName, generation: Generation, run: FencerRun) {
        self.log(&run.node, "fencer", &format!("{} {:?}", run.device.name, run.action));
        let event = Event::FencerDone { node: node.to_owned(), generation, run: Box::new(run) };
        self.queue.push(self.now + SWITCH_DURATION_MS, event);
    }

    /// Ends a run of a fence agent. The run's effect on the machine happens at this moment.
    pub(super) fn end_fencer(&mut self, controller: &NodeName, generation: Generation, run: &FencerRun) {
        let condition = self.machines.get(&run.node).map(|machine| machine.fence_devices);
        let outcome = match condition {
            None | Some(FenceDeviceCondition::Broken) => {
                FencerOutcome::Failed("device does not answer".to_owned())
            }
            Some(FenceDeviceCondition::WithoutEffect) => FencerOutcome::Confirmed,
            Some(FenceDeviceCondition::Works) => {
                self.execute_order(run);
                FencerOutcome::Confirmed
            }
        };
        self.send_to_controller(controller, generation, Input::FencerDone { id: run.id, outcome });
    }

    fn execute_order(&mut self, run: &FencerRun) {
        match (run.action, run.device.kind) {
            (FencerAction::Off, FenceKind::Power) => {
                self.log(&run.node, "machine", "is switched off by its fence device");
                self.lose_everything(&run.node);
            }
            (FencerAction::On, FenceKind::Power) => self.power_on(&run.node, BOOT_DURATION_MS),
            (FencerAction::Off, FenceKind::Fabric) => self.cut_storage(&run.node, true),
            (FencerAction::On, FenceKind::Fabric) => self.cut_storage(&run.node, false),
            (FencerAction::Monitor, _) => {}
        }
    }

    /// Cuts or restores a machine's access to its storage. The access to etcd stays, as with a separate storage
    /// network.
    fn cut_storage(&mut self, node: &NodeName, cut: bool) {
        let message = if cut {
            "is disconnected from its storage by its fence device"
        } else {
            "is reconnected to its storage"
        };
        self.log(node, "machine", message);
        if let Some(machine) = self.machines.get_mut(node) {
            machine.is_storage_isolated = cut;
        }
        self.check_at_most_one_copy();
    }
}
