//! `/apis/hactl.io/v1/reservation`: whether all services could run if nodes failed (N+1 check).

pub(super) mod gate;
mod report;

use super::ApiState;
use super::error::ApiError;
use super::facts;
use super::request::query_pairs;
use crate::core::stored_view::view;
use crate::core::world::ClusterView;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use ha_api_types::id::NodeName;
use ha_scheduler::balance::live::ungrouped_name;
use ha_store::Store;
use report::{Failure, ReportOptions};
use std::collections::{BTreeMap, BTreeSet};

/// Handles GET with `failures` (1 or 2), `by` (`node`, `group` or a label key) and `proof` (also lists the new nodes
/// of services).
pub(crate) async fn handler<S: Store>(
    State(state): State<ApiState<S>>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut options = ReportOptions { cluster: state.options().cluster.clone(), ..ReportOptions::default() };
    let mut group_by = "node".to_owned();
    for (name, value) in query_pairs(request.uri())? {
        match name.as_str() {
            "failures" => {
                options.failures = match value.as_str() {
                    "1" => 1,
                    "2" => 2,
                    _ => return Err(ApiError::bad_request(format!("failures={value}: must be 1 or 2"))),
                }
            }
            "by" => group_by = value,
            "proof" => options.proof = matches!(value.as_str(), "true" | "1"),
            _ => {}
        }
    }
    if options.failures == 2 && group_by != "node" {
        return Err(ApiError::bad_request("failures=2 cannot be combined with by"));
    }
    let cluster_view = facts::cluster_view(&state).await?;
    let failures = failures(&cluster_view, &group_by);
    let report =
        tokio::task::spawn_blocking(move || report::build_report(view(&cluster_view).0, &options, &failures))
            .await;
    let report = report.map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(Json(report).into_response())
}

/// Returns the sets of nodes that fail together: each node, or the nodes of each group, or those with the same value
/// of a label. Nodes without a group form a group of their own.
fn failures(cluster_view: &ClusterView, group_by: &str) -> Vec<Failure> {
    let rest =
        ungrouped_name(cluster_view.nodes.values().filter_map(|node| node.value.spec.node_group.as_deref()));
    let mut domains: BTreeMap<String, BTreeSet<NodeName>> = BTreeMap::new();
    for (name, node) in &cluster_view.nodes {
        let domain = match group_by {
            "node" => Some(name.as_str()),
            "group" => Some(node.value.spec.node_group.as_deref().unwrap_or(rest)),
            label => node.value.metadata.labels.get(label).map(String::as_str),
        };
        if let Some(domain) = domain {
            domains.entry(format!("{group_by} {domain}")).or_default().insert(name.clone());
        }
    }
    domains.into_iter().map(|(failed_part, nodes)| Failure { failed_part, nodes }).collect()
}
