//! A collector that computes its values at each scrape.

use ha_api_types::metric::{Metric, MetricKind, Sample};
use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, LabelPair, MetricFamily, MetricType};
use std::collections::{BTreeMap, HashMap};

/// Descriptions of metrics, and the function that returns their values.
pub(super) struct Scraped<F> {
    descriptions: Vec<Desc>,
    read: F,
}

impl<F: Fn() -> Vec<Sample> + Send + Sync> Scraped<F> {
    /// Creates a collector of these metrics.
    ///
    /// # Errors
    /// Fails if a name or label is invalid.
    pub(super) fn new(metrics: &[&'static Metric], read: F) -> prometheus::Result<Scraped<F>> {
        let describe = |metric: &&Metric| {
            let labels = metric.labels.iter().map(|label| (*label).to_owned()).collect();
            Desc::new(metric.name.to_owned(), metric.help.to_owned(), labels, HashMap::new())
        };
        let descriptions = metrics.iter().map(describe).collect::<prometheus::Result<_>>()?;
        Ok(Scraped { descriptions, read })
    }
}

impl<F: Fn() -> Vec<Sample> + Send + Sync> Collector for Scraped<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families: BTreeMap<&'static str, (&'static Metric, Vec<proto::Metric>)> = BTreeMap::new();
        for sample in (self.read)() {
            let (_, numbers) =
                families.entry(sample.metric.name).or_insert_with(|| (sample.metric, Vec::new()));
            numbers.push(number(sample));
        }
        families.into_values().map(|(metric, numbers)| family(metric, numbers)).collect()
    }
}

fn number(sample: Sample) -> proto::Metric {
    let labels = sample.metric.labels.iter().zip(sample.labels).map(|(name, value)| {
        let mut label = LabelPair::default();
        label.set_name((*name).to_owned());
        label.set_value(value);
        label
    });
    let mut labels: Vec<LabelPair> = labels.collect();
    labels.sort_by(|a, b| a.name().cmp(b.name()));
    let mut number = proto::Metric::from_label(labels);
    if is_counter(sample.metric) {
        let mut counter = proto::Counter::default();
        counter.set_value(sample.value);
        number.set_counter(counter);
    } else {
        let mut gauge = proto::Gauge::default();
        gauge.set_value(sample.value);
        number.set_gauge(gauge);
    }
    number
}

fn family(metric: &'static Metric, numbers: Vec<proto::Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(metric.name.to_owned());
    family.set_help(metric.help.to_owned());
    family.set_field_type(if is_counter(metric) { MetricType::COUNTER } else { MetricType::GAUGE });
    family.set_metric(numbers);
    family
}

/// Returns `true` for a counter. A histogram has no single value, so no histogram is scraped.
fn is_counter(metric: &Metric) -> bool {
    match metric.kind {
        MetricKind::Counter => true,
        MetricKind::Gauge | MetricKind::Histogram => false,
    }
}
