//! The availability of a service: the share of the desired time in which it ran. The availability is stored by day in
//! the service's status, so that the record survives a change of the leader.

use crate::time::Timestamp;
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

const DAY_SECONDS: i64 = 86_400;
/// Number of days for which single days are kept.
const SINGLE_DAYS: u32 = 31;
/// Number of days per block; older days are kept in blocks.
const BLOCK_DAYS: u32 = 28;
/// Number of days after which records are dropped.
const KEPT_DAYS: u32 = 366;

/// Record of the time in which a service was requested Started, and of the time in which it ran.
///
/// The record is a sum of wall-clock times, and no decision depends on it. Only days or blocks with a downtime or
/// without a request are kept, at most 59 days and 14 blocks of 28 days.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Availability {
    /// Start of the record.
    pub recorded_since: Timestamp,
    /// Current state of the record.
    #[serde(rename = "standing", alias = "state")]
    #[schemars(rename = "state")]
    pub state: AvailabilityState,
    /// Start of the current state.
    pub since: Timestamp,
    /// Days, in order, on which the service was not requested Started or did not run, before the current state began.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<Span>,
}

/// State of a service, as counted for its availability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AvailabilityState {
    /// Not requested Started.
    #[default]
    #[serde(alias = "NotRequired")]
    #[schemars(rename = "NotRequired")]
    NotWanted,
    /// Requested Started, and running.
    Up,
    /// Requested Started, and not running.
    Down,
}

/// A day, or a block of days, in which the service was not up all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Span {
    /// First day of the span (UTC, RFC 3339), such as `2026-11-28`.
    // In etcd, the number of days since 1970-01-01.
    #[serde(alias = "startDate", deserialize_with = "read_day")]
    #[schemars(rename = "startDate", with = "String")]
    pub day: u32,
    /// Number of days in the span.
    pub days: u32,
    /// Seconds in which the service was requested Started and did not run.
    #[serde(skip_serializing_if = "is_zero")]
    pub down_seconds: u32,
    /// Seconds in which the service was not requested Started.
    #[serde(rename = "notWantedSeconds", alias = "notRequiredSeconds", skip_serializing_if = "is_zero")]
    #[schemars(rename = "notRequiredSeconds")]
    pub not_desired_seconds: u32,
}

impl Availability {
    /// Starts a record now.
    pub fn begin(state: AvailabilityState, now: &Timestamp) -> Availability {
        Availability { recorded_since: now.clone(), state, since: now.clone(), spans: Vec::new() }
    }

    /// Changes the state from `at` on. If the clock went back, the record loses only the time by which it went back.
    pub fn enter_state(&mut self, state: AvailabilityState, at: &Timestamp) {
        if state == self.state {
            return;
        }
        let (Some(since), Some(until)) = (self.since.unix_seconds(), at.unix_seconds()) else { return };
        if until > since {
            self.close(since, until);
            self.since = at.clone();
        }
        self.state = state;
        self.merge(day_number(until));
    }

    /// Returns the share of the desired time in which the service ran, over this number of UTC days up to today. `None`
    /// if the record contains no time in this window in which the service was desired.
    pub fn ratio(&self, days: u32, now: &Timestamp) -> Option<f64> {
        let (down_seconds, desired_seconds) = self.down_and_desired_seconds(days, now)?;
        (desired_seconds >= 1.0).then(|| (1.0 - down_seconds / desired_seconds).clamp(0.0, 1.0))
    }

    /// Returns the number of seconds in these days in which the service was desired and did not run; `None` if the
    /// record contains none of these days.
    pub fn down_seconds(&self, days: u32, now: &Timestamp) -> Option<f64> {
        self.down_and_desired_seconds(days, now).map(|(down, _)| down)
    }

    /// Returns the seconds in these days in which the service was desired and did not run, and all seconds in which it was
    /// desired.
    fn down_and_desired_seconds(&self, days: u32, now: &Timestamp) -> Option<(f64, f64)> {
        let now = now.unix_seconds()?;
        let mut record = self.clone();
        record.close(self.since.unix_seconds()?, now);
        let first_day = day_number(now).saturating_sub(days.saturating_sub(1));
        let begin = (i64::from(first_day) * DAY_SECONDS).max(self.recorded_since.unix_seconds()?);
        let (mut down, mut not_desired) = (0.0, 0.0);
        for span in &record.spans {
            // A block at the start of the window counts with its share in the window.
            let inside = (span.day + span.days).saturating_sub(span.day.max(first_day));
            let share = f64::from(inside) / f64::from(span.days.max(1));
            down += share * f64::from(span.down_seconds);
            not_desired += share * f64::from(span.not_desired_seconds);
        }
        Some((down, (now - begin) as f64 - not_desired))
    }

