//! Health checks: podman runs the container's check when the agent requests it. podman itself would need systemd timers
//! for its checks, and would not report the results.

use super::client::Client;
use super::exec_processes;
use crate::driver::health::{self, seconds};
use ha_api_types::driver::HealthCheck;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use tokio::time::timeout;

pub(super) use crate::driver::health::Health;

/// Runs the check once.
pub(super) async fn run_health_check(client: &Client, container: &str, check: &HealthCheck) -> Health {
    let limit = seconds(check.timeout_seconds);
    match timeout(limit, client.check(container, limit)).await {
        Ok(Ok(true)) => Health::Healthy,
        Ok(Ok(false)) => {
            let container = client.inspect(container).await.ok().flatten();
            let check_output = container.and_then(|container| container.last_check());
            Health::Unhealthy(check_output.unwrap_or_else(|| "no output".to_owned()))
        }
        Ok(Err(error)) if error.to_string().contains("no defined healthcheck") => Health::Undefined,
        Ok(Err(error)) => Health::Unknown(error.to_string()),
        Err(_) => {
            end(client, container).await;
            Health::Unhealthy(format!("timed out after {} s", check.timeout_seconds))
        }
    }
}

/// Kills a check that hangs: podman would not end the check before the container ends.
async fn end(client: &Client, name: &str) {
    let Ok(Some(container)) = client.inspect(name).await else { return };
    let Some(check) = container.check() else { return };
    let mut checks = Vec::new();
    for id in container.exec_sessions() {
        if client.runs(id, &check).await.unwrap_or(false) {
            checks.push(id.clone());
        }
    }
    // Reading all of /proc may take a long time.
    let search = move || exec_processes::processes(Path::new("/proc"), &container.id, &checks);
    for pid in tokio::task::spawn_blocking(search).await.unwrap_or_default() {
        // The process may have ended already.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Runs the check at its interval. Returns when the service is unhealthy, with the reason as a clause.
pub(super) async fn wait_until_unhealthy(client: Client, container: String, check: HealthCheck) -> String {
    health::wait_until_unhealthy(&container, &check, || run_health_check(&client, &container, &check)).await
}
