//! `/apis/hactl.io/v1/status`: the overview of the cluster for `hactl status`.

mod checks;
mod problems;

use super::ApiState;
use super::facts;
use crate::core::stored_view::status_of;
use crate::core::world::ClusterView;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ha_api_types::id::{NodeName, Term};
use ha_api_types::meta::Condition;
use ha_api_types::node::NodeState;
use ha_api_types::reason::Reason;
use ha_api_types::record::Leader;
use ha_api_types::resource::ServiceState;
use ha_api_types::time::{DecimalSeconds, Millis, Timestamp};
use ha_api_types::view::{
    ControllerOverview, ControllerState, EtcdOverview, LeaderOverview, NodeOverview, Overview,
};
use ha_runtime::clock::wall_unix_ms;
use ha_store::Store;
use std::collections::{BTreeMap, BTreeSet};

/// Time without a refresh, in milliseconds, after which a controller counts as lost: several refresh intervals of the
/// slowest profile.
const LOST_AFTER_MS: Millis = 15_000;

/// Handles GET. If etcd is unreachable, the response reports that.
pub(crate) async fn handler<S: Store>(State(state): State<ApiState<S>>) -> Response {
    let mut overview = Overview {
        cluster: state.options().cluster.clone(),
        answered_by: state.options().id.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Overview::default()
    };
    let (cluster_view, members) = futures::join!(facts::cluster_view(&state), state.options().members());
    overview.store = EtcdOverview { quorum: cluster_view.is_ok(), members, ..EtcdOverview::default() };
    match cluster_view {
        Ok(cluster_view) => {
            fill_overview(&state, &cluster_view, &mut overview);
            let now = Timestamp::from_unix_ms(wall_unix_ms());
            overview.checks = checks::cluster_checks(&cluster_view, &overview, &now);
            overview.problems = problems::list_problems(&cluster_view, &overview);
            overview.problems.extend(problems::authorization_problem(state.options()));
        }
        Err(error) => overview.problems = vec![problems::etcd_problem(&error)],
    }
    Json(overview).into_response()
}

fn fill_overview<S>(state: &ApiState<S>, cluster_view: &ClusterView, overview: &mut Overview) {
    overview.store.revision = cluster_view.revision;
    overview.store.backup = cluster_view.backup.as_ref().map(|backup| backup.value.clone());
    overview.leader = cluster_view.leader.as_ref().map(|entry| {
        let leader: Leader = serde_json::from_slice(&entry.value).unwrap_or_default();
        LeaderOverview {
            id: leader.id,
            url: leader.url,
            term: Term::created_at(entry.create_revision),
            since: leader.since,
        }
    });
    overview.controllers = controllers(state, cluster_view, overview.leader.as_ref());
    overview.nodes = nodes(state, cluster_view);
    let mut services: BTreeMap<ServiceState, u32> = BTreeMap::new();
    for resource in cluster_view.resources.values() {
        *services.entry(status_of(cluster_view, &resource.value).state).or_default() += 1;
    }
    overview.services = services;
    if let Some(status) = cluster_view.cluster_status.as_ref().map(|status| &status.value) {
        overview.arming.clone_from(&status.arming);
        overview.waiting_for.clone_from(&status.waiting_for);
        overview.recent_fences.clone_from(&status.recent_fences);
    }
}

fn controllers<S>(
    state: &ApiState<S>,
    cluster_view: &ClusterView,
    leader: Option<&LeaderOverview>,
) -> Vec<ControllerOverview> {
    let observer = state.observer();
    cluster_view
        .candidates()
        .map(|(id, candidate)| {
            let unchanged_ms = observer.controller_unchanged_ms(&cluster_view.keys, id);
            // A controller without an observed refresh counts as lost only after this process has watched long
            // enough.
            let silence = unchanged_ms.or(observer.watching_ms()).unwrap_or(0);
            let is_own = *id == state.options().id;
            let controller_state = if leader.is_some_and(|leader| leader.id == *id) {
                ControllerState::Leading
            } else if silence < LOST_AFTER_MS || is_own {
                ControllerState::Standby
            } else {
                ControllerState::Lost
            };
            ControllerOverview {
                id: id.clone(),
                url: candidate.url,
                version: candidate.version,
                state: controller_state,
                silent_seconds: unchanged_ms.map(DecimalSeconds),
            }
        })
        .collect()
}

fn nodes<S>(state: &ApiState<S>, cluster_view: &ClusterView) -> Vec<NodeOverview> {
    let names: BTreeSet<&NodeName> =
        cluster_view.nodes.keys().chain(cluster_view.node_statuses.keys()).collect();
    names
        .into_iter()
        .map(|name| {
            let status =
                cluster_view.node_statuses.get(name).map(|status| status.value.clone()).unwrap_or_default();
            let fence = cluster_view.fences.get(name).map(|fence| &fence.value);
            let (reason, message) = ready_reason(&status.conditions);
            NodeOverview {
                name: name.clone(),
                state: if cluster_view.nodes.contains_key(name) { status.state } else { NodeState::Gone },
                agent: status.agent,
                mode: status.mode,
                arming: status.arming,
                version: status.version,
                registration: fence.map_or(status.epoch, |fence| fence.epoch),
                registration_state: fence.map_or(status.fence, |fence| fence.state.name().to_owned()),
                // Until the etcd lease of a fenced node expires, its heartbeat key remains.
                lease: cluster_view
                    .alive
                    .get(name)
                    .is_some_and(|alive| fence.is_none_or(|fence| alive.value.epoch >= fence.epoch)),
                watchdog: status.watchdog,
                silent_seconds: state
                    .observer()
                    .unchanged_ms(&cluster_view.keys.alive(name))
                    .map(DecimalSeconds),
                last_heartbeat_time: status.last_heartbeat_time,
                services: status.services,
                reason,
                message,
            }
        })
        .collect()
}

/// Returns the reason and message of the Ready condition.
fn ready_reason(conditions: &[Condition]) -> (Reason, String) {
    conditions.iter().find(|condition| condition.kind == "Ready").map_or_else(
        || (Reason::Pending, Reason::Pending.sentence().to_owned()),
        |ready_reason| (ready_reason.reason, ready_reason.message.clone()),
    )
}
