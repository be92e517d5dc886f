//! What an agent is told about itself once.

use ha_api_types::keys::Keys;
use ha_api_types::quantity::Amounts;
use ha_api_types::record::SleepProtection;

/// What an agent is told about itself once, at its start.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The cluster's key layout.
    pub keys: Keys,
    /// The node's name.
    pub node: String,
    /// This process: no two processes ever have the same.
    pub instance: String,
    /// The machine.
    pub machine_id: String,
    /// The product id of its hardware; `None` where it cannot be read.
    pub product_id: Option<String>,
    /// The boot.
    pub boot_id: String,
    /// The machine is itself virtual.
    pub is_virtual: bool,
    /// What keeps it awake; `None`: nothing is said of it.
    pub sleep_protection: Option<SleepProtection>,
    /// Drivers that it can serve, sorted.
    pub drivers: Vec<String>,
    /// What it has.
    pub capacity: Amounts,
    /// The agent's version.
    pub version: String,
}
