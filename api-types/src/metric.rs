//! The metrics of hactl: name, type, labels and meaning. The registries, the reference and the alerts are based on these
//! declarations.

pub mod agent;
pub mod controller;
pub mod leader;
pub mod process;
pub mod sync;

use std::fmt;

/// The declaration of a metric.
///
/// By the conventions of Prometheus, names begin with `hactl_`, the unit comes last, and counters end in `_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metric {
    /// Name of the metric.
    pub name: &'static str,
    /// Type of the metric.
    pub kind: MetricKind,
    /// Names of the labels, in the order of their values.
    pub labels: &'static [&'static str],
    /// The processes that expose the metric.
    pub exposer: Exposer,
    /// Meaning, as sentences.
    pub help: &'static str,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetricKind {
    /// Only increases, and restarts at zero with the process.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Counts observations by size.
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

/// The processes that expose a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exposer {
    /// Every controller and every agent.
    Every,
    /// Every controller, about itself.
    Controller,
    /// The leader, about the objects of the cluster; other controllers expose no value.
    Leader,
    /// Every agent, about itself.
    Agent,
    /// `hactl sync`, about its GitSync object.
    Sync,
}

/// A value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Definition of the metric: name, type, labels and help.
    pub metric: &'static Metric,
    /// Values of the labels, one for each label.
    pub labels: Vec<String>,
    /// Value at the time of collection.
    pub value: f64,
}

impl Metric {
    /// Returns the unit, from the end of the name; empty for counts and for flags (0 or 1).
    pub fn unit(&self) -> &'static str {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        let units = ["seconds", "bytes", "cores", "ratio", "nodes"];
        units.into_iter().find(|unit| name.ends_with(&format!("_{unit}"))).unwrap_or_default()
    }

    /// Builds a sample of this metric.
    pub fn sample<const N: usize>(&'static self, labels: [&str; N], value: f64) -> Sample {
        Sample { metric: self, labels: labels.map(str::to_owned).to_vec(), value }
    }

    /// Returns every metric, grouped by exposer.
    pub fn all() -> impl Iterator<Item = &'static Metric> {
        [process::ALL, controller::ALL, leader::ALL, agent::ALL, sync::ALL].into_iter().flatten().copied()
    }
}

/// Declares the metrics of one exposer, and a list of them.
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
        /// All metrics of this exposer.
        pub const ALL: &[&$crate::metric::Metric] = &[$($name),+];
    };
}
use metrics;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn metric_names_are_unique_and_valid() {
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
    fn metric_names_end_with_the_unit() {
        assert_eq!(controller::API_REQUEST_DURATION.unit(), "seconds");
        assert_eq!(leader::NODE_CAPACITY_MEMORY.unit(), "bytes");
        assert_eq!(controller::API_REQUESTS.unit(), "");
    }
}
