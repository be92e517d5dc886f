//! Metrics of API requests: their number, outcome and duration.

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use ha_api_types::metric::controller;
use ha_runtime::metrics::Metrics;
use prometheus::{Gauge, HistogramVec, IntCounterVec};
use std::time::Instant;
use tokio::sync::OwnedSemaphorePermit;

/// Metrics of the API. Cheap to clone; all clones share the same counters.
#[derive(Clone, Debug)]
pub struct ApiMetrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
    watches: Gauge,
}

impl ApiMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// Fails if they are already registered in this registry.
    pub fn new(metrics: &Metrics) -> prometheus::Result<ApiMetrics> {
        Ok(ApiMetrics {
            requests: metrics.counters(controller::API_REQUESTS)?,
            seconds: metrics.histograms(
                controller::API_REQUEST_DURATION,
                &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0],
            )?,
            watches: metrics.gauge(controller::API_WATCHES)?,
        })
    }
}

/// Permission for one open watch, out of a limited number; returned on drop.
pub(super) struct WatchPermit {
    _permit: OwnedSemaphorePermit,
    metrics: Option<ApiMetrics>,
}

impl WatchPermit {
    /// Counts the watch as open.
    pub(super) fn new(permit: OwnedSemaphorePermit, metrics: Option<ApiMetrics>) -> WatchPermit {
        if let Some(metrics) = &metrics {
            metrics.watches.inc();
        }
        WatchPermit { _permit: permit, metrics }
    }
}

impl Drop for WatchPermit {
    fn drop(&mut self) {
        if let Some(metrics) = &self.metrics {
            metrics.watches.dec();
        }
    }
}

/// Counts a request. The `route` label is the route pattern, not the path, so that names create no new series.
pub(super) async fn count_request(
    State(metrics): State<ApiMetrics>,
    request: Request,
    next: Next,
) -> Response {
    let start_time = Instant::now();
    let method = match *request.method() {
        axum::http::Method::GET => "GET",
        axum::http::Method::HEAD => "HEAD",
        axum::http::Method::POST => "POST",
        axum::http::Method::PUT => "PUT",
        axum::http::Method::PATCH => "PATCH",
        axum::http::Method::DELETE => "DELETE",
        // Clients can send any text as the method; it must not create new series.
        _ => "other",
    };
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    metrics.requests.with_label_values(&[method, route, response.status().as_str()]).inc();
    metrics.seconds.with_label_values(&[method]).observe(start_time.elapsed().as_secs_f64());
    response
}
