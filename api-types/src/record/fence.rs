//! The epoch and the fencing state of a node.

use super::{HoldTerms, MachineIds};
use crate::id::{BootId, Epoch, MachineId, OperationName, ProductId, Revision, Term};
use crate::reason::Reason;
use crate::time::{Millis, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `fence/<node>`, written by the leader and never deleted. Epochs never decrease.
///
/// ```
/// use ha_api_types::id::Epoch;
/// use ha_api_types::record::{Fence, FenceState, Proof};
///
/// // A node that never registered has no open epoch.
/// assert_eq!(Fence::default().state, FenceState::Closed);
///
/// let proof = Proof::Device { name: "ipmi".to_owned() };
/// assert_eq!(proof.sentence(), "fence device ipmi confirmed that the node is off");
/// let fence = Fence { epoch: Epoch(4), state: FenceState::Fenced, proof: Some(proof), ..Fence::default() };
/// let stored = serde_json::to_string(&fence).unwrap();
/// assert_eq!(serde_json::from_str::<Fence>(&stored).unwrap(), fence);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Fence {
    /// Number of the node's incarnation; every commit of an agent guards it.
    pub epoch: Epoch,
    /// The machine that holds the epoch; while the epoch is closed, the machine that held the last one.
    pub machine_id: MachineId,
    /// Product id of that machine's hardware; `None` if it could not be read or has not been requested yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_id: Option<ProductId>,
    /// The boot that holds the epoch; while the epoch is closed, the boot that held the last one.
    pub boot_id: BootId,
    /// The registration (revision of the node's report) for which this epoch was opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Revision>,
    /// State of the epoch: open, or how it was closed.
    pub state: FenceState,
    /// Proof that the services of the closed epoch no longer run; set when `state` leaves Fencing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// Revision at which `proof` was stored, if the fence has been written again since, for example by a fence device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof_revision: Option<Revision>,
    /// Revision at which the leader recorded the start of the fence device that confirmed the node off. The
    /// confirmation is later than this revision. `None` if no device confirmed the node off since the close.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_revision: Option<Revision>,
    /// `true` if the leader closed the epoch because of missed heartbeats while services were active. `maxFencing` limits
    /// such closes, also those that a fence device then confirms.
    #[serde(rename = "onSilence", skip_serializing_if = "std::ops::Not::not")]
    pub on_missed_heartbeats: bool,
    /// For an epoch closed on silence: W of the node report that the close guards. Set only if the report was armed and
    /// its watchdog is accepted. The value is stored here because another registration may overwrite the report before
    /// W has passed.
    #[serde(rename = "armedWaitMs", skip_serializing_if = "Option::is_none")]
    pub armed_fencing_delay_ms: Option<Millis>,
    /// For an epoch closed while the node was under Hold: the terms in the node report that the close guards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldTerms>,
    /// A running fence device: until its duration has passed, no controller may start another device or open the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceIntent>,
    /// Devices of action Reboot or kind Fabric that were switched off and have not confirmed on since.
    ///
    /// After the epoch is closed with a proof, the leader switches power devices on immediately. It switches fabric
    /// devices on after another boot, or when an operator requests it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub switched_off: Vec<String>,
    /// Digest of the definition of each refuted device, by name: the device had confirmed a boot off, and the same boot
    /// registered again. A confirmation of such a device is not proof until its definition changes (FENCING, R5.47).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refuted_devices: BTreeMap<String, String>,
    /// `true` if resources counted this node as empty while it was unreachable. Its agent commits no permit until the
    /// leader clears this flag, once the node has answered for each of those resources.
    #[serde(rename = "verify", skip_serializing_if = "std::ops::Not::not")]
    pub requires_probes: bool,
    /// Time of the last change of state; informational only.
    pub at: Timestamp,
}

impl Fence {
    /// Returns the revision at which the proof was stored, given the revision of this fence. Only evidence up to that
    /// revision is covered: a later write of the fence is not new proof.
    pub fn proven_at(&self, modified: Revision) -> Revision {
        self.proof_revision.unwrap_or(modified)
    }

    /// Returns `true` if a fence device or an operator confirmed the node off after a revision, given the revision of
    /// this fence.
    pub fn is_confirmed_off_after(&self, revision: Revision, modified: Revision) -> bool {
        let stored_later = match &self.proof {
            Some(Proof::Operator { .. }) => true,
            // Written by a version that does not record the start of the device.
            Some(Proof::Device { .. }) => self.off_revision.is_none(),
            Some(
                Proof::Silence { .. }
                | Proof::NewBoot { .. }
                | Proof::CleanLeave { .. }
                | Proof::Reregistered
                | Proof::NothingActive,
            )
            | None => false,
        };
        self.off_revision.is_some_and(|off| off > revision)
            || stored_later && self.proven_at(modified) > revision
    }

    /// Returns the ids of the machine.
    pub fn machine(&self) -> MachineIds<'_> {
        MachineIds { machine_id: &self.machine_id, product_id: self.product_id.as_ref() }
    }
}

/// The state of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FenceState {
    /// A registered incarnation may act under the epoch.
    Open,
    /// Closed. No proof shows yet that the services of the old incarnation have ended.
    Fencing,
    /// Closed. A proof shows that the services of the old incarnation have ended.
    Fenced,
    /// Closed while no service was active, or never opened. The proof covers only managed services.
    #[default]
    Closed,
}

