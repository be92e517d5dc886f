//! Draws lines, areas and bars over time.

use super::axis::{Scale, across, milliseconds};
use super::canvas::{Area, Canvas, width};
use super::{Named, Scene, custom, look};
use crate::dashboard::model::Panel;
use crate::dashboard::prometheus::{Span, Time};
use std::collections::BTreeMap;

/// A time with the lower and upper bound of a number. The lower bound is the sum of the series below in a stack, else zero.
type Stacked = (Time, f64, f64);

pub(super) fn draw(canvas: &mut Canvas, scene: &Scene<'_>, panel: &Panel, series: &[Named<'_>], area: Area) {
    let field = &panel.field_config.defaults;
    let (bars, stacks) = (custom(field, "/drawStyle") == "bars", custom(field, "/stacking/mode") == "normal");
    let lines = stacked(series, stacks);
    let tops = lines.iter().flatten().map(|(_, _, top)| *top);
    let low = field.min.unwrap_or_else(|| tops.clone().fold(f64::INFINITY, f64::min).min(0.0));
    let limits = limits(panel);
    let high = tops.chain(limits.iter().map(|(value, _)| *value)).fold(low, f64::max);
    let legend = Area { y: area.y + area.h - 14.0, h: 14.0, ..area };
    let scale = Scale::new(low, high, (area.h / 45.0).clamp(2.0, 6.0));
    let unit = field.unit.as_deref().unwrap_or_default();
    let graph = scale.draw(canvas, Area { h: area.h - 18.0, ..area }, unit, scene.span);
    for (number, line) in lines.iter().enumerate() {
        let color = look::of_series(number);
        for part in unbroken(line, scene.span) {
            if bars {
                draw_bars(canvas, part, color, scale, graph, scene.span);
            } else {
                draw_line(canvas, part, color, stacks, scale, graph, scene.span);
            }
        }
    }
    for (value, color) in limits {
        let y = scale.place(value, graph);
        canvas.line((graph.x, y), (graph.x + graph.w, y), color, "6 3");
    }
    draw_events(canvas, scene, graph);
    draw_legend(canvas, series, legend);
}

/// Draws a vertical line at the time of each event.
pub(super) fn draw_events(canvas: &mut Canvas, scene: &Scene<'_>, graph: Area) {
    for (time, color) in &scene.events {
        let x = across(*time, graph, scene.span);
        canvas.line((x, graph.y), (x, graph.y + graph.h), color, "3 3");
    }
}

/// Returns the bounds of each series: with `stacks` above the series before it, else from zero.
fn stacked(series: &[Named<'_>], stacks: bool) -> Vec<Vec<Stacked>> {
    let mut ground: BTreeMap<i64, f64> = BTreeMap::new();
    let one = |named: &Named<'_>| {
        let finite = named.series.points.iter().filter(|(_, number)| number.is_finite());
        let over = finite.map(|(time, number)| {
            if !stacks {
                return (*time, 0.0, *number);
            }
            let base = ground.entry(milliseconds(*time)).or_default();
            let below = *base;
            *base += number;
            (*time, below, *base)
        });
        over.collect()
    };
    series.iter().map(one).collect()
}

/// Splits a line where points are missing.
fn unbroken(line: &[Stacked], span: Span) -> Vec<&[Stacked]> {
    line.chunk_by(|(before, ..), (after, ..)| after - before < 1.5 * span.step).collect()
}

fn draw_line(
    canvas: &mut Canvas,
    part: &[Stacked],
    color: &str,
    fills: bool,
    scale: Scale,
    graph: Area,
    span: Span,
) {
    let at = |time: Time, number: f64| (across(time, graph, span), scale.place(number, graph));
    let tops: Vec<(f64, f64)> = part.iter().map(|(time, _, top)| at(*time, *top)).collect();
    let bottoms = part.iter().rev().map(|(time, below, _)| at(*time, below.max(scale.low)));
    let area: Vec<(f64, f64)> = tops.iter().copied().chain(bottoms).collect();
    canvas.path(&area, color, Some(if fills { 0.6 } else { 0.1 }));
    canvas.path(&tops, color, None);
}

fn draw_bars(canvas: &mut Canvas, part: &[Stacked], color: &str, scale: Scale, graph: Area, span: Span) {
    let wide = (graph.w * span.step / (span.to - span.from).max(1.0) * 0.8).max(1.0);
    for (time, below, top) in part.iter().filter(|(_, below, top)| top > below) {
        let (y, foot) = (scale.place(*top, graph), scale.place(*below, graph));
        let x = across(*time, graph, span) - wide / 2.0;
        canvas.rect(Area { x, y, w: wide, h: foot - y }, color, 0.75);
    }
}

/// Returns the thresholds that are drawn as lines.
fn limits(panel: &Panel) -> Vec<(f64, &'static str)> {
    let field = &panel.field_config.defaults;
    if custom(field, "/thresholdsStyle/mode") != "line" {
        return Vec::new();
    }
    let steps = field.thresholds.iter().flat_map(|thresholds| &thresholds.steps);
    steps.filter_map(|step| Some((step.value?, look::color(&step.color)))).collect()
}

/// Draws the names of the series, as many as fit.
fn draw_legend(canvas: &mut Canvas, series: &[Named<'_>], area: Area) {
    let mut x = area.x;
    for (number, named) in series.iter().enumerate() {
        let needed = 16.0 + width(&named.name, 11.0) + 12.0;
        if x + needed > area.x + area.w && number > 0 {
            canvas.text(x, area.y + 11.0, 11.0, look::FAINT, &format!("+{}", series.len() - number));
            return;
        }
        canvas.rect(Area { x, y: area.y + 5.0, w: 10.0, h: 4.0 }, look::of_series(number), 1.0);
        canvas.text(x + 14.0, area.y + 11.0, 11.0, look::TEXT, &named.name);
        x += needed;
    }
}
