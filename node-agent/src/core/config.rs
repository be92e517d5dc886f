//! Configuration of an agent: facts about its process, node and machine that do not change while the agent runs.

use ha_api_types::id::{BootId, MachineId, NodeName, ProcessInstance, ProductId};
use ha_api_types::keys::Keys;
use ha_api_types::node_policy::NodePolicy;
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::record::SleepProtection;

/// The processors and the memory of a machine. An unknown amount is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// Number of cores and size of the memory.
    pub capacity: Amounts,
    /// Number of hardware threads.
    pub threads: Option<Quantity>,
}

/// The facts that the agent receives once, at its start.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The cluster's key layout.
    pub keys: Keys,
    /// The node's name.
    pub node: NodeName,
    /// Identifier of this process. Each process has a different one.
    pub instance: ProcessInstance,
    /// Id of the machine, which stays the same across boots.
    pub machine_id: MachineId,
    /// The product id of the hardware; `None` if it cannot be read.
    pub product_id: Option<ProductId>,
    /// Id of the current boot; each boot has another id.
    pub boot_id: BootId,
    /// `true` if the machine is virtual.
    pub is_virtual: bool,
    /// The sleep protection; `None` if it is not known.
    pub sleep_protection: Option<SleepProtection>,
    /// Names of the drivers that the node can serve, sorted.
    pub drivers: Vec<String>,
    /// Policy of the node; `None` if the node allows every service.
    pub policy: Option<NodePolicy>,
    /// Processors and memory of the machine.
    pub hardware: Hardware,
    /// The agent's version.
    pub version: String,
}
