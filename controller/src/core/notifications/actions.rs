//! Suggested actions of notifications: a command, and the runbook that explains it.

/// Returns the action for a resource in Error.
pub(super) fn of_error(name: &str, may_run: bool) -> String {
    let first = if may_run { "WARNING: the service may still run. Confirm that it is stopped. " } else { "" };
    format!(
        "{first}Run \"hactl why {name}\", fix the cause, then run \"hactl clear-error {name}\" \
         (docs/runbooks.md#hactlresourceerror)"
    )
}

/// Returns the action for a fenced node.
pub(super) fn of_fence(node: &str) -> String {
    format!(
        "Run \"hactl status\" to find the services of the node and \"hactl describe node {node}\" for the history; \
         check the logs of the node for the cause (docs/runbooks.md#hactlnodefenced)"
    )
}

/// Returns the action for a node whose fencing cannot be confirmed.
pub(super) fn of_unconfirmed(node: &str) -> String {
    format!(
        "Services of the node wait for its fencing. Check that the node is powered off, then run \"hactl \
         node confirm-fenced {node}\" (docs/runbooks.md#hactlfencestuck)"
    )
}

/// Returns the action for services that could not be scheduled after a failure.
pub(super) fn of_reservation() -> String {
    "Run \"hactl check n+1\" (docs/runbooks.md#hactlreservationfailed)".to_owned()
}
