//! `/apis/hactl.io/v1/state`: all keys of the cluster at one revision, for a support dump and its replay.

use super::ApiState;
use super::authentication::User;
use super::error::ApiError;
use super::facts;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use ha_api_types::keys::Key;
use ha_api_types::view::StateDump;
use ha_store::{Entry, Store};
use serde_json::Value;

pub(crate) async fn handler<S: Store>(
    State(state): State<ApiState<S>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, _) = request.into_parts();
    let secret_values = User::of_request(&parts).secret_values_of_cluster();
    let keys = state.keys();
    // Events are many, and the log of a service is not the state of the cluster.
    let mut selectors = facts::selectors(keys);
    selectors.extend([
        keys.tombstones(),
        keys.refreshes(),
        keys.notification_record(),
        keys.restore_marker(),
        keys.incarnation(),
    ]);
    let reading = state.store().list_all(&selectors).await?;
    let unchanged_ms = |key: &str| match keys.parse(key) {
        Some(Key::Alive(_)) => state.observer().unchanged_ms(key),
        Some(_) | None => None,
    };
    let stored = |entry: &Entry| entry.to_dump(keys.root(), unchanged_ms(&entry.key));
    let controller = match &state.options().read_state {
        Some(read) => read().await.unwrap_or_default(),
        None => Value::Null,
    };
    let mut dump = StateDump {
        at: state.timestamp(),
        revision: reading.revision,
        controller: secret_values.in_object(controller),
        keys: reading.entries.iter().map(stored).collect(),
    };
    for stored in &mut dump.keys {
        stored.value = secret_values.in_object(stored.value.take());
    }
    Ok(Json(dump).into_response())
}
