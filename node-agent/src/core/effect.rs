//! Everything an agent can ask of its shell: a closed set.

use super::command::{Command, CommandId};
use super::journal::Journal;
use crate::watchdog::protocol::Request;
use ha_api_types::event::Event;
use ha_api_types::record::HoldRequest;
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use ha_store::{LeaseId, Transaction};

/// Tells one commit from every other of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitId(pub u64);

/// Tells one reading from every other of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// Tells one request for a lease from every other of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseRequestId(pub u64);

/// Tells one write of the journal from every other of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JournalWriteId(pub u64);

/// Tells one request to the watchdog daemon from every other of this process (not the number on the wire).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchdogRequestId(pub u64);

/// Tells one reading of what is used from every other of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeasureId(pub u64);

/// Tells one question to the controllers from every other of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub u64);

/// What to do. Effects are to be begun in order; what takes time is done beside the loop.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Commit a transaction; answered by [`super::Input::Committed`].
    Commit {
        /// The commit.
        id: CommitId,
        /// What to commit.
        transaction: Transaction,
        /// How urgent it is.
        lane: Lane,
    },
    /// Read these keys, each linearizably and no earlier than now; answered by [`super::Input::Read`].
    Read {
        /// The question.
        id: ReadId,
        /// The keys.
        keys: Vec<String>,
    },
    /// Ask for a lease; answered by [`super::Input::LeaseGranted`].
    GrantLease {
        /// The request.
        id: LeaseRequestId,
        /// Its time to live.
        ttl_seconds: i64,
    },
    /// Keep a lease for another period; answered by [`super::Input::LeaseKept`].
    KeepAlive(LeaseId),
    /// Put the journal on disk, for certain; answered by [`super::Input::JournalWritten`]. Writes keep their order.
    WriteJournal {
        /// The write.
        id: JournalWriteId,
        /// All of it.
        journal: Box<Journal>,
    },
    /// Run a command of the service's driver; answered by [`super::Input::Ended`].
    Run {
        /// The command's id.
        id: CommandId,
        /// What to do.
        command: Command,
        /// With what; for a running service as it was started.
        service: Box<ServiceDefinition>,
    },
    /// Cancel a command; it still is answered, with what came of it or with `Cancelled`.
    Cancel(CommandId),
    /// Ask something of the watchdog daemon; answered by [`super::WatchdogNews::Answered`] or by `Disconnected`.
    Watchdog {
        /// The request.
        id: WatchdogRequestId,
        /// What.
        request: Request,
    },
    /// Ask a controller not to declare this node dead; answered by [`super::Input::HoldAnswered`].
    AskHold {
        /// The question: the same for all controllers that are asked at one time.
        id: HoldId,
        /// The controller.
        candidate: String,
        /// Where its API is reached.
        url: String,
        /// What is asked.
        request: HoldRequest,
        /// How long to wait for the answer (Ki): it is asked again then.
        patience_ms: Millis,
    },
    /// Read what these services and the machine use now; answered by [`super::Input::Measured`].
    Measure {
        /// The question.
        id: MeasureId,
        /// Services that run here.
        services: Vec<ServiceDefinition>,
    },
    /// Write an event to the store, leased; nothing waits for it.
    Event(Event),
    /// Tell the operator.
    Log {
        /// How loudly.
        level: Level,
        /// What, in a sentence.
        message: String,
    },
    /// End the process. The core does nothing after it.
    Exit(Exit),
}

/// How urgent a commit is, and with what deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// A heartbeat: answered within so many milliseconds (Ki), tried on a second member when the first is slow, and
    /// never queued behind ordinary commits.
    Heartbeat {
        /// The deadline of the attempt.
        patience_ms: Millis,
    },
    /// Anything else.
    Ordinary,
}

/// How loudly to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Somebody must act.
    Error,
    /// Somebody should look.
    Warning,
    /// As expected.
    Info,
    /// For those who look for something.
    Debug,
}

/// Why the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Another process of this node has taken over: close the daemon's connection and touch nothing.
    TakenOver,
    /// Mode Restart is committed and the watchdog released: services go on.
    Restart,
    /// The node has left cleanly.
    Left,
}
