//! The metrics of `hactl sync`, and the HTTP server that serves them to Prometheus.

use crate::failure::Failure;
use ha_api_types::metric::{Metric, sync};
use prometheus::{Encoder, IntCounter, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Largest request that is read, in bytes.
const MAX_REQUEST_BYTES: usize = 8 * 1024;
/// Longest time for a request, so that a client cannot hold a connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The metrics. Cheap to clone.
#[derive(Clone)]
pub(super) struct SyncMetrics {
    registry: Registry,
    last_success: IntGauge,
    failures: IntCounter,
    drifted: IntGauge,
    info: IntGaugeVec,
}

impl SyncMetrics {
    /// Creates the metrics of the GitSync object with this name.
    pub(super) fn new(name: &str) -> Result<SyncMetrics, Failure> {
        let unusable = |error: prometheus::Error| Failure::failed(format!("cannot create metrics: {error}"));
        let opts = |metric: &Metric| Opts::new(metric.name, metric.help).const_label("gitsync", name);
        let last_success = IntGauge::with_opts(opts(sync::LAST_SUCCESS));
        let failures = IntCounter::with_opts(opts(sync::FAILURES));
        let drifted = IntGauge::with_opts(opts(sync::DRIFTED_OBJECTS));
        let info = IntGaugeVec::new(opts(sync::SYNC_INFO), &["commit"]);
        let metrics = SyncMetrics {
            registry: Registry::new(),
            last_success: last_success.map_err(unusable)?,
            failures: failures.map_err(unusable)?,
            drifted: drifted.map_err(unusable)?,
            info: info.map_err(unusable)?,
        };
        let register = |collector: Box<dyn prometheus::core::Collector>| metrics.registry.register(collector);
        register(Box::new(metrics.last_success.clone())).map_err(unusable)?;
        register(Box::new(metrics.failures.clone())).map_err(unusable)?;
        register(Box::new(metrics.drifted.clone())).map_err(unusable)?;
        register(Box::new(metrics.info.clone())).map_err(unusable)?;
        Ok(metrics)
    }

    /// Records the result of a pass. An empty `applied_commit` keeps the recorded commit.
    pub(super) fn record(&self, succeeded: bool, drifted_objects: usize, applied_commit: &str) {
        if succeeded {
            self.last_success.set(crate::render::now_seconds());
        } else {
            self.failures.inc();
        }
        self.drifted.set(i64::try_from(drifted_objects).unwrap_or(i64::MAX));
        if !applied_commit.is_empty() {
            self.info.reset();
            self.info.with_label_values(&[applied_commit]).set(1);
        }
    }

    /// Returns the metrics in the text format of Prometheus.
    fn text(&self) -> String {
        let mut text = Vec::new();
        // Writing into memory cannot fail.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Serves `GET /metrics` at an address until the process ends.
    ///
    /// # Errors
    /// Fails if the address cannot be bound.
    pub(super) async fn serve(&self, address: SocketAddr) -> Result<(), Failure> {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| Failure::usage(format!("--metrics-address: cannot bind {address}: {error}")))?;
        let metrics = self.clone();
        tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let metrics = metrics.clone();
                        tokio::spawn(async move {
                            // A client that closes its connection early needs no answer.
                            let _ = tokio::time::timeout(REQUEST_TIMEOUT, metrics.answer(stream)).await;
                        });
                    }
                    // Accepting fails, for example, without free file descriptors.
                    Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
                }
            }
        });
        Ok(())
    }

    async fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut request = Vec::new();
        while !request.windows(4).any(|window| window == b"\r\n\r\n") {
            if request.len() > MAX_REQUEST_BYTES || stream.read_buf(&mut request).await? == 0 {
                return Ok(());
            }
        }
        let (status, body) = if request.starts_with(b"GET /metrics ") {
            ("200 OK", self.text())
        } else {
            ("404 Not Found", "only GET /metrics is served\n".to_owned())
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_show_the_last_pass() {
        let metrics = SyncMetrics::new("site1").expect("metrics");
        metrics.record(false, 0, "");
        let text = metrics.text();
        assert!(text.contains("hactl_sync_failures_total{gitsync=\"site1\"} 1\n"), "{text}");
        assert!(text.contains("hactl_sync_last_success_timestamp_seconds{gitsync=\"site1\"} 0\n"), "{text}");
        metrics.record(true, 2, "abc");
        metrics.record(true, 1, "def");
        let text = metrics.text();
        assert!(text.contains("hactl_sync_info{commit=\"def\",gitsync=\"site1\"} 1\n"), "{text}");
        assert!(!text.contains("abc"), "{text}");
        assert!(text.contains("hactl_sync_drifted_objects{gitsync=\"site1\"} 1\n"), "{text}");
        assert!(!text.contains("timestamp_seconds{gitsync=\"site1\"} 0\n"), "{text}");
    }
}
