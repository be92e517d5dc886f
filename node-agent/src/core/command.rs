//! What the core asks of drivers, and what drivers say.

use ha_api_types::driver::DriverKind;
use ha_api_types::quantity::Amounts;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::time::Millis;

/// Tells one run of a command from every other in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub u64);

/// A command of a driver; the service's definition goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Does it run here?
    Probe,
    /// Start it, or adopt it when it runs.
    Start,
    /// Stop it gracefully, then hard.
    Stop {
        /// Graceful for so long; 0: hard at once.
        graceful_ms: Millis,
    },
    /// Kill it at once.
    Kill,
    /// Target of a live migration: prepare to receive it.
    Receive,
    /// Target of a live migration: take over what the source has handed over.
    Arrive {
        /// The node that it came from.
        source: String,
    },
    /// Source of a live migration: move it.
    Migrate {
        /// The receiving node.
        target: String,
    },
    /// Source of a live migration: nothing of it may be under way any more. The service is left as it is.
    EndMigration,
    /// Target of a live migration, when nothing of it is left here: confirm that nothing that still arrives can run.
    CloseReception,
    /// Replace its secondary while it runs.
    ReplaceSecondary {
        /// The secondary in use; empty: it has none.
        present: String,
        /// The node that becomes it.
        node: String,
    },
    /// Nothing of a replacement of its secondary may be left running.
    EndReplacement,
}

impl Command {
    /// As printed and as a metric label.
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

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandResult {
    /// Done. For stop and kill: nothing of the service is left running on this node.
    Done,
    /// Failed; something may be left running.
    Failed(DriverFailure),
    /// What a probe saw.
    Observed(Observed),
    /// It was cancelled, or never began; something may be left running.
    Cancelled,
}

impl CommandResult {
    /// What comes of a command for a service whose driver this version does not know, as after a rollback: nobody here can
    /// look for the service, or end it (FENCING R3.9).
    pub fn without_driver(command: &Command, kind: Option<DriverKind>) -> CommandResult {
        let name = kind.map_or("of its definition", DriverKind::name);
        let failed = |class: FailureClass, reason: Reason| {
            let message = format!("this node's agent does not know the driver {name}");
            CommandResult::Failed(DriverFailure { class, reason, message })
        };
        match command {
            Command::Probe => CommandResult::Observed(Observed::Unknown(format!(
                "this node's agent does not know the driver {name}: install the version that started the service"
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

/// Why a command of a driver failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverFailure {
    /// Where to try next.
    pub class: FailureClass,
    /// In a word.
    pub reason: Reason,
    /// In a sentence, with what the program said.
    pub message: String,
}

/// A change that a driver noticed by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverEvent {
    /// The service ended without being told to.
    Exited {
        /// The resource.
        name: String,
        /// The resource's uid.
        uid: String,
        /// How, in a sentence (`exit status 1`, `killed by signal 9`).
        message: String,
        /// Stopped with its own tool rather than crashed, where the source can tell.
        by_hand: bool,
    },
    /// The service was found running without being told to.
    Appeared {
        /// The resource.
        name: String,
        /// The resource's uid.
        uid: String,
    },
    /// How far its live migration from here is; every few seconds at most, as it becomes a write.
    Progress {
        /// The resource.
        name: String,
        /// The resource's uid.
        uid: String,
        /// In a sentence (`45 % of 4 GiB`).
        message: String,
    },
    /// What its definition on this node asks for, where that is not in the resource.
    Asks {
        /// The resource.
        name: String,
        /// The resource's uid.
        uid: String,
        /// Processors and memory.
        amounts: Amounts,
    },
}

impl DriverEvent {
    /// The name and the uid of the resource that it is about.
    pub fn about(&self) -> (&str, &str) {
        match self {
            DriverEvent::Exited { name, uid, .. }
            | DriverEvent::Appeared { name, uid }
            | DriverEvent::Progress { name, uid, .. }
            | DriverEvent::Asks { name, uid, .. } => (name, uid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_is_not_known_confirms_nothing() {
        let of = |command: Command| CommandResult::without_driver(&command, None);
        assert!(matches!(of(Command::Probe), CommandResult::Observed(Observed::Unknown(_))));
        for command in [Command::Stop { graceful_ms: 1 }, Command::Kill, Command::EndReplacement] {
            let CommandResult::Failed(failure) = of(command) else { panic!("something may be left running") };
            assert_eq!(failure.reason, Reason::StopFailed);
        }
        let CommandResult::Failed(failure) = of(Command::Start) else { panic!("nothing can be started") };
        assert_eq!((failure.class, failure.reason), (FailureClass::NeverHere, Reason::DriverMissing));
    }
}
