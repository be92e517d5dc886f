//! Checks of a Resource.

use super::context::Context;
use super::driver;
use crate::names;
use crate::problem::{element_path, field_path};
use crate::resource::{Resource, StorageMode};

/// Maximum time limit of a command in seconds: one day.
const MAX_TIMEOUT_SECONDS: f64 = 86_400.0;

pub(super) fn check(resource: &Resource, context: &mut Context) {
    let spec = &resource.spec;
    driver::check(&spec.driver, context);
    if let Some(group) = &spec.group {
        context.check_name("spec.group", group);
    }
    if let Some(storage) = &spec.storage {
        if storage.pool.is_empty() {
            context.add_required(
                "spec.storage.pool",
                "required: the storage pool, as listed in spec.storagePools of nodes",
            );
        }
        match (&storage.secondary, storage.mode) {
            (Some(node), StorageMode::Replicated) => context.check_node_name("spec.storage.secondary", node),
            (Some(_), StorageMode::Shared | StorageMode::Local) => {
                context.add_invalid("spec.storage.secondary", "requires mode Replicated");
            }
            (None, StorageMode::Replicated) => {
                context.add_required(
                    "spec.storage.secondary",
                    "required by mode Replicated: the node with the second copy",
                );
            }
            (None, StorageMode::Shared | StorageMode::Local) => {}
        }
    }
    context.check_resource_names("spec.dependsOn", &spec.depends_on);
    for (index, other) in spec.depends_on.iter().enumerate() {
        if names::without_type(other) == resource.metadata.name {
            context.add_invalid(&element_path("spec.dependsOn", index), "a resource cannot depend on itself");
        }
    }
    context.check_tags("spec.tags", &spec.tags);
    context.check_comment(&spec.comment);
    let timeouts = &spec.timeouts;
    for (field, value, min_seconds) in [
        ("startSeconds", timeouts.start_seconds, 0.1),
        ("stopSeconds", timeouts.stop_seconds, 0.0),
        ("migrateSeconds", timeouts.migrate_seconds, 0.1),
        ("replaceSeconds", timeouts.replace_seconds, 0.1),
        ("monitorSeconds", timeouts.monitor_seconds, 0.1),
        ("stableSeconds", timeouts.stable_seconds, 0.0),
    ] {
        context.check_seconds(&field_path("spec.timeouts", field), value, min_seconds, MAX_TIMEOUT_SECONDS);
    }
}
