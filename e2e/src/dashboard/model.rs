//! A dashboard as stored in its file: the part of Grafana's format that this project uses.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::binaries::repository;

/// A dashboard.
#[derive(Debug, Clone, Deserialize)]
pub struct Dashboard {
    /// Identifier in links.
    pub uid: String,
    /// Title that the dashboard shows.
    pub title: String,
    /// Rows and panels, from top to bottom.
    pub panels: Vec<Panel>,
    /// Variables, which queries name as `$NAME`.
    pub templating: List<Variable>,
    /// Events that every graph marks.
    pub annotations: List<Annotation>,
}

/// Grafana's wrapper around some lists.
#[derive(Debug, Clone, Deserialize)]
pub struct List<T> {
    /// Elements of the list.
    pub list: Vec<T>,
}

/// A variable of a dashboard.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Variable {
    /// Name, without the `$`.
    pub name: String,
    /// Source of the values.
    #[serde(rename = "type")]
    pub kind: VariableKind,
    /// Query that lists the possible values.
    pub query: String,
    /// `true` if several values can be chosen at the same time.
    #[serde(default)]
    pub multi: bool,
}

/// Source of a variable's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VariableKind {
    /// Data sources of Grafana.
    Datasource,
    /// Result of a query.
    Query,
}

/// A kind of event that graphs mark.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotation {
    /// Name of the kind.
    pub name: String,
    /// Color of the marks.
    pub icon_color: String,
    /// Query that finds the events.
    pub target: Target,
}

/// A panel, or the title of a row of panels.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Panel {
    /// Title of the panel or row.
    pub title: String,
    /// Way to display the numbers.
    #[serde(rename = "type")]
    pub kind: PanelKind,
    /// Position and size.
    pub grid_pos: Place,
    /// Queries of the panel.
    #[serde(default)]
    pub targets: Vec<Target>,
    /// Settings that depend on the kind of panel.
    #[serde(default)]
    pub options: Value,
    /// Format of the numbers.
    #[serde(default)]
    pub field_config: FieldConfig,
    /// Transformations of the results before the display.
    #[serde(default)]
    pub transformations: Vec<Transformation>,
}

/// Way in which a panel displays its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PanelKind {
    /// Title of a row of panels.
    Row,
    /// Single number.
    Stat,
    /// Lines over time.
    Timeseries,
    /// Colored bars over time.
    #[serde(rename = "state-timeline")]
    StateTimeline,
    /// One bar for each series.
    Bargauge,
    /// Buckets over time.
    Heatmap,
    /// Rows and columns.
    Table,
}

/// Position and size of a panel, in a grid of 24 columns and any number of rows.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Place {
    /// Columns to the left of the panel.
    pub x: u16,
    /// Rows above the panel.
    pub y: u16,
    /// Width in columns.
    pub w: u16,
    /// Height in rows.
    pub h: u16,
}

/// A query of a panel or annotation.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Expression in PromQL.
    pub expr: String,
    /// Letter of the query in the panel.
    pub ref_id: String,
    /// Name of each series, with `{{LABEL}}` for the value of a label.
    #[serde(default)]
    pub legend_format: String,
    /// `true` for the value at the end of the range, `false` for the whole range.
    pub instant: bool,
}

/// Format of a panel's numbers, with exceptions for columns.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct FieldConfig {
    /// Format of all numbers.
    pub defaults: Field,
    /// Exceptions for columns.
    #[serde(default)]
    pub overrides: Vec<Override>,
}

/// Format of numbers.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Field {
    /// Unit in Grafana's notation; `None` for plain numbers.
    pub unit: Option<String>,
    /// Number of decimal digits; `None` for a default by size.
    pub decimals: Option<usize>,
    /// Lower end of the axis; `None` to derive it from the data.
    pub min: Option<f64>,
    /// Upper end of the axis; `None` to derive it from the data.
    pub max: Option<f64>,
    /// Texts and colors for single numbers.
    #[serde(default)]
    pub mappings: Vec<Mapping>,
    /// Colors by range of the number.
    pub thresholds: Option<Thresholds>,
    /// Settings that depend on the kind of panel.
    #[serde(default)]
    pub custom: Value,
}

/// Texts and colors for single numbers.
#[derive(Debug, Clone, Deserialize)]
pub struct Mapping {
    /// Text and color by number, with the number in decimal notation.
    pub options: BTreeMap<String, Mapped>,
}

/// Text and color that replace a number.
#[derive(Debug, Clone, Deserialize)]
pub struct Mapped {
    /// Text instead of the number.
    pub text: String,
    /// Color of the text.
    pub color: String,
}

/// Colors by range. The first color also applies below all thresholds.
#[derive(Debug, Clone, Deserialize)]
pub struct Thresholds {
    /// Thresholds in ascending order.
    pub steps: Vec<Threshold>,
}

