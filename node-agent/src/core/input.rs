//! The closed set of inputs of an agent.

use super::Hardware;
use super::command::{CommandId, CommandResult, DriverEvent};
use super::effect::{
    CommitId, HoldId, JournalWriteId, LeaseRequestId, ReadId, UsageReadId, WatchdogRequestId,
};
use super::usage_measurement::UsageReadings;
use crate::doctor::MachineFacts;
use crate::watchdog::protocol;
use ha_api_types::etcd_access::AgentSelector;
use ha_api_types::id::{ControllerId, Revision};
use ha_api_types::record::{HoldAnswer, ShutdownKind, SleepProtection};
use ha_store::{Change, Entry, LeaseId, Outcome};

/// One thing that happened.
///
/// Every input is safe at any time: the core ignores an answer to a request that is no longer open.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A complete linearizable read of the keys of one selector; it replaces the known state of these keys.
    ///
    /// A prefix is not a selector:
    ///
    /// ```compile_fail,E0308
    /// use ha_api_types::{id::Revision, keys::Keys};
    /// use ha_node_agent::core::Input;
    ///
    /// let prefix = Keys::new("lab").assignments();
    /// let input = Input::Synced { selector: prefix, entries: Vec::new(), revision: Revision(1) };
    /// ```
    Synced {
        /// The selector that was read.
        selector: AgentSelector,
        /// All entries that it selects.
        entries: Vec<Entry>,
        /// The etcd revision of the read.
        revision: Revision,
    },
    /// From now on, the shell reads the etcd data of this incarnation. This input comes before every other input from
    /// these data. The shell sends no input about data that the node must not follow.
    FollowsIncarnation {
        /// Incarnation of the data.
        incarnation: String,
        /// `true` if an operator has ordered the node to follow this data although the journal names other data.
        ordered_by_operator: bool,
    },
    /// Changes of watched keys, in order, complete for their prefix up to `revision`.
    Changed {
        /// The changes, oldest first.
        changes: Vec<Change>,
        /// The revision up to which the changes are complete.
        revision: Revision,
    },
    /// Nothing has changed up to this revision.
    Progress(Revision),
    /// The answer to [`super::Effect::Read`].
    Read {
        /// Id of the answered [`super::Effect::Read`].
        id: ReadId,
        /// The entries of the existing keys, and the *lowest* revision at which any of the keys was read. `Err`
        /// contains the error text if etcd could not be reached.
        result: Result<(Vec<Entry>, Revision), String>,
    },
    /// The answer to [`super::Effect::Commit`].
    Committed {
        /// Id of the answered [`super::Effect::Commit`].
        id: CommitId,
        /// The outcome of the commit.
        outcome: Outcome,
    },
    /// The answer to [`super::Effect::GrantLease`].
    LeaseGranted {
        /// Id of the answered [`super::Effect::GrantLease`].
        id: LeaseRequestId,
        /// The lease, or the error text.
        result: Result<LeaseId, String>,
    },
    /// The answer to [`super::Effect::KeepAlive`].
    LeaseKept {
        /// The lease whose keep-alive was requested.
        lease: LeaseId,
        /// The outcome. A lease that is still valid is not proof (FENCING, section 3).
        kept: LeaseKept,
    },
    /// The answer to [`super::Effect::RequestHold`].
    HoldAnswered {
        /// Id of the answered [`super::Effect::RequestHold`].
        id: HoldId,
        /// Id of the controller that was asked.
        candidate: ControllerId,
        /// The controller's answer, or an error text if there was none.
        answer: Result<HoldAnswer, String>,
    },
    /// The answer to [`super::Effect::WriteJournal`].
    JournalWritten {
        /// Id of the answered [`super::Effect::WriteJournal`].
        id: JournalWriteId,
        /// `Ok` if the journal is durably on disk.
        result: Result<(), String>,
    },
    /// The answer to [`super::Effect::Run`], even after [`super::Effect::Cancel`]. Each command has exactly one answer.
    Ended {
        /// Id of the command that ended.
        id: CommandId,
        /// The command's only result.
        result: CommandResult,
    },
    /// A change that a driver detected without a command.
    Driver(DriverEvent),
    /// An event of the watchdog daemon, or of the connection to it.
    Watchdog(WatchdogEvent),
    /// The machine was examined, for `hactl doctor`.
    Examined(MachineFacts),
    /// The answer to [`super::Effect::ReadUsage`].
    UsageReadings {
        /// Id of the answered [`super::Effect::ReadUsage`].
        id: UsageReadId,
        /// Usage of the machine and of the services that could be read.
        measured: UsageReadings,
    },
    /// The drivers or the hardware of the machine were determined again.
    Facts {
        /// Names of the drivers that the node can serve, sorted.
        drivers: Vec<String>,
        /// Processors and memory of the machine.
        hardware: Hardware,
    },
    /// The sleep protection of the machine has changed.
    Sleep(SleepProtection),
    /// The agent received a request to exit.
    Shutdown(Shutdown),
    /// Time has passed.
    Tick,
}

/// The outcome of keeping a lease alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseKept {
    /// The lease is valid.
    Kept,
    /// The lease and its keys no longer exist.
    Gone,
    /// No answer arrived. The text states the cause.
    Unknown(String),
}

/// An event of the watchdog daemon, or of the connection to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchdogEvent {
    /// The daemon serves this connection.
    Connected {
        /// The daemon's status.
        status: protocol::Status,
        /// The device or socket, for messages.
        device: String,
    },
    /// The daemon answered [`super::Effect::Watchdog`], for any request.
    Answered {
        /// Id of the answered [`super::Effect::Watchdog`].
        id: WatchdogRequestId,
        /// The daemon's reason to refuse the request; `None` if it executed the request.
        refusal: Option<protocol::Refusal>,
        /// The daemon's status after the request.
        status: protocol::Status,
    },
    /// The daemon sent a notice without a request.
    Notice {
        /// The event that the daemon reports.
        notice: protocol::Notice,
        /// The daemon's status after the notice.
        status: protocol::Status,
    },
    /// The connection is lost, and the shell keeps retrying. An armed device stays armed.
    Disconnected {
        /// The cause and the suggested action.
        message: String,
    },
}

/// The reason for the agent's exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Only the agent exits, such as for an upgrade: services keep running, unmonitored.
    Restart,
    /// The machine shuts down: services are stopped first.
    Machine(ShutdownKind),
}
