//! Checks of a Group and of an AffinityRule.

use super::context::Context;
use crate::placement::{AffinityRule, Group};

pub(super) fn check_group(group: &Group, context: &mut Context) {
    let spec = &group.spec;
    context.nodes("spec.nodes", &spec.nodes);
    if spec.nodes.0.is_empty() && spec.restricted {
        context.required("spec.nodes", "a restricted group without nodes lets its resources run nowhere");
    }
    context.comment(&spec.comment);
}

pub(super) fn check_rule(rule: &AffinityRule, context: &mut Context) {
    let spec = &rule.spec;
    match (&spec.node_affinity, &spec.resource_affinity) {
        (None, None) => context.required("spec", "needs nodeAffinity or resourceAffinity"),
        (Some(_), Some(_)) => {
            context.invalid("spec", "has both nodeAffinity and resourceAffinity: make two rules of them");
        }
        (Some(affinity), None) => {
            let path = "spec.nodeAffinity";
            if affinity.resources.is_empty() {
                context.required(&format!("{path}.resources"), "name at least one resource");
            }
            context.resource_names(&format!("{path}.resources"), &affinity.resources);
            if affinity.nodes.0.is_empty() {
                context.required(&format!("{path}.nodes"), "name at least one node");
            }
            context.nodes(&format!("{path}.nodes"), &affinity.nodes);
        }
        (None, Some(affinity)) => {
            let path = "spec.resourceAffinity.resources";
            if affinity.resources.is_empty() {
                context.required(path, "name the resources");
            }
            context.resource_names(path, &affinity.resources);
        }
    }
    context.comment(&spec.comment);
}
