//! Draws a bar for each series, proportional to its newest number.

use super::canvas::{Area, Canvas, fit};
use super::{Named, look, newest};
use crate::dashboard::model::Panel;

pub(super) fn draw(canvas: &mut Canvas, panel: &Panel, series: &[Named<'_>], area: Area) {
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
