//! Answers of a Prometheus to all queries of a dashboard, and the queries without an answer.

use anyhow::{Context, Result};

use super::model::{Dashboard, Target, Variable, VariableKind};
use super::prometheus::{Prometheus, Series, Time, TimeRange};
use super::query::{VariableValues, selectors, substitute_variables};

/// Window of a rate, in scrapes. Grafana uses the same number.
const SCRAPES_OF_A_RATE: f64 = 4.0;

/// A Prometheus and the range of time for its queries.
pub struct DashboardQuerier<'a> {
    /// Client of the Prometheus that answers the queries.
    pub client: &'a Prometheus,
    /// Range of time of all queries.
    pub span: TimeRange,
    /// Seconds between two scrapes.
    pub scrape_seconds: f64,
}

/// Answers to a dashboard's queries.
#[derive(Debug, Default)]
pub struct QueryResults {
    /// Values of the dashboard's variables.
    pub values: VariableValues,
    /// Series by panel and by query.
    pub panels: Vec<Vec<Vec<Series>>>,
    /// Events of each annotation.
    pub events: Vec<Vec<Series>>,
    /// Descriptions of the queries and variables without an answer.
    pub missing: Vec<String>,
}

impl DashboardQuerier<'_> {
    /// Runs all queries. A variable takes its value in `chosen`. If `chosen` has no value for it, the variable takes
    /// the first value, or all values if it is a multiple choice.
    ///
    /// # Errors
    /// Fails if Prometheus refuses a query.
    pub fn query_dashboard(&self, dashboard: &Dashboard, chosen: &VariableValues) -> Result<QueryResults> {
        let mut answers = QueryResults { values: self.intervals(), ..QueryResults::default() };
        for variable in &dashboard.templating.list {
            self.select_value(variable, chosen, &mut answers)
                .with_context(|| format!("{}: variable {}", dashboard.title, variable.name))?;
        }
        for panel in &dashboard.panels {
            let mut panel_series = Vec::new();
            for target in &panel.targets {
                let description = format!("{}, {}, query {}", dashboard.title, panel.title, target.ref_id);
                panel_series.push(self.series(target, &description, &mut answers)?);
            }
            answers.panels.push(panel_series);
        }
        for annotation in &dashboard.annotations.list {
            let description = format!("{}, events {}", dashboard.title, annotation.name);
            let event_series = self.series(&annotation.target, &description, &mut answers)?;
            answers.events.push(event_series);
        }
        Ok(answers)
    }

    /// Returns the variables that Grafana itself defines.
    fn intervals(&self) -> VariableValues {
        let rate = (self.span.step + self.scrape_seconds).max(SCRAPES_OF_A_RATE * self.scrape_seconds);
        let range = (self.span.to - self.span.from).max(1.0);
        let interval_seconds =
            [("__rate_interval", rate), ("__interval", self.span.step), ("__range", range)];
        let seconds = |(name, seconds): (&str, f64)| (name.to_owned(), format!("{}s", seconds.ceil()));
        interval_seconds.map(seconds).into()
    }

    fn select_value(
        &self,
        variable: &Variable,
        chosen: &VariableValues,
        answers: &mut QueryResults,
    ) -> Result<()> {
        if variable.kind == VariableKind::Datasource {
            return Ok(());
        }
        let query = substitute_variables(&variable.query, &answers.values);
        let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let (selector, label) =
            inner.and_then(|inner| inner.rsplit_once(", ")).context("label_values(METRIC, LABEL)")?;
        let label_values = self.client.label_values(selector, label, self.span)?;
        let chosen_value = chosen.get(&variable.name);
        if label_values.is_empty()
            || chosen_value.is_some_and(|chosen_value| !label_values.contains(chosen_value))
        {
            answers.missing.push(format!(
                "variable {}: {chosen_value:?} is not among {label_values:?} of {query}",
                variable.name
            ));
        }
        let value = match chosen_value {
            Some(chosen_value) => chosen_value.clone(),
            None if variable.multi => format!("({})", label_values.join("|")),
            None => label_values.first().cloned().unwrap_or_default(),
        };
        answers.values.insert(variable.name.clone(), value);
        Ok(())
    }

    /// Returns the result of a query. Checks also that each series in the query exists, because `or vector(0)` always gives a
    /// result.
    fn series(&self, target: &Target, description: &str, answers: &mut QueryResults) -> Result<Vec<Series>> {
        let query = substitute_variables(&target.expr, &answers.values);
        let series_found = if target.instant {
            self.client.query_at(&query, self.span.to)
        } else {
            self.client.query_range(&query, self.span)
        };
        let series_found = series_found.with_context(|| description.to_owned())?;
        if !series_found.iter().any(|series| series.points.iter().any(|(_, number)| number.is_finite())) {
            answers.missing.push(format!("{description}: no data: {query}"));
        }
        for selector in selectors(&query) {
            if self.client.count_series(&selector.text, self.span).with_context(|| description.to_owned())?
                == 0
            {
                answers.missing.push(format!("{description}: no series {} for {query}", selector.text));
            }
        }
        Ok(series_found)
    }
}

/// Returns the current time.
pub fn now() -> Time {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
