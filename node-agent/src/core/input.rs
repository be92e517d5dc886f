//! Everything that can happen to an agent: a closed set.

use super::command::{CommandId, CommandResult, DriverEvent};
use super::effect::{CommitId, HoldId, JournalWriteId, LeaseRequestId, MeasureId, ReadId, WatchdogRequestId};
use super::measuring::Measured;
use crate::doctor::MachineFacts;
use crate::watchdog::protocol;
use ha_api_types::quantity::Amounts;
use ha_api_types::record::{HoldAnswer, Leave, Revision, SleepProtection};
use ha_store::{Change, Entry, LeaseId, Outcome};

/// What happened.
///
/// Every input is safe at any time: an answer to a question that nobody asked any more is ignored.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A complete linearizable reading of one of [`super::prefixes`]; it replaces what was known of that prefix.
    Synced {
        /// The prefix that was read.
        prefix: String,
        /// All its entries.
        entries: Vec<Entry>,
        /// The store's revision when they were read.
        revision: Revision,
    },
    /// The data in the store is followed; comes before it is shown. Data that is refused is never shown.
    Follows {
        /// Its incarnation.
        incarnation: String,
        /// An operator has ordered to follow it, although this node remembers other data.
        begins: bool,
    },
    /// Changes of watched keys, in order, complete for their prefix up to `revision`.
    Changed {
        /// The changes.
        changes: Vec<Change>,
        /// Complete up to here.
        revision: Revision,
    },
    /// Nothing changed up to this revision.
    Progress(Revision),
    /// The answer to [`super::Effect::Read`].
    Read {
        /// The question.
        id: ReadId,
        /// The entries of those keys that exist and the *lowest* revision at which any of the keys was read; an error
        /// text when the store could not be reached.
        result: Result<(Vec<Entry>, Revision), String>,
    },
    /// The answer to [`super::Effect::Commit`].
    Committed {
        /// The commit.
        id: CommitId,
        /// What became of it.
        outcome: Outcome,
    },
    /// The answer to [`super::Effect::GrantLease`].
    LeaseGranted {
        /// The request.
        id: LeaseRequestId,
        /// The lease, or why there is none.
        result: Result<LeaseId, String>,
    },
    /// The answer to [`super::Effect::KeepAlive`].
    LeaseKept {
        /// The lease.
        lease: LeaseId,
        /// Whether it lives on. It proves nothing (FENCING, section 3).
        kept: LeaseKept,
    },
    /// The answer to [`super::Effect::AskHold`].
    HoldAnswered {
        /// The question.
        id: HoldId,
        /// The controller.
        candidate: String,
        /// Its answer; an error text when there was none.
        answer: Result<HoldAnswer, String>,
    },
    /// The answer to [`super::Effect::WriteJournal`].
    JournalWritten {
        /// The write.
        id: JournalWriteId,
        /// Whether it is on disk for certain.
        result: Result<(), String>,
    },
    /// The answer to [`super::Effect::Run`], also after [`super::Effect::Cancel`]; each command has exactly one.
    Ended {
        /// The command.
        id: CommandId,
        /// How it ended.
        result: CommandResult,
    },
    /// A driver noticed something by itself.
    Driver(DriverEvent),
    /// Word from the watchdog daemon.
    Watchdog(WatchdogNews),
    /// The machine was looked at, for `hactl doctor`.
    Examined(MachineFacts),
    /// The answer to [`super::Effect::Measure`].
    Measured {
        /// The question.
        id: MeasureId,
        /// What was read.
        measured: Measured,
    },
    /// The machine's drivers or capacity were looked at again.
    Facts {
        /// Drivers that it can serve, sorted.
        drivers: Vec<String>,
        /// What it has.
        capacity: Amounts,
    },
    /// What keeps the machine awake has changed.
    Sleep(SleepProtection),
    /// The agent is told to end.
    Shutdown(Shutdown),
    /// Time has passed.
    Tick,
}

/// What became of a lease that was to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseKept {
    /// It lives.
    Kept,
    /// It is gone, and with it the keys.
    Gone,
    /// No answer.
    Unknown(String),
}

/// Word from the watchdog daemon, or of the connection to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchdogNews {
    /// The daemon serves us.
    Connected {
        /// How things stand.
        status: protocol::Status,
        /// The device or socket, for people.
        device: String,
    },
    /// The daemon answered [`super::Effect::Watchdog`], whatever the request.
    Answered {
        /// The request.
        id: WatchdogRequestId,
        /// Why it was refused, if it was.
        refusal: Option<protocol::Refusal>,
        /// How things stand after it.
        status: protocol::Status,
    },
    /// The daemon told something without being asked.
    Notice {
        /// What.
        notice: protocol::Notice,
        /// How things stand after it.
        status: protocol::Status,
    },
    /// There is no connection; the shell goes on trying. What was armed stays armed.
    Disconnected {
        /// Why, and what helps.
        message: String,
    },
}

/// Why the agent is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// The agent alone (an upgrade): services go on, frozen.
    Restart,
    /// The machine: services are stopped first.
    Leave(Leave),
}
