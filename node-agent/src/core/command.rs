//! Commands that the core gives to drivers, and their results and events.

use ha_api_types::driver::DriverKind;
use ha_api_types::id::{NodeName, ObjectUid, ResourceName};
use ha_api_types::quantity::Amounts;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::time::Millis;

/// Identifies one run of a command within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub u64);

/// A command for a driver. The command is sent together with the service's definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Report whether the service runs here.
    Probe,
    /// Start the service, or adopt it if it already runs.
    Start,
    /// Stop the service gracefully, then forcibly.
    Stop {
        /// Time for a graceful stop, milliseconds; 0 kills immediately.
        graceful_ms: Millis,
    },
    /// Kill the service immediately.
    Kill,
    /// Target of a live migration: prepare to receive the service.
    Receive,
    /// Target of a live migration: take over the service that the source has handed over.
    Arrive {
        /// The node from which the service came.
        source: NodeName,
    },
    /// Source of a live migration: migrate the service.
    Migrate {
        /// The receiving node.
        target: NodeName,
    },
    /// Source of a live migration: end every part of the migration that is in progress. The service is left unchanged.
    EndMigration,
    /// Target of a live migration without a copy here: confirm that a copy that still arrives cannot run.
    CloseReception,
    /// Replace the storage secondary of the service while it runs.
    ReplaceSecondary {
        /// The current secondary; `None` if there is none.
        current_secondary: Option<NodeName>,
        /// The node that becomes the secondary.
        node: NodeName,
    },
    /// End the remaining processes of a replacement of the secondary.
    EndReplacement,
}

impl Command {
    /// Returns `true` if the command begins to run programs of a service here that does not run here yet.
    pub fn starts_service(&self) -> bool {
        match self {
            Command::Start | Command::Receive | Command::ReplaceSecondary { .. } => true,
            Command::Probe
            | Command::Stop { .. }
            | Command::Kill
            | Command::Arrive { .. }
            | Command::Migrate { .. }
            | Command::EndMigration
            | Command::CloseReception
            | Command::EndReplacement => false,
        }
    }

    /// Returns the name that is printed and used as a metric label.
    pub fn name(&self) -> &'static str {
        match self {
            Command::Probe => "probe",
            Command::Start => "start",
            Command::Stop { .. } => "stop",
            Command::Kill => "kill",
            Command::Receive => "receive",
            Command::Arrive { .. } => "arrive",
            Command::Migrate { .. } => "migrate",
            Command::EndMigration => "end-migration",
            Command::CloseReception => "close-reception",
            Command::ReplaceSecondary { .. } => "replace-secondary",
            Command::EndReplacement => "end-replacement",
        }
    }
}

/// The only answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandResult {
    /// The command succeeded. For stop and kill: no part of the service runs on this node.
    Done,
    /// The command failed. Processes of the service may still run.
    Failed(DriverFailure),
    /// The result of a probe.
    Observed(Observed),
    /// The command was canceled, or did not begin. Processes of the service may still run.
    Canceled,
}

impl CommandResult {
    /// Returns the result of a command for a service whose driver this version does not support, such as after a
    /// rollback. This version can neither probe nor end that service (FENCING R3.9).
    pub fn without_driver(command: &Command, kind: Option<DriverKind>) -> CommandResult {
        let name = kind.map_or("of its definition", DriverKind::name);
        let failed = |class: FailureClass, reason: Reason| {
            let message = format!("the agent of this node does not support driver {name}");
            CommandResult::Failed(DriverFailure { class, reason, message })
        };
        match command {
            Command::Probe => CommandResult::Observed(Observed::Unknown(format!(
                "the agent of this node does not support driver {name}: install the version that started the service"
            ))),
            Command::Stop { .. } | Command::Kill | Command::EndReplacement | Command::EndMigration => {
                failed(FailureClass::RetryHere, Reason::StopFailed)
            }
            Command::Start
            | Command::Receive
            | Command::Arrive { .. }
            | Command::Migrate { .. }
            | Command::CloseReception
            | Command::ReplaceSecondary { .. } => failed(FailureClass::NeverHere, Reason::DriverMissing),
        }
    }
}

/// The failure of a driver's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverFailure {
    /// The class of the failure, which determines the nodes on which the leader retries.
    pub class: FailureClass,
    /// The reason code.
    pub reason: Reason,
    /// The message, with the output of the program.
    pub message: String,
}

/// A change that a driver detected without a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverEvent {
    /// The service ended without a command.
    Exited {
        /// The resource's name.
        name: ResourceName,
        /// The resource's uid.
        uid: ObjectUid,
        /// The way in which the service ended (`exit status 1`, `killed by signal 9`).
        message: String,
        /// `true` if the service was stopped with its own tool rather than crashed, as far as the source can determine.
        stopped_externally: bool,
    },
    /// The service was found running without a command.
    Appeared {
        /// The resource's name.
        name: ResourceName,
        /// The resource's uid.
        uid: ObjectUid,
    },
    /// Progress of a live migration away from this node. Reported at intervals of seconds, because each report becomes
    /// a write.
    Progress {
        /// The resource's name.
        name: ResourceName,
        /// The resource's uid.
        uid: ObjectUid,
        /// The progress (`45 % of 4 GiB`).
        message: String,
    },
    /// The amounts that the service's definition on this node requests, if the resource does not state them.
    RequestedAmounts {
        /// The resource's name.
        name: ResourceName,
        /// The resource's uid.
        uid: ObjectUid,
        /// Requested processors and memory.
        amounts: Amounts,
    },
}

impl DriverEvent {
    /// Returns the name and the uid of the resource that the event concerns.
    pub fn subject(&self) -> (&ResourceName, &str) {
        match self {
            DriverEvent::Exited { name, uid, .. }
            | DriverEvent::Appeared { name, uid }
            | DriverEvent::Progress { name, uid, .. }
            | DriverEvent::RequestedAmounts { name, uid, .. } => (name, uid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_driver_confirms_nothing() {
        let result_of = |command: Command| CommandResult::without_driver(&command, None);
        assert!(matches!(result_of(Command::Probe), CommandResult::Observed(Observed::Unknown(_))));
        for command in [Command::Stop { graceful_ms: 1 }, Command::Kill, Command::EndReplacement] {
            let CommandResult::Failed(failure) = result_of(command) else {
                panic!("something may be left running")
            };
            assert_eq!(failure.reason, Reason::StopFailed);
        }
        let CommandResult::Failed(failure) = result_of(Command::Start) else {
            panic!("nothing can be started")
        };
        assert_eq!((failure.class, failure.reason), (FailureClass::NeverHere, Reason::DriverMissing));
    }
}
