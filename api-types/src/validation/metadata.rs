//! Checks of metadata: names, labels, annotations, finalizers.

use super::context::Context;
use crate::cluster::CLUSTER_NAME;
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::problem::{element_path, field_path};
use serde_json::Value;

/// Maximum total size of annotations in bytes, as in Kubernetes.
const MAX_ANNOTATIONS_LENGTH: usize = 256 * 1024;

/// Maximum number of labels, of annotations and of finalizers. Kubernetes limits only their size, but each of them is
/// checked, compared and stored several times.
const MAX_METADATA_ENTRIES: usize = 512;

pub(super) fn check(metadata: &ObjectMeta, kind: Kind, value: &Value, context: &mut Context) {
    let name = metadata.name.as_str();
    match kind {
        Kind::Node => context.check_node_name("metadata.name", name),
        Kind::Cluster => {
            if name != CLUSTER_NAME {
                context.add_invalid(
                    "metadata.name",
                    format!("must be {CLUSTER_NAME}: only one Cluster object exists"),
                );
            }
        }
        Kind::Resource
        | Kind::Group
        | Kind::AffinityRule
        | Kind::NodeGroup
        | Kind::Operation
        | Kind::GitSync => {
            context.check_name("metadata.name", name);
        }
    }
    let namespace = value.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    if !namespace.is_empty() {
        context.add_invalid(
            "metadata.namespace",
            "must be empty: objects of hactl.io belong to the whole cluster",
        );
    }
    for (path, count) in [
        ("metadata.labels", metadata.labels.len()),
        ("metadata.annotations", metadata.annotations.len()),
        ("metadata.finalizers", metadata.finalizers.len()),
    ] {
        if count > MAX_METADATA_ENTRIES {
            context
                .add_invalid(path, format!("must have at most {MAX_METADATA_ENTRIES} entries, got {count}"));
        }
    }
    let owners = value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    if owners.is_some_and(|owners| !owners.is_empty()) {
        context
            .add_invalid("metadata.ownerReferences", "must be empty: objects are not deleted with an owner");
    }
    for (key, text) in &metadata.labels {
        let path = field_path("metadata.labels", key);
        check_key(&path, key, context);
        if !is_label_value(text) {
            context.add_invalid(
                &path,
                format!(
                    "{text:?} is not a valid label value: use at most 63 letters, digits, '-', '_' and \
                     '.', with a letter or digit at both ends"
                ),
            );
        }
    }
    for key in metadata.annotations.keys() {
        check_key(&field_path("metadata.annotations", key), key, context);
    }
    let length: usize = metadata.annotations.iter().map(|(key, text)| key.len() + text.len()).sum();
    if length > MAX_ANNOTATIONS_LENGTH {
        context.add_invalid(
            "metadata.annotations",
            format!("must have at most {MAX_ANNOTATIONS_LENGTH} bytes in total"),
        );
    }
    for (index, finalizer) in metadata.finalizers.iter().enumerate() {
        let path = element_path("metadata.finalizers", index);
        check_key(&path, finalizer, context);
        if !finalizer.contains('/') {
            context.add_invalid(&path, "must have the form domain/name");
        }
    }
}

/// Checks `[domain/]name` of labels, annotations and finalizers.
fn check_key(path: &str, key: &str, context: &mut Context) {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    let is_valid_domain = domain.is_none_or(|domain| crate::names::invalid_reason(domain, 253).is_none());
    if !is_valid_domain || name.is_empty() || !is_label_value(name) {
        context.add_invalid(
            path,
            format!(
                "{key:?} is not a valid key: use name or domain/name, where name has at most 63 \
                 letters, digits, '-', '_' and '.'"
            ),
        );
    }
}

fn is_label_value(text: &str) -> bool {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = text.as_bytes();
    text.is_empty()
        || (text.len() <= 63
            && bytes.first().is_some_and(is_alphanumeric)
            && bytes.last().is_some_and(is_alphanumeric)
            && bytes.iter().all(|byte| is_alphanumeric(byte) || b"-_.".contains(byte)))
}
