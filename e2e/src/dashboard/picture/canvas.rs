//! Minimal writer of SVG text.

use std::fmt::Write;

use super::axis::whole;
use super::look;

/// A rectangle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) w: f64,
    pub(super) h: f64,
}

/// An SVG document under construction. Writes into a string cannot fail, so their results are ignored.
pub(super) struct Canvas {
    text: String,
}

impl Canvas {
    pub(super) fn new(width: f64, height: f64) -> Self {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" font-family=\"Inter, Helvetica, Arial, sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"{}\"/>",
            look::BACKGROUND
        );
        Self { text }
    }

    pub(super) fn end(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    /// Draws the background of a panel. The full title is shown as a tooltip.
    pub(super) fn frame(&mut self, area: Area, title: &str) {
        let Area { x, y, w, h } = area;
        let (fill, stroke, title) = (look::PANEL, look::BORDER, escaped(title));
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" rx=\"2\" fill=\"{fill}\" stroke=\"{stroke}\">\
             <title>{title}</title></rect>"
        );
    }

    pub(super) fn rect(&mut self, area: Area, fill: &str, opacity: f64) {
        let Area { x, y, w, h } = area;
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" fill=\"{fill}\" fill-opacity=\"{opacity:.2}\"/>"
        );
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), color: &str, dashes: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let dashes =
            if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
        let _ = writeln!(
            self.text,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{color}\"{dashes}/>"
        );
    }

    /// Draws a line through points, or with `fill` the area that they enclose.
    pub(super) fn path(&mut self, points: &[(f64, f64)], color: &str, fill: Option<f64>) {
        let mut places = String::new();
        for (number, (x, y)) in points.iter().enumerate() {
            let _ = write!(places, "{}{x:.1} {y:.1}", if number == 0 { "M" } else { "L" });
        }
        let style = match fill {
            Some(opacity) => format!("fill=\"{color}\" fill-opacity=\"{opacity:.2}\""),
            None => format!("fill=\"none\" stroke=\"{color}\" stroke-width=\"1.3\""),
        };
        let _ = writeln!(self.text, "<path d=\"{places}\" {style}/>");
    }

    pub(super) fn text(&mut self, x: f64, y: f64, size: f64, color: &str, text: &str) {
        self.anchored(x, y, size, color, text, "start");
    }

    /// Draws a text that ends at `x`.
    pub(super) fn text_to_left(&mut self, x: f64, y: f64, size: f64, color: &str, text: &str) {
        self.anchored(x, y, size, color, text, "end");
    }

    /// Draws a text centered at `x`.
    pub(super) fn text_centred(&mut self, x: f64, y: f64, size: f64, color: &str, text: &str) {
        self.anchored(x, y, size, color, text, "middle");
    }

    fn anchored(&mut self, x: f64, y: f64, size: f64, color: &str, text: &str, anchor: &str) {
        let text = escaped(text);
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size:.0}\" fill=\"{color}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }
}

/// Returns a text with the special characters of XML escaped.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns the approximate width of a text, in pixels.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.56
}

/// Returns a text, cut with an ellipsis if it is wider than `room`.
pub(super) fn fit(text: &str, room: f64, size: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let count = whole((room / (size * 0.56) - 1.0).max(0.0));
    text.chars().take(count).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_cut() {
        assert_eq!(escaped("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
        assert_eq!(fit("short", 100.0, 10.0), "short");
        assert_eq!(fit("too long for it", 45.0, 10.0), "too lon…");
    }
}
