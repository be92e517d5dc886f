//! Health checks of containers: repeated runs of a check, until the container is unhealthy.

use ha_api_types::driver::HealthCheck;
use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Result of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::driver) enum Health {
    Healthy,
    /// The check failed, with its output.
    Unhealthy(String),
    /// The check could not be run, so the health is unknown.
    Unknown(String),
    /// The container has no health check.
    Undefined,
}

/// Runs a container's check at its interval. Returns when the service is unhealthy, with the reason as a clause.
pub(in crate::driver) async fn wait_until_unhealthy<F: Future<Output = Health>>(
    container: &str,
    check: &HealthCheck,
    run_check: impl Fn() -> F,
) -> String {
    let start_time = Instant::now();
    let mut failure_streak = FailureStreak::default();
    loop {
        sleep(seconds(check.interval_seconds)).await;
        let health = run_check().await;
        if let Health::Unknown(why) = &health {
            tracing::debug!(container, why, "cannot run the health check");
        }
        if let Some(message) = failure_streak.record(health, check, start_time.elapsed()) {
            return message;
        }
    }
}

/// Counter of consecutive failed checks.
#[derive(Debug, Default)]
struct FailureStreak {
    consecutive_failures: u32,
}

impl FailureStreak {
    /// Records a result at a time after the start. Returns the reason once enough checks in a row have failed.
    fn record(&mut self, health: Health, check: &HealthCheck, since_start: Duration) -> Option<String> {
        let cause = match health {
            Health::Healthy => {
                self.consecutive_failures = 0;
                return None;
            }
            Health::Unknown(_) | Health::Undefined => return None,
            Health::Unhealthy(_) if since_start < seconds(check.start_period_seconds) => return None,
            Health::Unhealthy(cause) => cause,
        };
        self.consecutive_failures += 1;
        (self.consecutive_failures >= check.retries.max(1)).then(|| {
            format!(
                "container is unhealthy: health check failed {} times in a row: {cause}",
                self.consecutive_failures
            )
        })
    }
}

/// Returns a time of a health check; zero for an invalid time.
pub(in crate::driver) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_health_check_failures_count() {
        let check = HealthCheck { retries: 2, start_period_seconds: 5.0, ..HealthCheck::default() };
        let mut failure_streak = FailureStreak::default();
        let mut record = |health: Health, since_start_seconds: u64| {
            failure_streak.record(health, &check, Duration::from_secs(since_start_seconds))
        };
        let unhealthy = || Health::Unhealthy("not ok".into());
        let message = Some("container is unhealthy: health check failed 2 times in a row: not ok".to_owned());
        for (health, since_start_seconds, expected) in [
            (unhealthy(), 1, None),
            (unhealthy(), 4, None),
            (unhealthy(), 5, None),
            (Health::Healthy, 6, None),
            (unhealthy(), 7, None),
            (Health::Unknown("podman is away".into()), 8, None),
            (unhealthy(), 9, message),
        ] {
            assert_eq!(
                record(health.clone(), since_start_seconds),
                expected,
                "{health:?} at {since_start_seconds}"
            );
        }
    }
}
