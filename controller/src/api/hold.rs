//! `/apis/hactl.io/v1/nodes/NAME/hold`: an agent that cannot commit asks not to be declared dead (FENCING, section
//! 9).
//!
//! The answer comes from the memory of this process, because etcd is unreachable when an agent asks.

use super::ApiState;
use super::error::ApiError;
use super::request::read_body;
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
use ha_api_types::id::NodeName;
use ha_api_types::names;
use ha_api_types::record::{HoldAnswer, HoldRequest};
use ha_store::Store;
use std::sync::Arc;

/// Function that asks the controller's core; it returns `None` while the core shuts down.
pub type RequestHold =
    Arc<dyn Fn(NodeName, HoldRequest) -> BoxFuture<'static, Option<HoldAnswer>> + Send + Sync>;

/// Handles POST of a [`HoldRequest`] and answers with a [`HoldAnswer`]. Only the agent of the node is authorized.
pub(crate) async fn handler<S: Store>(
    State(state): State<ApiState<S>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = request.into_body();
    let node = NodeName::from(names::without_type(&name));
    let bytes = read_body(body).await?;
    let question: HoldRequest = serde_json::from_slice(&bytes).map_err(|error| {
        ApiError::bad_request(format!("request body is not a valid hold request: {error}"))
    })?;
    let ending = || ApiError::unavailable("controller is shutting down");
    let ask = state.options().request_hold.as_ref().ok_or_else(ending)?;
    let answer = ask(node, question).await.ok_or_else(ending)?;
    Ok(Json(answer).into_response())
}
