//! The report of an agent about its node: mode, watchdog, active timings.

use super::{HoldTerms, MachineIds, ShutdownKind, WatchdogTest};
use crate::cluster::OnEtcdLoss;
use crate::id::{BootId, Epoch, MachineId, ObjectUid, ProcessInstance, ProductId, ResourceName, Revision};
use crate::node_policy::NodePolicy;
use crate::protocol::Protocol;
use crate::quantity::{Amounts, Quantity};
use crate::reason::Reason;
use crate::time::Millis;
use crate::timing::{Timings, WatchdogBounds, fencing_delay_ms};
use serde::{Deserialize, Serialize};

/// `report/<node>/node`, unleased, written by the node's agent together with the heartbeat from which it is valid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeReport {
    /// Id of the agent process.
    pub instance: ProcessInstance,
    /// Machine id of the node.
    pub machine_id: MachineId,
    /// Product id of the machine's hardware; `None` if it cannot be read, and in reports of older agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_id: Option<ProductId>,
    /// Boot id of the node.
    pub boot_id: BootId,
    /// Epoch under which the agent acts; 0 during the first registration.
    pub epoch: Epoch,
    /// Mode of the agent.
    pub mode: Mode,
    /// `true` if the watchdog was armed when this report was committed (FENCING, section 4).
    pub armed: bool,
    /// `true` if the watchdog can no longer be renewed. Silence of the node is then no proof, regardless of `armed`.
    /// Absent in reports of older agents.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub watchdog_failed: bool,
    /// Protection against sleep; `None` in reports of older agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep_protection: Option<SleepProtection>,
    /// State and abilities of the node's watchdog.
    pub watchdog: WatchdogReport,
    /// Active timings.
    pub timings: Timings,
    /// `true` if the machine is virtual. A host can pause a virtual machine together with its clock.
    #[serde(rename = "virtual")]
    pub is_virtual: bool,
    /// Create revision of the newest candidate key that the agent has read.
    pub candidate_generation: Revision,
    /// Behavior of the agent while etcd is unreachable; older agents do not report it, and stop their services. Stored
    /// under its earlier name, because a controller of the previous version treats an unknown field as Stop.
    #[serde(rename = "onStoreLoss", alias = "onEtcdLoss")]
    pub on_etcd_loss: OnEtcdLoss,
    /// Services that a registering agent could not confirm stopped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_stopped: Vec<NotStopped>,
    /// Capacity of the machine, with its cpus counted as cores. An agent that does not report `threads` counts threads.
    pub capacity: Amounts,
    /// Number of hardware threads of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<Quantity>,
    /// Drivers that the agent supports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<String>,
    /// The node's policy; `None` if it allows every service, and in reports of older agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<NodePolicy>,
    /// Version of the agent.
    pub version: String,
    /// Highest protocol version that the agent can read.
    pub protocol: Protocol,
}

impl NodeReport {
    /// Returns the terms that decide which controllers may draw conclusions from the node's silence; `None` if the node
    /// does not use Hold.
    pub fn hold_terms(&self) -> Option<HoldTerms> {
        match self.on_etcd_loss {
            OnEtcdLoss::Stop => None,
            OnEtcdLoss::Hold => Some(HoldTerms { candidate_generation: self.candidate_generation }),
        }
    }

    /// Returns the capacity of the machine. CPUs are counted as threads if `threads` is `true`, else as cores. Agents
    /// of earlier versions report only threads.
    #[must_use]
    pub fn capacity_counting(&self, threads: bool) -> Amounts {
        Amounts { cpu: self.threads.filter(|_| threads).or(self.capacity.cpu), ..self.capacity }
    }

    /// Returns the ids of the machine.
    pub fn machine(&self) -> MachineIds<'_> {
        MachineIds { machine_id: &self.machine_id, product_id: self.product_id.as_ref() }
    }

    /// Returns W for this node in milliseconds, computed only from values that the node itself has committed.
    pub fn fencing_delay_ms(&self) -> Millis {
        fencing_delay_ms(&self.timings, &self.watchdog.bounds())
    }
}

/// The mechanism that keeps a machine awake while its watchdog is armed. A sleeping machine neither sends heartbeats nor is
/// reset in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SleepProtection {
    /// The machine supports no sleep state, or the agent's option `--sleeps no` states that it cannot sleep.
    NotNeeded,
    /// Sleep is disabled in the service manager: the sleep targets are masked, or the settings allow no kind of sleep.
    Masked,
    /// The agent holds a blocking sleep inhibitor.
    Inhibitor,
    /// No protection: the machine may sleep at any time.
    None,
}

