//! Checks of timings, whose problems name the setting to change and the amount.

use super::Timings;
use crate::time::Millis;

/// The allowed values of a setting in seconds.
#[derive(Clone, Copy, Debug)]
pub struct SettingBounds {
    /// Field of `Cluster.spec.timing`.
    pub field: &'static str,
    /// Function that returns the setting from resolved timings, in milliseconds.
    pub value_ms: fn(&Timings) -> Millis,
    /// Smallest allowed value, in milliseconds.
    pub min_ms: Millis,
    /// Largest allowed value, in milliseconds; `None` if only other settings limit it.
    pub max_ms: Option<Millis>,
    /// Reason of the smallest value, as the end of a sentence.
    min_reason: &'static str,
}

/// Allowed values of the settings in seconds on which a failover depends.
pub const SETTING_BOUNDS: [SettingBounds; 7] = [
    bounds("heartbeatIntervalSeconds", |timings| timings.heartbeat_interval_ms, 100, Some(60_000)),
    bounds("heartbeatLifetimeSeconds", |timings| timings.heartbeat_valid_ms, 0, Some(600_000)),
    SettingBounds {
        min_reason: ", or services cannot be killed before the deadline",
        ..bounds("selfFenceMarginSeconds", |timings| timings.stop_margin_ms, 500, None)
    },
    bounds("watchdogTimeoutSeconds", |timings| timings.watchdog_timeout_ms, 1_000, Some(300_000)),
    bounds("watchdogMaxDelaySeconds", |timings| timings.watchdog_lateness_ms, 0, Some(60_000)),
    bounds("ioDrainSeconds", |timings| timings.io_drain_ms, 0, Some(600_000)),
    bounds("leaderLeaseSeconds", |timings| timings.leader_lease_ms, 1_000, Some(600_000)),
];

const fn bounds(
    field: &'static str,
    value_ms: fn(&Timings) -> Millis,
    min_ms: Millis,
    max_ms: Option<Millis>,
) -> SettingBounds {
    SettingBounds { field, value_ms, min_ms, max_ms, min_reason: "" }
}

/// Function that returns a setting in percent from resolved timings, in parts per million.
pub type RateOf = fn(&Timings) -> u64;

/// Settings in percent, each with the function that returns it.
pub const RATE_SETTINGS: [(&str, RateOf); 2] = [
    ("watchdogClockSkewPercent", |timings| timings.watchdog_rate_error_ppm),
    ("clockRateErrorPercent", |timings| timings.clock_rate_error_ppm),
];

/// Returns the problems of a set of timings: the field to change, and a text with the problem and the amount.
///
/// A machine must have time to try a heartbeat twice and still kill its services before D.
pub fn problems(timings: &Timings) -> Vec<(&'static str, String)> {
    let mut problems = Vec::new();
    let mut seconds =
        |field: &'static str, value_ms: Millis, min_ms: Millis, max_ms: Millis, reason: &str| {
            // Texts are built only for problems, because an agent calls this function with every heartbeat.
            if value_ms < min_ms {
                let difference = seconds_text(min_ms - value_ms);
                problems.push((
                    field,
                    format!(
                        "is {}, must be at least {}{reason}: raise it by {difference}",
                        seconds_text(value_ms),
                        seconds_text(min_ms)
                    ),
                ));
            } else if value_ms > max_ms {
                let difference = seconds_text(value_ms - max_ms);
                problems.push((
                    field,
                    format!(
                        "is {}, must be at most {}: lower it by {difference}",
                        seconds_text(value_ms),
                        seconds_text(max_ms)
                    ),
                ));
            }
        };
    for bounds in &SETTING_BOUNDS {
        seconds(
            bounds.field,
            (bounds.value_ms)(timings),
            bounds.min_ms,
            bounds.max_ms.unwrap_or(Millis::MAX),
            bounds.min_reason,
        );
    }
    let busy = 2 * timings.heartbeat_interval_ms + timings.stop_margin_ms;
    if timings.heartbeat_valid_ms <= busy {
        problems.push((
            "heartbeatLifetimeSeconds",
            format!(
                "is {}, must be more than 2 × heartbeatIntervalSeconds + selfFenceMarginSeconds (2 × {} + {} = {}), or one slow \
                 heartbeat stops services: raise it by more than {}, or lower one of those by the same amount",
                seconds_text(timings.heartbeat_valid_ms),
                seconds_text(timings.heartbeat_interval_ms),
                seconds_text(timings.stop_margin_ms),
                seconds_text(busy),
                seconds_text(busy - timings.heartbeat_valid_ms),
            ),
        ));
    }
    if !timings.watchdog_timeout_ms.is_multiple_of(1000) {
        problems.push((
            "watchdogTimeoutSeconds",
            format!(
                "is {}, must be an integer because kernel watchdogs count seconds: set it to {}",
                seconds_text(timings.watchdog_timeout_ms),
                seconds_text(timings.watchdog_timeout_ms.div_ceil(1000) * 1000)
            ),
        ));
    }
    for (field, ppm_of) in RATE_SETTINGS {
        let ppm = ppm_of(timings);
        if ppm > MAX_PPM {
            let percent = |ppm: u64| ppm as f64 / 10_000.0;
            problems.push((
                field,
                format!("is {}, must be at most 20: lower it by {}", percent(ppm), percent(ppm - MAX_PPM)),
            ));
        }
    }
    problems
}

