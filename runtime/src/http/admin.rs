//! The admin endpoints of every daemon: /livez, /readyz and /healthz with named checks, /metrics, and /state of its core.

use crate::metrics::{self, Metrics};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures::future::BoxFuture;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, PoisonError, RwLock};

/// Named health checks of a process. Clones are cheap and share the same checks.
#[derive(Clone, Debug, Default)]
pub struct HealthChecks {
    results: Arc<RwLock<BTreeMap<&'static str, Result<(), String>>>>,
}

impl HealthChecks {
    /// Returns checks that have all failed initially, so that the process is not ready before each check succeeds.
    pub fn new(names: &[&'static str]) -> HealthChecks {
        let checks = HealthChecks::default();
        for name in names {
            checks.set(name, Err("not yet".to_owned()));
        }
        checks
    }

    /// Records the result of a check; the error is the reason as a clause.
    pub fn set(&self, name: &'static str, result: Result<(), String>) {
        self.results.write().unwrap_or_else(PoisonError::into_inner).insert(name, result);
    }

    /// Returns all checks with their results, sorted by name.
    pub fn results(&self) -> Vec<(&'static str, Result<(), String>)> {
        let results = self.results.read().unwrap_or_else(PoisonError::into_inner);
        results.iter().map(|(name, result)| (*name, result.clone())).collect()
    }

    /// Returns status 200 if all checks succeed, otherwise 503, with one line for each check.
    fn answer(&self, endpoint: &str) -> Response {
        let results = self.results();
        let mut text = String::new();
        for (name, result) in &results {
            // Writing to a string does not fail.
            let _ = match result {
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(cause) => writeln!(text, "[-]{name} failed: {cause}"),
            };
        }
        let healthy = results.iter().all(|(_, result)| result.is_ok());
        let (status, verdict) =
            if healthy { (StatusCode::OK, "passed") } else { (StatusCode::SERVICE_UNAVAILABLE, "failed") };
        let _ = writeln!(text, "{endpoint} check {verdict}");
        (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
    }

    /// Returns status 200 if one check succeeds, 503 if it fails, and 404 if there is no such check.
    fn answer_one(&self, name: &str) -> Response {
        match self.results().into_iter().find(|(check, _)| *check == name) {
            Some((_, Ok(()))) => "ok\n".into_response(),
            Some((_, Err(cause))) => {
                (StatusCode::SERVICE_UNAVAILABLE, format!("{name} check failed: {cause}\n")).into_response()
            }
            None => StatusCode::NOT_FOUND.into_response(),
        }
    }
}

/// Reads the state of the process's core as a document; `None` if the core has ended.
pub type ReadState = Arc<dyn Fn() -> BoxFuture<'static, Option<Value>> + Send + Sync>;

#[derive(Clone)]
struct Admin {
    live: HealthChecks,
    ready: HealthChecks,
    metrics: Metrics,
    state: ReadState,
}

/// Returns the routes. A check in `live` should fail only if a restart of the process would help.
pub fn router(live: HealthChecks, ready: HealthChecks, metrics: Metrics, state: ReadState) -> Router {
    Router::new()
        .route("/livez", get(async |State(admin): State<Admin>| admin.live.answer("livez")))
        .route(
            "/livez/{check}",
            get(async |State(admin): State<Admin>, Path(check): Path<String>| admin.live.answer_one(&check)),
        )
        .route("/readyz", get(async |State(admin): State<Admin>| admin.ready.answer("readyz")))
        .route(
            "/readyz/{check}",
            get(async |State(admin): State<Admin>, Path(check): Path<String>| admin.ready.answer_one(&check)),
        )
        // The name of /readyz in older versions of Kubernetes.
        .route("/healthz", get(async |State(admin): State<Admin>| admin.ready.answer("healthz")))
        .route("/metrics", get(async |State(admin): State<Admin>| encoded(&admin.metrics)))
        .route("/state", get(async |State(admin): State<Admin>| document((admin.state)().await)))
        .with_state(Admin { live, ready, metrics, state })
}

fn document(state: Option<Value>) -> Response {
    match state {
        Some(state) => Json(state).into_response(),
        None => {
            (StatusCode::SERVICE_UNAVAILABLE, "the main loop of this process has ended\n").into_response()
        }
    }
}

fn encoded(metrics: &Metrics) -> Response {
    match metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
