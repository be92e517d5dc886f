//! Conversion of a group membership that a node-affinity rule for the same resource supersedes.
//!
//! The rule takes precedence. On apply of the resource or of the rule, the resource's `group` is dropped. The group's
//! `nofailback`, which a rule cannot express, is kept as `failback: false`. The response warns about both, and about
//! differences between the rule and the group.

use super::ApiState;
use super::commit::commit;
use super::facts;
use super::read;
use crate::core::placement::declarations;
use crate::core::world::ClusterView;
use ha_api_types::id::ResourceName;
use ha_api_types::kind::Kind;
use ha_api_types::names;
use ha_api_types::placement::{AffinityRuleSpec, GroupSpec};
use ha_scheduler::Rules;
use ha_scheduler::rules::NodeRule;
use ha_store::{Guard, Store, Transaction};
use serde_json::{Value, json};

/// Removes the group of a proposed resource if a rule supersedes it. Returns warnings.
pub(crate) async fn convert_resource<S: Store>(state: &ApiState<S>, proposed: &mut Value) -> Vec<String> {
    let text = |pointer: &str| proposed.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let (Some(name), Some(group)) = (text("/metadata/name"), text("/spec/group")) else { return Vec::new() };
    let name = ResourceName::from(names::without_type(&name));
    let Ok(cluster_view) = facts::cluster_view(state).await else { return Vec::new() };
    let (rules, _) = Rules::compile(&declarations(&cluster_view));
    let Some(rule) = rules.node_rule(&name) else { return Vec::new() };
    let group_spec = cluster_view.groups.get(&group).map(|group| &group.value.spec);
    drop_group(proposed, group_spec);
    vec![warning_text(&name, &group, group_spec, rule)]
}

/// Removes the groups that a stored rule supersedes from the resources that it names. Returns warnings. A dry run
/// writes nothing.
pub(crate) async fn convert_resources_of_rule<S: Store>(
    state: &ApiState<S>,
    name: &str,
    value: &Value,
    dry_run: bool,
) -> Vec<String> {
    let Ok(cluster_view) = facts::cluster_view(state).await else { return Vec::new() };
    let spec: AffinityRuleSpec = read::spec_of(value);
    let mut input = declarations(&cluster_view);
    input.rules.insert(name.to_owned(), spec.clone());
    let (rules, _) = Rules::compile(&input);
    let mut new_warnings = Vec::new();
    for resource in spec.node_affinity.iter().flat_map(|rule| &rule.resources) {
        let resource = &ResourceName::from(names::without_type(resource));
        // A rule that is not applied, such as one in conflict, supersedes no group.
        let Some(rule) = rules.node_rule(resource).filter(|rule| rule.name == name) else { continue };
        let Some(group) = input.group_of.get(resource) else { continue };
        let group_spec = cluster_view.groups.get(group).map(|group| &group.value.spec);
        if dry_run || convert_stored(state, &cluster_view, resource, group_spec).await {
            new_warnings.push(warning_text(resource, group, group_spec, rule));
        }
    }
    new_warnings
}

/// Rewrites a stored resource. Returns `false` if another write came first; the next apply converts the resource.
async fn convert_stored<S: Store>(
    state: &ApiState<S>,
    cluster_view: &ClusterView,
    resource: &ResourceName,
    group: Option<&GroupSpec>,
) -> bool {
    let Ok(Some(stored)) = read::get(state.store(), state.keys(), Kind::Resource, resource).await else {
        return false;
    };
    let mut value = stored.spec.value.clone();
    drop_group(&mut value, group);
    let generation =
        cluster_view.resources.get(resource).map_or(1, |stored| stored.value.metadata.generation);
    value["metadata"]["generation"] = json!(generation.saturating_add(1));
    let Ok(bytes) = read::bytes(Kind::Resource, &value) else { return false };
    let key = state.keys().spec(Kind::Resource, resource);
    let unchanged = Guard::Unchanged(stored.spec.mod_revision);
    let transaction = Transaction::new().put(&key, unchanged, bytes.clone());
    matches!(
        commit(state.store(), transaction, &key, Some(&bytes)).await,
        Ok(super::commit::Written::Applied(_))
    )
}

fn drop_group(object: &mut Value, group: Option<&GroupSpec>) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.shift_remove("group");
        if group.is_some_and(|group| group.nofailback) {
            spec.insert("failback".to_owned(), json!(false));
        }
    }
}

fn warning_text(
    resource: &ResourceName,
    group: &str,
    group_spec: Option<&GroupSpec>,
    rule: &NodeRule,
) -> String {
    let mut text = format!(
        "resource {resource}: node affinity rule {} takes precedence, so group {group} is removed from \
         the resource",
        rule.name
    );
    let Some(group_spec) = group_spec else { return text };
    if group_spec.nofailback {
        text += "; failback: false is kept from the group's nofailback";
    }
    if group_spec.restricted && !rule.strict {
        text += "; the group was restricted: set strict in the rule to keep that restriction";
    }
    if group_spec.nodes != rule.nodes {
        let nodes: Vec<String> =
            group_spec.nodes.0.iter().map(|(node, priority)| format!("{node}: {priority}")).collect();
        text = format!("{text}; nodes of the group: {{{}}}", nodes.join(", "));
    }
    text
}
