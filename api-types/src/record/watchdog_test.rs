//! A passed watchdog test: renewals were stopped, and the device has reset the machine.

use crate::time::{Millis, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is remembered of the latest test that a node's watchdog has passed: for people, but for the timeout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WatchdogTest {
    /// The operation that asked for it.
    pub operation: String,
    /// When it began, by that machine's clock.
    pub at: Timestamp,
    /// The boot that the watchdog has ended.
    pub boot_id: String,
    /// The boot that came after it.
    pub next_boot_id: String,
    /// The timeout (Tw) that the device was armed with, milliseconds: another one is another test.
    pub timeout_ms: Millis,
    /// How long the machine was seen alive after it was armed with a deadline that nothing renewed, milliseconds; noted
    /// twice a second.
    pub lasted_ms: Millis,
}
