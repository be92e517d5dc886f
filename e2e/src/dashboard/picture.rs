//! Draws a dashboard as an SVG picture from the answers to its queries, like Grafana would.

mod axis;
mod canvas;
mod graph;
mod look;
mod table;
mod timeline;

pub use canvas::escaped;

use super::answers::Answers;
use super::model::{Annotation, Dashboard, Field, Panel, PanelKind};
use super::prometheus::{Series, Span, Time};
use super::query::legend;
use axis::{across, clock, milliseconds, times};
use canvas::{Area, Canvas, fit, width};
use std::collections::BTreeMap;

/// Width of a picture, in pixels.
const WIDTH: f64 = 1200.0;
/// Space around and between panels, in pixels.
const MARGIN: f64 = 8.0;
/// Height of a row of the grid, and width of one of the 24 columns, in pixels.
const ROW: f64 = 30.0;
const COLUMN: f64 = (WIDTH - MARGIN) / 24.0;
/// Height above the panels, in pixels.
const HEAD: f64 = 44.0;

/// Data that the panels share.
struct Scene<'a> {
    span: Span,
    /// Time and color of each event.
    events: Vec<(Time, &'static str)>,
    answers: &'a Answers,
}

/// A series and its name.
struct Named<'a> {
    name: String,
    series: &'a Series,
}

/// Counts by bucket and time, each without the counts of the smaller buckets.
type Cells = BTreeMap<(usize, i64), f64>;

/// Draws a dashboard with the answers to its queries.
pub fn draw(dashboard: &Dashboard, answers: &Answers, span: Span) -> String {
    let rows = dashboard.panels.iter().map(|panel| panel.grid_pos.y + panel.grid_pos.h).max().unwrap_or(0);
    let mut canvas = Canvas::new(WIDTH, HEAD + f64::from(rows) * ROW + MARGIN);
    canvas.text(MARGIN + 4.0, 28.0, 18.0, look::TEXT, &dashboard.title);
    let shown = answers.values.iter().filter(|(name, _)| !name.starts_with("__") && *name != "job");
    let shown: Vec<String> = shown.map(|(name, value)| format!("{name}: {value}")).collect();
    let when = format!("{}   {} – {} UTC", shown.join("   "), clock(span.from), clock(span.to));
    canvas.text_to_left(WIDTH - MARGIN - 4.0, 28.0, 12.0, look::FAINT, &when);
    let events = dashboard.annotations.list.iter().zip(&answers.events);
    let events = events.flat_map(|(annotation, found)| moments(annotation, found, span)).collect();
    let scene = Scene { span, events, answers };
    for (panel, found) in dashboard.panels.iter().zip(&answers.panels) {
        let place = panel.grid_pos;
        let area = Area {
            x: MARGIN + f64::from(place.x) * COLUMN,
            y: HEAD + f64::from(place.y) * ROW,
            w: f64::from(place.w) * COLUMN - MARGIN,
            h: f64::from(place.h) * ROW - MARGIN,
        };
        draw_panel(&mut canvas, &scene, panel, found, area);
    }
    canvas.end()
}

fn draw_panel(canvas: &mut Canvas, scene: &Scene<'_>, panel: &Panel, found: &[Vec<Series>], area: Area) {
    if panel.kind == PanelKind::Row {
        canvas.text(area.x + 2.0, area.y + 18.0, 14.0, look::TEXT, &panel.title);
        return;
    }
    canvas.frame(area, &panel.title);
    canvas.text(area.x + 8.0, area.y + 17.0, 12.0, look::TEXT, &fit(&panel.title, area.w - 16.0, 12.0));
    let inner = Area { x: area.x + 8.0, y: area.y + 24.0, w: area.w - 16.0, h: area.h - 30.0 };
    let series = named(scene, panel, found);
    match panel.kind {
        PanelKind::Row => {}
        PanelKind::Stat => draw_stat(canvas, panel, &series, inner),
        PanelKind::Bargauge => draw_bars(canvas, panel, &series, inner),
        PanelKind::Timeseries => graph::draw(canvas, scene, panel, &series, inner),
        PanelKind::StateTimeline => timeline::draw(canvas, scene, panel, &series, inner),
        PanelKind::Heatmap => draw_heat(canvas, scene, panel, &series, inner),
        PanelKind::Table => table::draw(canvas, panel, found, inner),
    }
}

