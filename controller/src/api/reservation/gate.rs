//! Effect of a change on the failover capacity check, computed before the change is written: a warning, or, with
//! `reservation.enforce`, a refusal.

use crate::api::error::ApiError;
use crate::api::what_if::effects::view_after_moves;
use crate::api::{ApiState, facts};
use crate::core::reservation::{check_failed_message, failure_lines, nodes_named};
use crate::core::stored_view::view;
use crate::core::world::ClusterView;
use ha_api_types::error_reason::ErrorReason;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::names::without_type;
use ha_api_types::operation::{OperationAction, OperationSpec};
use ha_api_types::reason::Reason;
use ha_api_types::time::MonotonicTime;
use ha_scheduler::View;
use ha_scheduler::reservation::{FailedCheck, MAX_SEARCH_STEPS, Model, Verdict};
use ha_store::{Change, Entry, LeaseId, Store};
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of services that a warning names.
const MAX_NAMED: usize = 10;
/// Cluster size (nodes times services) above which only `enforce` checks a change before it is written. In larger
/// clusters, the condition reports the effect after the write.
const MAX_WARNED_SIZE: usize = 5_000_000;

/// Checks a change before it is written. Returns nothing, a warning, or an error that refuses the change.
///
/// A node counts only if its failure would have been survived before the change, or if that was undecided.
/// Maintenance of a node is never refused: an operator must be able to begin it.
pub(in crate::api) async fn check<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    name: &str,
    current: Option<&Value>,
    value: &Value,
) -> Result<Vec<String>, ApiError> {
    if !can_affect_check(kind, current, value) {
        return Ok(Vec::new());
    }
    let before = facts::cluster_view(state).await?;
    let Some(change) = Proposal::of(&before, state.keys().spec(kind, name), kind, name, value)? else {
        return Ok(Vec::new());
    };
    let cluster = state.options().cluster.clone();
    let enforce = change.after.settings().reservation.enforce && kind != Kind::Node;
    let size = before.nodes.len() * before.resources.len();
    if !enforce && size > MAX_WARNED_SIZE {
        return Ok(Vec::new());
    }
    let failing = tokio::task::spawn_blocking(move || change.newly_failing(&before)).await;
    let failing = failing.map_err(|error| ApiError::internal(error.to_string()))?;
    if failing.is_empty() {
        return Ok(Vec::new());
    }
    let message = message(&cluster, &failing);
    if !enforce {
        return Ok(vec![format!("with this change: {message}")]);
    }
    let text = format!("refused by reservation.enforce: {message}");
    let cause = (Reason::InsufficientFailoverCapacity.as_str().to_owned(), "spec".to_owned(), text.clone());
    Err(ApiError::new(ErrorReason::Conflict, text).with_object(kind, name).with_causes(vec![cause]))
}

/// Returns the warning about several changes that are simulated together.
pub(in crate::api) async fn warning<S: Store>(
    state: &ApiState<S>,
    before: ClusterView,
    after: ClusterView,
) -> Result<Option<String>, ApiError> {
    if before.nodes.len() * before.resources.len() > MAX_WARNED_SIZE {
        return Ok(None);
    }
    let failing = tokio::task::spawn_blocking(move || {
        let view_after = view_after_moves(&before, &after, None);
        newly_failing(&before, &after, view_after)
    });
    let failing = failing.await.map_err(|error| ApiError::internal(error.to_string()))?;
    Ok((!failing.is_empty())
        .then(|| format!("with this change: {}", message(&state.options().cluster, &failing))))
}

/// Returns the nodes whose failure would certainly no longer be survived, once the leader has reacted to a change.
fn newly_failing(
    before: &ClusterView,
    after: &ClusterView,
    view_after: View,
) -> Vec<(NodeName, FailedCheck)> {
    let fails = |model: &Model, node: &NodeName| match model
        .check(&BTreeSet::from([node.to_owned()]), MAX_SEARCH_STEPS)
    {
        Verdict::Fails(failing) => Some(failing),
        Verdict::Survives(_) | Verdict::Unknown(_) => None,
    };
    let model = Model::of(view_after);
    let names: Vec<NodeName> = model.nodes_with_services().cloned().collect();
    let failing: Vec<(NodeName, FailedCheck)> =
        names.into_iter().filter_map(|node| fails(&model, &node).map(|failing| (node, failing))).collect();
    if failing.is_empty() {
        return failing;
    }
    // Both checks use the new reservation settings, so a change of those settings alone is never refused.
    let mut before_view = view(before).0;
    before_view.reservation.clone_from(&after.settings().reservation);
    let before_model = Model::of(before_view);
    failing.into_iter().filter(|(node, _)| fails(&before_model, node).is_none()).collect()
}

