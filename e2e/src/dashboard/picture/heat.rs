//! Draws a heat map of buckets over time. A higher count is more opaque.

use super::axis::{across, milliseconds, times};
use super::canvas::{Area, Canvas};
use super::{Named, Scene, graph, look};
use crate::dashboard::model::Panel;
use std::collections::BTreeMap;

/// Counts by bucket and time, each without the counts of the smaller buckets.
type Cells = BTreeMap<(usize, i64), f64>;

pub(super) fn draw(canvas: &mut Canvas, scene: &Scene<'_>, panel: &Panel, series: &[Named<'_>], area: Area) {
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
