//! Numbers of CPUs, for text and JSON.

use serde_json::Number;

/// Returns a number of CPUs; live clusters count them in thousandths. An integer has no fraction.
pub(crate) fn cpus(count: i64, in_thousandths: bool) -> Number {
    match (in_thousandths, count % 1000) {
        (false, _) => count.into(),
        (true, 0) => (count / 1000).into(),
        (true, _) => Number::from_f64(count as f64 / 1000.0).unwrap_or_else(|| (count / 1000).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn millicores_are_shown_as_cpus() {
        let check = |count: i64, in_thousandths: bool, expected: &str| {
            assert_eq!(cpus(count, in_thousandths).to_string(), expected, "{count}");
        };
        check(4, false, "4");
        check(4000, true, "4");
        check(500, true, "0.5");
        check(30_500, true, "30.5");
        check(-1250, true, "-1.25");
        check(0, true, "0");
    }
}