/// Returns `true` if a change can affect the check.
fn can_affect_check(kind: Kind, current: Option<&Value>, value: &Value) -> bool {
    match kind {
        Kind::Resource | Kind::Group | Kind::AffinityRule | Kind::NodeGroup | Kind::Node | Kind::Cluster => {
            current.and_then(|current| current.get("spec")) != value.get("spec")
        }
        Kind::Operation => current.is_none(),
        Kind::GitSync => false,
    }
}

fn message(cluster: &str, failing: &[(NodeName, FailedCheck)]) -> String {
    let nodes = nodes_named(failing.iter().map(|(node, _)| node.as_str()));
    let mut details: Vec<String> =
        failing.iter().flat_map(|(node, failing)| failure_lines(node, failing)).collect();
    let omitted = details.len().saturating_sub(MAX_NAMED);
    details.truncate(MAX_NAMED);
    if omitted > 0 {
        details.push(format!("and {omitted} more"));
    }
    let sentence = check_failed_message(cluster, &nodes).replacen(" failed: ", " would fail: ", 1);
    format!("{sentence}: {}", details.join("; "))
}

/// A change, and the view of the cluster after it.
struct Proposal {
    kind: Kind,
    name: String,
    after: ClusterView,
    /// A service that an operator moves, or to which an operator gives another secondary node.
    moved: Option<Moved>,
}

/// Move of one service by an operator.
struct Moved {
    resource: ResourceName,
    node: NodeName,
    /// The node becomes the secondary of the service.
    as_secondary: bool,
}

impl Proposal {
    fn of(
        before: &ClusterView,
        key: String,
        kind: Kind,
        name: &str,
        value: &Value,
    ) -> Result<Option<Proposal>, ApiError> {
        let mut after = before.clone();
        if kind == Kind::Operation {
            let spec: OperationSpec = crate::api::read::spec_of(value);
            let as_secondary = spec.action == OperationAction::ReplaceSecondary;
            let moves = matches!(spec.action, OperationAction::Migrate | OperationAction::Relocate);
            let moved = spec.resource.zip(spec.node).filter(|_| moves || as_secondary);
            let moved = moved.map(|(resource, node)| Moved {
                resource: without_type(&resource).into(),
                node,
                as_secondary,
            });
            return Ok(moved.map(|moved| Proposal {
                kind,
                name: name.to_owned(),
                after,
                moved: Some(moved),
            }));
        }
        let revision = before.revision + 1;
        let bytes = crate::api::read::bytes(kind, value)?;
        let entry = Entry {
            key,
            value: bytes.into(),
            create_revision: revision,
            mod_revision: revision,
            lease: LeaseId::NONE,
        };
        after.apply(vec![Change::Put(entry)], revision, MonotonicTime(0));
        Ok(Some(Proposal { kind, name: name.to_owned(), after, moved: None }))
    }

    /// Returns the nodes whose failure would certainly leave services without an eligible node, but only after the
    /// change.
    fn newly_failing(&self, before: &ClusterView) -> Vec<(NodeName, FailedCheck)> {
        newly_failing(before, &self.after, self.view_after_moves(before))
    }

    /// Returns the view of the cluster once the leader has reacted to the change.
    fn view_after_moves(&self, before: &ClusterView) -> View {
        let Some(Moved { resource, node, as_secondary }) = &self.moved else {
            let only_service = (self.kind == Kind::Resource).then(|| ResourceName::from(self.name.as_str()));
            return view_after_moves(before, &self.after, only_service.as_ref());
        };
        let mut view = view(before).0;
        if *as_secondary {
            if let Some(mut facts) = view.services.get_mut(resource) {
                let primary = facts.node.clone();
                facts.storage_nodes = Some(primary.into_iter().chain([node.clone()]).collect());
            }
            return view;
        }
        let mut moving = view.rules.strict_affinity_partners(resource);
        moving.insert(resource.clone());
        for name in moving {
            if let Some(mut facts) = view.services.get_mut(&name)
                && (!facts.used_nodes.is_empty() || name == *resource)
            {
                facts.node = Some(node.clone());
                if !facts.used_nodes.is_empty() {
                    facts.used_nodes = BTreeSet::from([node.clone()]);
                }
            }
        }
        view
    }
}
