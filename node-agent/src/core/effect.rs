//! The closed set of effects that an agent can request from its shell.

use super::command::{Command, CommandId, CommandResult};
use super::journal::Journal;
use crate::watchdog::protocol::Request;
use ha_api_types::event::Event;
use ha_api_types::id::ControllerId;
use ha_api_types::record::HoldRequest;
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use ha_store::{LeaseId, Transaction};

/// Identifies one commit within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitId(pub u64);

/// Identifies one read within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// Identifies one request for a lease within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseRequestId(pub u64);

/// Identifies one write of the journal within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JournalWriteId(pub u64);

/// Identifies one request to the watchdog daemon within this process (not the number on the wire).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchdogRequestId(pub u64);

/// Identifies one reading of usage within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageReadId(pub u64);

/// Identifies one round of hold requests within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub u64);

/// One action for the shell. The shell begins effects in order, and runs slow effects outside its loop.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Commit a transaction; answered by [`super::Input::Committed`].
    Commit {
        /// Id that the answer carries.
        id: CommitId,
        /// The transaction, with all its guards.
        transaction: Transaction,
        /// Channel and time limit of the commit.
        urgency: CommitUrgency,
    },
    /// Read these keys, each linearizably and no earlier than now; answered by [`super::Input::Read`].
    Read {
        /// Id that the answer carries.
        id: ReadId,
        /// Full etcd keys.
        keys: Vec<String>,
    },
    /// Request a lease; answered by [`super::Input::LeaseGranted`].
    GrantLease {
        /// Id that the answer carries.
        id: LeaseRequestId,
        /// Time to live of the lease, seconds.
        ttl_seconds: i64,
    },
    /// Keep a lease for another period; answered by [`super::Input::LeaseKept`].
    KeepAlive(LeaseId),
    /// Write the journal durably to disk; answered by [`super::Input::JournalWritten`]. Writes keep their order.
    WriteJournal {
        /// Id that the answer carries.
        id: JournalWriteId,
        /// The whole journal, which replaces the file.
        journal: Box<Journal>,
    },
    /// Run a command of the service's driver; answered by [`super::Input::Ended`].
    Run {
        /// Id that the answer carries.
        id: CommandId,
        /// The command for the driver.
        command: Command,
        /// The definition for the command; for a running service, the definition of its start.
        service: Box<ServiceDefinition>,
    },
    /// Answer a command with this result, without its driver: the node's policy forbids it.
    Refuse {
        /// Id of the refused command, which [`super::Input::Ended`] repeats.
        id: CommandId,
        /// The result, for [`super::Input::Ended`].
        result: CommandResult,
    },
    /// Cancel a command. The shell still answers the command, with its result or with `Canceled`.
    Cancel(CommandId),
    /// Send a request to the watchdog daemon; answered by [`super::WatchdogEvent::Answered`] or by `Disconnected`.
    Watchdog {
        /// Id that the answer carries.
        id: WatchdogRequestId,
        /// The request for the daemon.
        request: Request,
    },
    /// Ask a controller not to declare this node dead; answered by [`super::Input::HoldAnswered`].
    RequestHold {
        /// Id of the round of requests, which all controllers of the round have in common.
        id: HoldId,
        /// Id of the controller that is asked.
        candidate: ControllerId,
        /// URL of the controller's API.
        url: String,
        /// The request, with this node's boot and epoch.
        request: HoldRequest,
        /// Time to wait for the answer (Ki), milliseconds. After that time the core asks again.
        timeout_ms: Millis,
    },
    /// Read the current usage of these services and of the machine; answered by [`super::Input::UsageReadings`].
    ReadUsage {
        /// Id that the answer carries.
        id: UsageReadId,
        /// Services that run here.
        services: Vec<ServiceDefinition>,
    },
    /// Write a leased event to etcd. The core does not wait for the outcome.
    Event(Event),
    /// Log a message.
    Log {
        /// Level of the message.
        level: Level,
        /// The message text, one sentence.
        message: String,
    },
    /// Exit the process. This is the last effect of the core.
    Exit(Exit),
}

/// Urgency of a commit, with its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitUrgency {
    /// A heartbeat: it has a deadline, is tried on a second etcd member if the first is slow, and is never queued
    /// behind ordinary commits.
    Heartbeat {
        /// Deadline of one attempt (Ki), milliseconds.
        timeout_ms: Millis,
    },
    /// Any other commit.
    Ordinary,
}

/// Level of a log message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// An operator must act now.
    Error,
    /// An operator should check this within a day.
    Warning,
    /// Normal operation.
    Info,
    /// Details for troubleshooting.
    Debug,
}

/// The reason why the process exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Another process of this node has taken over: close the connection to the daemon, and leave the services
    /// unchanged.
    Superseded,
    /// Mode Restart is committed and the watchdog released: services keep running.
    Restart,
    /// The node has left cleanly.
    Left,
}
