//! The results of an agent's checks of its machine, beyond the facts that the protocol needs.

use crate::check::Check;
use crate::id::BootId;
use crate::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `report/<node>/doctor`, unleased, written by the node's agent when a result changes.
///
/// The report has its own key, because every permit guards `report/<node>/node`, and that key must not change for
/// information that only operators read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DoctorReport {
    /// Boot that was checked.
    pub boot_id: BootId,
    /// Observations of the watchdog daemon about its device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<WatchdogObservation>,
    /// Results of the checks.
    pub checks: Vec<Check>,
    /// Record of an unclean end of the boot before this one; `None` if that boot ended cleanly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_end: Option<LastTermination>,
    /// Time of the report.
    pub at: Timestamp,
}

/// Observations of the watchdog daemon about its device, since it was armed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WatchdogObservation {
    /// Whether the device cannot be stopped once started.
    pub nowayout: bool,
    /// Minimum timeout of the driver, in seconds.
    pub smallest_timeout_seconds: u32,
    /// Maximum timeout of the driver, in seconds.
    pub largest_timeout_seconds: u32,
    /// Active pretimeout, in seconds. Absent if the driver has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pretimeout_seconds: Option<u32>,
    /// Minimum time left on the device at a renewal, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smallest_margin_ms: Option<u32>,
    /// Maximum delay of the daemon's loop, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_lateness_ms: Option<u32>,
    /// Whether the daemon runs with real-time priority.
    pub real_time: bool,
    /// Whether the daemon's memory is locked.
    pub memory_locked: bool,
}

/// End of an earlier boot of a machine: its shutdown record, kept on its disk, and the records of the machine itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LastTermination {
    /// Boot id of the boot that ended.
    pub boot_id: BootId,
    /// Cause, as a sentence.
    pub message: String,
    /// Time of the shutdown record, by the clock of that machine.
    pub at: Timestamp,
}
