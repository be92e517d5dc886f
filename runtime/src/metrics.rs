//! A process's own metrics registry and its text form for Prometheus.

use prometheus::core::Collector;
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// The metrics of one process. Cheap to clone; every clone is the same registry.
///
/// Names begin with `hactl_`, units come last (`_seconds`), counters end in `_total`. A metric is registered once, at
/// start: a bad or doubled name is an error there and nowhere else.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// A registry that holds `hactl_build_info` of the named part and the time it started.
    ///
    /// # Errors
    /// Never in practice: the two names are valid.
    pub fn new(component: &str, version: &str, started_unix_seconds: i64) -> prometheus::Result<Metrics> {
        let metrics = Metrics { registry: Registry::new() };
        metrics
            .gauges("hactl_build_info", "The running version; always 1.", &["component", "version"])?
            .with_label_values(&[component, version])
            .set(1);
        metrics
            .gauge("hactl_process_start_time_seconds", "When the process started, in seconds since 1970.")?
            .set(started_unix_seconds);
        Ok(metrics)
    }

    /// Adds a collector.
    ///
    /// # Errors
    /// When its name is taken or not valid.
    pub fn register<C: Collector + Clone + 'static>(&self, collector: C) -> prometheus::Result<C> {
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    /// A new counter.
    pub fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.register(IntCounter::new(name, help)?)
    }

    /// A new family of counters.
    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
        self.register(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    /// A new gauge.
    pub fn gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.register(IntGauge::new(name, help)?)
    }

    /// A new family of gauges.
    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
        self.register(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    /// A new histogram; `buckets` are upper bounds.
    pub fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> prometheus::Result<Histogram> {
        self.register(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?)
    }

    /// A new family of histograms; `buckets` are upper bounds.
    pub fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> prometheus::Result<HistogramVec> {
        self.register(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?)
    }

    /// Everything, in the text format of Prometheus ([`CONTENT_TYPE`]).
    ///
    /// # Errors
    /// When two collectors contradict each other.
    pub fn encode(&self) -> prometheus::Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        String::from_utf8(text).map_err(|error| prometheus::Error::Msg(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_registered_is_encoded_and_doubles_are_refused() {
        let metrics = Metrics::new("ha-controller", "0.1.0", 7).unwrap();
        metrics.counter("hactl_writes_total", "Writes.").unwrap().inc_by(3);
        assert!(metrics.counter("hactl_writes_total", "Writes.").is_err());
        let text = metrics.encode().unwrap();
        for line in [
            "hactl_build_info{component=\"ha-controller\",version=\"0.1.0\"} 1",
            "hactl_process_start_time_seconds 7",
            "hactl_writes_total 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in:\n{text}");
        }
    }
}
