//! What the service manager is told: ready, status, still alive; nothing when there is none.

use sd_notify::NotifyState;
use std::time::Duration;

/// Tells the service manager that the process serves.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// One line for `systemctl status`.
pub fn status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// Asks the service manager not to end the process by force for so long yet, counted from now.
pub fn extend_timeout(by: Duration) {
    let microseconds = u32::try_from(by.as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::ExtendTimeoutUsec(microseconds)]);
}

/// Tells the service manager that the process is ending.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Tells the service manager that the process is alive (`WatchdogSec=`); to be called from the loop that must not
/// hang, at least every [`watchdog_interval`].
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// How often [`alive`] is due: half of what the service manager allows. `None`: it does not watch this process.
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager could not be told");
    }
}
