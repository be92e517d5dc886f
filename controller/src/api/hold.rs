//! `/apis/hactl.io/v1/nodes/NAME/hold`: an agent that cannot commit asks not to be declared dead (FENCING, section
//! 9).
//!
//! The answer comes from the memory of this process, because etcd is unreachable when an agent asks.

use super::ApiState;
use super::error::ApiError;
use super::request::read_body;
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
use ha_api_types::error_reason::ErrorReason;
use ha_api_types::id::NodeName;
use ha_api_types::names;
use ha_api_types::record::{HoldAnswer, HoldRequest};
use ha_runtime::tls::ClientIdentity;
use ha_store::Store;
use std::sync::Arc;

/// Function that asks the controller's core; it returns `None` while the core shuts down.
pub type AskHold = Arc<dyn Fn(NodeName, HoldRequest) -> BoxFuture<'static, Option<HoldAnswer>> + Send + Sync>;

/// Handles POST of a [`HoldRequest`] and answers with a [`HoldAnswer`].
pub(crate) async fn handler<S: Store>(
    State(state): State<ApiState<S>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let node = NodeName::from(names::bare(&name));
    if !is_agent_of(&parts, &node) {
        let message = format!(
            "only the agent of {node} may send this request, with the client certificate of that name"
        );
        return Err(ApiError::new(ErrorReason::Forbidden, message));
    }
    let bytes = read_body(body).await?;
    let question: HoldRequest = serde_json::from_slice(&bytes).map_err(|error| {
        ApiError::bad_request(format!("request body is not a valid hold request: {error}"))
    })?;
    let ending = || ApiError::unavailable("controller is shutting down");
    let ask = state.options().ask_hold.as_ref().ok_or_else(ending)?;
    let answer = ask(node, question).await.ok_or_else(ending)?;
    Ok(Json(answer).into_response())
}

/// Returns `true` if the client is the agent of this node: by the name in its certificate, or because it is local.
fn is_agent_of(parts: &Parts, node: &NodeName) -> bool {
    match parts.extensions.get::<ClientIdentity>() {
        Some(ClientIdentity::Certificate { name, groups: _ }) => name == node,
        Some(ClientIdentity::Loopback) | None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_nodes_own_certificate_may_request_a_hold() {
        let of = |identity: Option<ClientIdentity>| {
            let (mut parts, ()) = axum::http::Request::new(()).into_parts();
            if let Some(identity) = identity {
                parts.extensions.insert(identity);
            }
            is_agent_of(&parts, &"node1".into())
        };
        let certificate =
            |name: &str| Some(ClientIdentity::Certificate { name: name.to_owned(), groups: Vec::new() });
        assert!(of(certificate("node1")));
        assert!(!of(certificate("node10")));
        assert!(!of(certificate("admin")));
        assert!(of(Some(ClientIdentity::Loopback)));
    }
}
