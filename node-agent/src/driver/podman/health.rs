//! Health checks: podman runs the container's check when the agent requests it. On its own, podman needs timers of
//! systemd for that, and reports results to no one.

use super::client::Client;
use super::hanging;
use ha_api_types::driver::HealthCheck;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Result of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Healthy,
    /// The check failed, with its output.
    Unhealthy(String),
    /// The check could not be run, so the health is unknown.
    Untold(String),
    /// The container has no health check.
    Undefined,
}

/// Runs the check once.
pub(super) async fn ask(client: &Client, container: &str, check: &HealthCheck) -> Health {
    let limit = seconds(check.timeout_seconds);
    match timeout(limit, client.check(container, limit)).await {
        Ok(Ok(true)) => Health::Healthy,
        Ok(Ok(false)) => {
            let container = client.inspect(container).await.ok().flatten();
            let how = container.and_then(|container| container.last_check());
            Health::Unhealthy(how.unwrap_or_else(|| "no output".to_owned()))
        }
        Ok(Err(error)) if error.to_string().contains("no defined healthcheck") => Health::Undefined,
        Ok(Err(error)) => Health::Untold(error.to_string()),
        Err(_) => {
            end(client, container).await;
            Health::Unhealthy(format!("timed out after {} s", check.timeout_seconds))
        }
    }
}

/// Kills a check that hangs: podman would let it run as long as the container does.
async fn end(client: &Client, name: &str) {
    let Ok(Some(container)) = client.inspect(name).await else { return };
    let Some(check) = container.check() else { return };
    let mut checks = Vec::new();
    for id in container.commands() {
        if client.runs(id, &check).await.unwrap_or(false) {
            checks.push(id.clone());
        }
    }
    // Reading all of /proc may take long.
    let search = move || hanging::processes(Path::new("/proc"), &container.id, &checks);
    for pid in tokio::task::spawn_blocking(search).await.unwrap_or_default() {
        // The process may have ended already.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Runs the check at its interval. Returns when the service is unhealthy, with the reason as a clause.
pub(super) async fn unhealthy(client: Client, container: String, check: HealthCheck) -> String {
    let begin = Instant::now();
    let mut streak = Streak::default();
    loop {
        sleep(seconds(check.interval_seconds)).await;
        let health = ask(&client, &container, &check).await;
        if let Health::Untold(why) = &health {
            tracing::debug!(container, why, "cannot run the health check");
        }
        if let Some(message) = streak.record(health, &check, begin.elapsed()) {
            return message;
        }
    }
}

/// Counter of consecutive failed checks.
#[derive(Debug, Default)]
struct Streak {
    failures: u32,
}

impl Streak {
    /// Records a result at a time after the start. Returns the reason once enough checks in a row have failed.
    fn record(&mut self, health: Health, check: &HealthCheck, since_start: Duration) -> Option<String> {
        let why = match health {
            Health::Healthy => {
                self.failures = 0;
                return None;
            }
            Health::Untold(_) | Health::Undefined => return None,
            Health::Unhealthy(_) if since_start < seconds(check.start_period_seconds) => return None,
            Health::Unhealthy(why) => why,
        };
        self.failures += 1;
        (self.failures >= check.retries.max(1)).then(|| {
            format!("container is unhealthy: health check failed {} times in a row: {why}", self.failures)
        })
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_count() {
        let check = HealthCheck { retries: 2, start_period_seconds: 5.0, ..HealthCheck::default() };
        let mut streak = Streak::default();
        let mut record =
            |health: Health, since: u64| streak.record(health, &check, Duration::from_secs(since));
        let bad = || Health::Unhealthy("not ok".into());
        let message = Some("container is unhealthy: health check failed 2 times in a row: not ok".to_owned());
        for (health, since, expected) in [
            (bad(), 1, None),
            (bad(), 4, None),
            (bad(), 5, None),
            (Health::Healthy, 6, None),
            (bad(), 7, None),
            (Health::Untold("podman is away".into()), 8, None),
            (bad(), 9, message),
        ] {
            assert_eq!(record(health.clone(), since), expected, "{health:?} at {since}");
        }
    }
}
