//! Parsing of durations in scenario files: `37s`, `10m`, `2h`, `1h30m`, `500ms`. A plain number means seconds.

use ha_api_types::time::Millis;
use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// A duration in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub Millis);

impl Duration {
    /// Parses a duration of one or several units (`1h30m`).
    ///
    /// Errors: the text is not a duration. The message names the accepted forms.
    pub fn parse(text: &str) -> Result<Duration, String> {
        let invalid_duration = || {
            format!(
                "{text:?} is not a valid duration: specify 500ms, 37s, 10m, 2h, 1h30m or a number of seconds"
            )
        };
        let mut rest = text.trim();
        if let Ok(seconds) = rest.parse::<f64>()
            && rest.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        {
            return Ok(Duration(rounded_ms(seconds * 1_000.0)));
        }
        if rest.is_empty() {
            return Err(invalid_duration());
        }
        let mut total = 0.0;
        while !rest.is_empty() {
            let digit_count = rest
                .find(|character: char| !character.is_ascii_digit() && character != '.')
                .ok_or_else(invalid_duration)?;
            let (number, remainder) = rest.split_at(digit_count);
            let remainder = remainder.trim_start();
            let (unit, remainder) = remainder.split_at(
                remainder.find(|character: char| !character.is_ascii_alphabetic()).unwrap_or(remainder.len()),
            );
            let factor = match unit {
                "ms" => 1.0,
                "s" => 1_000.0,
                "m" => 60_000.0,
                "h" => 3_600_000.0,
                "d" => 86_400_000.0,
                _ => return Err(invalid_duration()),
            };
            total += number.parse::<f64>().map_err(|_| invalid_duration())? * factor;
            rest = remainder;
        }
        Ok(Duration(rounded_ms(total)))
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range first")]
fn rounded_ms(ms: f64) -> Millis {
    ms.round().clamp(0.0, 1e13) as Millis
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Duration;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as 500ms, 37s, 10m, 2h, 1h30m or a number of seconds")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
                Duration::parse(text).map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Duration, E> {
                Ok(Duration(seconds.saturating_mul(1000)))
            }
            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Duration, E> {
                u64::try_from(seconds).map(|seconds| Duration(seconds * 1000)).map_err(E::custom)
            }
            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Duration, E> {
                Ok(Duration(rounded_ms(seconds * 1000.0)))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip() {
        let check = |text: &str, expected: Option<Millis>| {
            assert_eq!(Duration::parse(text).ok().map(|duration| duration.0), expected, "{text}");
        };
        check("37s", Some(37_000));
        check("10m", Some(600_000));
        check("2h", Some(7_200_000));
        check("50ms", Some(50));
        check("5", Some(5_000));
        check("1.5s", Some(1_500));
        check("1h30m", Some(5_400_000));
        check("1m30s", Some(90_000));
        check("2s500ms", Some(2_500));
        check("37 s", Some(37_000));
        for text in ["1m30", "m", "1mm", "1m-30s", "-5", "inf", "nan", "1.2.3s"] {
            check(text, None);
        }
        check("soon", None);
        check("5 parsecs", None);
        check("", None);
    }
}
