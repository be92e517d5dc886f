//! A dashboard as its file has it: the part of Grafana's format that ours use.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::binaries::repository;

/// A dashboard.
#[derive(Debug, Clone, Deserialize)]
pub struct Dashboard {
    /// Its name in links.
    pub uid: String,
    /// Its name for people.
    pub title: String,
    /// Rows and panels, from top to bottom.
    pub panels: Vec<Panel>,
    /// What queries name as `$NAME`.
    pub templating: List<Variable>,
    /// Events that are marked in every graph.
    pub annotations: List<Annotation>,
}

/// Grafana wraps some lists.
#[derive(Debug, Clone, Deserialize)]
pub struct List<T> {
    /// What is in it.
    pub list: Vec<T>,
}

/// A variable.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Of what kind.
    #[serde(rename = "type")]
    pub kind: VariableKind,
    /// What its values are.
    pub query: String,
    /// Whether several values are chosen at once.
    #[serde(default)]
    pub multi: bool,
}

/// What a variable's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VariableKind {
    /// A source of data.
    Datasource,
    /// What a query answers.
    Query,
}

/// Events.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotation {
    /// What they are called.
    pub name: String,
    /// How they are drawn.
    pub icon_color: String,
    /// What finds them.
    pub target: Target,
}

/// A panel, or the title of a row of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Panel {
    /// What it is called.
    pub title: String,
    /// How it shows its numbers.
    #[serde(rename = "type")]
    pub kind: PanelKind,
    /// Where it is.
    pub grid_pos: Place,
    /// Its queries.
    #[serde(default)]
    pub targets: Vec<Target>,
    /// Settings of its kind.
    #[serde(default)]
    pub options: Value,
    /// What numbers look like.
    #[serde(default)]
    pub field_config: FieldConfig,
    /// What is done to the answers first.
    #[serde(default)]
    pub transformations: Vec<Transformation>,
}

/// How a panel shows its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PanelKind {
    /// The title of a row.
    Row,
    /// A number.
    Stat,
    /// Lines over time.
    Timeseries,
    /// Coloured bars over time.
    #[serde(rename = "state-timeline")]
    StateTimeline,
    /// A bar a series.
    Bargauge,
    /// Buckets over time.
    Heatmap,
    /// Rows and columns.
    Table,
}

/// Where a panel is, in 24 columns and as many rows as it takes.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Place {
    /// Columns from the left.
    pub x: u16,
    /// Rows from the top.
    pub y: u16,
    /// Columns.
    pub w: u16,
    /// Rows.
    pub h: u16,
}

/// A query.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The query.
    pub expr: String,
    /// Its letter in the panel.
    pub ref_id: String,
    /// What a series is called.
    #[serde(default)]
    pub legend_format: String,
    /// Whether it is asked for now, not for a range.
    pub instant: bool,
}

/// What the numbers of a panel look like, and those of single columns.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct FieldConfig {
    /// All of them.
    pub defaults: Field,
    /// Those of single columns.
    #[serde(default)]
    pub overrides: Vec<Override>,
}

/// What numbers look like.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Field {
    /// Their unit.
    pub unit: Option<String>,
    /// How many digits after the point.
    pub decimals: Option<usize>,
    /// Where an axis begins.
    pub min: Option<f64>,
    /// Where it ends.
    pub max: Option<f64>,
    /// Texts and colours for single numbers.
    #[serde(default)]
    pub mappings: Vec<Mapping>,
    /// Colours from a number on.
    pub thresholds: Option<Thresholds>,
    /// Settings of the panel's kind.
    #[serde(default)]
    pub custom: Value,
}

/// Texts and colours by the number as text.
#[derive(Debug, Clone, Deserialize)]
pub struct Mapping {
    /// Number to text and colour.
    pub options: BTreeMap<String, Mapped>,
}

/// What a number is shown as.
#[derive(Debug, Clone, Deserialize)]
pub struct Mapped {
    /// The text.
    pub text: String,
    /// The colour.
    pub color: String,
}

/// Colours from a number on, the first for all below.
#[derive(Debug, Clone, Deserialize)]
pub struct Thresholds {
    /// From the lowest to the highest.
    pub steps: Vec<Threshold>,
}

/// A colour from a number on.
#[derive(Debug, Clone, Deserialize)]
pub struct Threshold {
    /// The number; none: from the bottom on.
    pub value: Option<f64>,
    /// The colour.
    pub color: String,
}

/// Settings of one column.
#[derive(Debug, Clone, Deserialize)]
pub struct Override {
    /// Which one.
    pub matcher: Matcher,
    /// The settings.
    pub properties: Vec<Property>,
}

/// Which column: by its name.
#[derive(Debug, Clone, Deserialize)]
pub struct Matcher {
    /// The name.
    pub options: String,
}

/// A setting.
#[derive(Debug, Clone, Deserialize)]
pub struct Property {
    /// Its name.
    pub id: String,
    /// Its value.
    pub value: Value,
}

/// What is done to answers.
#[derive(Debug, Clone, Deserialize)]
pub struct Transformation {
    /// Which one.
    pub id: String,
    /// Its settings.
    pub options: Value,
}

impl Dashboard {
    /// All that are in `manifests/grafana`, by the name of the file.
    ///
    /// # Errors
    /// When one cannot be read, or there is none.
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

    /// Every query, with what it is for: panels' and events'.
    pub fn queries(&self) -> impl Iterator<Item = (&str, &Target)> {
        let panels = self.panels.iter();
        let of_panels =
            panels.flat_map(|panel| panel.targets.iter().map(|target| (panel.title.as_str(), target)));
        let events = self.annotations.list.iter().map(|event| (event.name.as_str(), &event.target));
        of_panels.chain(events)
    }
}

impl Field {
    /// What the settings of a column make of it.
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
                assert!(uids.contains(uid), "{name}: there is no dashboard {uid}");
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
