//! The daemon's reasons to refuse, each with a suggested action.

use super::Name;
use ha_api_types::reason::Reason;
use thiserror::Error;

/// The reason to refuse a request or a whole connection. The text names the suggested action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The peer uses another version of the protocol.
    #[error(
        "agent and ha-watchdogd use different protocol versions (ha-watchdogd uses {daemon}): install the same release of both, then run systemctl kill ha-watchdogd, which restarts it"
    )]
    Version {
        /// The daemon's version.
        daemon: u16,
    },
    /// The bytes are not a valid message.
    #[error("cannot parse the message: install the same release of ha-node-agent and ha-watchdogd")]
    BadMessage,
    /// The numbers of the requests have a gap or a repetition; the connection ends.
    #[error("messages were lost, expected request {expected}: connect again")]
    OutOfOrder {
        /// The expected number.
        expected: u64,
    },
    /// The peer's user may not use the daemon.
    #[error(
        "user id {uid} may not use the watchdog: run the agent as root or start ha-watchdogd with --allowed-uid {uid}"
    )]
    NotPermitted {
        /// The peer's user id.
        uid: u32,
    },
    /// The daemon serves another connection.
    #[error("process {pid} is already connected: stop that agent first")]
    AnotherPeer {
        /// The pid of that connection's process.
        pid: u32,
    },
    /// The process that was served before has closed its connection but is still alive.
    #[error("process {pid}, the previous client, still runs: wait for its exit or stop it")]
    PreviousPeerAlive {
        /// The pid of that process.
        pid: u32,
    },
    /// The request needs an armed device, and none is armed.
    #[error("the watchdog is not armed: arm it first")]
    NotArmed,
    /// The deadline is too near for another pet. A deadline that is earlier than the active one is applied
    /// nevertheless.
    #[error("the deadline has passed or is nearer than the smallest timeout of the device")]
    DeadlinePassed,
    /// The deadline is further away than the validity of a heartbeat.
    #[error(
        "deadline is {ahead_ms} ms away, but a heartbeat is valid for {heartbeat_valid_ms} ms: agent and ha-watchdogd must run in the same time namespace"
    )]
    DeadlineTooFar {
        /// Time to the deadline, milliseconds.
        ahead_ms: u32,
        /// The largest allowed time (Th), milliseconds.
        heartbeat_valid_ms: u32,
    },
    /// The device does not exist.
    #[error(
        "no watchdog device {location} (error {errno}): set WATCHDOG_MODULE, or another WATCHDOG_DEVICE, in /etc/hactl/watchdog.env, then run systemctl kill ha-watchdogd, which restarts it"
    )]
    NoDevice {
        /// The error number from the kernel.
        errno: u32,
        /// The configured device: a path or the end of a longer one, or an identity.
        location: Name,
    },
    /// Another process holds the device.
    #[error("the watchdog device is held by process {pid} ({name}): {}", fix_for(name.as_str()))]
    DeviceBusy {
        /// The pid of the owner; 0 if it was not found.
        pid: u32,
        /// The name of the owner.
        name: Name,
    },
    /// systemd also uses the watchdog.
    #[error("{}", shared_text(*runtime, *reboot))]
    SharedWithManager {
        /// `true` if systemd pets the watchdog while the machine runs.
        runtime: bool,
        /// `true` if systemd arms the watchdog again at reboot.
        reboot: bool,
    },
    /// Closing the device stops it, so the death of the daemon would end the protection.
    #[error(
        "watchdog driver has neither magic close nor nowayout and would stop if ha-watchdogd dies: load it with nowayout=1 or use another driver, such as softdog"
    )]
    StopsWhenClosed,
    /// The timeout read back is longer than the agent's W allows.
    #[error(
        "watchdog device sets a timeout of {read_back_seconds} s, limit is {largest_seconds} s: increase timing.watchdogTimeoutSeconds by {} to {read_back_seconds} (failovers take longer, see hactl timing) or use another device",
        read_back_seconds.saturating_sub(*largest_seconds)
    )]
    TimeoutTooLong {
        /// The timeout that the device reports, seconds.
        read_back_seconds: u32,
        /// The largest timeout that W allows for such a device, seconds.
        largest_seconds: u32,
    },
    /// The driver does not accept the requested timeout.
    #[error(
        "watchdog device accepts timeouts from {smallest_seconds} to {largest_seconds} s: set timing.watchdogTimeoutSeconds within this range (failovers take longer, see hactl timing) or use another device"
    )]
    TimeoutNotApplied {
        /// The driver's smallest timeout, seconds.
        smallest_seconds: u32,
        /// The driver's largest timeout, seconds.
        largest_seconds: u32,
    },
    /// The device returned an error.
    #[error("watchdog device failed with error {errno}: check the kernel log, and try another driver")]
    DeviceFailed {
        /// The error number from the kernel.
        errno: u32,
    },
}

impl Refusal {
    /// Returns the reason code for a watchdog that cannot be armed.
    pub fn reason(&self) -> Reason {
        match self {
            Refusal::NoDevice { .. } => Reason::WatchdogMissing,
            Refusal::TimeoutTooLong { .. } | Refusal::TimeoutNotApplied { .. } => Reason::TimingRefused,
            Refusal::Version { .. }
            | Refusal::BadMessage
            | Refusal::OutOfOrder { .. }
            | Refusal::NotPermitted { .. }
            | Refusal::AnotherPeer { .. }
            | Refusal::PreviousPeerAlive { .. }
            | Refusal::NotArmed
            | Refusal::DeadlinePassed
            | Refusal::DeadlineTooFar { .. }
            | Refusal::DeviceBusy { .. }
            | Refusal::SharedWithManager { .. }
            | Refusal::StopsWhenClosed
            | Refusal::DeviceFailed { .. } => Reason::WatchdogFailed,
        }
    }
}

