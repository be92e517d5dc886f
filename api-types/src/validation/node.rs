//! Checks of a Node and of a NodeGroup.

use super::context::Context;
use super::driver::check_source;
use super::notifications::check_file;
use crate::node::{FenceDevice, FenceKind, Node, NodeGroup};
use crate::problem::{element_path, field_path};

pub(super) fn check(node: &Node, context: &mut Context) {
    let spec = &node.spec;
    if let Some(group) = &spec.node_group {
        context.check_name("spec.nodeGroup", group);
    }
    context.check_size("spec.storagePools", spec.storage_pools.len());
    for (index, pool) in spec.storage_pools.iter().enumerate() {
        if pool.is_empty() {
            context.add_invalid(&element_path("spec.storagePools", index), "must not be empty");
        }
    }
    context.check_distinct("spec.storagePools", spec.storage_pools.iter().map(String::as_str));
    let devices = &spec.fencing.devices;
    context.check_size("spec.fencing.devices", devices.len());
    for (index, device) in devices.iter().enumerate() {
        check_device(&element_path("spec.fencing.devices", index), device, context);
    }
    context.check_distinct("spec.fencing.devices", devices.iter().map(|device| device.name.as_str()));
}

fn check_device(path: &str, device: &FenceDevice, context: &mut Context) {
    context.check_name(&field_path(path, "name"), &device.name);
    if !(1..=3600).contains(&device.timeout_seconds) {
        context.add_invalid(&field_path(path, "timeoutSeconds"), "must be between 1 and 3600");
    }
    if device.retries > 10 {
        context.add_invalid(&field_path(path, "retries"), "must be at most 10");
    }
    if device.covers_storage && device.kind == FenceKind::Power {
        context.add_invalid(
            &field_path(path, "coversStorage"),
            "allowed only with kind Fabric: a power device stops the whole node",
        );
    }
    let parts = field_path(path, "parts");
    if device.parts.is_empty() {
        context.add_required(&parts, "requires at least one part with a fence agent");
    }
    for (index, part) in device.parts.iter().enumerate() {
        let path = element_path(&parts, index);
        // Controllers run this program, so only a plain name is allowed.
        let is_plain =
            part.agent.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        if !part.agent.starts_with("fence_") || !is_plain || part.agent.len() > 64 {
            context.add_invalid(
                &field_path(&path, "agent"),
                format!("{:?} is not a valid fence agent: use a name such as fence_ipmilan", part.agent),
            );
        }
        for (name, value) in &part.attributes {
            let attribute_path = field_path(&field_path(&path, "attributes"), name);
            check_source(&attribute_path, value, context);
            let text = value.text().unwrap_or_default();
            if name.is_empty() || name.contains(['=', '\n', '\0']) || text.contains(['\n', '\0']) {
                context.add_invalid(
                    &attribute_path,
                    "attributes must not contain line breaks, or '=' in the name",
                );
            }
        }
        check_file(&path, "attributesFile", part.attributes_file.as_deref(), context);
    }
}

pub(super) fn check_group(group: &NodeGroup, context: &mut Context) {
    context.check_tags("spec.tags", &group.spec.tags);
    context.check_comment(&group.spec.comment);
}