/// Draws single numbers or names in a large font.
fn draw_stat(canvas: &mut Canvas, panel: &Panel, series: &[Named<'_>], area: Area) {
    let field = &panel.field_config.defaults;
    let option = |name: &str| panel.options[name].as_str().unwrap_or_default();
    let (mode, fills) = (option("textMode"), option("colorMode") == "background");
    let wide = area.w / series.len().max(1) as f64;
    for (number, named) in series.iter().enumerate() {
        let Some(value) = newest(named.series) else { continue };
        let (shown, color) = look::shown(field, value);
        let shown = if mode == "name" { named.name.clone() } else { shown };
        let own = Area { x: area.x + number as f64 * wide, w: wide - if fills { 6.0 } else { 0.0 }, ..area };
        if fills {
            canvas.rect(own, color, 0.85);
        }
        let middle = own.x + own.w / 2.0;
        let two = mode == "value_and_name" && !named.name.is_empty();
        let room = (own.w - 8.0) / width(&shown, 1.0).max(1.0);
        let size = room.min(own.h * if two { 0.38 } else { 0.55 }).clamp(9.0, 34.0);
        let color = if fills { look::BACKGROUND } else { color };
        let y = own.y + own.h / 2.0 + size * 0.35 + if two { 9.0 } else { 0.0 };
        canvas.text_centred(middle, y, size, color, &shown);
        if two {
            let faint = if fills { look::BACKGROUND } else { look::TEXT };
            canvas.text_centred(middle, own.y + 18.0, 12.0, faint, &fit(&named.name, own.w - 6.0, 12.0));
        }
    }
}

/// Draws a bar for each series, proportional to its newest number.
fn draw_bars(canvas: &mut Canvas, panel: &Panel, series: &[Named<'_>], area: Area) {
    let field = &panel.field_config.defaults;
    let numbers = series.iter().filter_map(|named| newest(named.series));
    let most = field.max.unwrap_or_else(|| numbers.fold(0.0, f64::max)).max(f64::MIN_POSITIVE);
    let high = (area.h / series.len().max(1) as f64).min(40.0);
    let (names, values) = (area.w * 0.25, 70.0);
    let room = area.w - names - values;
    for (number, named) in series.iter().enumerate() {
        let Some(value) = newest(named.series) else { continue };
        let (shown, color) = look::shown(field, value);
        let y = area.y + number as f64 * high;
        let bar = Area { x: area.x + names, y: y + 3.0, w: room, h: high - 8.0 };
        canvas.text(area.x, y + high / 2.0 + 3.0, 12.0, look::TEXT, &fit(&named.name, names - 4.0, 12.0));
        canvas.rect(bar, look::GRID, 1.0);
        canvas.rect(Area { w: room * (value / most).clamp(0.0, 1.0), ..bar }, color, 0.85);
        canvas.text_to_left(area.x + area.w, y + high / 2.0 + 4.0, 13.0, color, &shown);
    }
}

/// Draws a heat map of buckets over time. A higher count is more opaque.
fn draw_heat(canvas: &mut Canvas, scene: &Scene<'_>, panel: &Panel, series: &[Named<'_>], area: Area) {
    let mut bounds: Vec<(f64, &Named<'_>)> =
        series.iter().filter_map(|named| Some((named.name.parse().ok()?, named))).collect();
    bounds.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let cells = cells(&bounds);
    let most = cells.values().copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let unit = panel.options["yAxis"]["unit"].as_str().unwrap_or_default();
    let graph = Area { x: area.x + 58.0, w: area.w - 58.0, h: area.h - 18.0, ..area };
    let high = graph.h / bounds.len().max(1) as f64;
    for (row, (bound, _)) in bounds.iter().enumerate() {
        let y = graph.y + graph.h - (row + 1) as f64 * high;
        let text = if bound.is_finite() { look::text(*bound, unit, None) } else { "more".to_owned() };
        canvas.text_to_left(graph.x - 5.0, y + high / 2.0 + 3.5, 10.0, look::FAINT, &text);
        canvas.line((graph.x, y + high), (graph.x + graph.w, y + high), look::GRID, "");
    }
    let wide = graph.w * scene.span.step / (scene.span.to - scene.span.from).max(1.0);
    for ((row, time), count) in cells.iter().filter(|(_, count)| **count > 0.0) {
        let x = across(*time as f64 / 1000.0, graph, scene.span);
        let y = graph.y + graph.h - (*row + 1) as f64 * high;
        let cell = Area { x, y: y + 1.0, w: wide.max(2.0), h: high - 2.0 };
        canvas.rect(cell, "#ff9830", 0.25 + 0.75 * (count / most).sqrt());
    }
    graph::draw_events(canvas, scene, graph);
    times(canvas, graph, scene.span);
}

fn cells(bounds: &[(f64, &Named<'_>)]) -> Cells {
    let mut cells = Cells::new();
    let mut below: BTreeMap<i64, f64> = BTreeMap::new();
    for (row, (_, named)) in bounds.iter().enumerate() {
        for (time, number) in &named.series.points {
            let time = milliseconds(*time);
            let before = below.insert(time, *number).unwrap_or_default();
            cells.insert((row, time), number - before);
        }
    }
    cells
}

/// Returns the series of all queries, with the names from their legends.
fn named<'a>(scene: &Scene<'_>, panel: &Panel, found: &'a [Vec<Series>]) -> Vec<Named<'a>> {
    let pairs = panel.targets.iter().zip(found);
    let all = pairs.flat_map(|(target, found)| {
        found.iter().map(|series| {
            let format = super::query::fill(&target.legend_format, &scene.answers.values);
            Named { name: legend(&format, &series.labels), series }
        })
    });
    let mut all: Vec<Named<'a>> = all.collect();
    // The order of several queries is meaningful, as for objectives. The series of a single query are sorted by name.
    if panel.targets.len() == 1 {
        all.sort_by(|a, b| a.name.cmp(&b.name));
    }
    all
}

/// Returns the start of each event. Consecutive points belong to one event.
fn moments(annotation: &Annotation, found: &[Series], span: Span) -> Vec<(Time, &'static str)> {
    let color = look::color(&annotation.icon_color);
    let mut moments = Vec::new();
    for series in found {
        let mut last = f64::NEG_INFINITY;
        for (time, _) in &series.points {
            if time - last > 1.5 * span.step {
                moments.push((*time, color));
            }
            last = *time;
        }
    }
    moments
}

/// Returns the newest finite number of a series.
fn newest(series: &Series) -> Option<f64> {
    series.points.iter().rev().map(|(_, number)| *number).find(|number| number.is_finite())
}

/// Returns a setting that depends on the kind of panel, as text.
fn custom<'a>(field: &'a Field, path: &str) -> &'a str {
    field.custom.pointer(path).and_then(serde_json::Value::as_str).unwrap_or_default()
}
