//! The node's policy: services that this agent does not run, regardless of the objects in the API.

use super::AgentCore;
use super::command::{Command, CommandResult, DriverFailure};
use ha_api_types::driver::DriverKind;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::resource::ServiceDefinition;

impl AgentCore {
    /// Returns why the node's policy forbids the start of a service with this definition.
    pub(super) fn start_refusal(&self, definition: &ServiceDefinition) -> Option<DriverFailure> {
        let message = self.config.policy.as_ref()?.refusal(&definition.driver)?;
        Some(DriverFailure { class: FailureClass::NeverHere, reason: Reason::NodePolicy, message })
    }

    /// Returns the result of a command that the node's policy forbids, without running a program of the resource; `None`
    /// if the command is allowed.
    ///
    /// A service that this agent has begun under an earlier policy is probed and stopped in the usual way, but not adopted.
    /// The journal contains no service that was refused, because [`AgentCore::start_refusal`] precedes it.
    pub(super) fn refused_result(
        &self,
        command: &Command,
        definition: &ServiceDefinition,
    ) -> Option<CommandResult> {
        let failure = self.start_refusal(definition)?;
        if command.starts_service() {
            return Some(CommandResult::Failed(failure));
        }
        let is_begun = self
            .journal
            .services
            .get(&definition.name)
            .is_some_and(|entry| entry.definition.driver == definition.driver);
        (!is_begun && runs_programs_of_resource(definition))
            .then(|| CommandResult::of_forbidden(command, failure))
    }
}

/// Returns `true` if even a probe of the service runs a program that the resource names. The supervisor of an `exec`
/// service with `command` and without `monitor` finds its processes, and ends them with signals.
fn runs_programs_of_resource(definition: &ServiceDefinition) -> bool {
    match definition.driver.kind() {
        Some(DriverKind::Exec) => definition
            .driver
            .exec
            .as_ref()
            .is_some_and(|exec| exec.command.is_empty() || !exec.monitor.is_empty()),
        Some(DriverKind::Ocf | DriverKind::External) => true,
        Some(
            DriverKind::Systemd
            | DriverKind::Podman
            | DriverKind::Lxc
            | DriverKind::Libvirt
            | DriverKind::Simulated,
        )
        | None => false,
    }
}

impl CommandResult {
    /// Returns the result of a command for a service that the node's policy forbids and this agent has not begun: nothing
    /// of it runs here.
    fn of_forbidden(command: &Command, failure: DriverFailure) -> CommandResult {
        match command {
            Command::Probe => CommandResult::Observed(Observed::NotRunning),
            Command::Stop { .. }
            | Command::Kill
            | Command::EndReplacement
            | Command::EndMigration
            | Command::CloseReception => CommandResult::Done,
            Command::Start
            | Command::Receive
            | Command::Arrive { .. }
            | Command::Migrate { .. }
            | Command::ReplaceSecondary { .. } => CommandResult::Failed(failure),
        }
    }
}