/// A color from a threshold upward.
#[derive(Debug, Clone, Deserialize)]
pub struct Threshold {
    /// Threshold; `None` for the lowest range.
    pub value: Option<f64>,
    /// Color of the range.
    pub color: String,
}

/// Exceptions for one column.
#[derive(Debug, Clone, Deserialize)]
pub struct Override {
    /// Column to which the exceptions apply.
    pub matcher: Matcher,
    /// Settings that differ.
    pub properties: Vec<Property>,
}

/// Matches a column by name.
#[derive(Debug, Clone, Deserialize)]
pub struct Matcher {
    /// Name of the column.
    pub options: String,
}

/// A setting of one column.
#[derive(Debug, Clone, Deserialize)]
pub struct Property {
    /// Name of the setting.
    pub id: String,
    /// Value of the setting.
    pub value: Value,
}

/// A transformation of results before the display.
#[derive(Debug, Clone, Deserialize)]
pub struct Transformation {
    /// Name of the transformation.
    pub id: String,
    /// Settings of the transformation.
    pub options: Value,
}

impl Dashboard {
    /// Returns all dashboards of `manifests/grafana`, by file name without the extension.
    ///
    /// # Errors
    /// Fails if a dashboard cannot be read, or if none exists.
    pub fn all() -> Result<BTreeMap<String, Dashboard>> {
        let folder = repository().join("manifests/grafana");
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read(&path).with_context(|| path.display().to_string())?;
            all.insert(name, serde_json::from_slice(&text).with_context(|| path.display().to_string())?);
        }
        anyhow::ensure!(!all.is_empty(), "{} is empty", folder.display());
        Ok(all)
    }

    /// Returns all queries of panels and annotations, each with the title of its panel or annotation.
    pub fn queries(&self) -> impl Iterator<Item = (&str, &Target)> {
        let panels = self.panels.iter();
        let of_panels =
            panels.flat_map(|panel| panel.targets.iter().map(|target| (panel.title.as_str(), target)));
        let events = self.annotations.list.iter().map(|event| (event.name.as_str(), &event.target));
        of_panels.chain(events)
    }
}

impl Field {
    /// Returns the format of a column, with its exceptions applied.
    #[must_use]
    pub fn with(&self, overrides: &[Override], column: &str) -> Field {
        let mut field = self.clone();
        let own = overrides.iter().filter(|own| own.matcher.options == column);
        for property in own.flat_map(|own| &own.properties) {
            let value = property.value.clone();
            match property.id.as_str() {
                "unit" => field.unit = value.as_str().map(str::to_owned),
                "decimals" => field.decimals = value.as_u64().and_then(|digits| usize::try_from(digits).ok()),
                "mappings" => field.mappings = serde_json::from_value(value).unwrap_or_default(),
                "thresholds" => field.thresholds = serde_json::from_value(value).ok(),
                _ => {}
            }
        }
        field
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::picture::escaped;
    use std::collections::BTreeSet;

    fn read(file: &str) -> String {
        fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    #[test]
    fn links_lead_somewhere() {
        let all = Dashboard::all().unwrap();
        let uids: BTreeSet<&str> = all.values().map(|dashboard| dashboard.uid.as_str()).collect();
        assert_eq!(uids.len(), all.len(), "two have the same uid");
        let runbooks = read("docs/runbooks.md");
        let pages: BTreeSet<String> =
            runbooks.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_lowercase).collect();
        let (mut to_pages, mut to_dashboards) = (0, 0);
        for name in all.keys() {
            let text = read(&format!("manifests/grafana/{name}.json"));
            for page in text.split("runbooks.md#").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(pages.contains(page), "{name}: docs/runbooks.md has no {page}");
                to_pages += 1;
            }
            for uid in text.split("\"/d/").skip(1).filter_map(|rest| rest.split('?').next()) {
                assert!(uids.contains(uid), "{name}: dashboard {uid} not found");
                to_dashboards += 1;
            }
        }
        assert!(to_pages > 20 && to_dashboards > 3, "{to_pages} {to_dashboards}");
    }

    #[test]
    fn pictures_in_the_docs_are_of_these_panels() {
        let docs = read("docs/dashboards.md");
        for (name, dashboard) in Dashboard::all().unwrap() {
            let file = format!("pictures/dashboard-{name}.svg");
            assert!(docs.contains(&format!("({file})")), "docs/dashboards.md does not show {file}");
            let picture = read(&format!("docs/{file}"));
            for panel in &dashboard.panels {
                let is_there = picture.contains(&escaped(&panel.title));
                assert!(is_there, "{file} is old: ./dev/dashboards --pictures (it has no {:?})", panel.title);
            }
        }
    }
}
