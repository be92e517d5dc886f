//! A node's epoch and fencing state.

use super::{HoldTerms, MachineIds, Revision};
use crate::reason::Reason;
use crate::time::{Millis, Timestamp};
use serde::{Deserialize, Serialize};

/// `fence/<node>`, written by the leader, never deleted; epochs never go back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Fence {
    /// The node's incarnation; a commit of an agent guards it.
    pub epoch: u64,
    /// The machine that holds the epoch, or held the one before it was closed.
    pub machine_id: String,
    /// The product id of that machine's hardware; `None` where it could not be read, or was not asked for yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_id: Option<String>,
    /// The boot that holds the epoch, or held the one before it was closed.
    pub boot_id: String,
    /// The registration (revision of the node's report) that this epoch was opened for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Revision>,
    /// Open, or how it was closed.
    pub state: FenceState,
    /// What proved the old incarnation gone; set when `state` leaves Fencing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// Closed on silence: W of the report under the close's guard, if it said armed and its watchdog counts. Kept
    /// here, since another registration may overwrite the report before W has passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub armed_wait_ms: Option<Millis>,
    /// Closed while the node was under Hold: what its report said under the close's guard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldTerms>,
    /// A fence device at work: nobody starts another, or opens the epoch, before its duration has passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceIntent>,
    /// Devices of action Reboot or kind Fabric that were told off and have not confirmed on since. Once the epoch is closed
    /// with a proof they are told on by whoever leads: power devices at once, fabric devices after another boot or when an
    /// operator asks for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub switched_off: Vec<String>,
    /// Resources counted this node as empty while it was unreachable: its agent commits no permit until the leader clears this.
    /// The leader clears it once the node has answered for each of them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub verify: bool,
    /// When the state changed, for people.
    pub at: Timestamp,
}

impl Fence {
    /// The ids of the machine.
    pub fn machine(&self) -> MachineIds<'_> {
        MachineIds { machine_id: &self.machine_id, product_id: self.product_id.as_deref() }
    }
}

/// The state of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FenceState {
    /// A registered incarnation may act under the epoch.
    Open,
    /// Closed; the old incarnation is not yet proven gone.
    Fencing,
    /// Closed; proven gone.
    Fenced,
    /// Closed while nothing was active, or never opened: managed services are proven stopped, no more.
    #[default]
    Closed,
}

impl FenceState {
    /// Every state.
    pub const ALL: [FenceState; 4] =
        [FenceState::Open, FenceState::Fencing, FenceState::Fenced, FenceState::Closed];

    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            FenceState::Open => "Open",
            FenceState::Fencing => "Fencing",
            FenceState::Fenced => "Fenced",
            FenceState::Closed => "Closed",
        }
    }
}

/// What proves that nothing of an old incarnation runs any more (FENCING, section 5, (a) to (g)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum Proof {
    /// (a) W passed and the watchdog was armed under the close's guard.
    Silence {
        /// How long the observer waited.
        waited_ms: Millis,
    },
    /// (b) A fence device confirmed it off.
    Device {
        /// The device's name.
        name: String,
    },
    /// (c) The same machine runs another boot.
    NewBoot {
        /// The new boot id.
        boot_id: String,
    },
    /// (d) It left cleanly.
    CleanLeave {
        /// What it left for.
        leave: Leave,
    },
    /// (e) An operator confirmed it.
    Operator {
        /// The operation's name.
        operation: String,
        /// Who.
        by: String,
    },
    /// (f) The same boot registers anew: it has stopped everything but what it named.
    Reregistered,
    /// (g) Nothing was active.
    NothingActive,
}

impl Proof {
    /// The name of every proof, in the order of FENCING, section 5.
    pub const NAMES: [&'static str; 7] =
        ["Silence", "Device", "NewBoot", "CleanLeave", "Operator", "Reregistered", "NothingActive"];

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Proof::Silence { .. } => "Silence",
            Proof::Device { .. } => "Device",
            Proof::NewBoot { .. } => "NewBoot",
            Proof::CleanLeave { .. } => "CleanLeave",
            Proof::Operator { .. } => "Operator",
            Proof::Reregistered => "Reregistered",
            Proof::NothingActive => "NothingActive",
        }
    }

    /// The proof as a reason.
    pub fn reason(&self) -> Reason {
        match self {
            Proof::Silence { .. } => Reason::Fenced,
            Proof::Device { .. } => Reason::FenceDeviceConfirmed,
            Proof::NewBoot { .. } | Proof::Reregistered => Reason::Registering,
            Proof::CleanLeave { .. } => Reason::LeftCleanly,
            Proof::Operator { .. } => Reason::ConfirmedByOperator,
            Proof::NothingActive => Reason::ClosedIdle,
        }
    }

    /// The proof as a sentence.
    pub fn sentence(&self) -> String {
        match self {
            Proof::Silence { waited_ms } => format!(
                "no heartbeat for {:.1} s: by then it has stopped what it ran, or its armed watchdog has reset it",
                *waited_ms as f64 / 1000.0
            ),
            Proof::Device { name } => format!("fence device {name} confirmed it off"),
            Proof::NewBoot { boot_id } => format!("the machine runs another boot ({boot_id})"),
            Proof::CleanLeave { leave: Leave::Poweroff } => {
                "it stopped everything and powered off".to_owned()
            }
            Proof::CleanLeave { leave: Leave::Reboot } => "it stopped everything and rebooted".to_owned(),
            Proof::Operator { operation, by } => format!("{by} confirmed it off ({operation})"),
            Proof::Reregistered => "it stopped everything and registers anew".to_owned(),
            Proof::NothingActive => "nothing was active on it".to_owned(),
        }
    }
}

/// What a node left for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leave {
    /// Power-off.
    Poweroff,
    /// Reboot.
    Reboot,
}

/// The record made before a fence device is started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceIntent {
    /// The device's name.
    pub name: String,
    /// How long it may be at work, counted by each process from when it saw the record.
    pub duration_ms: Millis,
    /// The leader's term that starts it.
    pub term: Revision,
    /// What it is told to do.
    pub switch: Switch,
}

/// What a fence device is told to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Switch {
    /// Off. Also what a record means that does not say: then either may have been meant, and off is the graver.
    #[default]
    Off,
    /// On again.
    On,
}
