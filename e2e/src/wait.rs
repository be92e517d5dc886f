//! Waiting for a condition, with a ceiling and a sentence for the case that it never comes.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::time::{ClockId, clock_gettime};

/// How often a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(50);

/// Looks until `condition` gives a value.
///
/// # Errors
/// After `ceiling`, naming `what` and how long it was waited for. Ceilings are generous: they say that something is
/// broken, not that it is slow.
pub fn wait_for<T>(what: &str, ceiling: Duration, mut condition: impl FnMut() -> Option<T>) -> Result<T> {
    let begin = Instant::now();
    loop {
        if let Some(value) = condition() {
            return Ok(value);
        }
        if begin.elapsed() > ceiling {
            bail!("waited {} s in vain for: {what}", ceiling.as_secs());
        }
        thread::sleep(INTERVAL);
    }
}

/// As [`wait_for`], for a condition that is true or not.
///
/// # Errors
/// After `ceiling`.
pub fn wait_until(what: &str, ceiling: Duration, mut condition: impl FnMut() -> bool) -> Result<()> {
    wait_for(what, ceiling, || condition().then_some(()))
}

/// As [`wait_for`], for an attempt that may fail.
///
/// # Errors
/// After `ceiling`, with the last failure as the cause.
pub fn wait_for_ok<T>(what: &str, ceiling: Duration, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let mut last = None;
    let done = wait_for(what, ceiling, || attempt().map_err(|error| last = Some(error)).ok());
    match (done, last) {
        (Err(error), Some(last)) => Err(last.context(error)),
        (outcome, _) => outcome,
    }
}

/// Checks for the whole of `duration` that `condition` holds: for "nothing happens".
///
/// # Errors
/// As soon as it does not hold, naming `what`.
pub fn holds_for(what: &str, duration: Duration, mut condition: impl FnMut() -> bool) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < duration {
        if !condition() {
            bail!("after {} ms it no longer held: {what}", begin.elapsed().as_millis());
        }
        thread::sleep(INTERVAL);
    }
    Ok(())
}

/// Now on `CLOCK_MONOTONIC`, in nanoseconds: one clock for all processes of this machine, namespaces included.
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
    fn an_attempt_that_never_succeeds_tells_why() {
        let mut attempts = 0;
        let mut attempt = |needed| {
            attempts += 1;
            if attempts < needed { Err(anyhow!("attempt {attempts} failed")) } else { Ok(attempts) }
        };
        assert_eq!(wait_for_ok("luck", Duration::from_secs(600), || attempt(3)).unwrap(), 3);
        let error = wait_for_ok("luck", Duration::ZERO, || attempt(u32::MAX)).unwrap_err();
        let told = format!("{error:#}");
        assert!(told.starts_with("waited 0 s in vain for: luck: attempt "), "{told}");
    }
}
