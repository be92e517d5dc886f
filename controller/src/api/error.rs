//! Refusals and failures as `metav1.Status`, with cause and suggested action.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ha_api_types::error_reason::ErrorReason;
use ha_api_types::id::Revision;
use ha_api_types::kind::{GROUP, Kind};
use ha_api_types::problem::Problem;
use ha_runtime::http::TooManyConnections;
use ha_store::StoreError;
use serde_json::{Value, json};

/// An error response. The reason determines the HTTP status code.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    reason: ErrorReason,
    message: String,
    details: Option<Box<Value>>,
    retry_after_seconds: Option<u32>,
}

impl ApiError {
    pub(crate) fn new(reason: ErrorReason, message: impl Into<String>) -> ApiError {
        ApiError { reason, message: message.into(), details: None, retry_after_seconds: None }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(ErrorReason::BadRequest, message)
    }

    /// Returns the error for a body with fields that the kind does not have, found while decoding.
    pub(crate) fn strict(kind: Kind, problems: &[Problem]) -> ApiError {
        let list: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
        let message = format!("strict decoding error: {}", list.join(", "));
        let mut error = ApiError::bad_request(message);
        error.details =
            Some(Box::new(json!({"group": GROUP, "kind": kind.plural(), "causes": causes(problems)})));
        error
    }

    pub(crate) fn invalid(kind: Kind, name: &str, problems: &[Problem]) -> ApiError {
        let list: Vec<String> = problems.iter().map(Problem::to_string).collect();
        let list = match list.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let mut error =
            ApiError::new(ErrorReason::Invalid, format!("{kind}.{GROUP} {name:?} is invalid: {list}"));
        error.details = Some(Box::new(
            json!({"name": name, "group": GROUP, "kind": kind.name(), "causes": causes(problems)}),
        ));
        error
    }

    pub(crate) fn not_found(kind: Kind, name: &str) -> ApiError {
        ApiError::new(ErrorReason::NotFound, format!("{}.{GROUP} {name:?} not found", kind.plural()))
            .with_object(kind, name)
    }

    pub(crate) fn no_such_path() -> ApiError {
        ApiError::new(ErrorReason::NotFound, "the server could not find the requested resource")
    }

    pub(crate) fn method_not_allowed(message: impl Into<String>) -> ApiError {
        ApiError::new(ErrorReason::MethodNotAllowed, message)
    }

    pub(crate) fn already_exists(kind: Kind, name: &str) -> ApiError {
        ApiError::new(
            ErrorReason::AlreadyExists,
            format!("{}.{GROUP} {name:?} already exists", kind.plural()),
        )
        .with_object(kind, name)
    }

    /// Returns the error for a write that lost against another write, or for an object that may not change in its
    /// present state.
    pub(crate) fn conflict(kind: Kind, name: &str, message: &str) -> ApiError {
        ApiError::new(
            ErrorReason::Conflict,
            format!("Operation cannot be fulfilled on {}.{GROUP} {name:?}: {message}", kind.plural()),
        )
        .with_object(kind, name)
    }

    /// Returns the conflict after which a client reads the object again and repeats its change.
    pub(crate) fn conflict_after_change(kind: Kind, name: &str) -> ApiError {
        let text =
            "the object has been modified; please apply your changes to the latest version and try again";
        ApiError::conflict(kind, name, text)
    }

    pub(crate) fn revision_expired(oldest: Revision) -> ApiError {
        ApiError::new(
            ErrorReason::Expired,
            format!("too old resource version, the oldest that can be watched is {oldest}: list again"),
        )
    }

    /// Returns the error for a revision that this etcd data never reached, as after a restore without `hactl
    /// restore`. A watch that waited for it would miss every change until then.
    pub(crate) fn revision_not_reached(requested: Revision, newest: Revision) -> ApiError {
        ApiError::new(
            ErrorReason::Expired,
            format!("resource version {requested} is newer than the newest version {newest}: list again"),
        )
    }