    /// Adds the time from `start_seconds` to `end_seconds` to the current state.
    fn close(&mut self, start_seconds: i64, end_seconds: i64) {
        // The merge starts at the beginning of a block. It then produces the same blocks as one call per day.
        let oldest = day_number(end_seconds).saturating_sub(KEPT_DAYS) / BLOCK_DAYS * BLOCK_DAYS;
        let mut at = start_seconds.max(i64::from(oldest) * DAY_SECONDS);
        while at < end_seconds && self.state != AvailabilityState::Up {
            let next = end_seconds.min((at.div_euclid(DAY_SECONDS) + 1) * DAY_SECONDS);
            let seconds = u32::try_from(next - at).unwrap_or(0);
            let span = self.span_index(day_number(at));
            match self.state {
                AvailabilityState::Up => {}
                AvailabilityState::Down => self.spans[span].down_seconds += seconds,
                AvailabilityState::NotWanted => self.spans[span].not_desired_seconds += seconds,
            }
            at = next;
        }
    }

    /// Returns the index of the span that contains a day, and adds a span if necessary.
    fn span_index(&mut self, day: u32) -> usize {
        let index = self.spans.partition_point(|span| span.day + span.days <= day);
        if self.spans.get(index).is_none_or(|span| span.day > day) {
            self.spans.insert(index, Span { day, days: 1, ..Span::default() });
        }
        index
    }

