//! Warnings about accepted objects: names that do not exist, conflicting rules, and, in a dry run, the effects of the
//! change.

use super::{ApiState, facts, read, what_if};
use crate::core::order::DependencyGraph;
use crate::core::placement::declarations;
use ha_api_types::id::ResourceName;
use ha_api_types::kind::Kind;
use ha_api_types::names::{self, TypedName};
use ha_api_types::operation::{OperationAction, OperationSpec};
use ha_api_types::placement::{AffinityRuleSpec, GroupSpec};
use ha_api_types::redact::is_secret_name;
use ha_api_types::resource::{RequestedState, ResourceSpec};
use ha_scheduler::Rules;
use ha_store::Store;
use serde_json::Value;

/// Maximum number of references that are checked; further references cause no warning.
const MAX_REFERENCES: usize = 50;

/// A name that an object refers to: the field, the kind, and the name as written.
struct Reference {
    path: &'static str,
    kind: Kind,
    written: String,
}

/// Returns warnings about an object as it is stored, or would be in a dry run. This function does not fail: data that
/// cannot be read causes no warning.
pub(crate) async fn object_warnings<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    name: &str,
    value: &Value,
    dry_run: bool,
) -> Vec<String> {
    let mut warnings = literal_secrets(kind, value);
    warnings.extend(dependent_stop_warning(state, kind, name, value).await);
    for reference in references(kind, value).into_iter().take(MAX_REFERENCES) {
        warnings.extend(missing(state, &reference).await);
    }
    if dry_run {
        // The plan also reports conflicts.
        let changed = [(kind, name.to_owned(), value.clone())];
        if let Ok(plan) = what_if::plan_changes(state, &changed, &[]).await {
            warnings.extend(plan.effects.iter().map(ha_api_types::view::PlannedEffect::sentence));
            warnings.extend(plan.warnings);
        }
    } else {
        warnings.extend(conflicts(state, kind, name).await);
    }
    warnings
}

/// Returns a warning for each variable or attribute that contains a secret, by its name.
fn literal_secrets(kind: Kind, value: &Value) -> Vec<String> {
    let maps: Vec<(String, &Value)> = match kind {
        Kind::Resource => {
            let drivers = value.pointer("/spec/driver").and_then(Value::as_object);
            let fields = drivers.into_iter().flatten().flat_map(|(driver, settings)| {
                ["environment", "parameters", "settings"]
                    .map(|field| (format!("spec.driver.{driver}.{field}"), &settings[field]))
            });
            fields.collect()
        }
        Kind::Node => {
            let devices = value.pointer("/spec/fencing/devices").and_then(Value::as_array);
            let devices = devices.into_iter().flatten().enumerate();
            let fields = devices.flat_map(|(device_index, device)| {
                let parts = device["parts"].as_array().into_iter().flatten().enumerate();
                parts.map(move |(part_index, part)| {
                    let part_path = format!("spec.fencing.devices[{device_index}].parts[{part_index}]");
                    (format!("{part_path}.attributes"), &part["attributes"])
                })
            });
            fields.collect()
        }
        Kind::Group
        | Kind::AffinityRule
        | Kind::NodeGroup
        | Kind::Cluster
        | Kind::Operation
        | Kind::GitSync => Vec::new(),
    };
    let names = maps.into_iter().flat_map(|(path, map)| {
        let literals = map.as_object().into_iter().flatten().filter(|(_, value)| value.is_string());
        let names = literals.map(|(name, _)| name.clone());
        names.map(move |name| (path.clone(), name))
    });
    names
        .filter(|(_, name)| is_secret_name(name))
        .map(|(path, name)| {
            format!("{path}.{name}: is stored in plain text in etcd and its backups; if it is a secret, use valueFrom or a file on the nodes")
        })
        .collect()
}

