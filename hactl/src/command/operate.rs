//! Imperative commands: each is recorded as an Operation, followed, and answered with its outcome.

use super::wait::with_timeout;
use crate::client::{ApiError, Change, Client, Watcher, WriteMode};
use crate::failure::{Exit, Failure, Outcome};
use crate::object::TypedObject;
use crate::render::{self, Format};
use crate::session::Session;
use clap::Args;
use ha_api_types::id::NodeName;
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec, OperationStatus};
use ha_api_types::reason::Reason;
use ha_api_types::resource::{RequestedState, ResourceSpec, ServiceState};
use serde_json::json;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Flags for the wait for the outcome.
#[derive(Args, Clone, Debug)]
pub(crate) struct OperationWaitFlags {
    /// Return as soon as the request is recorded
    #[arg(long, overrides_with = "wait")]
    no_wait: bool,
    /// Wait for the result (default)
    #[arg(long, overrides_with = "no_wait")]
    wait: bool,
    /// Maximum time to wait; at expiry, exit with 124 (the operation continues)
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = crate::duration::parse)]
    timeout: Duration,
}

impl OperationWaitFlags {
    /// Returns flags that do not wait after the request is recorded.
    pub(crate) fn no_wait() -> OperationWaitFlags {
        OperationWaitFlags { no_wait: true, wait: false, timeout: Duration::ZERO }
    }
}

/// Start a service and set its requested state to Started
#[derive(Args, Debug)]
pub(crate) struct Start {
    /// Name of the resource
    resource: String,
    /// WARNING: data loss if the service runs on this unreachable node. Confirm that it does not run there
    #[arg(long, value_name = "NODE")]
    not_on: Option<String>,
    #[command(flatten)]
    wait_flags: OperationWaitFlags,
}

/// Stop a service and set its requested state to Stopped
#[derive(Args, Debug)]
pub(crate) struct Stop {
    /// Name of the resource
    resource: String,
    /// WARNING: kills the service after this time; 0 kills immediately
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
    grace_period: Option<Duration>,
    #[command(flatten)]
    wait_flags: OperationWaitFlags,
}

/// Stop a service and start it on the same node
#[derive(Args, Debug)]
pub(crate) struct Restart {
    /// Name of the resource
    resource: String,
    #[command(flatten)]
    wait_flags: OperationWaitFlags,
}

/// Migrate a service to a node, live if its driver supports it
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hactl migrate vm:100 node2\n  hactl migrate vm:100 node2 --timeout 10m")]
pub(crate) struct Migrate {
    /// Name of the resource
    resource: String,
    /// Target node
    node: String,
    #[command(flatten)]
    wait_flags: OperationWaitFlags,
}

/// Relocate a service: stop it, then start it on another node
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  hactl relocate web node2")]
pub(crate) struct Relocate {
    /// Name of the resource
    resource: String,
    /// Target node
    node: String,
    #[command(flatten)]
    wait_flags: OperationWaitFlags,
}

/// Replace the secondary node of a running replicated service
#[derive(Args, Debug)]
#[command(
    mut_arg("timeout", |timeout| timeout.default_value("70m")),
    after_help = "The driver copies the data to the new node (exec: replaceSecondary) while the service keeps running. Until the copy \
        succeeds, the old secondary stays in use and the service is not moved. To cancel, delete the operation."
)]
pub(crate) struct ReplaceSecondary {
    /// Name of the resource
    resource: String,
    /// Node that becomes the secondary
    node: String,
    #[command(flatten)]
    wait_flags: OperationWaitFlags,
}

/// Clear the Error state of a resource
#[derive(Args, Debug)]
#[command(
    after_help = "The failure counts are reset, and the service returns to its requested state. If two copies run, both are stopped, and \
        one is started."
)]
pub(crate) struct ClearError {
    /// Name of the resource
    resource: String,
    #[command(flatten)]
    wait_flags: OperationWaitFlags,
}