    /// Returns the error for a list of a version that etcd has not reached, in the words that Kubernetes clients search
    /// for.
    pub(crate) fn version_too_large(requested: Revision, newest: Revision) -> ApiError {
        let mut error = ApiError::new(
            ErrorReason::Timeout,
            format!("Too large resource version: {requested}, current: {newest}. List without a version"),
        )
        .retry_after(1);
        error.details = Some(Box::new(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        })));
        error
    }

    pub(crate) fn unsupported_media_type(content_type: &str, accepted: &[&str]) -> ApiError {
        ApiError::new(
            ErrorReason::UnsupportedMediaType,
            format!(
                "request body is in an unknown format ({content_type}); accepted media types: {}",
                accepted.join(", ")
            ),
        )
    }

    pub(crate) fn too_large(limit: usize) -> ApiError {
        ApiError::new(
            ErrorReason::RequestEntityTooLarge,
            format!("request body exceeds the limit of {limit} bytes"),
        )
    }

    /// Refuses an object whose entry in etcd would exceed etcd's limit, and names its largest part.
    pub(crate) fn too_large_for_store(size: usize, limit: usize, largest: &str) -> ApiError {
        ApiError::new(
            ErrorReason::RequestEntityTooLarge,
            format!(
                "object needs {size} bytes in etcd, and the limit is {limit}: shorten {largest}, its largest part"
            ),
        )
    }

    pub(crate) fn too_many_watches() -> ApiError {
        ApiError::new(ErrorReason::TooManyRequests, "too many open watches: try again later").retry_after(5)
    }

    pub(crate) fn too_many_requests(user: &str) -> ApiError {
        let message = format!("too many requests of user {user:?} are in progress: try again later");
        ApiError::new(ErrorReason::TooManyRequests, message).retry_after(1)
    }

    pub(crate) fn too_many_connections(exceeded_limit: &TooManyConnections) -> ApiError {
        let message = format!("too many connections: {exceeded_limit}. Close some, or try again later");
        ApiError::new(ErrorReason::TooManyRequests, message).retry_after(5)
    }

    pub(crate) fn too_many_logs() -> ApiError {
        let message = "too many log requests are in progress: try again later";
        ApiError::new(ErrorReason::TooManyRequests, message).retry_after(1)
    }

    pub(crate) fn too_many_plans() -> ApiError {
        let message = "another search for a balancing plan is in progress: try again later";
        ApiError::new(ErrorReason::TooManyRequests, message).retry_after(3)
    }

    /// Returns the error for the audit log of a controller that has no audit file.
    pub(crate) fn no_audit_file() -> ApiError {
        let message = "this controller has no audit file, and writes audit records to its log: set auditLog in \
                       controller.yaml (option --audit-log)";
        ApiError::new(ErrorReason::NotFound, message)
    }

    /// Returns the error for a position in an audit file that another file has replaced.
    pub(crate) fn audit_file_rotated() -> ApiError {
        let message = "the audit file was rotated since the first page: read the first page again";
        ApiError::new(ErrorReason::Expired, message)
    }

    pub(crate) fn too_many_joins() -> ApiError {
        let message = "too many join requests are in progress: try again later";
        ApiError::new(ErrorReason::TooManyRequests, message).retry_after(1)
    }

    pub(crate) fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(ErrorReason::InternalError, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> ApiError {
        ApiError::new(ErrorReason::ServiceUnavailable, message).retry_after(1)
    }

    /// Returns the error for a write whose outcome is unknown even after another read.
    pub(crate) fn unknown_outcome(message: &str) -> ApiError {
        ApiError::new(
            ErrorReason::Timeout,
            format!(
                "etcd did not respond, so the change may or may not have been applied: {message}. Check \
                 the object, then try again"
            ),
        )
    }

    /// Adds the kind and name of the object to the details.
    #[must_use]
    pub(crate) fn with_object(mut self, kind: Kind, name: &str) -> ApiError {
        self.details = Some(Box::new(json!({"name": name, "group": GROUP, "kind": kind.plural()})));
        self
    }

    /// Adds causes to the details, each (reason, field, message).
    #[must_use]
    pub(crate) fn with_causes(mut self, causes: Vec<(String, String, String)>) -> ApiError {
        let list: Vec<Value> = causes
            .into_iter()
            .map(|(reason, field, message)| json!({"reason": reason, "field": field, "message": message}))
            .collect();
        let details = self.details.get_or_insert_with(|| Box::new(json!({})));
        details["causes"] = Value::Array(list);
        self
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.reason == ErrorReason::NotFound
    }

    pub(crate) fn is_unauthorized(&self) -> bool {
        self.reason == ErrorReason::Unauthorized
    }

    pub(crate) fn is_already_exists(&self) -> bool {
        self.reason == ErrorReason::AlreadyExists
    }

    #[must_use]
    fn retry_after(mut self, seconds: u32) -> ApiError {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// Returns the `metav1.Status` body.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason.as_str(),
            "code": self.reason.code(),
        });
        let mut details = self.details.as_deref().cloned();
        if let Some(seconds) = self.retry_after_seconds {
            details.get_or_insert_with(|| json!({}))["retryAfterSeconds"] = json!(seconds);
        }
        if let Some(details) = details {
            status["details"] = details;
        }
        status
    }
}

fn causes(problems: &[Problem]) -> Vec<Value> {
    problems
        .iter()
        .map(|problem| json!({"reason": problem.kind, "message": problem.message, "field": problem.path}))
        .collect()
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        match error {
            StoreError::Compacted { oldest } => ApiError::revision_expired(oldest),
            StoreError::Unreachable(_)
            | StoreError::LeaseNotFound
            | StoreError::Refused(_)
            | StoreError::Configuration(_)
            | StoreError::Unsupported(_) => ApiError::unavailable(error.to_string()),
        }
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let code = StatusCode::from_u16(self.reason.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (code, Json(self.status())).into_response();
        if let Some(seconds) = self.retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
