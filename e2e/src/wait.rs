//! Waiting for a condition, with a time limit and a description for the error.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::time::{ClockId, clock_gettime};

/// Time between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Repeats `condition` until it returns a value.
///
/// # Errors
/// Fails after `timeout`. The error contains `condition_name` and the limit. Limits are generous, so exceeding one means a defect rather
/// than slowness.
pub fn wait_for<T>(
    condition_name: &str,
    timeout: Duration,
    mut condition: impl FnMut() -> Option<T>,
) -> Result<T> {
    let begin = Instant::now();
    loop {
        if let Some(value) = condition() {
            return Ok(value);
        }
        if begin.elapsed() > timeout {
            bail!("timed out after {} s waiting for: {condition_name}", timeout.as_secs());
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Behaves like [`wait_for`] for a condition without a value.
///
/// # Errors
/// Fails after `timeout`.
pub fn wait_until(
    condition_name: &str,
    timeout: Duration,
    mut condition: impl FnMut() -> bool,
) -> Result<()> {
    wait_for(condition_name, timeout, || condition().then_some(()))
}

/// Behaves like [`wait_for`] for an attempt that may fail.
///
/// # Errors
/// Fails after `timeout`, with the last failure as the cause.
pub fn wait_for_ok<T>(
    condition_name: &str,
    timeout: Duration,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut last_error = None;
    let result =
        wait_for(condition_name, timeout, || attempt().map_err(|error| last_error = Some(error)).ok());
    match (result, last_error) {
        (Err(error), Some(last_error)) => Err(last_error.context(error)),
        (outcome, _) => outcome,
    }
}

/// Checks that `condition` holds for the whole `duration`.
///
/// # Errors
/// Fails as soon as the condition does not hold. The error contains `condition_name`.
pub fn check_holds_for(
    condition_name: &str,
    duration: Duration,
    mut condition: impl FnMut() -> bool,
) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < duration {
        if !condition() {
            bail!("condition failed after {} ms: {condition_name}", begin.elapsed().as_millis());
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Returns the time on `CLOCK_MONOTONIC`, in nanoseconds. All processes of this host share the clock, in all namespaces.
pub fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| {
        let seconds = u64::try_from(now.tv_sec()).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(now.tv_nsec()).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn an_attempt_that_never_succeeds_returns_its_last_error() {
        let mut attempts = 0;
        let mut attempt = |needed_successes| {
            attempts += 1;
            if attempts < needed_successes { Err(anyhow!("attempt {attempts} failed")) } else { Ok(attempts) }
        };
        assert_eq!(wait_for_ok("luck", Duration::from_secs(600), || attempt(3)).unwrap(), 3);
        let error = wait_for_ok("luck", Duration::ZERO, || attempt(u32::MAX)).unwrap_err();
        let message = format!("{error:#}");
        assert!(message.starts_with("timed out after 0 s waiting for: luck: attempt "), "{message}");
    }
}
