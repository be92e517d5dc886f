//! Every metric that hactl exposes: its name, type, labels and meaning; the registries, the reference and the alerts draw on this.

pub mod agent;
pub mod controller;
pub mod every;
pub mod leader;

use std::fmt;

/// What is exposed under one name.
///
/// Names begin with `hactl_`, the unit comes last, counters end in `_total`, as Prometheus asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What its numbers do.
    pub kind: MetricKind,
    /// Its labels, in the order in which their values are given.
    pub labels: &'static [&'static str],
    /// Who exposes it.
    pub exposer: Exposer,
    /// What it means, in sentences.
    pub help: &'static str,
}

/// What the numbers of a metric do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetricKind {
    /// They only rise, and begin again at zero when the process does.
    Counter,
    /// They rise and fall.
    Gauge,
    /// Counts of observations by size.
    Histogram,
}

impl fmt::Display for MetricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        })
    }
}

/// Who exposes a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exposer {
    /// Every controller and every agent.
    Every,
    /// Every controller, about itself.
    Controller,
    /// The controller that leads, about the cluster's objects; the others expose nothing under this name.
    Leader,
    /// Every agent, about itself.
    Agent,
}

/// A number of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Which metric.
    pub metric: &'static Metric,
    /// The values of its labels, as many as it has.
    pub labels: Vec<String>,
    /// The number.
    pub value: f64,
}

impl Metric {
    /// The unit of its numbers, by the name's end; empty for counts and for what is 0 or 1.
    pub fn unit(&self) -> &'static str {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        let units = ["seconds", "bytes", "cores", "ratio", "nodes"];
        units.into_iter().find(|unit| name.ends_with(&format!("_{unit}"))).unwrap_or_default()
    }

    /// A number of this metric.
    pub fn sample<const N: usize>(&'static self, labels: [&str; N], value: f64) -> Sample {
        Sample { metric: self, labels: labels.map(str::to_owned).to_vec(), value }
    }

    /// Every metric, by who exposes it.
    pub fn all() -> impl Iterator<Item = &'static Metric> {
        [every::ALL, controller::ALL, leader::ALL, agent::ALL].into_iter().flatten().copied()
    }
}

/// Declares the metrics of one exposer, and the list of them.
macro_rules! metrics {
    ($exposer:ident: $( $name:ident = $kind:ident $text:literal [$($label:literal),*] $help:literal; )+) => {
        $(
            #[doc = $help]
            pub const $name: &$crate::metric::Metric = &$crate::metric::Metric {
                name: $text,
                kind: $crate::metric::MetricKind::$kind,
                labels: &[$($label),*],
                exposer: $crate::metric::Exposer::$exposer,
                help: $help,
            };
        )+
        /// All of them.
        pub const ALL: &[&$crate::metric::Metric] = &[$($name),+];
    };
}
use metrics;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_as_prometheus_asks() {
        let mut names = BTreeSet::new();
        for metric in Metric::all() {
            let Metric { name, kind, help, .. } = metric;
            assert!(names.insert(*name), "{name} is declared twice");
            assert!(name.starts_with("hactl_") && !name.contains("__"), "{name}");
            let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            assert!(plain, "{name}");
            assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name} is a {kind}");
            assert!(help.ends_with('.') && !help.contains('\n'), "{name}: {help:?}");
        }
    }

    #[test]
    fn the_unit_is_the_end_of_the_name() {
        assert_eq!(controller::API_REQUEST_DURATION.unit(), "seconds");
        assert_eq!(leader::NODE_CAPACITY_MEMORY.unit(), "bytes");
        assert_eq!(controller::API_REQUESTS.unit(), "");
    }
}
