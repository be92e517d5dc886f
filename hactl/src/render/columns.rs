//! The columns of the server's tables, and the colors of their cells.

use super::path::value_text;
use super::table::{Cell, Table};
use crate::terminal::Style;
use ha_api_types::table::ColumnDefinition;
use serde_json::Value;

/// The columns of a server's Table that a command shows. `kubectl get` shows the same columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    /// Position and name of each column.
    cells: Vec<(usize, String)>,
    /// Labels that are shown as separate columns.
    labels: Vec<String>,
    /// `true` if the last column contains all labels.
    all_labels: bool,
}

impl Columns {
    /// Returns the columns that are always shown, or all of them.
    pub(crate) fn new(definitions: &[ColumnDefinition], wide: bool) -> Columns {
        Columns::of(definitions, |definition| wide || definition.priority == 0)
    }

    /// Returns the columns with these names.
    pub(crate) fn named(definitions: &[ColumnDefinition], names: &[&str]) -> Columns {
        Columns::of(definitions, |definition| names.contains(&definition.name.as_str()))
    }

    fn of(definitions: &[ColumnDefinition], is_shown: impl Fn(&ColumnDefinition) -> bool) -> Columns {
        let shown = definitions.iter().enumerate().filter(|(_, definition)| is_shown(definition));
        Columns {
            cells: shown.map(|(index, column)| (index, column.name.clone())).collect(),
            ..Columns::default()
        }
    }

    /// Adds a column for each of these labels and, if `all`, a last column with all labels.
    pub(crate) fn with_labels(self, labels: &[String], all: bool) -> Columns {
        Columns { labels: labels.to_vec(), all_labels: all, ..self }
    }

    /// Returns the table of these rows; `true` marks an object whose deletion a watch has reported.
    pub(crate) fn table<'a>(&self, rows: impl IntoIterator<Item = (&'a Value, bool)>) -> Table {
        let cells = self.cells.iter().map(|(_, name)| name.to_uppercase());
        // As in kubectl, the prefix of a label is not shown.
        let labels =
            self.labels.iter().map(|label| label.rsplit('/').next().unwrap_or_default().to_uppercase());
        let all_labels = self.all_labels.then(|| "LABELS".to_owned());
        let header: Vec<String> = cells.chain(labels).chain(all_labels).collect();
        let mut table = Table::new(&header.iter().map(String::as_str).collect::<Vec<_>>());
        for (row, deleted) in rows {
            table.add_row(self.row(row, deleted));
        }
        table
    }

    fn row(&self, row: &Value, deleted: bool) -> Vec<Cell> {
        let is_state = |name: &str| matches!(name, "State" | "Phase" | "Age");
        let state = self.cells.iter().find(|(_, name)| is_state(name)).map(|(index, _)| *index);
        let cells = self.cells.iter().map(|(index, name)| {
            if deleted && state == Some(*index) {
                return Cell::styled("(deleted)", Style::Dim);
            }
            let text = value_text(&row["cells"][index]);
            Cell::styled(&text, style(name, &text))
        });
        // The labels are read from the received value, because a typed map would lose their order.
        let labels = &row["metadata"]["labels"];
        let single = self.labels.iter().map(|name| Cell::plain(labels[name].as_str().unwrap_or_default()));
        let label_texts = self.all_labels.then(|| {
            let pairs: Vec<String> = labels
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, value)| format!("{name}={}", value_text(value)))
                .collect();
            Cell::plain(&if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") })
        });
        cells.chain(single).chain(label_texts).collect()
    }
}

/// Returns the style of a cell in a column.
fn style(column: &str, text: &str) -> Style {
    match (column, text) {
        ("State" | "Phase" | "Agent", state) => match state.split_once(',') {
            Some(_) => Style::Warn,
            None => state_style(state),
        },
        ("Ready", "True") => Style::Good,
        ("Ready", "False") | ("Watchdog", "none") => Style::Bad,
        ("Ready", "Unknown") | ("Type", "Warning") => Style::Warn,
        _ => Style::Plain,
    }
}

/// Returns the style of a state of a service, node, operation or controller.
pub(crate) fn state_style(state: &str) -> Style {
    match state {
        "Started" | "Online" | "Succeeded" | "Leading" | "Active" => Style::Good,
        "Error" | "Fence" | "Failed" | "Refused" | "Unknown" | "Lost" | "LostLock" => Style::Bad,
        "Queued" | "RequestStart" | "Starting" | "RequestStop" | "Stopping" | "Migrate" | "Relocate"
        | "Recovery" | "Freeze" | "Deleting" | "Maintenance" | "Pending" | "Running" | "Offline"
        | "WaitForLock" => Style::Warn,
        _ => Style::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::{ColorChoice, Terminal};
    use serde_json::json;

    #[test]
    fn server_defined_columns_are_shown() {
        let definitions = [("Name", 0), ("State", 0), ("Last Seen", 1)].map(|(name, priority)| {
            ColumnDefinition { name: name.to_owned(), priority, ..ColumnDefinition::default() }
        });
        let web = json!({"cells": ["web", "Started", "5s"],
            "metadata": {"labels": {"app": "x", "hactl.io/tier": "front"}}});
        let db = json!({"cells": ["db", "", "5s"], "metadata": {}});
        let terminal = Terminal::new(ColorChoice::Never, false, 0);
        let check = |columns: Columns, expected: &str| {
            let table = columns.table([(&web, false), (&db, true)]);
            assert_eq!(table.render(&terminal, 0), expected);
        };
        check(Columns::new(&definitions, false), "NAME  STATE\nweb   Started\ndb    (deleted)\n");
        check(
            Columns::new(&definitions, true),
            "NAME  STATE      LAST SEEN\nweb   Started    5s\ndb    (deleted)  5s\n",
        );
        check(Columns::named(&definitions, &["Last Seen"]), "LAST SEEN\n5s\n5s\n");
        check(
            Columns::named(&definitions, &["Name"]).with_labels(&["hactl.io/tier".to_owned()], true),
            "NAME  TIER   LABELS\nweb   front  app=x,hactl.io/tier=front\ndb    -      <none>\n",
        );
    }
}
