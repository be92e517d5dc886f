//! A simulated machine: power, network, clocks, watchdog, what runs on it, and what its disk remembers.

use super::invariants::Bound;
use super::process::Generation;
use super::version::Version;
use crate::clock::Clock;
use crate::scenario::Device;
use crate::scenario::action::Pets;
use ha_api_types::quantity::Amounts;
use ha_api_types::record::{Leave, Observed, SleepProtection};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use ha_node_agent::core::{Command, CommandId, Journal, WatchdogRequestId};
use ha_node_agent::watchdog::core::{Core as WatchdogCore, Input};
use ha_node_agent::watchdog::protocol::Saved;
use std::collections::{BTreeMap, BTreeSet};

/// A machine.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct Machine {
    /// Powered and booted.
    pub up: bool,
    /// Has power: up, or on its way.
    pub powered: bool,
    /// Shuts down in order.
    pub ending: Option<Leave>,
    /// Its watchdog has reset it, and it is not up again.
    pub expired: bool,
    /// Which machine of this name it is.
    pub number: u64,
    /// Which of the machines with one disk it is.
    pub copy: u64,
    /// Another node whose ids it has.
    pub clone_of: Option<String>,
    /// What keeps it awake, as its agent says.
    pub sleep: Option<SleepProtection>,
    /// Its agent knows the drivers of services.
    pub knows_drivers: bool,
    /// Drivers that it can serve, sorted.
    pub drivers: Vec<String>,
    /// It is itself virtual.
    pub is_virtual: bool,
    /// What kind of watchdog it has.
    pub device: Device,
    /// Its fence devices do not do what they are told.
    pub fence_broken: bool,
    /// A fabric device has cut it off its storage: what runs on it cannot touch its data.
    pub storage_cut: bool,
    /// The agent is started again as soon as it has ended.
    pub agent_restarts: bool,
    /// How long each plan of its controller takes.
    pub plan_ms: Millis,
    /// The controller's process is started again once it has ended.
    pub controller_restarts: bool,
    /// Counts boots.
    pub boot: u64,
    /// Connected to store and peers.
    pub network: bool,
    /// Suspended.
    pub suspended: bool,
    /// Whether a controller runs here.
    pub has_controller: bool,
    /// What it has.
    pub capacity: Amounts,
    /// Its clocks.
    pub clock: Clock,
    /// The watchdog daemon and its device.
    pub watchdog: Watchdog,
    /// What runs on it, by resource.
    pub services: BTreeMap<String, Present>,
    /// Commands of drivers under way.
    pub commands: BTreeMap<(Generation, CommandId), Running>,
    /// What the disk remembers.
    pub journal: Journal,
    /// Which version its agent is of.
    pub agent_version: Version,
    /// Which version its controller is of.
    pub controller_version: Version,
    /// What the disk remembered when it booted.
    pub journal_at_boot: Journal,
    /// By how much the driver is late with its orders, by service.
    pub slow: BTreeMap<String, Millis>,
    /// Orders that a driver's server carries out, whether or not the agent still lives.
    pub orders: BTreeMap<u64, Order>,
    /// What starts when it boots.
    pub autostart: BTreeMap<String, ServiceDefinition>,
    /// What its boot has started, until its epoch is open: before that, no agent can have stopped it.
    pub by_boot: BTreeSet<String>,
    /// Writes to the disk fail.
    pub disk_full: bool,
    /// Its drivers answer nothing.
    pub drivers_hang: bool,
    /// Times that it was reset by its watchdog.
    pub resets: Vec<Millis>,
    /// How long what runs on it may go on.
    pub bound: Bound,
}

/// A service on a machine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Present {
    /// Started as.
    pub definition: ServiceDefinition,
    /// What it does.
    pub doing: Doing,
}

/// An order to the server of a slow driver.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// What is to be started, stopped or killed.
    pub service: ServiceDefinition,
    /// The command.
    pub command: Command,
    /// When it is carried out, virtual time.
    pub due: Millis,
}

/// What a service on a machine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It runs, or is about to: it may touch its data.
    Runs,
    /// It waits to receive its memory from another machine: it does not run yet.
    Receives,
    /// It has arrived from another machine, paused: it runs once it is started.
    Arrived,
}

/// A driver's command under way.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    /// The command.
    pub command: Command,
    /// The service.
    pub service: ServiceDefinition,
    /// What a probe of a slow driver saw when it began; it answers that late.
    pub seen: Option<Observed>,
}

/// The watchdog daemon and its device.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// The daemon; between its death and its next start one that holds nothing.
    pub daemon: WatchdogCore,
    /// The daemon is dead, and is not started again by itself.
    pub dead: bool,
    /// The record that the daemon keeps for the next one.
    pub saved: Option<Saved>,
    /// The device is open: the daemon or, after its death, the service manager holds its descriptor.
    pub open: bool,
    /// Whether the device takes pets.
    pub pets: Pets,
    /// The device's timeout as it was set last, seconds; pets of a fixed device take it.
    pub timeout_seconds: u32,
    /// When the device resets the machine, virtual time.
    pub fires_at: Option<Millis>,
    /// Number of the last message of the connection.
    pub number: u64,
    /// Which requests the agent waits for, by number.
    pub waiting: BTreeMap<u64, WatchdogRequestId>,
    /// When the device is looked at next, to see whether it has run out.
    pub looked_at_next: Option<Millis>,
    /// When the next wake is scheduled.
    pub wake_at: Option<Millis>,
    /// The daemon is to stand still for so long before its next pet.
    pub stops_for_ms: Option<Millis>,
    /// The daemon stands still.
    pub stopped: Option<Stopped>,
}

/// A watchdog daemon that stands still between looking at its clock and the pet that follows.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// The timeout that the pet will set, seconds.
    pub seconds: u32,
    /// What happens to the daemon meanwhile, and for which agent's process.
    pub inbox: Vec<(Option<Generation>, Input)>,
}

impl Machine {
    /// Its boot id: a new one at each power-on.
    pub(crate) fn boot_id(&self, name: &str) -> String {
        format!("boot-{name}-{}", self.boot)
    }

    /// Its machine id: a replaced machine has another.
    pub(crate) fn machine_id(&self, name: &str) -> String {
        let name = self.clone_of.as_deref().unwrap_or(name);
        if self.number == 0 { format!("machine-{name}") } else { format!("machine-{name}-{}", self.number) }
    }

    /// The product id of its hardware: a machine with a copy of its disk has another.
    pub(crate) fn product_id(&self, name: &str) -> String {
        let name = self.clone_of.as_deref().unwrap_or(name);
        format!("product-{name}-{}-{}", self.number, self.copy)
    }

    /// Whether a service runs here.
    pub(crate) fn runs(&self, name: &str) -> bool {
        self.services.get(name).is_some_and(|present| present.doing == Doing::Runs)
    }

    /// Whether a watchdog can guard what is exclusive here.
    pub(crate) fn is_guarded(&self) -> bool {
        match self.device {
            Device::Sliding | Device::Fixed | Device::StandIn => true,
            Device::Busy | Device::Coarse | Device::Missing => false,
        }
    }

    /// Whether anything can be started on it: a machine on its way down starts nothing any more.
    pub(crate) fn starts_things(&self) -> bool {
        self.works() && self.ending.is_none()
    }

    /// Whether its processes can do anything.
    pub(crate) fn works(&self) -> bool {
        self.up && !self.suspended
    }
}