/// Maximum rate error, in parts per million.
pub const MAX_PPM: u64 = 200_000;

/// Formats milliseconds as seconds, the unit of the settings.
fn seconds_text(ms: Millis) -> String {
    format!("{}", ms as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(timings: Timings, expected: &[(&str, &str)]) {
        let actual = problems(&timings);
        assert_eq!(actual.len(), expected.len(), "{actual:?}");
        for ((field, text), (expected_field, part)) in actual.iter().zip(expected) {
            assert!(field == expected_field && text.contains(part), "{field}: {text}");
        }
    }

    #[test]
    fn timing_problems_name_setting_and_excess() {
        let base = Timings::default();
        check(base, &[]);
        check(
            Timings { heartbeat_valid_ms: 4_500, ..base },
            &[(
                "heartbeatLifetimeSeconds",
                "(2 × 1 + 2.5 = 4.5), or one slow heartbeat stops services: raise it by more than 0",
            )],
        );
        check(
            Timings { stop_margin_ms: 5_000, ..base },
            &[(
                "heartbeatLifetimeSeconds",
                "(2 × 1 + 5 = 7), or one slow heartbeat stops services: raise it by more than 1,",
            )],
        );
        check(
            Timings { heartbeat_interval_ms: 50, ..base },
            &[("heartbeatIntervalSeconds", "is 0.05, must be at least 0.1: raise it by 0.05")],
        );
        check(
            Timings { stop_margin_ms: 200, ..base },
            &[("selfFenceMarginSeconds", "before the deadline: raise it by 0.3")],
        );
        check(
            Timings { watchdog_timeout_ms: 301_000, ..base },
            &[("watchdogTimeoutSeconds", "at most 300: lower it by 1")],
        );
        check(
            Timings { watchdog_timeout_ms: 5_500, ..base },
            &[(
                "watchdogTimeoutSeconds",
                "is 5.5, must be an integer because kernel watchdogs count seconds: set it to 6",
            )],
        );
        check(
            Timings { watchdog_lateness_ms: 61_000, ..base },
            &[("watchdogMaxDelaySeconds", "lower it by 1")],
        );
        check(Timings { io_drain_ms: 600_100, ..base }, &[("ioDrainSeconds", "lower it by 0.1")]);
        check(
            Timings { leader_lease_ms: 100, ..base },
            &[("leaderLeaseSeconds", "at least 1: raise it by 0.9")],
        );
        check(
            Timings { clock_rate_error_ppm: 210_000, watchdog_rate_error_ppm: 900_000, ..base },
            &[
                ("watchdogClockSkewPercent", "is 90, must be at most 20: lower it by 70"),
                ("clockRateErrorPercent", "lower it by 1"),
            ],
        );
    }
}
