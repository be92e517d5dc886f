//! Measurement of the time from the last pet to the watchdog's reset: Tw' and the lateness of the protocol.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::hardware::Watchdog;
use super::holders::ClockReading;
use super::qmp::EventKind;
use super::rig::{Rig, STEP_TIMEOUT};
use crate::plan::SHARED_DIRECTORY;
use crate::wait::{monotonic_ns, wait_until};

/// Timeout of the device.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Number of pets, 0.2 s apart.
const PET_COUNT: u32 = 20;

/// Lower and upper bound of the time from the last pet to the reset.
///
/// The pet happened between two writes to the shared storage, which the host's kernel stamped. The time of the reset is that of
/// QEMU's event. Neither the clock nor the speed of the machine affects the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    /// Time from the write after the last pet to the reset, in microseconds.
    pub at_least_us: u64,
    /// Time from the write before the last pet to the reset, in microseconds.
    pub at_most_us: u64,
}

/// Makes the watchdog of a node with this kind fire once, with the project's daemons stopped. Waits until the machine is a node
/// again.
///
/// # Errors
/// Fails if the machine cannot be prepared, is not reset, or does not return.
pub fn measure(rig: &Rig, watchdog: Watchdog, name: &str) -> Result<Measure> {
    let node = rig.node_with_watchdog(watchdog)?;
    let guest = rig.guest(&node)?;
    let timeout = TIMEOUT.as_secs();
    guest.run(&format!(
        "mkdir -p /run/systemd/system/ha-watchdogd.service.d && \
         printf '[Unit]\\nRefuseManualStop=no\\n' >/run/systemd/system/ha-watchdogd.service.d/measure.conf && \
         systemctl daemon-reload && systemctl stop ha-node-agent ha-watchdogd && mkdir {SHARED_DIRECTORY}/{name} && \
         wdctl --settimeout {timeout} /dev/watchdog0 && grep -qx {timeout} /sys/class/watchdog/watchdog0/timeout"
    ))?;
    let begin_ns = monotonic_ns();
    guest.spawn(&format!(
        "cd {SHARED_DIRECTORY}/{name} && exec 3>/dev/watchdog0 && i=0 && while [ $i -lt {PET_COUNT} ]; do \
         printf . >>before && printf . >&3 && printf . >>after && i=$((i+1)) && sleep 0.2; done; sleep 600"
    ))?;
    let monitor = rig.monitor(&node)?;
    let mut reset_ns = None;
    wait_until(&format!("the reset of {node}"), STEP_TIMEOUT, || {
        reset_ns = monitor.first(EventKind::Reset, begin_ns);
        reset_ns.is_some()
    })?;
    let reset_ns = reset_ns.context("no reset with a time was recorded")?;
    let directory = rig.cluster.shared_directory().join(name);
    let elapsed_us_since = |file: &str| -> Result<u64> {
        Ok(reset_ns.saturating_sub(written_ns(&directory.join(file))?) / 1_000)
    };
    let measure =
        Measure { at_least_us: elapsed_us_since("after")?, at_most_us: elapsed_us_since("before")? };
    let pets = fs::metadata(directory.join("after"))?.len();
    ensure!(
        pets == u64::from(PET_COUNT),
        "{node} was reset after {pets} of {PET_COUNT} pets, while it was being petted"
    );
    rig.wait_until_ready(&node)?;
    Ok(measure)
}

/// Returns the measurements of one driver as a line of text.
pub fn line(watchdog: Watchdog, measures: &[Measure]) -> String {
    let seconds = |us: Option<u64>| {
        us.map_or_else(|| "-".to_owned(), |us| format!("{}.{:03}", us / 1_000_000, us % 1_000_000 / 1_000))
    };
    format!(
        "{:<9} set to {} s: reset {} to {} s after the last pet, {} times",
        watchdog.module(),
        TIMEOUT.as_secs(),
        seconds(measures.iter().map(|one| one.at_least_us).min()),
        seconds(measures.iter().map(|one| one.at_most_us).max()),
        measures.len(),
    )
}

fn written_ns(file: &Path) -> Result<u64> {
    let modified = fs::metadata(file).and_then(|data| data.modified());
    Ok(ClockReading::read().monotonic(modified.with_context(|| file.display().to_string())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_line_covers_all_measurements() {
        let one = Measure { at_least_us: 10_001_900, at_most_us: 10_003_000 };
        let other = Measure { at_least_us: 9_999_000, at_most_us: 10_010_000 };
        let text = line(Watchdog::Softdog, &[one, other]);
        assert_eq!(text, "softdog   set to 10 s: reset 9.999 to 10.010 s after the last pet, 2 times");
        assert!(line(Watchdog::I6300esb, &[]).contains("- to - s"));
    }
}
