//! Axes: round steps for numbers, and times of day.

use super::canvas::{Area, Canvas, width};
use super::look;
use crate::dashboard::prometheus::{Span, Time};

/// A vertical scale for numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
    step: f64,
}

impl Scale {
    /// Returns a scale that includes both numbers, with about `count` steps. A step is 1, 2 or 5 times a power of ten.
    pub(super) fn new(low: f64, high: f64, count: f64) -> Self {
        let (low, high) = if high > low { (low, high) } else { (low, low + 1.0) };
        let rough = (high - low) / count.max(1.0);
        let power = 10_f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= rough * 0.999);
        let step = step.unwrap_or(power);
        Self { low: (low / step).floor() * step, high: (high / step - 1e-9).ceil() * step, step }
    }

    /// Returns the vertical position of a number, in pixels.
    pub(super) fn place(&self, number: f64, area: Area) -> f64 {
        area.y + area.h - (number - self.low) / (self.high - self.low) * area.h
    }

    fn steps(&self) -> Vec<f64> {
        let count = whole(((self.high - self.low) / self.step).round());
        (0..=count).map(|number| self.low + number as f64 * self.step).collect()
    }

    /// Draws the grid lines and numbers, and returns the remaining area for the graph.
    pub(super) fn draw(&self, canvas: &mut Canvas, area: Area, unit: &str, span: Span) -> Area {
        let labels: Vec<(f64, String)> =
            self.steps().into_iter().map(|number| (number, look::text(number, unit, None))).collect();
        let left = labels.iter().map(|(_, text)| width(text, 10.0)).fold(20.0, f64::max) + 6.0;
        let graph = Area { x: area.x + left, w: area.w - left, y: area.y + 4.0, h: area.h - 20.0 };
        for (number, text) in labels {
            let y = self.place(number, graph);
            canvas.line((graph.x, y), (graph.x + graph.w, y), look::GRID, "");
            canvas.text_to_left(graph.x - 5.0, y + 3.5, 10.0, look::FAINT, &text);
        }
        times(canvas, graph, span);
        graph
    }
}

/// Returns the horizontal position of a time, in pixels.
pub(super) fn across(time: Time, area: Area, span: Span) -> f64 {
    area.x + (time - span.from) / (span.to - span.from).max(1.0) * area.w
}

/// Draws the times of day below a graph.
pub(super) fn times(canvas: &mut Canvas, graph: Area, span: Span) {
    let room = (graph.w / 75.0).max(1.0);
    let rough = (span.to - span.from) / room;
    let steps =
        [5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 10_800.0, 43_200.0, 86_400.0];
    let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(86_400.0);
    let mut time = (span.from / step).ceil() * step;
    while time <= span.to {
        let x = across(time, graph, span);
        if x < graph.x + graph.w - 20.0 {
            let whole = clock(time);
            let text = if step >= 60.0 { &whole[..5] } else { &whole };
            canvas.text_centred(x, graph.y + graph.h + 13.0, 10.0, look::FAINT, text);
        }
        time += step;
    }
}

/// Returns the integer part of a non-negative number.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "values that do not fit saturate")]
pub(super) fn whole(number: f64) -> usize {
    number as usize
}

/// Returns a time in milliseconds, as a key for maps.
#[allow(clippy::cast_possible_truncation, reason = "times of this age fit")]
pub(super) fn milliseconds(time: Time) -> i64 {
    (time * 1000.0).round() as i64
}

/// Returns the time of day in UTC.
pub(super) fn clock(time: Time) -> String {
    let seconds = whole(time.rem_euclid(86_400.0));
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_hold_all() {
        let check = |low: f64, high: f64, expected: &[f64]| {
            let steps = Scale::new(low, high, 4.0).steps();
            assert_eq!(steps, expected, "{low} to {high}");
        };
        check(0.0, 3.0, &[0.0, 1.0, 2.0, 3.0]);
        check(0.0, 13.0, &[0.0, 5.0, 10.0, 15.0]);
        check(0.0, 0.0, &[0.0, 0.5, 1.0]);
        check(-10.0, 10.0, &[-10.0, -5.0, 0.0, 5.0, 10.0]);
        assert_eq!(clock(86_400.0 + 3_723.4), "01:02:03");
    }
}
