//! `/apis/hactl.io/v1/status`: the overview of the cluster for `hactl status`.

mod checks;
mod problems;

use super::ApiState;
use super::facts;
use crate::core::stored_view::status_of;
use crate::core::world::World;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ha_api_types::id::{NodeName, Revision, Term};
use ha_api_types::meta::Condition;
use ha_api_types::node::NodeState;
use ha_api_types::reason::Reason;
use ha_api_types::record::Leader;
use ha_api_types::resource::ServiceState;
use ha_api_types::time::{Millis, Seconds};
use ha_api_types::view::{
    ControllerOverview, ControllerState, LeaderOverview, NodeOverview, Overview, StoreOverview,
};
use ha_store::Store;
use std::collections::{BTreeMap, BTreeSet};

/// Time without a refresh, in milliseconds, after which a controller counts as lost: several refresh intervals of the
/// slowest profile.
const LOST_AFTER_MS: Millis = 15_000;

/// Handles GET. If etcd is unreachable, the response reports that.
pub(crate) async fn handler<S: Store>(State(state): State<ApiState<S>>) -> Response {
    let mut overview = Overview {
        cluster: state.options().cluster.clone(),
        answered_by: state.options().id.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Overview::default()
    };
    let (world, members) = futures::join!(facts::world(&state), state.options().members());
    overview.store = StoreOverview { quorum: world.is_ok(), revision: Revision(0), members };
    match world {
        Ok(world) => {
            fill(&state, &world, &mut overview);
            overview.checks = checks::of(&world, &overview);
            overview.problems = problems::of(&world, &overview);
        }
        Err(error) => overview.problems = vec![problems::no_store(&error)],
    }
    Json(overview).into_response()
}

fn fill<S>(state: &ApiState<S>, world: &World, overview: &mut Overview) {
    overview.store.revision = world.revision;
    overview.leader = world.leader.as_ref().map(|entry| {
        let leader: Leader = serde_json::from_slice(&entry.value).unwrap_or_default();
        LeaderOverview {
            id: leader.id,
            url: leader.url,
            term: Term::created_at(entry.create_revision),
            since: leader.since,
        }
    });
    overview.controllers = controllers(state, world, overview.leader.as_ref());
    overview.nodes = nodes(state, world);
    let mut services: BTreeMap<ServiceState, u32> = BTreeMap::new();
    for resource in world.resources.values() {
        *services.entry(status_of(world, &resource.value).state).or_default() += 1;
    }
    overview.services = services;
    if let Some(status) = world.cluster_status.as_ref().map(|status| &status.value) {
        overview.arming.clone_from(&status.arming);
        overview.waiting_for.clone_from(&status.waiting_for);
        overview.recent_fences.clone_from(&status.recent_fences);
    }
}

fn controllers<S>(
    state: &ApiState<S>,
    world: &World,
    leader: Option<&LeaderOverview>,
) -> Vec<ControllerOverview> {
    let observer = state.observer();
    world
        .candidates()
        .map(|(id, candidate)| {
            let silent_ms = observer.controller_silent_ms(&world.keys, id);
            // A controller without an observed refresh counts as lost only after this process has watched long
            // enough.
            let silence = silent_ms.or(observer.watching_ms()).unwrap_or(0);
            let own = *id == state.options().id;
            let controller_state = if leader.is_some_and(|leader| leader.id == *id) {
                ControllerState::Leading
            } else if silence < LOST_AFTER_MS || own {
                ControllerState::Standby
            } else {
                ControllerState::Lost
            };
            ControllerOverview {
                id: id.clone(),
                url: candidate.url,
                version: candidate.version,
                state: controller_state,
                silent_seconds: silent_ms.map(Seconds),
            }
        })
        .collect()
}

fn nodes<S>(state: &ApiState<S>, world: &World) -> Vec<NodeOverview> {
    let names: BTreeSet<&NodeName> = world.nodes.keys().chain(world.node_statuses.keys()).collect();
    names
        .into_iter()
        .map(|name| {
            let status = world.node_statuses.get(name).map(|status| status.value.clone()).unwrap_or_default();
            let fence = world.fences.get(name).map(|fence| &fence.value);
            let (reason, message) = ready(&status.conditions);
            NodeOverview {
                name: name.clone(),
                state: if world.nodes.contains_key(name) { status.state } else { NodeState::Gone },
                agent: status.agent,
                mode: status.mode,
                arming: status.arming,
                version: status.version,
                epoch: fence.map_or(status.epoch, |fence| fence.epoch),
                fence: fence.map_or(status.fence, |fence| fence.state.name().to_owned()),
                // Until the etcd lease of a fenced node expires, its heartbeat key remains.
                lease: world
                    .alive
                    .get(name)
                    .is_some_and(|alive| fence.is_none_or(|fence| alive.value.epoch >= fence.epoch)),
                watchdog: status.watchdog,
                silent_seconds: state.observer().silent_ms(&world.keys.alive(name)).map(Seconds),
                last_seen: status.last_heartbeat_time,
                services: status.services,
                reason,
                message,
            }
        })
        .collect()
}

/// Returns the reason and message of the Ready condition.
fn ready(conditions: &[Condition]) -> (Reason, String) {
    conditions.iter().find(|condition| condition.kind == "Ready").map_or_else(
        || (Reason::Pending, Reason::Pending.sentence().to_owned()),
        |ready| (ready.reason, ready.message.clone()),
    )
}