impl Start {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let spec = OperationSpec {
            action: OperationAction::Start,
            not_on: self.not_on.as_deref().map(NodeName::from),
            ..OperationSpec::default()
        };
        run_resource_operation(session, &self.resource, spec, &self.wait_flags).await
    }
}

impl Stop {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let seconds = |time: Duration| u32::try_from(time.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
        let spec = OperationSpec {
            action: OperationAction::Stop,
            timeout_seconds: self.grace_period.map(seconds),
            ..OperationSpec::default()
        };
        let outcome = run_resource_operation(session, &self.resource, spec, &self.wait_flags).await;
        // In earlier versions, `--timeout` was the time after which the service was killed. The hint names the flag
        // that replaces this use.
        outcome.map_err(|failure| {
            if failure.exit != Exit::TimedOut || self.grace_period.is_some() {
                return failure;
            }
            let help = format!(
                "{}; to kill the service after a time, run \"hactl stop {} --grace-period DURATION\"",
                failure.help, self.resource
            );
            failure.help(help)
        })
    }
}

impl Restart {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let spec = OperationSpec { action: OperationAction::Restart, ..OperationSpec::default() };
        run_resource_operation(session, &self.resource, spec, &self.wait_flags).await
    }
}

impl Migrate {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        run_operation_to_node(session, OperationAction::Migrate, &self.resource, &self.node, &self.wait_flags)
            .await
    }
}

impl Relocate {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        run_operation_to_node(
            session,
            OperationAction::Relocate,
            &self.resource,
            &self.node,
            &self.wait_flags,
        )
        .await
    }
}

impl ReplaceSecondary {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        run_operation_to_node(
            session,
            OperationAction::ReplaceSecondary,
            &self.resource,
            &self.node,
            &self.wait_flags,
        )
        .await
    }
}

impl ClearError {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let spec = OperationSpec { action: OperationAction::ClearError, ..OperationSpec::default() };
        run_resource_operation(session, &self.resource, spec, &self.wait_flags).await
    }
}

async fn run_operation_to_node(
    session: &Session,
    action: OperationAction,
    resource: &str,
    node: &str,
    wait_flags: &OperationWaitFlags,
) -> Outcome {
    let node = super::parse_node(node)?;
    session.client()?.get_target(&node).await?;
    let spec = OperationSpec { action, node: Some(node.name.name.into()), ..OperationSpec::default() };
    run_resource_operation(session, resource, spec, wait_flags).await
}

async fn run_resource_operation(
    session: &Session,
    resource: &str,
    spec: OperationSpec,
    wait_flags: &OperationWaitFlags,
) -> Outcome {
    let target = super::parse_resource(resource)?;
    session.client()?.get_target(&target).await?;
    run_operation(session, OperationSpec { resource: Some(target.name.name), ..spec }, wait_flags).await
}