fn shared_text(runtime: bool, reboot: bool) -> String {
    let pets = "systemd renews the watchdog itself (RuntimeWatchdogSec)";
    let rearms = "systemd's reboot watchdog (RebootWatchdogSec, 10 minutes by default) gives a machine more time to shut down than the fencing delay";
    let (finding, suggested_settings) = match (runtime, reboot) {
        (true, false) => (pets.to_owned(), "RuntimeWatchdogSec=0"),
        (false, _) => (rearms.to_owned(), "RebootWatchdogSec=0"),
        (true, true) => (format!("{pets}, and {rearms}"), "RuntimeWatchdogSec=0 and RebootWatchdogSec=0"),
    };
    format!(
        "{finding}: set {suggested_settings} in /etc/systemd/system.conf.d/50-ha-watchdogd.conf, then run systemctl daemon-reexec"
    )
}

/// Returns the suggested action for an owner of this name.
pub fn fix_for(name: &str) -> &'static str {
    match name {
        "systemd" | "init" => {
            "systemd uses the watchdog itself: set RuntimeWatchdogSec=0 and RebootWatchdogSec=0 in /etc/systemd/system.conf.d/, then run systemctl daemon-reexec"
        }
        "watchdog" | "wd_keepalive" => "run systemctl disable --now watchdog wd_keepalive",
        "watchdog-mux" => "run systemctl disable --now watchdog-mux",
        "watchdogd" => "run systemctl disable --now watchdogd",
        "sbd" => "run systemctl disable --now sbd",
        "ha-watchdogd" => "another ha-watchdogd runs; stop one of the two",
        "" => "find the process with fuser -v on the device and stop it",
        _ => "stop this process, or set another device with ha-watchdogd --device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_a_reason_code() {
        let check = |refusal: Refusal, expected: Reason| assert_eq!(refusal.reason(), expected, "{refusal}");
        check(Refusal::NoDevice { errno: 2, location: Name::new(b"/dev/watchdog") }, Reason::WatchdogMissing);
        let too_long = Refusal::TimeoutTooLong { read_back_seconds: 60, largest_seconds: 5 };
        check(too_long, Reason::TimingRefused);
        let not_applied = Refusal::TimeoutNotApplied { smallest_seconds: 60, largest_seconds: 600 };
        check(not_applied, Reason::TimingRefused);
        check(Refusal::DeviceBusy { pid: 7, name: Name::new(b"sbd") }, Reason::WatchdogFailed);
        check(Refusal::DeviceFailed { errno: 5 }, Reason::WatchdogFailed);
    }

    #[test]
    fn invalid_settings_are_refused_with_explanation() {
        let check = |refusal: Refusal, finding_part: &str, help_part: &str| {
            let text = refusal.to_string();
            let (finding, suggestion) = text.split_once(": ").expect("what is wrong, and what helps");
            assert!(finding.contains(finding_part) && suggestion.contains(help_part), "{text}");
        };
        let too_long = Refusal::TimeoutTooLong { read_back_seconds: 60, largest_seconds: 5 };
        check(
            too_long,
            "sets a timeout of 60 s, limit is 5 s",
            "increase timing.watchdogTimeoutSeconds by 55 to 60",
        );
        let not_applied = Refusal::TimeoutNotApplied { smallest_seconds: 30, largest_seconds: 600 };
        check(not_applied, "from 30 to 600 s", "set timing.watchdogTimeoutSeconds within this range");
        check(
            Refusal::NoDevice { errno: 2, location: Name::new(b"/dev/watchdog7") },
            "no watchdog device /dev/watchdog7",
            "in /etc/hactl/watchdog.env, then run systemctl kill ha-watchdogd, which restarts it",
        );
        let busy = Refusal::DeviceBusy { pid: 1, name: Name::new(b"systemd") };
        check(busy, "held by process 1 (systemd)", "RebootWatchdogSec=0 in /etc/systemd/system.conf.d/");
        let busy = Refusal::DeviceBusy { pid: 40, name: Name::new(b"watchdog") };
        check(busy, "held by process 40 (watchdog)", "systemctl disable --now watchdog");
        let reboot = Refusal::SharedWithManager { runtime: false, reboot: true };
        check(reboot, "reboot watchdog", "set RebootWatchdogSec=0 in /etc/systemd/system.conf.d/");
        let runtime = Refusal::SharedWithManager { runtime: true, reboot: false };
        check(runtime, "renews the watchdog itself", "set RuntimeWatchdogSec=0 in");
        let both_settings = Refusal::SharedWithManager { runtime: true, reboot: true };
        check(both_settings, "RebootWatchdogSec", "set RuntimeWatchdogSec=0 and RebootWatchdogSec=0 in");
        check(Refusal::StopsWhenClosed, "neither magic close nor nowayout", "load it with nowayout=1");
    }

    #[test]
    fn busy_device_refusal_names_owner_and_fix() {
        let check = |name: &str, part: &str| {
            let text = Refusal::DeviceBusy { pid: 7, name: Name::new(name.as_bytes()) }.to_string();
            assert!(text.contains("process 7") && text.contains(part), "{text}");
        };
        check("systemd", "RuntimeWatchdogSec=0");
        check("sbd", "systemctl disable --now sbd");
        check("", "fuser");
        check("something", "--device");
    }
}
