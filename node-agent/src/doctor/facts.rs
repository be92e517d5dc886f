//! What is seen of a machine, unjudged.

use super::manager::ManagerSettings;

/// What is seen of a machine. What cannot be read is left out, never guessed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// systemd's own watchdogs; `None` where systemd does not run.
    pub manager: Option<ManagerSettings>,
    /// The process that has a watchdog device open.
    pub watchdog_owner: Option<Owner>,
    /// The time daemons that run.
    pub time_daemons: Vec<TimeDaemon>,
    /// Whether the machine can be put to sleep.
    pub sleep: Sleep,
    /// What the kernel does in trouble.
    pub panic: PanicSettings,
    /// Records that a kernel left when it died (`/sys/fs/pstore`).
    pub crash_records: Vec<String>,
    /// A watchdog says that it was what reset the machine last.
    pub was_reset_by_watchdog: bool,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

/// A time daemon that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeDaemon {
    /// Its process's name.
    pub name: String,
    /// How much faster or slower it may make the clock, parts per million.
    pub slew_ppm: u64,
    /// What to set to lower that; empty where it cannot be set.
    pub mend: &'static str,
}

/// Ways to sleep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sleep {
    /// What the kernel offers (`/sys/power/state`).
    pub states: Vec<String>,
    /// systemd's targets that are not masked.
    pub open_targets: Vec<String>,
}

/// What the kernel does in trouble (`/proc/sys/kernel`); `None` where the kernel has no such setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PanicSettings {
    /// Seconds until it reboots after a panic; 0: it stays dead.
    pub panic: Option<i64>,
    /// Whether an oops is a panic.
    pub panic_on_oops: Option<i64>,
    /// Whether a task that hangs is a panic.
    pub hung_task_panic: Option<i64>,
    /// Whether a processor that hangs is a panic.
    pub softlockup_panic: Option<i64>,
    /// Whether a processor that takes no interrupts is a panic.
    pub hardlockup_panic: Option<i64>,
}
