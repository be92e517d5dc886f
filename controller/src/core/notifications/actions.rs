//! Suggested actions of notifications: a command, and the runbook that explains it.

/// Returns the action for a resource in Error.
pub(super) fn of_error(name: &str, may_run: bool) -> String {
    let first = if may_run { "it may still run: make sure that it does not; " } else { "" };
    format!(
        "{first}hactl why {name}; mend the cause, then hactl clear-error {name} (docs/runbooks.md#hactlresourceerror)"
    )
}

/// Returns the action for a fenced node.
pub(super) fn of_fence(node: &str) -> String {
    format!(
        "hactl status shows where its services went, hactl describe node {node} what was seen; its own logs say why \
         (docs/runbooks.md#hactlnodefenced)"
    )
}

/// Returns the action for a node whose fencing cannot be confirmed.
pub(super) fn of_unconfirmed(node: &str) -> String {
    format!(
        "its services wait: make sure that the machine is off, then hactl node confirm-fenced {node} \
         (docs/runbooks.md#hactlfencestuck)"
    )
}

/// Returns the action for services that could not be scheduled after a failure.
pub(super) fn of_reservation() -> String {
    "hactl check n+1 (docs/runbooks.md#hactlreservationfailed)".to_owned()
}
