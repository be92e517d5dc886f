//! The replaceSecondary command: its processes are separate from the service's, and are found and ended separately.

use super::Context;
use super::script::working_directory;
use crate::core::DriverFailure;
use crate::driver::program::clearing::clear;
use crate::driver::program::leftovers::{ProcessSearch, SERVICE_MARK_VARIABLE};
use crate::driver::program::run::{End, Output, Run, describe};
use crate::driver::program::{failed, io_failure};
use ha_api_types::id::NodeName;
use ha_api_types::reason::Reason;
use ha_api_types::resource::ServiceDefinition;

/// Runs the command, and ends leftovers of an earlier run first. Exit status 0 means that the new secondary is in use.
pub(super) async fn replace(
    context: &Context,
    service: &ServiceDefinition,
    current_secondary: Option<&NodeName>,
    node: &NodeName,
) -> Result<(), DriverFailure> {
    let exec = service.driver.exec.as_ref().filter(|exec| !exec.replace_secondary.is_empty());
    let Some(exec) = exec else {
        return Err(failed(Reason::ReplaceFailed, "spec.driver.exec has no replaceSecondary command"));
    };
    end(context, service).await?;
    let variables = context.programs.settings.values.resolve(&exec.environment);
    let variables =
        variables.map_err(|error| io_failure("cannot run the replaceSecondary command", &error))?;
    let mut environment = context.programs.environment(service, &variables, None);
    let mark = mark(context, service);
    environment.retain(|(name, _)| name != SERVICE_MARK_VARIABLE);
    let current_secondary = current_secondary.map_or("", NodeName::as_str);
    let replacement_variables = [
        ("HA_SECONDARY", current_secondary),
        ("HA_NEW_SECONDARY", node),
        (SERVICE_MARK_VARIABLE, mark.as_str()),
    ];
    environment.extend(replacement_variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let run = Run {
        program: &exec.replace_secondary,
        environment,
        working_directory: working_directory(exec),
        user: exec.user.clone(),
        cgroup: None,
        input: None,
        output: Output::Log,
        killed_with_agent: false,
    };
    match context.programs.run(&service.name, run, service.timeouts.replace_ms()).await {
        Ok(End::Ended(ended)) if ended.status.success() => Ok(()),
        Ok(End::Ended(ended)) => {
            let exit_text = describe(ended.status);
            let message = format!("replaceSecondary command failed: {exit_text}{}", ended.last_line_suffix());
            Err(failed(Reason::ReplaceFailed, &message))
        }
        Ok(End::TimedOut) => {
            let message = "replaceSecondary command timed out and was killed";
            Err(failed(Reason::TimedOut, message))
        }
        Ok(End::NotLaunched(failure)) => Err(failure.to_driver_failure()),
        Err(error) => Err(io_failure("cannot run the replaceSecondary command", &error)),
    }
}

/// Ends the command and all processes that it has started, including those of an earlier agent.
pub(super) async fn end(context: &Context, service: &ServiceDefinition) -> Result<(), DriverFailure> {
    let mark = mark(context, service);
    clear(|| ProcessSearch {
        variable: SERVICE_MARK_VARIABLE,
        mark: mark.clone(),
        cgroups: Vec::new(),
        record: None,
    })
    .await
}

/// Returns the mark of the command's processes. The mark differs from that of the service, so that ending the service
/// does not end the command, and vice versa.
fn mark(context: &Context, service: &ServiceDefinition) -> String {
    context.programs.directory_of(&service.name).path().join("replacement").display().to_string()
}
