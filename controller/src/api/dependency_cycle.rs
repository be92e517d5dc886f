//! Check for dependency cycles in `spec.dependsOn`. A change that closes a cycle is refused, because no service in it
//! could start.

use super::error::ApiError;
use super::{ApiState, facts, read};
use crate::core::order::DependencyGraph;
use crate::core::world::ClusterView;
use ha_api_types::id::ResourceName;
use ha_api_types::kind::Kind;
use ha_api_types::names;
use ha_api_types::problem::{Problem, ProblemKind, element_path};
use ha_api_types::resource::{Resource, ResourceSpec};
use ha_store::Store;
use serde_json::Value;
use std::collections::BTreeMap;

/// Refuses a resource that depends on itself, directly or through other resources. A cycle that existed before the
/// change is not refused again.
pub(super) async fn check<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    name: &str,
    current: Option<&Value>,
    value: &Value,
) -> Result<(), ApiError> {
    let after = |value: &Value| read::spec_of::<ResourceSpec>(value).depends_on;
    if kind != Kind::Resource || after(value).is_empty() || current.map(after) == Some(after(value)) {
        return Ok(());
    }
    let cluster_view = facts::cluster_view(state).await?;
    let mut resources: BTreeMap<ResourceName, Resource> =
        cluster_view.resources.into_iter().map(|(name, read)| (name, read.value)).collect();
    let resource = ResourceName::from(name);
    let changed = resources.entry(resource.clone()).or_default();
    changed.spec = read::spec_of(value);
    match problem(&DependencyGraph::of(resources.iter()), &resource, &changed_after(&resources, &resource)) {
        Some(problem) => Err(ApiError::invalid(kind, name, &[problem])),
        None => Ok(()),
    }
}

/// Checks several changes together, in the cluster as it would be after all of them.
pub(super) fn check_all<'a>(
    before: &ClusterView,
    after: &ClusterView,
    mut changed: impl Iterator<Item = &'a ResourceName>,
) -> Result<(), ApiError> {
    let graph = |cluster_view: &ClusterView| {
        DependencyGraph::of(cluster_view.resources.iter().map(|(name, read)| (name, &read.value)))
    };
    let (order_before, order_after) = (graph(before), graph(after));
    if order_before == order_after {
        return Ok(());
    }
    let changed_cycle = changed.find_map(|name| {
        let spec = &after.resources.get(name)?.value.spec;
        let problem = problem(&order_after, name, &spec.depends_on)?;
        order_before.dependency_cycle(name).is_none().then_some((name, problem))
    });
    match changed_cycle {
        Some((name, problem)) => Err(ApiError::invalid(Kind::Resource, name, &[problem])),
        None => Ok(()),
    }
}

fn changed_after(resources: &BTreeMap<ResourceName, Resource>, name: &ResourceName) -> Vec<String> {
    resources.get(name).map(|resource| resource.spec.depends_on.clone()).unwrap_or_default()
}

fn problem(order: &DependencyGraph, name: &ResourceName, after: &[String]) -> Option<Problem> {
    let dependency_cycle = order.dependency_cycle(name)?;
    // The resource that precedes `name` in the cycle is the one that its `spec.dependsOn` names.
    let named = dependency_cycle.get(dependency_cycle.len().checked_sub(2)?)?;
    let index = after.iter().position(|written| names::without_type(written) == named).unwrap_or_default();
    let message = format!("dependency cycle: {}", dependency_cycle.join(" → "));
    Some(Problem::new(element_path("spec.dependsOn", index), ProblemKind::FieldValueInvalid, message))
}
