//! A passed watchdog test: renewals were stopped, and the device has reset the machine.

use crate::id::{BootId, OperationName};
use crate::time::{Millis, Timestamp};
use serde::{Deserialize, Serialize};

/// Record of the latest watchdog test that a node passed, for operators. Only the timeout is used in
/// decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WatchdogTest {
    /// Name of the Operation that requested the test.
    pub operation: OperationName,
    /// Time of the start, by the clock of that machine.
    pub at: Timestamp,
    /// Boot id of the boot that the watchdog ended.
    pub boot_id: BootId,
    /// Boot id of the next boot.
    pub next_boot_id: BootId,
    /// Watchdog timeout (Tw) of the armed device, in milliseconds. The test does not apply to another
    /// timeout.
    pub timeout_ms: Millis,
    /// Time for which the machine kept running after the last renewal, in milliseconds, recorded twice a
    /// second.
    pub lasted_ms: Millis,
}
