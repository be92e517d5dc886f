//! What a step asks of the cluster, as a user would with `hactl`.

use ha_api_types::kind::Kind;
use ha_api_types::time::Millis;
use serde_json::Value;

/// One command. `node` may be the word `leader`: the node whose controller leads.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each variant shows its text, which names its fields")]
pub enum Command {
    /// `set R field=value …`, `set cluster/default …`, `set node/N …`; a field may be a path such as `requests.memory`. `set R …
    /// in-place`: the copy that runs follows, as an operator confirms.
    Set { kind: Kind, name: String, fields: Vec<(String, Value)>, in_place: bool },
    /// `add R [NODE [running]]`: an object given under `later`.
    Add { resource: String, node: Option<String>, running: bool },
    /// `delete R`.
    Delete { resource: String },
    /// `delete-node N`: its object.
    DeleteNode { node: String },
    /// `delete-controller N`: its candidate key.
    DeleteController { node: String },
    /// `migrate R N`.
    Migrate { resource: String, node: String },
    /// `relocate R N`.
    Relocate { resource: String, node: String },
    /// `replace-secondary R N`.
    ReplaceSecondary { resource: String, node: String },
    /// `stop R [DURATION]`.
    Stop { resource: String, timeout_ms: Option<Millis> },
    /// `start R`.
    Start { resource: String },
    /// `restart R`.
    Restart { resource: String },
    /// `clear-error R`.
    ClearError { resource: String },
    /// `maintenance N enable|disable`.
    Maintenance { node: String, enable: bool },
    /// `confirm-fenced N`: an operator has made sure that it is off.
    ConfirmFenced { node: String },
    /// `test-watchdog N`: its machine is to be reset by it.
    TestWatchdog { node: String },
    /// `fence N`: with its devices.
    Fence { node: String },
    /// `unfence N`: what its fabric devices have cut off is let in again.
    Unfence { node: String },
    /// `disarm freeze|ignore`.
    Disarm { freeze: bool },
    /// `arm`.
    Arm,
}

impl Command {
    /// The machine on which something is put for this command: it must be one of the scenario's.
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
