//! A process's metrics registry, and its text format for Prometheus.

mod scraped;

use ha_api_types::metric::{Metric, Sample, process};
use prometheus::core::Collector;
use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts,
    Registry, TextEncoder,
};
use scraped::Scraped;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Content type of the text from [`Metrics::encode`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// The metrics of one process. Clones are cheap and share the same registry.
///
/// Names, labels and help come from [`ha_api_types::metric`]. Each metric is registered once, at start, so an invalid
/// or duplicate name fails the start.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    registered: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl Metrics {
    /// Creates a registry with `hactl_build_info` of the component and the start time of the process.
    ///
    /// # Errors
    /// Fails if the name of a metric is invalid, which does not happen: the names of both metrics are valid.
    pub fn new(component: &str, version: &str, started_unix_seconds: i64) -> prometheus::Result<Metrics> {
        let metrics = Metrics { registry: Registry::new(), registered: Arc::default() };
        metrics.gauges(process::BUILD_INFO)?.with_label_values(&[component, version]).set(1.0);
        metrics.gauge(process::PROCESS_START_TIME)?.set(started_unix_seconds as f64);
        Ok(metrics)
    }

    fn register<C: Collector + Clone + 'static>(
        &self,
        metric: &'static Metric,
        collector: C,
    ) -> prometheus::Result<C> {
        self.registry.register(Box::new(collector.clone()))?;
        self.mark_registered(metric);
        Ok(collector)
    }

    fn mark_registered(&self, metric: &'static Metric) {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).insert(metric.name);
    }

    /// Registers a counter.
    pub fn counter(&self, metric: &'static Metric) -> prometheus::Result<IntCounter> {
        self.register(metric, IntCounter::new(metric.name, metric.help)?)
    }

    /// Registers a family of counters.
    pub fn counters(&self, metric: &'static Metric) -> prometheus::Result<IntCounterVec> {
        self.register(metric, IntCounterVec::new(Opts::new(metric.name, metric.help), metric.labels)?)
    }

    /// Registers a gauge.
    pub fn gauge(&self, metric: &'static Metric) -> prometheus::Result<Gauge> {
        self.register(metric, Gauge::new(metric.name, metric.help)?)
    }

    /// Registers a family of gauges. A family without labels is a gauge that may have no value.
    pub fn gauges(&self, metric: &'static Metric) -> prometheus::Result<GaugeVec> {
        self.register(metric, GaugeVec::new(Opts::new(metric.name, metric.help), metric.labels)?)
    }

    /// Registers a histogram; `buckets` are upper bounds.
    pub fn histogram(&self, metric: &'static Metric, buckets: &[f64]) -> prometheus::Result<Histogram> {
        let options = HistogramOpts::new(metric.name, metric.help).buckets(buckets.to_vec());
        self.register(metric, Histogram::with_opts(options)?)
    }

    /// Registers a family of histograms; `buckets` are upper bounds.
    pub fn histograms(&self, metric: &'static Metric, buckets: &[f64]) -> prometheus::Result<HistogramVec> {
        let options = HistogramOpts::new(metric.name, metric.help).buckets(buckets.to_vec());
        self.register(metric, HistogramVec::new(options, metric.labels)?)
    }

    /// Registers metrics whose values are computed by `read` at each scrape. Such metrics need no updates between
    /// scrapes, and contain no deleted objects.
    pub fn register_scraped(
        &self,
        metrics: impl IntoIterator<Item = &'static Metric>,
        read: impl Fn() -> Vec<Sample> + Send + Sync + 'static,
    ) -> prometheus::Result<()> {
        let metrics: Vec<&'static Metric> = metrics.into_iter().collect();
        self.registry.register(Box::new(Scraped::new(&metrics, read)?))?;
        for metric in metrics {
            self.mark_registered(metric);
        }
        Ok(())
    }

    /// Returns the names of all registered metrics, including those that have no value now.
    pub fn registered(&self) -> BTreeSet<&'static str> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns all metrics in the text format of Prometheus ([`CONTENT_TYPE`]).
    ///
    /// # Errors
    /// Fails if two collectors contradict each other.
    pub fn encode(&self) -> prometheus::Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        String::from_utf8(text).map_err(|error| prometheus::Error::Msg(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::metric::{controller, leader};

    fn check(metrics: &Metrics, lines: &[&str], absent: &[&str]) {
        let text = metrics.encode().unwrap();
        for line in lines {
            assert!(text.lines().any(|text_line| text_line == *line), "{line} is missing in:\n{text}");
        }
        for part in absent {
            assert!(!text.contains(part), "{part} is in:\n{text}");
        }
    }

    #[test]
    fn registered_metrics_are_encoded_and_duplicates_refused() {
        let metrics = Metrics::new("ha-controller", "0.1.0", 7).unwrap();
        metrics.counter(controller::STORE_WATCH_RESTARTS).unwrap().inc_by(3);
        assert!(metrics.counter(controller::STORE_WATCH_RESTARTS).is_err());
        let lines = [
            "hactl_build_info{component=\"ha-controller\",version=\"0.1.0\"} 1",
            "hactl_process_start_time_seconds 7",
            "hactl_store_watch_restarts_total 3",
        ];
        check(&metrics, &lines, &[]);
    }

    #[test]
    fn scraped_metrics_are_current() {
        let metrics = Metrics::new("test", "0", 0).unwrap();
        let samples = Arc::new(Mutex::new(vec![
            leader::NODE_SERVICES.sample(["node1"], 2.0),
            leader::WAITING.sample([], 1.0),
            leader::NODE_SERVICES.sample(["node2"], 0.0),
            leader::RESOURCE_RESTARTS.sample(["web"], 3.0),
        ]));
        let read = Arc::clone(&samples);
        metrics.register_scraped(leader::ALL.iter().copied(), move || read.lock().unwrap().clone()).unwrap();
        let lines = [
            "hactl_node_services{node=\"node1\"} 2",
            "hactl_node_services{node=\"node2\"} 0",
            "hactl_waiting 1",
            "# TYPE hactl_resource_restarts_total counter",
            "hactl_resource_restarts_total{resource=\"web\"} 3",
        ];
        check(&metrics, &lines, &["hactl_node_state"]);
        samples.lock().unwrap().truncate(1);
        check(&metrics, &lines[..1], &["node2", "hactl_waiting", "web"]);
        assert!(metrics.registered().contains("hactl_node_state"));
        assert!(metrics.gauge(leader::WAITING).is_err(), "a doubled name");
    }
}
