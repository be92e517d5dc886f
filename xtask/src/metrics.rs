//! Writes the reference of every metric to `docs/metrics.md`.

use crate::generated;
use anyhow::Result;
use ha_api_types::metric::{Exposer, Metric};
use std::fmt::Write;
use std::path::Path;

const INTRODUCTION: &str = "\
# Metrics

Controllers serve `/metrics` on the port of their API (`--listen`), agents on `--admin-listen`, and `hactl sync` on
`--metrics-address`, in the text format of Prometheus. `cargo run -p ha-xtask -- metrics` generates this page from the
code.

- Alerts on these metrics: `manifests/prometheus/rules.yaml`, each with an entry in the [runbooks](runbooks.md).
- Dashboards: [dashboards](dashboards.md).

If one Prometheus scrapes several clusters, give each target a label `cluster`. The rules group by this label.

- A metric with a label `state` has one series for each state: 1 for the current state and 0 for the others, unless its
  description states that the others are absent.
- Object metrics are computed from the leader's cache at scrape time. A deleted object is missing from the next scrape.
- Only the leader exposes object metrics. After a change of the leader, they continue under another `instance`: use
  `max by (resource)` to combine the series.
- Counters count the events that this controller has seen as leader, and start at 0 with the process.
";

/// Writes the file; with `check` only compares it. A difference is an error that names the chore to run.
pub(crate) fn write(check: bool) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    generated::write(&path, &page(), "metrics", check)
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let parts = [
        (Exposer::Every, "Every process"),
        (Exposer::Controller, "Every controller, about itself"),
        (Exposer::Leader, "The leader, about the cluster's objects"),
        (Exposer::Agent, "Every agent, about itself"),
        (Exposer::Sync, "hactl sync, about its GitSync object"),
    ];
    for (exposer, title) in parts {
        // Writing to a string cannot fail.
        let _ = write!(
            page,
            "\n## {title}\n\n| metric | type | labels | unit | meaning |\n|---|---|---|---|---|\n"
        );
        for metric in Metric::all().filter(|metric| metric.exposer == exposer) {
            let Metric { name, kind, labels, help, .. } = metric;
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let unit = metric.unit();
            let _ = writeln!(page, "| `{name}` | {kind} | {} | {unit} | {help} |", labels.join(", "));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;

    #[test]
    fn generated_metrics_page_is_current() {
        write(true).unwrap();
    }

    fn metric_names(text: &str) -> BTreeSet<&str> {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        words.filter(|word| word.starts_with("hactl_")).collect()
    }

    #[test]
    fn rules_and_pages_name_only_declared_metrics() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let declared: BTreeSet<&str> = Metric::all().map(|metric| metric.name).collect();
        let parts = ["_bucket", "_sum", "_count"];
        for file in [
            "manifests/prometheus/rules.yaml",
            "manifests/prometheus/rules-test.yaml",
            "docs/runbooks.md",
            "docs/agent.md",
            "docs/availability.md",
            "docs/dashboards.md",
            "docs/reservation.md",
        ] {
            let text = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            let names = metric_names(&text);
            for name in &names {
                let base_name = parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
                assert!(
                    declared.contains(name) || declared.contains(base_name),
                    "{file}: no metric has the name {name}"
                );
            }
            assert!(!names.is_empty(), "{file} names no metric");
        }
    }

    #[test]
    fn every_alert_has_runbook_and_test() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |file: &str| {
            fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
        };
        let (rules, tests) =
            (read("manifests/prometheus/rules.yaml"), read("manifests/prometheus/rules-test.yaml"));
        let pages = read("docs/runbooks.md");
        let headings: BTreeSet<&str> = pages.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let mut alerts = BTreeSet::new();
        for rule in rules.split("- alert: ").skip(1) {
            let alert = rule.lines().next().unwrap_or_default();
            assert!(headings.contains(alert), "docs/runbooks.md has no {alert}");
            let url = format!(
                "runbook_url: {}/blob/main/docs/runbooks.md#{}",
                env!("CARGO_PKG_REPOSITORY"),
                alert.to_lowercase()
            );
            assert!(rule.lines().any(|line| line.trim() == url), "rules.yaml: {alert} has no {url}");
            let tested = tests.lines().any(|line| line.trim() == format!("alertname: {alert}"));
            assert!(tested, "rules-test.yaml does not test {alert}");
            alerts.insert(alert);
        }
        assert_eq!(headings, alerts, "docs/runbooks.md has a section for each alert, and no other");
    }
}