    /// Merges old days into blocks, and drops records that are older than a year.
    fn merge(&mut self, today: u32) {
        let mut merged: Vec<Span> = Vec::new();
        for span in std::mem::take(&mut self.spans) {
            let block = span.day / BLOCK_DAYS * BLOCK_DAYS;
            if block + BLOCK_DAYS + KEPT_DAYS <= today {
                continue;
            }
            let is_past = block + BLOCK_DAYS + SINGLE_DAYS <= today;
            match merged.last_mut() {
                Some(last) if is_past && last.day == block && last.days == BLOCK_DAYS => {
                    last.down_seconds += span.down_seconds;
                    last.not_desired_seconds += span.not_desired_seconds;
                }
                Some(_) | None if is_past => merged.push(Span { day: block, days: BLOCK_DAYS, ..span }),
                Some(_) | None => merged.push(span),
            }
        }
        self.spans = merged;
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Reads a day from its form in etcd, or from a date.
fn read_day<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Day {
        Number(u32),
        Date(String),
    }
    match Day::deserialize(deserializer)? {
        Day::Number(day) => Ok(day),
        Day::Date(date) => day_of(&date).ok_or_else(|| D::Error::custom(format!("{date:?} is not a date"))),
    }
}

/// Returns the date (RFC 3339) of a number of days since 1970-01-01.
pub(crate) fn date_of(day: u32) -> String {
    let time = Timestamp::from_unix_ms(i128::from(day) * i128::from(DAY_SECONDS) * 1000);
    time.0.split_once('T').map_or_else(String::new, |(date, _)| date.to_owned())
}

/// Returns the number of days since 1970-01-01 of a date (RFC 3339); `None` if the text is not a date, or is a date
/// before 1970.
pub(crate) fn day_of(date: &str) -> Option<u32> {
    let seconds = Timestamp(format!("{date}T00:00:00Z")).unix_seconds()?;
    u32::try_from(seconds / DAY_SECONDS).ok()
}

fn day_number(unix_seconds: i64) -> u32 {
    u32::try_from(unix_seconds.div_euclid(DAY_SECONDS)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use AvailabilityState::{Down, NotWanted, Up};

    /// Returns the time at a number of seconds after the start of a day.
    fn at(day: i64, seconds: i64) -> Timestamp {
        Timestamp::from_unix_ms(i128::from((20_000 + day) * DAY_SECONDS + seconds) * 1000)
    }

    const HOUR: i64 = 3_600;

    /// Checks a ratio. `happened` contains (day, second, state), starting with the begin of the record; `days` is the
    /// window, and `asked` the time of the query.
    fn check(
        happened: &[(i64, i64, AvailabilityState)],
        days: u32,
        days_and_second: (i64, i64),
        expected: Option<f64>,
    ) {
        let (day, second, state) = happened[0];
        let mut record = Availability::begin(state, &at(day, second));
        for (day, second, state) in &happened[1..] {
            record.enter_state(*state, &at(*day, *second));
        }
        let actual = record.ratio(days, &at(days_and_second.0, days_and_second.1));
        let is_equal = match (actual, expected) {
            (Some(actual), Some(expected)) => (actual - expected).abs() < 1e-6,
            (actual, expected) => actual == expected,
        };
        assert!(
            is_equal,
            "{happened:?} over {days} days at {days_and_second:?}: {actual:?}, not {expected:?}; {record:?}"
        );
    }

    #[test]
    fn availability_is_uptime_divided_by_desired_uptime() {
        check(&[(0, 0, Up)], 30, (10, 0), Some(1.0));
        check(&[(0, 0, Down)], 30, (10, 0), Some(0.0));
        check(&[(0, 0, NotWanted)], 30, (10, 0), None);
        check(&[(0, 0, Up)], 30, (0, 0), None);
        // The service is down on the last of ten days, and is still down.
        check(&[(0, 0, Up), (9, 0, Down)], 30, (10, 0), Some(0.9));
        check(&[(0, 0, Up), (4, 0, Down), (5, 0, Up)], 30, (10, 0), Some(0.9));
        // The service is desired on five of ten days, and is down for half a day of these five.
        check(&[(0, 0, NotWanted), (5, 0, Down), (5, 12 * HOUR, Up)], 30, (10, 0), Some(0.9));
        // The service becomes undesired while it is down: the time after that does not count.
        check(&[(0, 0, Up), (8, 0, Down), (9, 0, NotWanted)], 30, (10, 0), Some(8.0 / 9.0));
    }

    #[test]
    fn downtime_before_the_window_is_ignored() {
        let happened = [(0, 0, Up), (1, 0, Down), (2, 0, Up)];
        check(&happened, 30, (30, DAY_SECONDS - 1), Some(1.0 - 86_400.0 / (30.0 * 86_400.0 - 1.0)));
        check(&happened, 30, (32, 0), Some(1.0));
        check(&happened, 365, (100, 0), Some(0.99));
        // A block at the start of the window counts with its share. A year and the length of one block later, the block
        // does not count at all.
        check(&happened, 365, (400, 0), Some(1.0));
    }

    #[test]
    fn downtime_is_counted_in_seconds_of_the_window() {
        let mut record = Availability::begin(Up, &at(0, 0));
        record.enter_state(Down, &at(3, 0));
        assert_eq!(record.down_seconds(30, &at(3, 7)), Some(7.0), "it still is");
        record.enter_state(Up, &at(3, 60));
        assert_eq!(record.down_seconds(30, &at(4, 0)), Some(60.0));
        assert_eq!(record.down_seconds(30, &at(40, 0)), Some(0.0));
        assert_eq!(record.down_seconds(365, &at(30, 0)), Some(60.0));
        assert_eq!(Availability::default().down_seconds(30, &at(1, 0)), None);
    }

    #[test]
    fn merging_old_days_keeps_the_ratio() {
        let mut record = Availability::begin(Up, &at(0, 0));
        for day in 0..1_000 {
            record.enter_state(Down, &at(day, HOUR));
            record.enter_state(Up, &at(day, 2 * HOUR));
        }
        let most = usize::try_from(SINGLE_DAYS + BLOCK_DAYS + KEPT_DAYS / BLOCK_DAYS + 2).expect("a few");
        assert!(record.spans.len() <= most, "{}", record.spans.len());
        for days in [30, 365] {
            let ratio = record.ratio(days, &at(1_000, 0)).expect("wanted");
            assert!((ratio - 23.0 / 24.0).abs() < 1e-3, "{days}: {ratio}");
        }
        let size = serde_json::to_string(&record).expect("text").len();
        assert!(size < 4_000, "{size} bytes");
    }

    #[test]
    fn long_stopped_periods_are_merged() {
        let mut record = Availability::begin(NotWanted, &at(0, 0));
        record.enter_state(Up, &at(5_000, 0));
        assert!(record.spans.len() < 80, "{}", record.spans.len());
        assert_eq!(record.ratio(365, &at(5_001, 0)), Some(1.0));
        assert_eq!(record.ratio(365, &at(5_000, 0)), None);
    }

    #[test]
    fn a_clock_step_backwards_adds_nothing() {
        let mut record = Availability::begin(Up, &at(10, 0));
        record.enter_state(Down, &at(9, 0));
        assert_eq!((record.state, &record.since), (Down, &at(10, 0)));
        record.enter_state(Up, &at(9, HOUR));
        assert!(record.spans.is_empty(), "{record:?}");
        assert_eq!(record.ratio(30, &at(9, 0)), None);
    }

    #[test]
    fn an_unreadable_record_has_no_ratio() {
        let mut record = Availability::default();
        assert_eq!(record.ratio(30, &at(1, 0)), None);
        record.enter_state(Up, &at(1, 0));
        assert_eq!(record, Availability::default());
    }
}
