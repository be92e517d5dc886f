//! `/apis/hactl.io/v1/resources/NAME/explain`: why a service runs on its node, with the verdict for each node.

use super::ApiState;
use super::error::ApiError;
use super::facts;
use super::read;
use crate::core::explain::explain;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use ha_api_types::kind::Kind;
use ha_api_types::names;
use ha_store::Store;

pub(crate) async fn handler<S: Store>(
    State(state): State<ApiState<S>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    // Refuses a name with the wrong type.
    read::find(state.store(), state.keys(), Kind::Resource, &name).await?;
    let world = facts::world(&state).await?;
    let name = names::bare(&name);
    let resource = world.resources.get(name).ok_or_else(|| ApiError::not_found(Kind::Resource, name))?;
    Ok(Json(explain(&world, &resource.value)).into_response())
}
