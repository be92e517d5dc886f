//! A simulated machine: power, network, clocks, watchdog, services, and the content of its disk.

use super::invariants::Bound;
use super::process::Generation;
use super::version::Version;
use crate::clock::Clock;
use crate::scenario::Device;
use crate::scenario::action::{FenceDeviceCondition, PetBehavior};
use ha_api_types::id::{BootId, MachineId, NodeName, ProductId, ResourceName};
use ha_api_types::node_policy::NodePolicy;
use ha_api_types::quantity::Amounts;
use ha_api_types::record::{Observed, ShutdownKind, SleepProtection};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use ha_node_agent::core::{Command, CommandId, Journal, WatchdogRequestId};
use ha_node_agent::watchdog::core::{Core as WatchdogCore, Input};
use ha_node_agent::watchdog::protocol::SavedState;
use std::collections::{BTreeMap, BTreeSet};

/// The state of a machine.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a separate switch")]
pub(crate) struct Machine {
    /// `true` if the machine is powered and booted.
    pub is_up: bool,
    /// `true` if the machine has power: it is up or booting.
    pub is_powered: bool,
    /// Kind of the orderly shutdown in progress; `None`: no shutdown.
    pub shutdown_in_progress: Option<ShutdownKind>,
    /// `true` if the watchdog has reset the machine since it was last up.
    pub watchdog_expired: bool,
    /// Number of the machine, counting the machines that have had this name.
    pub hardware_number: u64,
    /// Number of the machine among those with a copy of one disk.
    pub disk_copy: u64,
    /// Node whose boot and machine ids this machine has.
    pub clone_of: Option<NodeName>,
    /// Sleep protection that the agent reports.
    pub sleep: Option<SleepProtection>,
    /// `true` if the agent supports the drivers of services.
    pub has_drivers: bool,
    /// Drivers that the agent provides, sorted.
    pub drivers: Vec<String>,
    pub policy: Option<NodePolicy>,
    /// `true` if the machine is itself virtual.
    pub is_virtual: bool,
    /// Kind of watchdog.
    pub device: Device,
    pub fence_devices: FenceDeviceCondition,
    /// `true` if a fabric device has cut the machine off from its storage, so its services cannot touch their data.
    pub is_storage_isolated: bool,
    /// `true` if the agent is started again as soon as it has ended.
    pub agent_restarts: bool,
    /// Time that each plan of the controller takes.
    pub plan_ms: Millis,
    /// `true` if the controller is started again as soon as it has ended.
    pub controller_restarts: bool,
    /// Number of the current boot.
    pub boot: u64,
    /// `true` if the machine is connected to etcd and its peers.
    pub network: bool,
    /// `true` if the machine is suspended.
    pub is_suspended: bool,
    /// `true` if the machine runs a controller.
    pub has_controller: bool,
    /// Capacity that the agent reports.
    pub capacity: Amounts,
    pub clock: Clock,
    /// The watchdog daemon and its device.
    pub watchdog: Watchdog,
    /// Services on the machine, by resource.
    pub services: BTreeMap<ResourceName, ServiceCopy>,
    /// Driver commands in progress.
    pub commands: BTreeMap<(Generation, CommandId), Running>,
    /// Journal on the disk.
    pub journal: Journal,
    pub agent_version: Version,
    pub controller_version: Version,
    /// Journal as it was at boot.
    pub journal_at_boot: Journal,
    /// Delay with which a slow driver executes orders, by service.
    pub driver_delays_ms: BTreeMap<ResourceName, Millis>,
    /// Orders that a driver's server executes, even if the agent ends.
    pub driver_requests: BTreeMap<u64, DriverRequest>,
    /// Services that start when the machine boots.
    pub autostart: BTreeMap<ResourceName, ServiceDefinition>,
    /// Services that the boot has started, until the node's epoch opens: before that, the agent could not stop them.
    pub started_by_boot: BTreeSet<ResourceName>,
    /// `true` if writes to the disk fail.
    pub is_disk_full: bool,
    /// `true` if the drivers do not answer.
    pub drivers_hang: bool,
    /// Times of the resets by the watchdog.
    pub resets: Vec<Millis>,
    /// Bound until which services on the machine may run.
    pub bound: Bound,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServiceCopy {
    /// Definition with which the service was started.
    pub definition: ServiceDefinition,
    /// State of the service.
    pub activity: Activity,
}

/// An order to the server of a slow driver.
#[derive(Clone, Debug)]
pub(crate) struct DriverRequest {
    /// Service to start, stop or kill.
    pub service: ServiceDefinition,
    /// Command of the order.
    pub command: Command,
    /// Virtual time at which the order is executed.
    pub due: Millis,
}

/// State of a service on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// The service runs or is about to run: it may touch its data.
    Runs,
    /// The service waits for its memory from another machine, and does not run yet.
    Receives,
    /// The service has arrived from another machine and is paused: it runs once it is started.
    Arrived,
}

