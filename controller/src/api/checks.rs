//! The checks of every request before its handler runs: origin, user, media type and permission; and the audit record after
//! it.

use super::audit::{AuditLog, Changes};
use super::authentication::tokens::AcceptedToken;
use super::authentication::{Authenticated, Authenticator, User, check_origin};
use super::authorization::{Attributes, permits_any_sufficient, refusal};
use super::cross_origin;
use super::error::ApiError;
use super::request::{UnreadBody, media_type};
use super::request_limiter::RequestLimiter;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::header;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use ha_runtime::http::{ConnectionHandle, Peer};
use ha_runtime::tls::ClientIdentity;
use std::sync::Arc;

/// State of the checks. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RequestChecks {
    pub(crate) authenticator: Authenticator,
    pub(crate) audit_log: AuditLog,
    pub(crate) request_limiter: Arc<RequestLimiter>,
}

/// Checks a request, passes it on with its user, and records writes and refusals. If the handler does not read the body,
/// the response waits until the client has sent it.
pub(crate) async fn check(State(checks): State<RequestChecks>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let (body, unread_body) = UnreadBody::lend(body);
    let response = respond(&checks, Request::from_parts(parts, body), next).await;
    unread_body.discard().await;
    response
}

async fn respond(checks: &RequestChecks, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let source = parts.extensions.get::<Peer>().copied();
    let attributes = Attributes::of_request(&mut parts).await;
    let changes = Changes::default();
    let (user, response) = match identify(&checks.authenticator, &parts) {
        Ok(Authenticated { user, token }) => {
            let permission = check_permission(&user, attributes.as_ref(), &parts, &body);
            let slot = match permission {
                Ok(()) if attributes.as_ref().is_some_and(Attributes::has_separate_limit) => Ok(None),
                Ok(()) => checks.request_limiter.acquire_slot(&user.name).await.map(Some),
                Err(error) => Err(error),
            };
            let response = match slot {
                // The slot becomes free with the response. A watch is then still open.
                Ok(_slot) => {
                    parts.extensions.insert(user.clone());
                    parts.extensions.insert(changes.clone());
                    end_with_token(next.run(Request::from_parts(parts, body)).await, token)
                }
                Err(error) => error.into_response(),
            };
            (Some(user), response)
        }
        // A new machine has no identity yet. The handler checks its join token.
        Err(error) if error.is_unauthorized() && attributes.as_ref().is_some_and(Attributes::is_join) => {
            let response = match check_media_type(&parts, &body) {
                Ok(()) => next.run(Request::from_parts(parts, body)).await,
                Err(error) => error.into_response(),
            };
            (None, response)
        }
        Err(error) => (None, error.into_response()),
    };
    if let Some(attributes) = attributes {
        checks.audit_log.record(user.as_ref(), source, &attributes, response.status(), &changes);
    }
    response
}

/// Identifies the user of a request that no web page has sent, except the console, as the owner of its connection.
fn identify(authenticator: &Authenticator, parts: &Parts) -> Result<Authenticated, ApiError> {
    if !cross_origin::is_permitted(parts) {
        check_origin(parts.extensions.get::<ClientIdentity>(), authority(parts), &parts.headers)?;
    }
    let authenticated = authenticator.authenticate(parts)?;
    if let Some(connection) = parts.extensions.get::<ConnectionHandle>() {
        let User { name, groups, .. } = &authenticated.user;
        connection.identify(name, groups).map_err(|reached| ApiError::too_many_connections(&reached))?;
    }
    Ok(authenticated)
}

/// Decides whether the handler of a request may run. A request without attributes has no route, so the answer is 404.
fn check_permission(
    user: &User,
    attributes: Option<&Attributes>,
    parts: &Parts,
    body: &Body,
) -> Result<(), ApiError> {
    match attributes {
        Some(attributes) if !permits_any_sufficient(user, attributes) => Err(refusal(user, attributes)),
        Some(_) | None => check_media_type(parts, body),
    }
}

/// Ends a long answer, such as a watch, when the token of its user is no longer accepted.
fn end_with_token(response: Response, token: Option<AcceptedToken>) -> Response {
    // A short answer has a known length.
    let is_long = response.body().size_hint().exact().is_none();
    match token {
        Some(token) if is_long => {
            let invalidated = Box::pin(async move { token.wait_until_invalid().await });
            response.map(|body| Body::from_stream(body.into_data_stream().take_until(invalidated)))
        }
        Some(_) | None => response,
    }
}

/// Returns the authority of the URL: HTTP/2 sends it in the request line, HTTP/1 as `Host`.
pub(super) fn authority(parts: &Parts) -> &str {
    let host = || parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    parts.uri.authority().map(axum::http::uri::Authority::as_str).or_else(host).unwrap_or_default()
}

/// Refuses a body without a media type, which a web page can send to other origins without asking.
fn check_media_type(parts: &Parts, body: &Body) -> Result<(), ApiError> {
    if body.is_end_stream() || !media_type(&parts.headers).is_empty() {
        return Ok(());
    }
    Err(ApiError::unsupported_media_type("no Content-Type", &["application/json", "application/yaml"]))
}
