//! Health checks: a program that `lxc-attach` runs in the container.

use super::container::Container;
use super::tools;
use crate::driver::health::{Health, seconds};
use crate::driver::program::process::ProcessStatus;
use ha_api_types::driver::HealthCheck;
use rustix::process::Signal;
use std::io;
use std::process::Stdio;
use tokio::time::timeout;

/// Beginning of a message of `lxc-attach` itself.
const ATTACH_ERROR_PREFIX: &str = "lxc-attach: ";

/// Runs the check once.
pub(super) async fn run_health_check(container: &Container, check: &HealthCheck) -> Health {
    match tools::info(container).await {
        // A frozen container runs no check: `lxc-attach` waits until the container is thawed.
        Ok(info) if info.state != "RUNNING" => {
            return Health::Unknown(format!("container is {}", info.state));
        }
        Ok(_) => {}
        Err(error) => return Health::Unknown(error.to_string()),
    }
    let mut command = tools::command("lxc-attach", container);
    command.args(["--clear-env", "--"]).args(&check.command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Health::Unknown(format!("cannot run lxc-attach: {error}")),
    };
    let attached = child.id().and_then(|pid| i32::try_from(pid).ok());
    let mut waiting = Box::pin(child.wait_with_output());
    match timeout(seconds(check.timeout_seconds), &mut waiting).await {
        Ok(Ok(output)) if output.status.success() => Health::Healthy,
        Ok(Ok(output)) => {
            let text = String::from_utf8_lossy(if output.stderr.is_empty() {
                &output.stdout
            } else {
                &output.stderr
            })
            .into_owned();
            classify_failure(output.status.code(), text.trim())
        }
        Ok(Err(error)) => Health::Unknown(format!("cannot run lxc-attach: {error}")),
        Err(_) => {
            // The check would outlive lxc-attach. While lxc-attach is not reaped, its pid is not reused.
            let search = move || attached.map_or(Ok(()), kill_children);
            let ended = tokio::task::spawn_blocking(search).await;
            if let Ok(Err(error)) = ended {
                tracing::debug!(container = container.name, %error, "cannot kill a health check");
            }
            drop(waiting);
            Health::Unhealthy(format!("timed out after {} s", check.timeout_seconds))
        }
    }
}

/// Kills the processes that a process started.
fn kill_children(parent: i32) -> io::Result<()> {
    for status in ProcessStatus::all()?.into_iter().filter(|status| status.parent == parent) {
        status.identity.signal(Signal::KILL)?;
    }
    Ok(())
}

/// Classifies a check that did not succeed, by its exit status and output.
fn classify_failure(status: Option<i32>, text: &str) -> Health {
    let last = text.lines().last().unwrap_or("no output");
    // 126 and 127: the program cannot be executed, so no check can succeed.
    if text.starts_with(ATTACH_ERROR_PREFIX) && !matches!(status, Some(126 | 127)) {
        return Health::Unknown(last.to_owned());
    }
    let status = status.map_or("killed".to_owned(), |status| format!("exit status {status}"));
    Health::Unhealthy(format!("{status}: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_check_and_lxc_failures_differ() {
        let unhealthy = |text: &str| Health::Unhealthy(text.to_owned());
        assert_eq!(classify_failure(Some(3), "first\nlast"), unhealthy("exit status 3: last"));
        assert_eq!(classify_failure(Some(1), ""), unhealthy("exit status 1: no output"));
        assert_eq!(classify_failure(None, ""), unhealthy("killed: no output"));
        let refused = "lxc-attach: web: a.c: b: 406 Connection refused - Failed to get init pid";
        assert_eq!(classify_failure(Some(1), refused), Health::Unknown(refused.to_owned()));
        let missing = "lxc-attach: web: a.c: b: 1841 No such file or directory - Failed to exec \"/nope\"";
        assert_eq!(classify_failure(Some(127), missing), unhealthy(&format!("exit status 127: {missing}")));
    }
}