/// Creates an operation, and waits until it has ended, unless `--no-wait` is given.
pub(super) async fn run_operation(
    session: &Session,
    spec: OperationSpec,
    wait_flags: &OperationWaitFlags,
) -> Outcome {
    let format = session.format(&[Format::Yaml, Format::Json, Format::Name])?;
    let client = session.client()?;
    let verb = action_verb(spec.action);
    let subject = spec
        .resource
        .clone()
        .or_else(|| spec.node.as_ref().map(ToString::to_string))
        .unwrap_or_else(|| "cluster".to_owned());
    let operation = create_operation(client, &format!("{verb}-{subject}"), &spec).await?;
    let name = operation.name();
    if wait_flags.no_wait {
        match format {
            Some(Format::Name) => session.terminal().print_line(&format!("operation/{name}")),
            _ if session.print_value(format, &render::readable(&operation.value))? => {}
            _ => session.terminal().report(&format!("operation/{name} recorded")),
        }
        return Ok(Exit::Done);
    }
    let finished = with_timeout(
        wait_flags.timeout,
        &format!("{verb} {subject} continues as operation/{name}"),
        follow_operation(session, name, ""),
    )
    .await
    .map_err(|failure| match failure.exit {
        Exit::TimedOut => failure.help(format!("run \"hactl get operation {name} -w\"")),
        Exit::Done | Exit::Failed | Exit::Usage | Exit::Unreachable | Exit::NotPermitted => failure,
    })?;
    let status = finished.status.unwrap_or_default();
    match format {
        Some(Format::Name) => session.terminal().print_line(&format!("operation/{name}")),
        _ => {
            session.print_value(format, &render::readable(&finished.value))?;
        }
    }
    let mut line = format!("{verb} {subject}: {}", phase_word(status.phase));
    let explanation = status_explanation(&status);
    if !explanation.is_empty() {
        line += &format!(": {explanation}");
    }
    match status.phase {
        OperationPhase::Succeeded => {
            if format.is_none() {
                session.terminal().report(&line);
                if !status.companions.is_empty() {
                    session.terminal().report(&format!("  also moved: {}", status.companions.join(", ")));
                }
            }
            Ok(Exit::Done)
        }
        OperationPhase::Failed
        | OperationPhase::Refused
        | OperationPhase::Pending
        | OperationPhase::Running => {
            if !status.blocked_by.is_empty() {
                line += &format!("\nblocked by: {}", status.blocked_by.join(", "));
            }
            if !status.companions.is_empty() {
                line += &format!("\nwould also be moved: {}", status.companions.join(", "));
            }
            Err(Failure::failed(line))
        }
    }
}

/// Stops a service and waits until the stop is confirmed. A service that is not managed is left unchanged.
pub(super) async fn stop_and_wait(
    session: &Session,
    resource: &TypedObject<ResourceSpec>,
    timeout: Duration,
) -> Result<(), Failure> {
    let name = resource.name();
    if let Some(ServiceState::Stopped | ServiceState::Disabled) = resource.state() {
        return Ok(());
    }
    if resource.spec.state == RequestedState::Ignored {
        return Err(Failure::failed(format!("resource/{name} is Ignored: cannot stop an unmanaged service"))
            .help("stop the service manually, then run the command again without --stop"));
    }
    let spec = OperationSpec {
        action: OperationAction::Stop,
        resource: Some(name.to_owned()),
        ..OperationSpec::default()
    };
    let recorded = create_operation(session.client()?, &format!("stop-{name}"), &spec).await?;
    let timeout_message = format!("resource/{name} is not stopped and was not deleted");
    let finished =
        with_timeout(timeout, &timeout_message, follow_operation(session, recorded.name(), "")).await?;
    let status = finished.status.unwrap_or_default();
    match status.phase {
        OperationPhase::Succeeded => {
            session.terminal().report(&format!("resource/{name} stopped"));
            Ok(())
        }
        OperationPhase::Failed
        | OperationPhase::Refused
        | OperationPhase::Pending
        | OperationPhase::Running => {
            Err(Failure::failed(format!("cannot stop resource/{name}: {}", status_explanation(&status)))
                .help(format!("nothing was deleted; run \"hactl why {name}\"")))
        }
    }
}

