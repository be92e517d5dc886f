//! Commands of a step that a user would send with `hactl`.

use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::time::Millis;
use serde_json::Value;

/// A command. `node` may be the word `leader`, which means the node whose controller is the leader.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each variant shows its text, which names its fields")]
pub enum Command {
    /// `set R field=value …`, `set cluster/default …`, `set node/N …`; a field may be a path such as `requests.memory`.
    /// With `in-place`, an operator confirms that the running copy takes the new definition without a stop.
    Set { kind: Kind, name: String, fields: Vec<(String, Value)>, in_place: bool },
    /// `add R [NODE [running]]`: creates an object given under `later`.
    Add { resource: ResourceName, node: Option<NodeName>, running: bool },
    /// `delete R`.
    Delete { resource: ResourceName },
    /// `delete-node N`: deletes the Node object.
    DeleteNode { node: NodeName },
    /// `delete-controller N`: deletes the controller's candidate key.
    DeleteController { node: NodeName },
    /// `migrate R N`.
    Migrate { resource: ResourceName, node: NodeName },
    /// `relocate R N`.
    Relocate { resource: ResourceName, node: NodeName },
    /// `replace-secondary R N`.
    ReplaceSecondary { resource: ResourceName, node: NodeName },
    /// `stop R [DURATION]`.
    Stop { resource: ResourceName, timeout_ms: Option<Millis> },
    /// `start R`.
    Start { resource: ResourceName },
    /// `restart R`.
    Restart { resource: ResourceName },
    /// `clear-error R`.
    ClearError { resource: ResourceName },
    /// `maintenance N enable|disable`.
    Maintenance { node: NodeName, is_enabled: bool },
    /// `confirm-fenced N`: an operator confirms that the node is powered off.
    ConfirmFenced { node: NodeName },
    /// `test-watchdog N`: tests the watchdog by a reset of the machine.
    TestWatchdog { node: NodeName },
    /// `fence N`: fences the node with its devices.
    Fence { node: NodeName },
    /// `unfence N`: reconnects the node that its fabric devices have isolated.
    Unfence { node: NodeName },
    /// `disarm freeze|ignore`.
    Disarm { keeps_services_frozen: bool },
    /// `arm`.
    Arm,
}

impl Command {
    /// Returns the machine on which the command places a service. The scenario must define the machine.
    pub(super) fn machine(&self) -> Option<&str> {
        match self {
            Command::Add { node, .. } => node.as_deref(),
            Command::Set { .. }
            | Command::Delete { .. }
            | Command::DeleteNode { .. }
            | Command::DeleteController { .. }
            | Command::Migrate { .. }
            | Command::Relocate { .. }
            | Command::ReplaceSecondary { .. }
            | Command::Stop { .. }
            | Command::Start { .. }
            | Command::Restart { .. }
            | Command::ClearError { .. }
            | Command::Maintenance { .. }
            | Command::ConfirmFenced { .. }
            | Command::TestWatchdog { .. }
            | Command::Fence { .. }
            | Command::Unfence { .. }
            | Command::Disarm { .. }
            | Command::Arm => None,
        }
    }
}
