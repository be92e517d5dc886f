//! Draws colored bars over time, one row for each series.

use super::axis::{across, times};
use super::canvas::{Area, Canvas, fit, width};
use super::{Named, Scene, graph, look};
use crate::dashboard::model::Panel;
use crate::dashboard::prometheus::{Span, Time};

pub(super) fn draw(canvas: &mut Canvas, scene: &Scene<'_>, panel: &Panel, series: &[Named<'_>], area: Area) {
    let longest = series.iter().map(|named| width(&named.name, 11.0)).fold(30.0, f64::max);
    let left = (longest + 8.0).min(area.w * 0.3);
    let graph = Area { x: area.x + left, w: area.w - left, h: area.h - 16.0, ..area };
    let high = graph.h / series.len().max(1) as f64;
    for (number, named) in series.iter().enumerate() {
        let y = graph.y + number as f64 * high;
        let name = fit(&named.name, left - 6.0, 11.0);
        canvas.text_to_left(graph.x - 6.0, y + high / 2.0 + 4.0, 11.0, look::TEXT, &name);
        for (from, to, value) in stretches(&named.series.points, scene.span) {
            let (text, color) = look::shown(&panel.field_config.defaults, value);
            let (x, end) = (across(from, graph, scene.span), across(to, graph, scene.span));
            let bar = Area { x, y: y + high * 0.1, w: end - x, h: high * 0.8 };
            canvas.rect(bar, color, 0.8);
            if width(&text, 11.0) + 8.0 < bar.w && bar.h >= 10.0 {
                canvas.text(x + 4.0, y + high / 2.0 + 4.0, 11.0, look::on(color), &text);
            }
        }
    }
    graph::draw_events(canvas, scene, graph);
    times(canvas, graph, scene.span);
}

/// Returns the ranges in which a number was constant. A range ends at the next point, or after one step if points are missing.
fn stretches(points: &[(Time, f64)], span: Span) -> Vec<(Time, Time, f64)> {
    let mut all: Vec<(Time, Time, f64)> = Vec::new();
    for (time, number) in points {
        let end = (time + span.step).min(span.to);
        match all.last_mut() {
            // An exact comparison of bits is right: the numbers are states.
            Some((_, until, before))
                if (*time - *until).abs() < 0.5 * span.step && before.to_bits() == number.to_bits() =>
            {
                *until = end;
            }
            Some(_) | None => all.push((*time, end, *number)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_are_one_stretch_and_gaps_end_one() {
        let span = Span { from: 0.0, to: 10.0, step: 1.0 };
        let points = [(0.0, 1.0), (1.0, 1.0), (2.0, 2.0), (3.0, 2.0), (6.0, 2.0), (10.0, 1.0)];
        let expected = [(0.0, 2.0, 1.0), (2.0, 4.0, 2.0), (6.0, 7.0, 2.0), (10.0, 10.0, 1.0)];
        assert_eq!(stretches(&points, span), expected);
    }
}
