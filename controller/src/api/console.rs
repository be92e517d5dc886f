//! The web console: static files of the program, which anyone may read. The console reads all data through the API.

use super::authentication::check_origin;
use super::checks::authority;
use super::error::ApiError;
use super::observer::Observer;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ha_runtime::tls::ClientIdentity;
use std::sync::Arc;

struct File {
    /// Path below `/console/`.
    path: &'static str,
    plain: &'static [u8],
    /// The content in gzip format.
    compressed: &'static [u8],
}

/// Files that the build script found; empty if the console was not built.
const FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/console_files.rs"));

/// Page of a program that was built without the console.
const NOT_BUILT: &str = include_str!("console/not_built.html");

/// Path of the first page.
const START: &str = "/console/";

/// Headers of every response, in addition to the content security policy.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Returns the routes of the console, which need no authentication.
pub(crate) fn router(observer: Arc<Observer>) -> Router {
    Router::new()
        .route("/console", get(async || redirect()))
        .route(START, get(async |headers: HeaderMap| respond("", &headers)))
        .route(
            "/console/{*path}",
            get(async |Path(path): Path<String>, headers: HeaderMap| respond(&path, &headers)),
        )
        .layer(from_fn_with_state(observer, protect))
}

/// Redirects a browser from `/` to the console. Other clients get the usual answer.
pub(crate) async fn redirect_browser(request: Request, next: Next) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if is_read && request.uri().path() == "/" && accepts_page(request.headers()) {
        return redirect();
    }
    next.run(request).await
}

/// Refuses requests under a wrong host or from other web pages, and adds the headers that protect the page.
async fn protect(State(observer): State<Arc<Observer>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let identity = parts.extensions.get::<ClientIdentity>();
    let mut response = match check_origin(identity, authority(&parts), &parts.headers) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(error) => error.into_response(),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if let Ok(policy) = HeaderValue::from_str(&content_security_policy(&observer)) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// Returns the restrictions of the page in the browser: only files of this controller and data of the cluster's controllers,
/// no inline scripts or styles, no frames.
fn content_security_policy(observer: &Observer) -> String {
    let controllers: Vec<String> = observer.controller_origins().into_iter().collect();
    format!(
        "default-src 'self'; connect-src 'self' {}; object-src 'none'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
        controllers.join(" ")
    )
}

fn redirect() -> Response {
    let headers = [(header::LOCATION, START), (header::VARY, "Accept"), (header::CACHE_CONTROL, "no-store")];
    (StatusCode::TEMPORARY_REDIRECT, headers).into_response()
}

/// Returns `true` if the client is a browser that opens a page.
fn accepts_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted
        .flat_map(|value| value.split(','))
        .any(|media_type| media_type.split(';').next().unwrap_or_default().trim() == "text/html")
}

/// Returns `true` if the client can read gzip.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|encoding| encoding == "gzip" || encoding.starts_with("gzip;"))
}

/// Answers with a file; an empty path names the first page.
fn respond(path: &str, headers: &HeaderMap) -> Response {
    let path = if path.is_empty() { "index.html" } else { path };
    if FILES.is_empty() && path == "index.html" {
        return file_response("text/html; charset=utf-8", "no-store", Body::from(NOT_BUILT));
    }
    let Some(file) = FILES.iter().find(|file| file.path == path) else {
        return ApiError::no_such_path().into_response();
    };
    // The name of an asset contains a hash of its content.
    let caching =
        if path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    if accepts_gzip(headers) {
        let mut response = file_response(content_type(path), caching, Body::from(file.compressed));
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        return response;
    }
    file_response(content_type(path), caching, Body::from(file.plain))
}

fn file_response(content_type: &'static str, caching: &'static str, body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, caching),
        (header::VARY, "Accept-Encoding"),
    ];
    (headers, body).into_response()
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" | "webmanifest" => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::middleware::from_fn;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    async fn get(path: &str, headers: &[(HeaderName, &str)]) -> (Response, String) {
        let mut request = Request::builder().uri(path).extension(ClientIdentity::Loopback);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let observer = Arc::new(Observer::of_origins(&["https://c2:7443"]));
        let other = Router::new().fallback(async || "the API").layer(from_fn(redirect_browser));
        let response = other.merge(router(observer)).oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let text = String::from_utf8_lossy(&body.collect().await.unwrap().to_bytes()).into_owned();
        (Response::from_parts(parts, Body::empty()), text)
    }

    const LOCAL: (HeaderName, &str) = (header::HOST, "localhost:7443");

    #[tokio::test]
    async fn only_a_browser_is_redirected() {
        let browser = (header::ACCEPT, "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8");
        let (response, _) = get("/", &[LOCAL, browser]).await;
        assert_eq!(response.status(), StatusCode::TEMPORARY_REDIRECT);
        assert_eq!(response.headers()[header::LOCATION], START);
        for accepted in ["application/json", "*/*", "application/json, */*"] {
            let (response, text) = get("/", &[LOCAL, (header::ACCEPT, accepted)]).await;
            assert_eq!((response.status(), text.as_str()), (StatusCode::OK, "the API"), "{accepted}");
        }
    }

    #[tokio::test]
    async fn the_first_page_has_the_protecting_headers() {
        let (response, text) = get("/console/", &[LOCAL]).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(text.contains("<title>"), "{text}");
        for (name, value) in HEADERS {
            assert_eq!(response.headers()[&name], value);
        }
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'self'; connect-src 'self' https://c2:7443;"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        // A strict policy blocks these.
        assert!(!text.contains("<style") && !text.contains(" style="), "{text}");
        assert!(!text.contains("<script>"), "{text}");
    }

    #[tokio::test]
    async fn a_wrong_host_and_a_foreign_page_are_refused() {
        let (response, _) = get("/console/", &[(header::HOST, "evil.example")]).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        let (response, _) = get("/console/", &[LOCAL, (header::ORIGIN, "http://evil.example")]).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
    }

    #[tokio::test]
    async fn an_unknown_file_is_not_found() {
        let (response, _) = get("/console/assets/missing.js", &[LOCAL]).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        let (response, _) = get("/console/../Cargo.toml", &[LOCAL]).await;
        assert_ne!(response.status(), StatusCode::OK);
    }

    #[test]
    fn every_file_has_a_known_type_and_a_compressed_form() {
        for file in FILES {
            assert_ne!(content_type(file.path), "application/octet-stream", "{}", file.path);
            assert!(file.compressed.starts_with(&[0x1f, 0x8b]), "{}", file.path);
        }
    }
}