/// Creates an operation under a unique name, so that a retry after a lost answer cannot create a second operation.
pub(super) async fn create_operation(
    client: &Client,
    stem: &str,
    spec: &OperationSpec,
) -> Result<TypedObject<OperationSpec>, Failure> {
    let object = json!({
        "apiVersion": API_VERSION, "kind": Kind::Operation.name(),
        "metadata": {"name": unique_name(stem)}, "spec": spec,
    });
    let mut attempts = 0;
    loop {
        attempts += 1;
        match client.create(Kind::Operation, &object, WriteMode::Persist).await {
            Ok(created) => return Ok(TypedObject::from_value(created)),
            Err(ApiError::Status(status)) if status.code == 409 && attempts > 1 => {
                return Ok(TypedObject::from_value(object));
            }
            Err(ApiError::OutcomeUnknown { .. }) if attempts < 3 => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn unique_name(stem: &str) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut random = RandomState::new().hash_one(std::process::id());
    let mut suffix = String::new();
    for _ in 0..8 {
        suffix.push(char::from(DIGITS[usize::try_from(random % 36).unwrap_or(0)]));
        random /= 36;
    }
    let max_stem_length = ha_api_types::names::MAX_NAME_LENGTH - suffix.len() - 1;
    let stem: String = stem.to_ascii_lowercase().chars().take(max_stem_length).collect();
    format!("{}-{suffix}", stem.trim_end_matches(['-', '.']))
}

/// Follows an operation to its end and prints its progress, after a label if several are followed.
pub(super) async fn follow_operation(
    session: &Session,
    name: &str,
    label: &str,
) -> Result<TypedObject<OperationSpec>, Failure> {
    let mut watcher = Watcher::for_object(session.client()?, Kind::Operation, name);
    let mut last_line = String::new();
    loop {
        match watcher.next().await? {
            Change::Applied(operation) => {
                let operation: TypedObject<OperationSpec> = TypedObject::from_value(operation);
                let status = operation.status.clone().unwrap_or_default();
                if status.phase.is_final() {
                    return Ok(operation);
                }
                let explanation = status_explanation(&status);
                let line = format!(
                    "{label}{}{}{explanation}",
                    phase_word(status.phase),
                    if explanation.is_empty() { "" } else { ": " }
                );
                if line != last_line {
                    if status.phase == OperationPhase::Pending && !explanation.is_empty() {
                        session.terminal().notice(&line);
                    } else {
                        session.terminal().progress(&line);
                    }
                    last_line = line;
                }
            }
            Change::Deleted(_) => {
                return Err(Failure::failed(format!("operation/{name} was deleted before completion")));
            }
            Change::Synced => {}
        }
    }
}

/// Returns the explanation of an operation's status; empty if there is nothing to explain.
pub(super) fn status_explanation(status: &OperationStatus) -> String {
    match (status.message.as_str(), status.reason) {
        ("", Reason::Unknown | Reason::Completed | Reason::InProgress | Reason::Pending) => String::new(),
        ("", reason) => reason.sentence().to_owned(),
        (message, _) => message.to_owned(),
    }
}

pub(super) fn phase_word(phase: OperationPhase) -> &'static str {
    match phase {
        OperationPhase::Pending => "pending",
        OperationPhase::Running => "running",
        OperationPhase::Succeeded => "succeeded",
        OperationPhase::Failed => "failed",
        OperationPhase::Refused => "refused",
    }
}

pub(super) fn action_verb(action: OperationAction) -> &'static str {
    match action {
        OperationAction::Migrate => "migrate",
        OperationAction::Relocate => "relocate",
        OperationAction::ReplaceSecondary => "replace-secondary",
        OperationAction::Stop => "stop",
        OperationAction::Start => "start",
        OperationAction::Restart => "restart",
        OperationAction::ClearError => "clear-error",
        OperationAction::UpdateInPlace => "update-in-place",
        OperationAction::ConfirmFenced => "confirm-fenced",
        OperationAction::Fence => "fence",
        OperationAction::Unfence => "unfence",
        OperationAction::FollowStore => "follow-store",
        OperationAction::ShutdownContinue => "shutdown-continue",
        OperationAction::TestWatchdog => "test-watchdog",
        OperationAction::Balance => "balance",
        OperationAction::TestNotifications => "test-notifications",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::names::{MAX_NAME_LENGTH, invalid_reason};

    #[test]
    fn operation_names_are_unique_and_valid() {
        for stem in [
            "migrate-web",
            "clear-error-101",
            &format!("stop-{}", "a.".repeat(60)),
            "confirm-fenced-node1.example.org",
        ] {
            let (first, second) = (unique_name(stem), unique_name(stem));
            assert_ne!(first, second);
            assert_eq!(invalid_reason(&first, MAX_NAME_LENGTH), None, "{first}");
        }
    }
}