/// A driver command in progress.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub command: Command,
    /// Service of the command.
    pub service: ServiceDefinition,
    /// Observation that a probe of a slow driver makes at its beginning and returns at its end.
    pub early_observation: Option<Observed>,
}

/// The watchdog daemon and its device.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// The daemon. Between its end and its next start, this is a daemon without any connection or device.
    pub daemon: WatchdogCore,
    /// `true` if the daemon has ended and is not restarted automatically.
    pub has_exited: bool,
    /// Record that the daemon stores for its next process.
    pub saved: Option<SavedState>,
    /// `true` if the device is open: the daemon holds its descriptor or, after the daemon's death, the service manager
    /// does.
    pub is_open: bool,
    /// Behavior of the device when the daemon pets it.
    pub pets: PetBehavior,
    /// Timeout of the device as last set, in seconds; each pet of a fixed device restarts this timeout.
    pub timeout_seconds: u32,
    /// Virtual time at which the device resets the machine; `None`: no countdown.
    pub fires_at: Option<Millis>,
    /// Virtual time at which the device was opened for a start that the leader had ordered; `None` if it was opened without
    /// such an order.
    pub opened_to_start_at: Option<Millis>,
    /// Number of the connection's last message.
    pub number: u64,
    /// Requests whose reply the agent awaits, by message number.
    pub waiting: BTreeMap<u64, WatchdogRequestId>,
    /// Virtual time of the next check whether the device has expired.
    pub next_check_at: Option<Millis>,
    /// Virtual time of the next scheduled wake.
    pub wake_at: Option<Millis>,
    /// Milliseconds for which the daemon is to pause before its next pet.
    pub stops_for_ms: Option<Millis>,
    /// State of a paused daemon; `None`: the daemon is not paused.
    pub stopped: Option<PausedDaemon>,
}

/// A watchdog daemon that is paused between reading its clock and the pet that follows.
#[derive(Debug)]
pub(crate) struct PausedDaemon {
    /// Timeout that the pet will set, in seconds.
    pub seconds: u32,
    /// Inputs that wait until the daemon resumes, each with the generation of the agent's process that sent it.
    pub inbox: Vec<(Option<Generation>, Input)>,
}

/// Returns the id of a boot of a node's machine.
pub(crate) fn boot_id(node: &NodeName, boot: u64) -> BootId {
    format!("boot-{node}-{boot}").into()
}

/// Returns the id of a machine. `number` counts the machines that have had the name of the node.
pub(crate) fn machine_id(node: &NodeName, number: u64) -> MachineId {
    if number == 0 { format!("machine-{node}").into() } else { format!("machine-{node}-{number}").into() }
}

/// Returns the URL of the controller on a node's machine.
pub(crate) fn controller_url(node: &NodeName) -> String {
    format!("https://{node}:7443")
}

/// Returns the product id of a machine. `copy` distinguishes machines with a copy of one disk.
pub(crate) fn product_id(node: &NodeName, number: u64, copy: u64) -> ProductId {
    format!("product-{node}-{number}-{copy}").into()
}

impl Machine {
    /// Returns the boot id, which is new at each power-on.
    pub(crate) fn boot_id(&self, name: &NodeName) -> BootId {
        boot_id(name, self.boot)
    }

    /// Returns the machine id, which differs after a replacement of the machine.
    pub(crate) fn machine_id(&self, name: &NodeName) -> MachineId {
        let name = self.clone_of.as_ref().unwrap_or(name);
        machine_id(name, self.hardware_number)
    }

    /// Returns the product id of the hardware. A machine with a copy of the disk has a different product id.
    pub(crate) fn product_id(&self, name: &NodeName) -> ProductId {
        let name = self.clone_of.as_ref().unwrap_or(name);
        product_id(name, self.hardware_number, self.disk_copy)
    }

    /// Returns `true` if the service runs on this machine.
    pub(crate) fn runs(&self, name: &ResourceName) -> bool {
        self.services.get(name).is_some_and(|present| present.activity == Activity::Runs)
    }

    /// Returns `true` if the machine has a watchdog that can guard exclusive services.
    pub(crate) fn is_guarded(&self) -> bool {
        match self.device {
            Device::Sliding | Device::Fixed | Device::Simulated => true,
            Device::Busy | Device::Coarse | Device::Missing => false,
        }
    }

    /// Returns `true` if a service can be started on the machine; a machine that shuts down starts no service.
    pub(crate) fn accepts_starts(&self) -> bool {
        self.is_working() && self.shutdown_in_progress.is_none()
    }

    /// Returns `true` if the machine's processes run.
    pub(crate) fn is_working(&self) -> bool {
        self.is_up && !self.is_suspended
    }
}
