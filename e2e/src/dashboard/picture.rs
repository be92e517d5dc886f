//! Draws a dashboard as an SVG picture from the answers to its queries, like Grafana would.

mod axis;
mod bars;
mod canvas;
mod graph;
mod heat;
mod look;
mod stat;
mod table;
mod timeline;

pub use canvas::escaped;

use super::answers::Answers;
use super::model::{Annotation, Dashboard, Field, Panel, PanelKind};
use super::prometheus::{Series, Span, Time};
use super::query::legend;
use axis::clock;
use canvas::{Area, Canvas};

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
    canvas.text(
        area.x + 8.0,
        area.y + 17.0,
        12.0,
        look::TEXT,
        &canvas::fit(&panel.title, area.w - 16.0, 12.0),
    );
    let inner = Area { x: area.x + 8.0, y: area.y + 24.0, w: area.w - 16.0, h: area.h - 30.0 };
    let series = named(scene, panel, found);
    match panel.kind {
        PanelKind::Row => {}
        PanelKind::Stat => stat::draw(canvas, panel, &series, inner),
        PanelKind::Bargauge => bars::draw(canvas, panel, &series, inner),
        PanelKind::Timeseries => graph::draw(canvas, scene, panel, &series, inner),
        PanelKind::StateTimeline => timeline::draw(canvas, scene, panel, &series, inner),
        PanelKind::Heatmap => heat::draw(canvas, scene, panel, &series, inner),
        PanelKind::Table => table::draw(canvas, panel, found, inner),
    }
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
