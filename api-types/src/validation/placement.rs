//! Checks of a Group and of an AffinityRule.

use super::context::Context;
use crate::placement::{AffinityRule, Group};

pub(super) fn check_group(group: &Group, context: &mut Context) {
    let spec = &group.spec;
    context.check_nodes("spec.nodes", &spec.nodes);
    if spec.nodes.0.is_empty() && spec.restricted {
        context.add_required(
            "spec.nodes",
            "required for a restricted group: without nodes, its resources cannot run",
        );
    }
    context.check_comment(&spec.comment);
}

pub(super) fn check_rule(rule: &AffinityRule, context: &mut Context) {
    let spec = &rule.spec;
    match (&spec.node_affinity, &spec.resource_affinity) {
        (None, None) => context.add_required("spec", "requires nodeAffinity or resourceAffinity"),
        (Some(_), Some(_)) => {
            context.add_invalid(
                "spec",
                "nodeAffinity and resourceAffinity are mutually exclusive: use two rules",
            );
        }
        (Some(affinity), None) => {
            let path = "spec.nodeAffinity";
            if affinity.resources.is_empty() {
                context.add_required(&format!("{path}.resources"), "at least one resource is required");
            }
            context.check_resource_names(&format!("{path}.resources"), &affinity.resources);
            if affinity.nodes.0.is_empty() {
                context.add_required(&format!("{path}.nodes"), "at least one node is required");
            }
            context.check_nodes(&format!("{path}.nodes"), &affinity.nodes);
        }
        (None, Some(affinity)) => {
            let path = "spec.resourceAffinity.resources";
            if affinity.resources.is_empty() {
                context.add_required(path, "at least one resource is required");
            }
            context.check_resource_names(path, &affinity.resources);
        }
    }
    context.check_comment(&spec.comment);
}
