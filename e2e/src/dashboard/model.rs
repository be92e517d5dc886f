//! A dashboard as stored in its file: the part of Grafana's format that this project uses.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::binaries::repository;

/// A Grafana dashboard, as in its JSON file.
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
pub struct Annotation {
    /// Name of the kind.
    pub name: String,
    /// Query that finds the events.
    pub target: Target,
}

/// A panel, or the title of a row of panels.
#[derive(Debug, Clone, Deserialize)]
pub struct Panel {
    /// Title of the panel or row.
    pub title: String,
    /// Queries of the panel.
    #[serde(default)]
    pub targets: Vec<Target>,
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

impl Dashboard {
    /// Returns all dashboards of `manifests/grafana`, by file name without the extension.
    ///
    /// # Errors
    /// Fails if a dashboard cannot be read, or if none exists.
    pub fn all() -> Result<BTreeMap<String, Dashboard>> {
        let directory = repository().join("manifests/grafana");
        let mut dashboards = BTreeMap::new();
        for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read(&path).with_context(|| path.display().to_string())?;
            dashboards
                .insert(name, serde_json::from_slice(&text).with_context(|| path.display().to_string())?);
        }
        anyhow::ensure!(!dashboards.is_empty(), "{} is empty", directory.display());
        Ok(dashboards)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn read(file: &str) -> String {
        fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    #[test]
    fn dashboard_link_targets_exist() {
        let dashboards = Dashboard::all().unwrap();
        let uids: BTreeSet<&str> = dashboards.values().map(|dashboard| dashboard.uid.as_str()).collect();
        assert_eq!(uids.len(), dashboards.len(), "two have the same uid");
        let runbooks = read("docs/runbooks.md");
        let pages: BTreeSet<String> =
            runbooks.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_lowercase).collect();
        let (mut to_pages, mut to_dashboards) = (0, 0);
        for name in dashboards.keys() {
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
}
