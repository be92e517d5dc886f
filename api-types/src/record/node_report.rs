//! What an agent states about its node: mode, watchdog, timings in force.

use super::{HoldTerms, Leave, MachineIds, Revision, WatchdogTest};
use crate::cluster::OnStoreLoss;
use crate::protocol::Protocol;
use crate::quantity::Amounts;
use crate::reason::Reason;
use crate::time::Millis;
use crate::timing::{Timings, WatchdogBounds, wait_ms};
use serde::{Deserialize, Serialize};

/// `report/<node>/node`, unleased, written by the node's agent, with the heartbeat from which it holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeReport {
    /// The agent process.
    pub instance: String,
    /// The machine.
    pub machine_id: String,
    /// The product id of the machine's hardware; `None` where it cannot be read, or by an agent that did not say so yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_id: Option<String>,
    /// The boot.
    pub boot_id: String,
    /// The epoch it acts under; 0 while it registers for the first time.
    pub epoch: u64,
    /// What the agent is about.
    pub mode: Mode,
    /// Whether the watchdog is armed: a committed fact (FENCING, section 4).
    pub armed: bool,
    /// The watchdog refuses pets, so it proves nothing, in addition to what `armed` says. Absent in reports of agents that did
    /// not say so yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub watchdog_failed: bool,
    /// What keeps the machine awake; `None` in reports of agents that did not say so yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep_protection: Option<SleepProtection>,
    /// The watchdog.
    pub watchdog: WatchdogReport,
    /// The timings in force.
    pub timings: Timings,
    /// The machine is itself virtual, so it can be paused with its clock.
    #[serde(rename = "virtual")]
    pub is_virtual: bool,
    /// The newest candidate's create revision that the agent knows.
    pub candidate_generation: Revision,
    /// What the agent does while the whole store is away; an agent that says nothing stops.
    pub on_store_loss: OnStoreLoss,
    /// Registering: services that it could not confirm stopped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_stopped: Vec<NotStopped>,
    /// What the machine has.
    pub capacity: Amounts,
    /// Drivers that it can serve.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<String>,
    /// The agent's version.
    pub version: String,
    /// The protocol version up to which the agent reads.
    pub protocol: Protocol,
}

impl NodeReport {
    /// Whose silence-watching counts, if the node asks controllers to hold.
    pub fn hold_terms(&self) -> Option<HoldTerms> {
        match self.on_store_loss {
            OnStoreLoss::Stop => None,
            OnStoreLoss::Hold => Some(HoldTerms { candidate_generation: self.candidate_generation }),
        }
    }

    /// The ids of the machine.
    pub fn machine(&self) -> MachineIds<'_> {
        MachineIds { machine_id: &self.machine_id, product_id: self.product_id.as_deref() }
    }

    /// W for this node, milliseconds, from what it committed itself and from nothing else.
    pub fn wait_ms(&self) -> Millis {
        wait_ms(&self.timings, &self.watchdog.bounds())
    }
}

/// What keeps a machine awake whose watchdog is armed: a machine that sleeps is neither heard nor reset in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SleepProtection {
    /// The machine cannot sleep.
    NotNeeded,
    /// Sleep is switched off in the service manager: its targets are masked, or its settings allow none.
    Masked,
    /// The agent holds a blocking sleep inhibitor.
    Inhibitor,
    /// Nothing: the machine may sleep at any time.
    None,
}

impl SleepProtection {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            SleepProtection::NotNeeded => "NotNeeded",
            SleepProtection::Masked => "Masked",
            SleepProtection::Inhibitor => "Inhibitor",
            SleepProtection::None => "None",
        }
    }
}

/// What the agent is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all_fields = "camelCase", tag = "kind", content = "leave")]
pub enum Mode {
    /// Everything exclusive is stopped; asks for an open epoch.
    #[default]
    Registering,
    /// At work.
    Active,
    /// At work while the node is in maintenance: its services leave.
    Maintenance,
    /// The machine shuts down: services are moved away or stopped, then it leaves.
    Shutdown(Leave),
    /// Away for a restart of the agent alone; its services go on, frozen.
    Restart,
    /// Acknowledged that the cluster is disarmed.
    Disarmed,
    /// Left cleanly.
    Left(Leave),
}

impl Mode {
    /// The name of every mode.
    pub const NAMES: [&'static str; 7] =
        ["Registering", "Active", "Maintenance", "Shutdown", "Restart", "Disarmed", "Left"];

    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Registering => "Registering",
            Mode::Active => "Active",
            Mode::Maintenance => "Maintenance",
            Mode::Shutdown(_) => "Shutdown",
            Mode::Restart => "Restart",
            Mode::Disarmed => "Disarmed",
            Mode::Left(_) => "Left",
        }
    }
}

/// A service that an agent could not confirm stopped before registering.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NotStopped {
    /// The resource.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// What went wrong.
    pub message: String,
}

/// The name that softdog gives itself: a kernel's watchdog of the weaker kind, as it needs the kernel to run.
pub const SOFTDOG_IDENTITY: &str = "Software Watchdog";

/// The kind of watchdog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchdogKind {
    /// None that works.
    #[default]
    None,
    /// A kernel device.
    Kernel,
    /// A process that plays one, for the sandbox and tests.
    StandIn,
}

impl WatchdogKind {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            WatchdogKind::None => "None",
            WatchdogKind::Kernel => "Kernel",
            WatchdogKind::StandIn => "StandIn",
        }
    }
}

/// The watchdog as its daemon found it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WatchdogReport {
    /// The kind.
    pub kind: WatchdogKind,
    /// The driver's identity.
    pub identity: String,
    /// The device or socket.
    pub device: String,
    /// Tw as read back, milliseconds.
    pub timeout_ms: Millis,
    /// A pet can set a shorter timeout.
    pub sliding: bool,
    /// The descriptor outlives its holder.
    pub descriptor_retained: bool,
    /// A test-watchdog was passed: on this machine, by this driver, with the timeout in force.
    pub tested: bool,
    /// The latest test that was passed on this machine by this driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_test: Option<WatchdogTest>,
    /// Why it cannot be armed; empty when it can.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub problem: String,
    /// The same in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

impl WatchdogReport {
    /// What bounds the time from the deadline to the reset.
    pub fn bounds(&self) -> WatchdogBounds {
        WatchdogBounds {
            timeout_ms: self.timeout_ms,
            sliding: self.sliding,
            descriptor_retained: self.descriptor_retained,
        }
    }
}