/// Returns a warning that names the services that stop together with a resource, if the change stops that resource.
async fn dependent_stop_warning<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    name: &str,
    value: &Value,
) -> Option<String> {
    let first: ResourceName = match kind {
        Kind::Resource => {
            let spec: ResourceSpec = read::spec_of(value);
            let stops = matches!(spec.state, RequestedState::Stopped | RequestedState::Disabled);
            stops.then(|| name.into())
        }
        Kind::Operation => {
            let spec: OperationSpec = read::spec_of(value);
            spec.resource
                .filter(|_| spec.action == OperationAction::Stop)
                .map(|name| names::without_type(&name).into())
        }
        Kind::Group | Kind::AffinityRule | Kind::Node | Kind::NodeGroup | Kind::Cluster | Kind::GitSync => {
            None
        }
    }?;
    let cluster_view = facts::cluster_view(state).await.ok()?;
    let order = DependencyGraph::of(cluster_view.resources.iter().map(|(name, read)| (name, &read.value)));
    let stopped: Vec<&str> = order
        .dependents(&first)
        .filter(|next| {
            cluster_view
                .resources
                .get(*next)
                .is_some_and(|next| next.value.spec.state == RequestedState::Started)
        })
        .map(ResourceName::as_str)
        .collect();
    let verb = if stopped.len() == 1 {
        "depends on this resource and is"
    } else {
        "depend on this resource and are"
    };
    (!stopped.is_empty()).then(|| format!("{} {verb} stopped first", stopped.join(", ")))
}

fn references(kind: Kind, value: &Value) -> Vec<Reference> {
    let mut references = Vec::new();
    let mut add = |path: &'static str, kind: Kind, written: &str| {
        references.push(Reference { path, kind, written: written.to_owned() });
    };
    match kind {
        Kind::Resource => {
            let spec: ResourceSpec = read::spec_of(value);
            if let Some(group) = &spec.group {
                add("spec.group", Kind::Group, group);
            }
            for other in &spec.depends_on {
                add("spec.dependsOn", Kind::Resource, other);
            }
            for node in spec.storage.iter().filter_map(|storage| storage.secondary.as_ref()) {
                add("spec.storage.secondary", Kind::Node, node);
            }
        }
        Kind::Group => {
            let spec: GroupSpec = read::spec_of(value);
            for node in spec.nodes.0.keys() {
                add("spec.nodes", Kind::Node, node);
            }
        }
        Kind::AffinityRule => {
            let spec: AffinityRuleSpec = read::spec_of(value);
            if let Some(affinity) = &spec.node_affinity {
                for resource in &affinity.resources {
                    add("spec.nodeAffinity.resources", Kind::Resource, resource);
                }
                for node in affinity.nodes.0.keys() {
                    add("spec.nodeAffinity.nodes", Kind::Node, node);
                }
            }
            for resource in spec.resource_affinity.iter().flat_map(|affinity| &affinity.resources) {
                add("spec.resourceAffinity.resources", Kind::Resource, resource);
            }
        }
        Kind::Node => {
            if let Some(group) = value.pointer("/spec/nodeGroup").and_then(Value::as_str) {
                add("spec.nodeGroup", Kind::NodeGroup, group);
            }
        }
        Kind::NodeGroup | Kind::Cluster | Kind::Operation | Kind::GitSync => {}
    }
    references
}

/// Returns a warning if no object has that name, or if its type differs.
async fn missing<S: Store>(state: &ApiState<S>, reference: &Reference) -> Option<String> {
    let Reference { path, kind, written } = reference;
    let bare = names::without_type(written);
    match read::get(state.store(), state.keys(), *kind, bare).await {
        Ok(None) => Some(format!("{path}: {}", names::missing_message(*kind, bare))),
        Ok(Some(stored)) if *kind == Kind::Resource => {
            let spec: ResourceSpec = read::spec_of(&stored.spec.value);
            TypedName::parse(written).check(&spec).err().map(|message| format!("{path}: {message}"))
        }
        Ok(Some(_)) | Err(_) => None,
    }
}

/// Returns the conflicts of all rules that involve this object.
async fn conflicts<S: Store>(state: &ApiState<S>, kind: Kind, name: &str) -> Vec<String> {
    if !matches!(kind, Kind::AffinityRule | Kind::Group | Kind::Resource | Kind::Node) {
        return Vec::new();
    }
    let Ok(cluster_view) = facts::cluster_view(state).await else { return Vec::new() };
    let declared = declarations(&cluster_view);
    let (_, conflicts) = Rules::compile(&declared);
    let in_group =
        |resource: &ResourceName| declared.group_of.get(resource).is_some_and(|group| group == name);
    conflicts
        .into_iter()
        .filter(|conflict| match kind {
            Kind::AffinityRule => conflict.rule == name || conflict.other_rules.contains(name),
            Kind::Group => conflict.short_of_nodes && conflict.resources.iter().any(in_group),
            Kind::Resource => conflict.short_of_nodes && conflict.resources.contains(name),
            Kind::Node => conflict.short_of_nodes,
            Kind::NodeGroup | Kind::Cluster | Kind::Operation | Kind::GitSync => false,
        })
        .map(|conflict| format!("rule {} is not applied: {}", conflict.rule, conflict.message))
        .collect()
}
