//! `/apis/hactl.io/v1/placement`: the input of the scheduler, which every controller can serve.

use super::ApiState;
use super::error::ApiError;
use super::facts;
use crate::core::stored_view::view;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ha_store::Store;

pub(crate) async fn handler<S: Store>(State(state): State<ApiState<S>>) -> Result<Response, ApiError> {
    Ok(Json(view(&facts::world(&state).await?).0).into_response())
}
