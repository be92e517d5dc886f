//! Facts about a machine, without judgment.

use super::manager::ManagerSettings;

/// Facts about a machine. Facts that cannot be read are omitted, never guessed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// systemd's own watchdog settings; `None` if systemd does not run.
    pub manager: Option<ManagerSettings>,
    /// Process that has a watchdog device open; `None` if there is none.
    pub watchdog_owner: Option<Owner>,
    /// Running time daemons.
    pub time_daemons: Vec<TimeDaemon>,
    /// Ways in which the machine can be put to sleep.
    pub sleep: Sleep,
    /// Panic settings of the kernel.
    pub panic: PanicSettings,
    /// Names of crash records that an earlier kernel left in `/sys/fs/pstore`.
    pub crash_records: Vec<String>,
    /// `true` if a watchdog reports that it caused the last reset of the machine.
    pub was_reset_by_watchdog: bool,
}

/// A process that has a watchdog device open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Process id.
    pub pid: u32,
    /// Process name.
    pub name: String,
}

/// A running time daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeDaemon {
    /// Name of its process.
    pub name: String,
    /// Maximum rate by which the daemon may slew the clock, in parts per million.
    pub slew_ppm: u64,
    /// Instruction that lowers this rate; empty if the rate cannot be changed.
    pub fix: &'static str,
}

/// Ways in which the machine can be put to sleep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sleep {
    /// Sleep states of the kernel (`/sys/power/state`).
    pub states: Vec<String>,
    /// systemd's sleep targets that are not masked.
    pub open_targets: Vec<String>,
}

/// Panic settings of the kernel (`/proc/sys/kernel`); `None` if the kernel does not have the setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PanicSettings {
    /// Seconds from a panic to the reboot; 0 means no reboot.
    pub panic: Option<i64>,
    /// 1 if an oops causes a panic.
    pub panic_on_oops: Option<i64>,
    /// 1 if a hung task causes a panic.
    pub hung_task_panic: Option<i64>,
    /// 1 if a CPU that hangs in the kernel causes a panic.
    pub softlockup_panic: Option<i64>,
    /// 1 if a CPU that handles no interrupts causes a panic.
    pub hardlockup_panic: Option<i64>,
}
