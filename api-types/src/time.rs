//! Points in time as the pure cores see them: passed in, never read.
//!
//! [`Mono`] counts on one machine only and is never stored or compared between machines; [`Timestamp`] is the wall
//! clock, for people only: no decision is ever taken from it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Sub};

/// A length of time in milliseconds.
pub type Millis = u64;

/// A point on a machine's own clock that does not jump, in milliseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mono(pub Millis);

impl Mono {
    /// The time from `earlier` to this point; zero when `earlier` is later.
    pub fn since(self, earlier: Mono) -> Millis {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Millis> for Mono {
    type Output = Mono;
    fn add(self, length: Millis) -> Mono {
        Mono(self.0.saturating_add(length))
    }
}

impl Sub<Millis> for Mono {
    type Output = Mono;
    fn sub(self, length: Millis) -> Mono {
        Mono(self.0.saturating_sub(length))
    }
}

/// The wall clock in RFC 3339, UTC: what operators read. Never compared by a core.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Timestamp(pub String);

impl Timestamp {
    /// The timestamp of a number of milliseconds since 1970, whole seconds (as Kubernetes prints them).
    pub fn from_unix_ms(unix_ms: i128) -> Timestamp {
        let seconds = unix_ms.div_euclid(1000);
        let format = time::macros::format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
        let text = i64::try_from(seconds)
            .ok()
            .and_then(|seconds| time::OffsetDateTime::from_unix_timestamp(seconds).ok())
            .and_then(|at| at.format(&format).ok());
        Timestamp(text.unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned()))
    }

    /// The same with milliseconds, for what happened: events of one second have an order.
    pub fn precise(unix_ms: i128) -> Timestamp {
        let whole = Timestamp::from_unix_ms(unix_ms);
        let seconds = whole.0.strip_suffix('Z').unwrap_or(&whole.0);
        Timestamp(format!("{seconds}.{:03}Z", unix_ms.rem_euclid(1000)))
    }

    /// Seconds since 1970; `None` when the text is not a timestamp.
    pub fn unix_seconds(&self) -> Option<i64> {
        time::OffsetDateTime::parse(&self.0, &time::format_description::well_known::Rfc3339)
            .ok()
            .map(time::OffsetDateTime::unix_timestamp)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a core is told about the present with every input.
///
/// `raw` is `CLOCK_MONOTONIC_RAW` (its rate is never slewed; it stands still while the machine is suspended) and `boot`
/// is `CLOCK_BOOTTIME` (it counts suspends). A deadline that fences counts on both, and the earlier wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// `CLOCK_MONOTONIC_RAW`, milliseconds, rounded down.
    pub raw: Mono,
    /// `CLOCK_BOOTTIME`, milliseconds, rounded down.
    pub boot: Mono,
    /// The wall clock, milliseconds since 1970: for people only.
    pub wall_unix_ms: i128,
}

impl Now {
    /// The wall clock for a status or an event.
    pub fn timestamp(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.wall_unix_ms)
    }

    /// The wall clock for an event.
    pub fn moment(&self) -> Timestamp {
        Timestamp::precise(self.wall_unix_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_milliseconds_and_both_forms_are_read() {
        let check = |unix_ms: i128, whole: &str, precise: &str| {
            assert_eq!(Timestamp::from_unix_ms(unix_ms).0, whole);
            assert_eq!(Timestamp::precise(unix_ms).0, precise);
            let seconds = i64::try_from(unix_ms.div_euclid(1000)).ok();
            assert_eq!(Timestamp::precise(unix_ms).unix_seconds(), seconds);
        };
        check(1_767_225_600_007, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.007Z");
        check(-1, "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.999Z");
    }
}
