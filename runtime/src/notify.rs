//! Notifications to the service manager (ready, status, alive). Without a service manager, they do nothing.

use sd_notify::NotifyState;
use std::time::Duration;

/// Reports that the process is ready, with a line for `systemctl status`.
pub fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Sets the line that `systemctl status` shows.
pub fn status(status: &str) {
    send(&[NotifyState::Status(status)]);
}

/// Extends the service manager's stop timeout: at least `extension` from now must pass before the service manager
/// kills the process.
pub fn extend_timeout(extension: Duration) {
    let microseconds = u32::try_from(extension.as_micros()).unwrap_or(u32::MAX);
    send(&[NotifyState::ExtendTimeoutUsec(microseconds)]);
}

/// Reports that the process is ending.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// Reports that the process is alive (`WatchdogSec=`). The loop that must not hang calls this at least every
/// [`watchdog_interval`].
pub fn alive() {
    send(&[NotifyState::Watchdog]);
}

/// Returns the interval at which [`alive`] is due: half of the service manager's limit. `None` if the service manager
/// does not watch this process.
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "cannot notify systemd");
    }
}
