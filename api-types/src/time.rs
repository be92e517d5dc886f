//! Points in time for the pure cores, which get them as arguments and never read a clock.
//!
//! [`MonotonicTime`] is valid on one machine only, and is never stored or compared between machines. [`Timestamp`] is the wall clock
//! for operators; no decision depends on it.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::ops::{Add, Sub};

/// A duration in milliseconds.
pub type Millis = u64;

/// A duration that users read as a decimal number of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DecimalSeconds(pub Millis);

impl DecimalSeconds {
    /// Returns the duration in milliseconds.
    pub fn ms(self) -> Millis {
        self.0
    }
}

impl Serialize for DecimalSeconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 1000.0)
    }
}

impl<'de> Deserialize<'de> for DecimalSeconds {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range first")]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DecimalSeconds, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Ok(DecimalSeconds((seconds * 1000.0).round().clamp(0.0, 1e12) as Millis))
    }
}

impl JsonSchema for DecimalSeconds {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Seconds".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number", "format": "double", "minimum": 0})
    }
}

/// A point in time on a machine's own monotonic clock, in milliseconds since an arbitrary start.
///
/// ```
/// use ha_api_types::time::MonotonicTime;
///
/// let heartbeat = MonotonicTime(10_000);
/// let deadline = heartbeat + 6_000;
/// assert_eq!(deadline.since(heartbeat), 6_000);
/// // No result is negative.
/// assert_eq!(heartbeat.since(deadline), 0);
/// assert_eq!(heartbeat - 60_000, MonotonicTime(0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MonotonicTime(pub Millis);

impl MonotonicTime {
    /// Returns the time from `earlier` to this point; zero if `earlier` is later.
    pub fn since(self, earlier: MonotonicTime) -> Millis {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Millis> for MonotonicTime {
    type Output = MonotonicTime;
    fn add(self, duration_ms: Millis) -> MonotonicTime {
        MonotonicTime(self.0.saturating_add(duration_ms))
    }
}

impl Sub<Millis> for MonotonicTime {
    type Output = MonotonicTime;
    fn sub(self, duration_ms: Millis) -> MonotonicTime {
        MonotonicTime(self.0.saturating_sub(duration_ms))
    }
}

/// A time of the wall clock in RFC 3339, UTC, for operators. No decision depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Timestamp(pub String);

impl Timestamp {
    /// Converts milliseconds since 1970 to a timestamp in whole seconds, as Kubernetes prints them.
    pub fn from_unix_ms(unix_ms: i128) -> Timestamp {
        let seconds = unix_ms.div_euclid(1000);
        let text = i64::try_from(seconds)
            .ok()
            .and_then(|seconds| time::OffsetDateTime::from_unix_timestamp(seconds).ok())
            .and_then(text_of);
        Timestamp(text.unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned()))
    }

    /// Converts milliseconds since 1970 to a timestamp with milliseconds, so that events of one second have an order.
    pub fn from_unix_ms_precise(unix_ms: i128) -> Timestamp {
        let whole_seconds = Timestamp::from_unix_ms(unix_ms);
        let seconds = whole_seconds.0.strip_suffix('Z').unwrap_or(&whole_seconds.0);
        Timestamp(format!("{seconds}.{:03}Z", unix_ms.rem_euclid(1000)))
    }

    /// Returns the seconds since 1970; `None` if the text is not a timestamp.
    pub fn unix_seconds(&self) -> Option<i64> {
        time::OffsetDateTime::parse(&self.0, &time::format_description::well_known::Rfc3339)
            .ok()
            .map(time::OffsetDateTime::unix_timestamp)
    }
}

/// Returns a time as text in whole seconds.
fn text_of(at: time::OffsetDateTime) -> Option<String> {
    at.format(&time::macros::format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z")).ok()
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The current time, passed to a core with every input.
///
/// The rate of `CLOCK_MONOTONIC_RAW` is never slewed, and it stops while the machine is suspended. `CLOCK_BOOTTIME` includes
/// suspends. A deadline for fencing counts on both, and the earlier one applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// `CLOCK_MONOTONIC_RAW` in milliseconds, rounded down.
    pub monotonic_raw: MonotonicTime,
    /// `CLOCK_BOOTTIME` in milliseconds, rounded down.
    pub boottime: MonotonicTime,
    /// Wall clock in milliseconds since 1970; informational only.
    pub wall_unix_ms: i128,
}

impl Now {
    /// Returns the wall-clock time in whole seconds, for a status.
    pub fn timestamp(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.wall_unix_ms)
    }

    /// Returns the wall-clock time with millisecond precision, for an event.
    pub fn precise_timestamp(&self) -> Timestamp {
        Timestamp::from_unix_ms_precise(self.wall_unix_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_parse_with_and_without_milliseconds() {
        let check = |unix_ms: i128, in_seconds: &str, precise: &str| {
            assert_eq!(Timestamp::from_unix_ms(unix_ms).0, in_seconds);
            assert_eq!(Timestamp::from_unix_ms_precise(unix_ms).0, precise);
            let seconds = i64::try_from(unix_ms.div_euclid(1000)).ok();
            assert_eq!(Timestamp::from_unix_ms_precise(unix_ms).unix_seconds(), seconds);
        };
        check(1_767_225_600_007, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.007Z");
        check(-1, "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn texts_of_all_years_are_read_again() {
        // From year 0 to year 9999, which is the last year of the crate `time`.
        for seconds in (-62_167_219_200..253_402_300_800_i64).step_by(12_345_679) {
            let text = Timestamp::from_unix_ms(i128::from(seconds) * 1000);
            assert_eq!(text.unix_seconds(), Some(seconds), "{text}");
        }
        assert_eq!(Timestamp::from_unix_ms(253_402_300_799_000).0, "9999-12-31T23:59:59Z");
        assert_eq!(Timestamp::from_unix_ms(253_402_300_800_000).0, "1970-01-01T00:00:00Z");
    }
}