impl SleepProtection {
    /// Returns the name as printed.
    pub fn name(self) -> &'static str {
        match self {
            SleepProtection::NotNeeded => "NotNeeded",
            SleepProtection::Masked => "Masked",
            SleepProtection::Inhibitor => "Inhibitor",
            SleepProtection::None => "None",
        }
    }
}

/// The mode of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all_fields = "camelCase", tag = "kind", content = "leave")]
pub enum Mode {
    /// Every exclusive service is stopped, and the agent requests an open epoch.
    #[default]
    Registering,
    /// Regular operation.
    Active,
    /// Operation while the node is in maintenance: its services leave.
    Maintenance,
    /// The machine shuts down: services are moved away or stopped, then the node leaves.
    Shutdown(ShutdownKind),
    /// Only the agent restarts; its services keep running unmonitored.
    Restart,
    /// The agent has acknowledged that the cluster is disarmed.
    Disarmed,
    /// The node left cleanly.
    Left(ShutdownKind),
}

impl Mode {
    /// The names of all modes.
    pub const NAMES: [&'static str; 7] =
        ["Registering", "Active", "Maintenance", "Shutdown", "Restart", "Disarmed", "Left"];

    /// Returns the name as printed.
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
    /// Name of the resource.
    pub name: ResourceName,
    /// Uid of the resource.
    pub uid: ObjectUid,
    /// Error message.
    pub message: String,
}

/// Identity that softdog reports. Softdog is the weaker kind of kernel watchdog, because it needs a working kernel.
pub const SOFTDOG_IDENTITY: &str = "Software Watchdog";

/// The kind of a watchdog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchdogKind {
    /// No working watchdog.
    #[default]
    None,
    /// A kernel device.
    Kernel,
    /// A simulated watchdog, for the sandbox and tests. The stored form is the earlier name. A controller of the
    /// previous version treats a report with an unknown kind as unreadable, and then accepts no proof by missed
    /// heartbeats.
    #[serde(rename = "StandIn", alias = "Simulated")]
    Simulated,
}

impl WatchdogKind {
    /// Returns the name as printed.
    pub fn name(self) -> &'static str {
        match self {
            WatchdogKind::None => "None",
            WatchdogKind::Kernel => "Kernel",
            WatchdogKind::Simulated => "Simulated",
        }
    }
}

/// The watchdog as its daemon found it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WatchdogReport {
    /// Kind of the watchdog.
    pub kind: WatchdogKind,
    /// Identity that the driver reports.
    pub identity: String,
    /// The kernel's device, or the socket of the simulated watchdog.
    pub device: String,
    /// Tw as read back from the driver, in milliseconds.
    pub timeout_ms: Millis,
    /// `true` if a renewal can set a shorter timeout.
    pub sliding: bool,
    /// `true` if the descriptor outlives the process that holds it.
    pub descriptor_retained: bool,
    /// `true` if a watchdog test was passed on this machine, with this driver and the active timeout.
    pub tested: bool,
    /// The latest passed test on this machine with this driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_test: Option<WatchdogTest>,
    /// Reason why the watchdog cannot be armed, as a sentence; empty if it can.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub problem: String,
    /// Reason why the watchdog cannot be armed, as a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

impl WatchdogReport {
    /// Returns the facts that bound the time from the deadline to the reset.
    pub fn bounds(&self) -> WatchdogBounds {
        WatchdogBounds {
            timeout_ms: self.timeout_ms,
            sliding: self.sliding,
            descriptor_retained: self.descriptor_retained,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_capacity_counts_cores_unless_threads_configured() {
        let check = |threads: Option<i128>, count_threads: bool, expected: i128| {
            let capacity = Amounts { cpu: Some(Quantity::from_units(8)), ..Amounts::default() };
            let threads = threads.map(Quantity::from_units);
            let report = NodeReport { capacity, threads, ..NodeReport::default() };
            assert_eq!(report.capacity_counting(count_threads).cpu, Some(Quantity::from_units(expected)));
        };
        check(Some(16), false, 8);
        check(Some(16), true, 16);
        // An earlier agent reports its threads as the capacity.
        check(None, true, 8);
        check(None, false, 8);
    }
}
