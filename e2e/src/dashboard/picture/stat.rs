//! Draws single numbers or names in a large font.

use super::canvas::{Area, Canvas, fit, width};
use super::{Named, look, newest};
use crate::dashboard::model::Panel;

pub(super) fn draw(canvas: &mut Canvas, panel: &Panel, series: &[Named<'_>], area: Area) {
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
