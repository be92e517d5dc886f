//! `/apis/hactl.io/v1/state`: all keys of the cluster at one revision, for a support dump and its replay.

use super::ApiState;
use super::error::ApiError;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ha_api_types::view::{StateDump, StoredKey};
use ha_store::{Entry, Store};
use serde_json::Value;

pub(crate) async fn handler<S: Store>(State(state): State<ApiState<S>>) -> Result<Response, ApiError> {
    let keys = state.keys();
    // Events are many, and the log of a service is not the state of the cluster.
    let selectors = [
        keys.specs(),
        keys.statuses(),
        keys.assignments(),
        keys.tombstones(),
        keys.fences(),
        keys.heartbeats(),
        keys.reports(),
        keys.candidates(),
        keys.refreshes(),
        keys.leader(),
        keys.notified(),
        keys.restored(),
        keys.incarnation(),
    ];
    let reading = state.store().list_all(&selectors).await?;
    let dump = StateDump {
        at: state.timestamp(),
        revision: reading.revision,
        keys: reading.entries.iter().map(|entry| stored(&state, entry)).collect(),
    };
    Ok(Json(dump).into_response())
}

fn stored<S: Store>(state: &ApiState<S>, entry: &Entry) -> StoredKey {
    let keys = state.keys();
    let is_heartbeat = entry.key.starts_with(&keys.heartbeats());
    let value = serde_json::from_slice(&entry.value)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&entry.value).into_owned()));
    StoredKey {
        key: entry.key.strip_prefix(keys.root()).unwrap_or(&entry.key).to_owned(),
        value,
        created: entry.create_revision,
        modified: entry.mod_revision,
        leased: entry.lease != 0,
        silent_ms: is_heartbeat.then(|| state.observer().silent_ms(&entry.key)).flatten(),
    }
}
