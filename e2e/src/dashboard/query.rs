//! Queries as text: filling in variables, and finding the series and labels that a query uses.

use std::collections::{BTreeMap, BTreeSet};

/// Values of variables by name.
pub type VariableValues = BTreeMap<String, String>;

/// A selector of series: a metric and conditions on its labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    /// Text of the selector in the query.
    pub text: String,
    /// Name of the metric.
    pub metric: String,
    /// Names of the labels in the conditions.
    pub labels: BTreeSet<String>,
}

/// Replaces variables with their values. An unknown variable remains, so Prometheus rejects the query.
pub fn substitute_variables(text: &str, values: &VariableValues) -> String {
    let mut query = text.to_owned();
    // Longest names first, so that `$ab` is not replaced as `$a` followed by `b`.
    let mut names: Vec<&String> = values.keys().collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    for name in names {
        query = query.replace(&format!("${{{name}}}"), &values[name]);
        query = query.replace(&format!("${name}"), &values[name]);
    }
    query
}

/// Returns the name of a series: each `{{label}}` becomes the label's value. With an empty format, lists all labels.
pub fn legend(format: &str, labels: &BTreeMap<String, String>) -> String {
    if format.is_empty() {
        let named: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        return named.join(" ");
    }
    let mut text = String::new();
    let mut remaining = format;
    while let Some((before, after)) = remaining.split_once("{{") {
        let Some((name, after_label)) = after.split_once("}}") else { break };
        text.push_str(before);
        text.push_str(labels.get(name.trim()).map(String::as_str).unwrap_or_default());
        remaining = after_label;
    }
    text.push_str(remaining);
    text.trim().to_owned()
}

/// Returns the labels that a legend or the title of an annotation contains.
pub fn legend_labels(format: &str) -> BTreeSet<String> {
    let parts = format.split("{{").skip(1).filter_map(|part| part.split_once("}}"));
    parts.map(|(name, _)| name.trim().to_owned()).collect()
}

/// Returns all selectors of a query. A metric name is the word directly before `{`.
pub fn selectors(query: &str) -> Vec<Selector> {
    let mut selectors_found = Vec::new();
    let mut remaining = query;
    while let Some(open) = remaining.find('{') {
        let before = &remaining[..open];
        let start = before.rfind(|letter: char| !is_identifier_char(letter)).map_or(0, |index| index + 1);
        let length = braces_length(&remaining[open..]);
        let matchers = &remaining[open + 1..open + length - 1];
        selectors_found.push(Selector {
            text: remaining[start..open + length].to_owned(),
            metric: before[start..].to_owned(),
            labels: matcher_labels(matchers),
        });
        remaining = &remaining[open + length..];
    }
    selectors_found
}

/// Returns the labels by which a query groups or joins.
pub fn grouping_labels(query: &str) -> BTreeSet<String> {
    let mut labels_found = BTreeSet::new();
    for keyword in ["by", "on", "without", "ignoring", "group_left", "group_right"] {
        for (index, _) in query.match_indices(keyword) {
            let is_word = !query[..index].ends_with(is_identifier_char);
            let Some(list) = query[index + keyword.len()..].trim_start().strip_prefix('(') else { continue };
            if let (true, Some((labels, _))) = (is_word, list.split_once(')')) {
                let labels = labels.split(',').map(|label| label.trim().to_owned());
                labels_found.extend(labels.filter(|label| !label.is_empty()));
            }
        }
    }
    labels_found
}

fn is_identifier_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == ':'
}