impl FenceState {
    /// Every state.
    pub const ALL: [FenceState; 4] =
        [FenceState::Open, FenceState::Fencing, FenceState::Fenced, FenceState::Closed];

    /// Returns the name as printed.
    pub fn name(self) -> &'static str {
        match self {
            FenceState::Open => "Open",
            FenceState::Fencing => "Fencing",
            FenceState::Fenced => "Fenced",
            FenceState::Closed => "Closed",
        }
    }
}

/// The proof that no service of an old incarnation of a node still runs (FENCING, section 5, (a) to (g)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum Proof {
    /// (a) W has passed, and the watchdog was armed under the close's guard.
    Silence {
        /// Time that the observer waited.
        waited_ms: Millis,
    },
    /// (b) A fence device confirmed the node off.
    Device {
        /// Name of the device.
        name: String,
    },
    /// (c) The same machine runs another boot.
    NewBoot {
        /// The new boot id.
        boot_id: BootId,
    },
    /// (d) The node left cleanly.
    CleanLeave {
        /// Kind of the shutdown.
        #[serde(rename = "leave")]
        shutdown_kind: ShutdownKind,
    },
    /// (e) An operator confirmed the node off.
    Operator {
        /// Name of the operation.
        operation: OperationName,
        /// The operator.
        #[serde(rename = "by")]
        requested_by: String,
    },
    /// (f) The same boot registers again, and has stopped all services except those that it named.
    Reregistered,
    /// (g) No service was active.
    NothingActive,
}

impl Proof {
    /// The names of all proofs, in the order of FENCING, section 5.
    pub const NAMES: [&'static str; 7] =
        ["Silence", "Device", "NewBoot", "CleanLeave", "Operator", "Reregistered", "NothingActive"];

    /// Returns the name of the proof.
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

    /// Returns the proof as a reason.
    pub fn reason(&self) -> Reason {
        match self {
            Proof::Silence { .. } => Reason::Fenced,
            Proof::Device { .. } => Reason::FenceDeviceConfirmed,
            Proof::NewBoot { .. } | Proof::Reregistered => Reason::Registering,
            Proof::CleanLeave { .. } => Reason::ShutdownComplete,
            Proof::Operator { .. } => Reason::ConfirmedByOperator,
            Proof::NothingActive => Reason::LostWhileIdle,
        }
    }

    /// Returns the proof as a phrase for the end of a sentence: lower case, no full stop.
    pub fn sentence(&self) -> String {
        match self {
            Proof::Silence { waited_ms } => format!(
                "no heartbeat for {:.1} s, services were stopped or the watchdog reset the node",
                *waited_ms as f64 / 1000.0
            ),
            Proof::Device { name } => format!("fence device {name} confirmed that the node is off"),
            Proof::NewBoot { boot_id } => format!("machine was rebooted (boot {boot_id})"),
            Proof::CleanLeave { shutdown_kind: ShutdownKind::Poweroff } => {
                "all services were stopped, then the node powered off".to_owned()
            }
            Proof::CleanLeave { shutdown_kind: ShutdownKind::Reboot } => {
                "all services were stopped, then the node rebooted".to_owned()
            }
            Proof::Operator { operation, requested_by } => {
                format!("{requested_by} confirmed that the node is powered off ({operation})")
            }
            Proof::Reregistered => "all services were stopped, and the node registers again".to_owned(),
            Proof::NothingActive => "node ran no exclusive services".to_owned(),
        }
    }
}

/// Kind of the orderly shutdown with which a node left the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShutdownKind {
    /// Power-off.
    Poweroff,
    /// Reboot.
    Reboot,
}

/// The record that is committed before a fence device is started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceIntent {
    /// Name of the device.
    pub name: String,
    /// Maximum run time of the device. Each process measures this time from the moment at which it saw the record.
    pub duration_ms: Millis,
    /// Term of the leader that starts the device.
    pub term: Term,
    /// Requested action.
    pub switch: Switch,
}

/// The requested action of a fence device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Switch {
    /// Switch off. A record without this field also means off: its action is unknown, and off is the more severe
    /// action.
    #[default]
    Off,
    /// Switch on again.
    On,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_is_confirmed_after_the_start_of_the_device() {
        let device = Proof::Device { name: "pdu".to_owned() };
        let operator = Proof::Operator { operation: "confirm".into(), requested_by: "admin".to_owned() };
        // The fence was written at revision 9, and the question concerns revision 5.
        for (proof, proof_revision, off_revision, expected) in [
            (&device, None, Some(6), true),
            (&device, None, Some(5), false),
            (&device, None, Some(4), false),
            (&device, Some(6), Some(4), false),
            (&device, None, None, true),
            (&device, Some(5), None, false),
            (&operator, None, None, true),
            (&operator, Some(5), None, false),
            (&operator, Some(5), Some(6), true),
            (&Proof::Silence { waited_ms: 1 }, None, None, false),
            (&Proof::Reregistered, None, None, false),
        ] {
            let fence = Fence {
                proof: Some(proof.clone()),
                proof_revision: proof_revision.map(Revision),
                off_revision: off_revision.map(Revision),
                ..Fence::default()
            };
            let is_confirmed = fence.is_confirmed_off_after(Revision(5), Revision(9));
            assert_eq!(is_confirmed, expected, "{fence:?}");
        }
    }
}
