//! `/apis/hactl.io/v1/controllers/ID`. Controllers are not objects, but the key of a controller that was removed can be
//! deleted.

use super::ApiState;
use super::commit::{Written, commit};
use super::error::ApiError;
use super::request::Parameters;
use crate::core::candidates::controller_deletion;
use crate::core::commands::controller_deletion_refusal;
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use ha_api_types::cluster::{CLUSTER_NAME, Cluster};
use ha_api_types::error_reason::ErrorReason;
use ha_api_types::id::ControllerId;
use ha_api_types::kind::Kind;
use ha_api_types::time::Millis;
use ha_api_types::timing::Timings;
use ha_store::Store;
use serde_json::json;

/// Handles DELETE. The deletion is refused while the controller refreshes its key. The deletion guards both keys of the
/// controller, so a refresh in the meantime also causes a refusal.
pub(crate) async fn delete<S: Store>(
    State(state): State<ApiState<S>>,
    Path(id): Path<ControllerId>,
    request: Request,
) -> Result<Response, ApiError> {
    let parameters = Parameters::of(request.uri())?;
    let keys = state.keys();
    let candidate_key = keys.candidate(&id);
    let candidate = state.store().get(&candidate_key).await?;
    let Some(candidate) = candidate.entries.first() else {
        return Err(ApiError::new(ErrorReason::NotFound, format!("controller {id} does not exist")));
    };
    let refresh = state.store().get(&keys.refresh(&id)).await?;
    let refresh = refresh.entries.first().map(|entry| entry.mod_revision);
    let refused = |text: String| ApiError::new(ErrorReason::Conflict, text);
    let heartbeat_lifetime_ms = heartbeat_lifetime_ms(&state).await?;
    // A key without an observed change counts as unchanged since this process began to watch.
    let observer = state.observer();
    let watched_ms = observer.watching_ms().filter(|watched_ms| *watched_ms >= heartbeat_lifetime_ms);
    let unchanged_ms = observer.controller_unchanged_ms(keys, &id).or(watched_ms);
    if let Some(text) = controller_deletion_refusal(&id, unchanged_ms, heartbeat_lifetime_ms) {
        return Err(refused(text));
    }
    if !parameters.dry_run {
        let transaction = controller_deletion(keys, &id, candidate.mod_revision, refresh);
        if commit(state.store(), transaction, &candidate_key, None).await? == Written::Conflict {
            return Err(refused(format!(
                "controller {id} is running: its key just changed. Stop the controller first"
            )));
        }
    }
    Ok(Json(json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": id, "group": ha_api_types::kind::GROUP, "kind": "controllers"},
    }))
    .into_response())
}

/// Returns the heartbeat lifetime (Th) of the Cluster object, or the default if the object is absent or unreadable.
async fn heartbeat_lifetime_ms<S: Store>(state: &ApiState<S>) -> Result<Millis, ApiError> {
    let cluster = state.store().get(&state.keys().spec(Kind::Cluster, CLUSTER_NAME)).await?;
    let read = |value: &[u8]| serde_json::from_slice::<Cluster>(value).ok();
    let timings = cluster.entries.first().and_then(|entry| read(&entry.value));
    Ok(timings
        .map_or_else(Timings::default, |cluster| Timings::from(&cluster.spec.timing))
        .heartbeat_valid_ms)
}