/// Returns the length of the part in braces, including both. Braces inside quotes are text.
fn braces_length(text: &str) -> usize {
    let mut is_quoted = false;
    for (index, letter) in text.char_indices() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '}' if !is_quoted => return index + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the label names before `=`, `!=`, `=~` and `!~`, outside quotes.
fn matcher_labels(matchers: &str) -> BTreeSet<String> {
    let names = matchers.split('"').step_by(2);
    let names = names.map(|part| part.trim_matches(|letter: char| !is_identifier_char(letter)).to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::model::{Dashboard, VariableKind};
    use ha_api_types::metric::{Exposer, Metric, MetricKind};

    fn string_set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn longest_query_variables_are_replaced_first() {
        let values =
            VariableValues::from([("a".to_owned(), "1".to_owned()), ("ab".to_owned(), "2".to_owned())]);
        assert_eq!(substitute_variables("$a $ab ${a}b $b", &values), "1 2 1b $b");
    }

    #[test]
    fn legends_are_filled_with_labels() {
        let labels = BTreeMap::from([("node".to_owned(), "node1".to_owned())]);
        assert_eq!(legend("on {{node}}!", &labels), "on node1!");
        assert_eq!(legend("{{other}}", &labels), "");
        assert_eq!(legend("", &labels), "node=node1");
        assert_eq!(legend_labels("{{a}} and {{ b }}"), string_set(&["a", "b"]));
    }

    #[test]
    fn the_series_of_a_query_are_found() {
        let query =
            r#"sum by (le, x) (rate(a_b{x="1",y=~"{2}|3"}[5m])) / on (z) group_left (w) c{} + baby(1)"#;
        let selectors_found = selectors(query);
        assert_eq!(selectors_found.len(), 2, "{selectors_found:?}");
        assert_eq!(
            (selectors_found[0].metric.as_str(), &selectors_found[0].labels),
            ("a_b", &string_set(&["x", "y"]))
        );
        assert_eq!((selectors_found[1].metric.as_str(), selectors_found[1].text.as_str()), ("c", "c{}"));
        assert_eq!(grouping_labels(query), string_set(&["le", "x", "z", "w"]));
    }

    /// Returns the labels that series of this metric can have; `None` if the metric does not exist.
    fn declared_labels(name: &str) -> Option<BTreeSet<String>> {
        // Prometheus' configuration gives these labels to every target.
        let mut labels = string_set(&["cluster", "instance", "job"]);
        // Metrics of Prometheus itself.
        if name == "up" {
            return Some(labels);
        }
        if name == "ALERTS" {
            labels.extend(string_set(&["alertname", "alertstate", "severity", "node", "resource"]));
            return Some(labels);
        }
        let parts = [("_bucket", true), ("_sum", false), ("_count", false)];
        let part = parts.iter().find_map(|(part, by_size)| Some((name.strip_suffix(part)?, *by_size)));
        let metric = Metric::all().find(|metric| match part {
            Some((base_name, _)) => metric.name == base_name && metric.kind == MetricKind::Histogram,
            None => metric.name == name && metric.kind != MetricKind::Histogram,
        })?;
        labels.extend(metric.labels.iter().map(|label| (*label).to_owned()));
        if part.is_some_and(|(_, by_size)| by_size) {
            labels.insert("le".to_owned());
        }
        // The label `node` of the targets identifies the agent.
        if matches!(metric.exposer, Exposer::Agent | Exposer::Every) {
            labels.insert("node".to_owned());
        }
        Some(labels)
    }

    /// Returns the errors of a query whose legend shows these labels.
    fn query_errors(query: &str, legend: &BTreeSet<String>) -> Vec<String> {
        let mut errors = Vec::new();
        let mut available_labels = BTreeSet::new();
        let found_selectors = selectors(query);
        let words =
            query.split(|letter: char| !is_identifier_char(letter)).filter(|word| word.starts_with("hactl_"));
        if words.count() > found_selectors.len() {
            errors.push("a metric without {} takes every cluster's".to_owned());
        }
        for selector in &found_selectors {
            match declared_labels(&selector.metric) {
                None => errors.push(format!("there is no {}", selector.metric)),
                Some(labels) => {
                    let other = selector.labels.difference(&labels);
                    errors.extend(other.map(|label| format!("{} has no {label}", selector.metric)));
                    available_labels.extend(labels);
                }
            }
            if !selector.labels.contains("cluster") {
                errors.push(format!("{} is not that of one cluster", selector.text));
            }
        }
        let used_labels: BTreeSet<String> = grouping_labels(query).union(legend).cloned().collect();
        errors.extend(used_labels.difference(&available_labels).map(|label| format!("nothing has {label}")));
        errors
    }

    #[test]
    fn queries_name_declared_metrics_with_their_labels() {
        for (file, dashboard) in Dashboard::all().unwrap() {
            for (location, target) in dashboard.queries() {
                let errors = query_errors(&target.expr, &legend_labels(&target.legend_format));
                assert!(errors.is_empty(), "{file}, {location}, {}: {errors:?}", target.expr);
            }
            for variable in dashboard.templating.list.iter().filter(|one| one.kind == VariableKind::Query) {
                let (metric, label) = variable
                    .query
                    .strip_prefix("label_values(")
                    .and_then(|rest| rest.strip_suffix(')')?.rsplit_once(", "))
                    .expect("label_values(METRIC, LABEL)");
                let found_selectors = selectors(metric);
                let name = found_selectors.first().map_or(metric, |selector| selector.metric.as_str());
                assert!(
                    declared_labels(name).is_some_and(|labels| labels.contains(label)),
                    "{file}: {}",
                    variable.query
                );
            }
        }
    }

    #[test]
    fn undeclared_metrics_and_labels_are_errors() {
        let no_labels = BTreeSet::new();
        for (query, word) in [
            (r#"hactl_nothing{cluster="$cluster"}"#, "no hactl_nothing"),
            (r#"hactl_leader{cluster="$cluster",nod="x"}"#, "no nod"),
            (r#"sum by (nod) (hactl_leader{cluster="$cluster"})"#, "nothing has nod"),
            ("sum(hactl_leader)", "without {}"),
            (r#"hactl_leader{job="x"}"#, "not that of one cluster"),
            (
                r#"hactl_reconcile_duration_seconds{cluster="$cluster"}"#,
                "no hactl_reconcile_duration_seconds",
            ),
            (r#"hactl_leader_count{cluster="$cluster"}"#, "no hactl_leader_count"),
        ] {
            assert!(
                query_errors(query, &no_labels).iter().any(|error| error.contains(word)),
                "{query}: {:?}",
                query_errors(query, &no_labels)
            );
        }
        let legend = string_set(&["nod"]);
        assert!(!query_errors(r#"hactl_leader{cluster="$cluster"}"#, &legend).is_empty());
    }
}
