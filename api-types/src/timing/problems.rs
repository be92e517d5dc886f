//! Checks of timings, whose problems name the setting to change and the amount.

use super::Timings;
use crate::time::Millis;

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
    seconds("heartbeatIntervalSeconds", timings.heartbeat_interval_ms, 100, 60_000, "");
    seconds("heartbeatLifetimeSeconds", timings.heartbeat_valid_ms, 0, 600_000, "");
    let killed = ", or services cannot be killed before the deadline";
    seconds("selfFenceMarginSeconds", timings.stop_margin_ms, 500, Millis::MAX, killed);
    seconds("watchdogTimeoutSeconds", timings.watchdog_timeout_ms, 1_000, 300_000, "");
    seconds("watchdogMaxDelaySeconds", timings.watchdog_lateness_ms, 0, 60_000, "");
    seconds("ioDrainSeconds", timings.io_drain_ms, 0, 600_000, "");
    seconds("leaderLeaseSeconds", timings.leader_lease_ms, 1_000, 600_000, "");
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
    for (field, ppm) in [
        ("watchdogClockSkewPercent", timings.watchdog_rate_error_ppm),
        ("clockRateErrorPercent", timings.clock_rate_error_ppm),
    ] {
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
const MAX_PPM: u64 = 200_000;

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
