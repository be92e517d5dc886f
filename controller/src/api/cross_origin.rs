//! Requests of the console that another controller served: the console uses any controller when its own does not answer.

use super::observer::Observer;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ha_runtime::tls::ClientIdentity;
use std::sync::Arc;

/// Marks a request from the console of another controller, in the extensions of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromOtherController;

/// Permits the pages of the cluster's other controllers, and no others, to send requests and to read the responses. The
/// requests need the same authentication as all others.
pub(crate) async fn share(
    State(observer): State<Arc<Observer>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(origin) = other_controller(&request, &observer) else { return next.run(request).await };
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if is_preflight {
        preflight_response()
    } else {
        request.extensions_mut().insert(FromOtherController);
        next.run(request).await
    };
    add_headers(response.headers_mut(), origin);
    response
}

/// Returns `true` if [`share`] has permitted the origin of the request.
pub(crate) fn is_permitted(parts: &Parts) -> bool {
    parts.extensions.get::<FromOtherController>().is_some()
}

/// Returns the origin of the request if it is that of a controller. Without TLS, a request has no credentials that its page
/// would have to know, so no other page is permitted.
fn other_controller(request: &Request, observer: &Observer) -> Option<HeaderValue> {
    match request.extensions().get::<ClientIdentity>() {
        Some(ClientIdentity::Certificate { .. } | ClientIdentity::Anonymous) => {}
        Some(ClientIdentity::Loopback | ClientIdentity::LocalUser { .. }) | None => return None,
    }
    let origin = request.headers().get(header::ORIGIN)?;
    observer.controller_origins().contains(origin.to_str().ok()?).then(|| origin.clone())
}

fn preflight_response() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, PATCH, DELETE"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "accept, authorization, content-type"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

fn add_headers(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("warning"));
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use tower::ServiceExt;

    async fn send(identity: ClientIdentity, method: Method, origin: &str) -> Response {
        let observer = Arc::new(Observer::of_origins(&["https://c2:7443"]));
        let router = Router::new().fallback(async || "data").layer(from_fn_with_state(observer, share));
        let request = Request::builder()
            .method(method)
            .extension(identity)
            .header(header::ORIGIN, origin)
            .header(header::ACCESS_CONTROL_REQUEST_METHOD, "GET");
        router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    fn is_shared(response: &Response, origin: &str) -> bool {
        response.headers().get(header::ACCESS_CONTROL_ALLOW_ORIGIN).is_some_and(|value| value == origin)
    }

    #[tokio::test]
    async fn only_the_pages_of_controllers_may_read_responses() {
        let controller = "https://c2:7443";
        let response = send(ClientIdentity::Anonymous, Method::GET, controller).await;
        assert!(is_shared(&response, controller));
        for other in ["https://evil.example", "https://c2", "http://c2:7443", "null"] {
            let response = send(ClientIdentity::Anonymous, Method::GET, other).await;
            assert!(!response.headers().contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN), "{other}");
        }
        // Without TLS, every local process and page would be an administrator.
        let response = send(ClientIdentity::Loopback, Method::GET, controller).await;
        assert!(!response.headers().contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
    }

    #[tokio::test]
    async fn a_preflight_is_answered_without_authentication() {
        let controller = "https://c2:7443";
        let response = send(ClientIdentity::Anonymous, Method::OPTIONS, controller).await;
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        assert!(is_shared(&response, controller));
        let allowed = response.headers()[header::ACCESS_CONTROL_ALLOW_HEADERS].to_str().unwrap();
        assert!(allowed.contains("authorization"), "{allowed}");
        let response = send(ClientIdentity::Anonymous, Method::OPTIONS, "https://evil.example").await;
        assert_ne!(response.status(), StatusCode::NO_CONTENT);
    }
}
