//! `/apis/hactl.io/v1/usage`: current resource usage of nodes and services.

use super::ApiState;
use super::error::ApiError;
use super::facts;
use crate::core::usage_overview::overview;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ha_store::Store;

pub(crate) async fn handler<S: Store>(State(state): State<ApiState<S>>) -> Result<Response, ApiError> {
    Ok(Json(overview(&facts::world(&state).await?)).into_response())
}
