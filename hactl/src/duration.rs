//! Durations as users write them: `37s`, `10m`, `2h`, `500ms`. A number needs a unit, except 0.

use ha_api_types::time::Timestamp;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Parses a duration of one or several units (`1h30m`).
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let invalid = || format!("{text:?} is not a valid duration; specify 500ms, 37s, 10m or 1h30m");
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.parse::<f64>().is_ok_and(|number| number.is_finite() && number >= 0.0) {
        return Err(format!("{rest:?} has no unit; specify {rest}s for seconds, or 500ms, 10m, 1h30m"));
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest
            .find(|character: char| !character.is_ascii_digit() && character != '.')
            .ok_or_else(invalid)?;
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let unit = rest.find(|character: char| !character.is_ascii_alphabetic()).unwrap_or(rest.len());
        let seconds = match &rest[..unit] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return Err(invalid()),
        };
        rest = &rest[unit..];
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| invalid())?;
        total = total.checked_add(part).ok_or_else(invalid)?;
    }
    Ok(total)
}

/// Returns the time since 1970 on the wall clock; zero before.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the time of the wall clock.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_unix_ms(i128::try_from(since_1970().as_millis()).unwrap_or_default())
}

/// Returns a duration for a table with at most two units: `5d`, `3h12m`, `45s`.
pub(crate) fn short_text(seconds: i64) -> String {
    ha_api_types::table::duration(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        let check = |text: &str, milliseconds: Option<u128>| {
            assert_eq!(parse(text).ok().map(|length| length.as_millis()), milliseconds, "{text:?}");
        };
        check("37s", Some(37_000));
        check("10m", Some(600_000));
        check("1h30m", Some(5_400_000));
        check("0.5s", Some(500));
        check("500ms", Some(500));
        check("0", Some(0));
        for text in ["", "x", "5", "0.5", "-1", "1x", "s", "1e400", "1.2.3s", "inf", "99999999999999999999d"]
        {
            check(text, None);
        }
        assert_eq!(
            parse("5"),
            Err("\"5\" has no unit; specify 5s for seconds, or 500ms, 10m, 1h30m".to_owned())
        );
        let shown = [0, 119, 125, 600, 10_800, 12_000, 86_400, 180_000, 8 * 86_400].map(short_text);
        assert_eq!(shown, ["0s", "119s", "2m5s", "10m", "3h", "3h20m", "24h", "2d2h", "8d"]);
    }
}
