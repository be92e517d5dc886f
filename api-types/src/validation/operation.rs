//! Checks of an Operation: the fields that its action needs and does not use.

use super::context::Context;
use crate::operation::{Operation, OperationAction};
use crate::problem::{Problem, field_path};

/// The use of a field by an action.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldUse {
    Required,
    Optional,
    Unused,
}

pub(super) fn check(operation: &Operation, context: &mut Context) {
    use FieldUse::{Optional, Required, Unused};
    let spec = &operation.spec;
    // Order of the columns: resource, node, timeoutSeconds, epoch, bootId, notOn, generation.
    let uses = match spec.action {
        OperationAction::Migrate | OperationAction::Relocate | OperationAction::ReplaceSecondary => {
            [Required, Required, Unused, Unused, Unused, Unused, Unused]
        }
        OperationAction::Stop | OperationAction::Restart => {
            [Required, Unused, Optional, Unused, Unused, Unused, Unused]
        }
        OperationAction::Start => [Required, Unused, Unused, Unused, Unused, Optional, Unused],
        OperationAction::ClearError => [Required, Unused, Unused, Unused, Unused, Unused, Unused],
        OperationAction::UpdateInPlace => [Required, Unused, Unused, Unused, Unused, Unused, Required],
        OperationAction::ConfirmFenced | OperationAction::Unfence => {
            [Unused, Required, Unused, Required, Required, Unused, Unused]
        }
        OperationAction::ShutdownContinue | OperationAction::TestWatchdog => {
            [Unused, Required, Unused, Unused, Required, Unused, Unused]
        }
        OperationAction::Fence | OperationAction::FollowStore => {
            [Unused, Required, Unused, Unused, Unused, Unused, Unused]
        }
        OperationAction::Balance | OperationAction::TestNotifications => {
            [Unused, Unused, Unused, Unused, Unused, Unused, Unused]
        }
    };
    let [resource, node, timeout, epoch, boot_id, not_on, generation] = uses;
    let fields = [
        ("resource", spec.resource.is_some(), resource),
        ("node", spec.node.is_some(), node),
        ("timeoutSeconds", spec.timeout_seconds.is_some(), timeout),
        ("epoch", spec.epoch.is_some(), epoch),
        ("bootId", spec.boot_id.is_some(), boot_id),
        ("notOn", spec.not_on.is_some(), not_on),
        ("generation", spec.generation.is_some(), generation),
    ];
    for (field, given, wanted) in fields {
        let path = field_path("spec", field);
        match (given, wanted) {
            (false, Required) => context.add_required(&path, format!("required by action {:?}", spec.action)),
            (true, Unused) => {
                context.push(Problem::forbidden(path, format!("not used by action {:?}", spec.action)));
            }
            (true, Required | Optional) | (false, Optional | Unused) => {}
        }
    }
    if let Some(resource) = &spec.resource {
        context.check_resource_name("spec.resource", resource);
    }
    if let Some(node) = &spec.node {
        context.check_node_name("spec.node", node);
    }
    if let Some(node) = &spec.not_on {
        context.check_node_name("spec.notOn", node);
    }
    if spec.timeout_seconds.is_some_and(|seconds| seconds > 86_400) {
        context.add_invalid("spec.timeoutSeconds", "must be at most 86400");
    }
}
