//! Colors, and numbers as text by unit, value mapping and threshold.

use crate::dashboard::model::Field;

pub(super) const BACKGROUND: &str = "#111217";
pub(super) const PANEL: &str = "#181b1f";
pub(super) const BORDER: &str = "#2c3035";
pub(super) const GRID: &str = "#2c3035";
pub(super) const TEXT: &str = "#ccccdc";
pub(super) const FAINT: &str = "#8e8e99";

/// Colors of series, in order.
const PALETTE: [&str; 10] = [
    "#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0", "#37872d",
    "#fade2a",
];

/// Returns the color of the series with this number.
pub(super) fn of_series(number: usize) -> &'static str {
    PALETTE[number % PALETTE.len()]
}

/// Returns the color for a name in a dashboard.
pub(super) fn color(name: &str) -> &'static str {
    match name {
        "green" => "#73bf69",
        "yellow" => "#fade2a",
        "orange" => "#ff9830",
        "red" => "#f2495c",
        "blue" => "#5794f2",
        "transparent" => "none",
        "#30363d" => "#30363d",
        "#484f58" => "#484f58",
        _ => "#6e7681",
    }
}

/// Returns a readable color for text on this color.
pub(super) fn on(color: &str) -> &'static str {
    if matches!(color, "#30363d" | "#484f58") { TEXT } else { BACKGROUND }
}

/// Returns a number as text, and its color.
pub(super) fn shown(field: &Field, number: f64) -> (String, &'static str) {
    let mapped = field.mappings.iter().find_map(|mapping| mapping.options.get(&format!("{number}")));
    if let Some(mapped) = mapped {
        return (mapped.text.clone(), color(&mapped.color));
    }
    (text(number, field.unit.as_deref().unwrap_or_default(), field.decimals), threshold(field, number))
}

/// Returns the color of a number by the thresholds.
pub(super) fn threshold(field: &Field, number: f64) -> &'static str {
    let mut steps = field.thresholds.iter().flat_map(|thresholds| &thresholds.steps);
    let reached = steps.rfind(|step| step.value.is_none_or(|from| number >= from));
    reached.map_or(TEXT, |step| color(&step.color))
}

/// Returns a number with its unit. Without `decimals`, the size of the number determines the digits.
pub(super) fn text(number: f64, unit: &str, decimals: Option<usize>) -> String {
    if !number.is_finite() {
        return "–".to_owned();
    }
    let (scaled, suffix) = match unit {
        "percentunit" => (number * 100.0, " %"),
        "s" => scaled(
            number,
            &[
                (1e-6, " µs"),
                (1e-3, " ms"),
                (1.0, " s"),
                (60.0, " min"),
                (3600.0, " h"),
                (86_400.0, " d"),
                (31_557_600.0, " years"),
            ],
        ),
        "bytes" => scaled(
            number,
            &[
                (1.0, " B"),
                (1024.0, " KiB"),
                (1_048_576.0, " MiB"),
                (1_073_741_824.0, " GiB"),
                (1_099_511_627_776.0, " TiB"),
            ],
        ),
        "ops" => (number, "/s"),
        "reqps" => (number, " req/s"),
        _ => (number, ""),
    };
    match decimals {
        Some(decimals) => format!("{scaled:.decimals$}{suffix}"),
        None => format!("{}{suffix}", trimmed(scaled)),
    }
}

/// Converts a number to the largest unit in which it is at least one.
fn scaled(number: f64, units: &[(f64, &'static str)]) -> (f64, &'static str) {
    let fits = units.iter().rev().find(|(size, _)| number.abs() >= *size);
    let (size, suffix) = match (number == 0.0, fits) {
        (true, _) => *units.iter().find(|(size, _)| *size >= 1.0).unwrap_or(&(1.0, "")),
        (false, Some(found)) => *found,
        (false, None) => *units.first().unwrap_or(&(1.0, "")),
    };
    (number / size, suffix)
}

/// Formats a number with about three significant digits and no trailing zeros.
fn trimmed(number: f64) -> String {
    let digits = match number.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 || size == 0.0 => 2,
        _ => 3,
    };
    let text = format!("{number:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(number: f64, unit: &str, decimals: Option<usize>, expected: &str) {
        assert_eq!(text(number, unit, decimals), expected, "{number} {unit}");
    }

    #[test]
    fn numbers_are_read_with_their_unit() {
        check(0.99951, "percentunit", Some(3), "99.951 %");
        check(2_592.0, "s", None, "43.2 min");
        check(0.26, "s", None, "260 ms");
        check(-0.5, "s", Some(1), "-500.0 ms");
        check(-75.0, "s", Some(2), "-1.25 min");
        check(0.0, "s", Some(1), "0.0 s");
        check(2_147_483_648.0, "bytes", Some(1), "2.0 GiB");
        check(0.0, "bytes", None, "0 B");
        check(3.0, "none", None, "3");
        check(0.1234, "ops", None, "0.123/s");
        check(f64::NAN, "", None, "–");
    }
}
