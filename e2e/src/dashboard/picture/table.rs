//! Draws a table whose rows join the results of all queries by their labels.

use super::axis::whole;
use super::canvas::{Area, Canvas, fit};
use super::{look, newest};
use crate::dashboard::model::Panel;
use crate::dashboard::prometheus::Series;
use std::collections::BTreeMap;

/// Height of a row, in pixels.
const HIGH: f64 = 21.0;

/// Labels of a row, and its numbers by column name.
type Row = (BTreeMap<String, String>, BTreeMap<String, f64>);

pub(super) fn draw(canvas: &mut Canvas, panel: &Panel, found: &[Vec<Series>], area: Area) {
    let columns = columns(panel);
    let mut rows = joined(panel, found);
    sort(panel, &columns, &mut rows);
    let wide = area.w / columns.len().max(1) as f64;
    for (number, (_, title)) in columns.iter().enumerate() {
        let x = area.x + number as f64 * wide;
        canvas.text(x, area.y + 13.0, 11.0, "#6e9fff", &fit(title, wide - 6.0, 11.0));
    }
    let room = whole((area.h / HIGH - 1.0).max(0.0));
    let over = rows.len().saturating_sub(room);
    for (line, row) in rows.iter().take(room).enumerate() {
        let y = area.y + (line + 1) as f64 * HIGH;
        canvas.line((area.x, y), (area.x + area.w, y), look::GRID, "");
        for (number, (name, title)) in columns.iter().enumerate() {
            let (text, color) = cell(panel, row, name, title);
            let x = area.x + number as f64 * wide;
            canvas.text(x, y + 15.0, 12.0, color, &fit(&text, wide - 6.0, 12.0));
        }
    }
    if over > 0 {
        canvas.text_to_left(area.x + area.w, area.y - 7.0, 11.0, look::FAINT, &format!("{over} more rows"));
    }
}

/// Returns the columns in order, each with its name in the results and its title.
fn columns(panel: &Panel) -> Vec<(String, String)> {
    let organize = panel.transformations.iter().find(|one| one.id == "organize").map(|one| &one.options);
    let map =
        |name: &str| organize.and_then(|options| options[name].as_object()).cloned().unwrap_or_default();
    let (order, names) = (map("indexByName"), map("renameByName"));
    let mut columns: Vec<(u64, String)> =
        order.into_iter().map(|(name, place)| (place.as_u64().unwrap_or(u64::MAX), name)).collect();
    columns.sort();
    let titled = columns.into_iter().map(|(_, name)| {
        let title = names.get(&name).and_then(|title| title.as_str()).unwrap_or(&name).to_owned();
        (name, title)
    });
    titled.collect()
}

/// Joins the results of all queries: series with the same labels form one row.
fn joined(panel: &Panel, found: &[Vec<Series>]) -> Vec<Row> {
    let mut rows: BTreeMap<BTreeMap<String, String>, BTreeMap<String, f64>> = BTreeMap::new();
    for (target, series) in panel.targets.iter().zip(found) {
        let column =
            if panel.targets.len() > 1 { format!("Value #{}", target.ref_id) } else { "Value".to_owned() };
        for one in series {
            if let Some(number) = newest(one) {
                rows.entry(one.labels.clone()).or_default().insert(column.clone(), number);
            }
        }
    }
    rows.into_iter().collect()
}

fn cell(panel: &Panel, (labels, numbers): &Row, name: &str, title: &str) -> (String, &'static str) {
    let field = panel.field_config.defaults.with(&panel.field_config.overrides, title);
    match numbers.get(name) {
        Some(number) => look::shown(&field, *number),
        None => (labels.get(name).cloned().unwrap_or_default(), look::TEXT),
    }
}

/// Sorts rows by the panel's first sort column.
fn sort(panel: &Panel, columns: &[(String, String)], rows: &mut [Row]) {
    let wanted = &panel.options["sortBy"][0];
    let title = wanted["displayName"].as_str().unwrap_or_default();
    let Some((name, _)) = columns.iter().find(|(_, found)| found == title) else { return };
    rows.sort_by(|a, b| {
        let number = |row: &Row| row.1.get(name).copied().unwrap_or(f64::INFINITY);
        number(a).total_cmp(&number(b)).then_with(|| a.0.get(name).cmp(&b.0.get(name)))
    });
    if wanted["desc"] == true {
        rows.reverse();
    }
}
