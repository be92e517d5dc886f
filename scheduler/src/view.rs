//! Input of the scheduler: nodes, services, groups and rules as plain facts.

use crate::rules::Rules;
use crate::services::{NodeUse, Services};
use crate::unit::sum;
use ha_api_types::cluster::{ReservationSpec, SchedulerMode, SchedulerSpec};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::node::AllocationPolicy;
use ha_api_types::placement::GroupSpec;
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::reason::Reason;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

/// Number of a node policy within a view. Nodes with equal policies have the same number, so that a service is compared
/// with few policies instead of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodePolicyId(pub u32);

/// Facts about a node that affect placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each named")]
pub struct NodeFacts {
    /// `Ok` if the node is Online, otherwise the reason why it is not.
    #[serde(rename = "notOnline", with = "ok_or_reason", skip_serializing_if = "Result::is_ok")]
    pub online: Result<(), Reason>,
    /// `true` if the node is in maintenance.
    pub maintenance: bool,
    /// `true` if new services may be scheduled on the node.
    pub schedulable: bool,
    /// `Ok` if exclusive services may start on the node because fencing of the node can be confirmed, otherwise the
    /// reason.
    #[serde(rename = "notFenceable", with = "ok_or_reason", skip_serializing_if = "Result::is_ok")]
    pub fenceable: Result<(), Reason>,
    /// `true` if no exclusive service may start on the node because the cluster is disarmed. The N+1 check ignores
    /// this: a disarm is planned and temporary, and does not reduce the capacity of the cluster.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disarmed: bool,
    /// `true` if the watchdog of the node can no longer be renewed. Exclusive services leave the node, because a later
    /// fencing could not be confirmed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub watchdog_failed: bool,
    /// Drivers that the agent of the node supports; empty if unknown.
    pub drivers: BTreeSet<String>,
    /// Policy of the node; `None` if the node allows every service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<NodePolicyId>,
    /// Storage pools that the node can access.
    pub storage_pools: BTreeSet<String>,
    /// Capacity of the node; an unknown amount does not limit.
    pub capacity: Amounts,
    /// Use outside hactl: the declared amounts, otherwise the measured amounts.
    pub reserved: Amounts,
    /// Name of the node group; `None` if the node is in none.
    pub node_group: Option<String>,
}

impl Default for NodeFacts {
    fn default() -> NodeFacts {
        NodeFacts {
            online: Ok(()),
            maintenance: false,
            schedulable: true,
            fenceable: Ok(()),
            disarmed: false,
            watchdog_failed: false,
            drivers: BTreeSet::new(),
            policy: None,
            storage_pools: BTreeSet::new(),
            capacity: Amounts::default(),
            reserved: Amounts::default(),
            node_group: None,
        }
    }
}

/// Facts about a service that affect placement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a separate fact, and all combinations occur")]
pub struct ServiceFacts {
    /// Current or last node of the service; `None` if it has not been scheduled.
    pub node: Option<NodeName>,
    /// Every node that the service uses: its current node, and the target of a move. Services that are confirmed stopped,
    /// disabled, ignored or in Error use no node.
    #[serde(rename = "uses")]
    pub used_nodes: BTreeSet<NodeName>,
    /// Driver that a node must support ([`ha_api_types::driver::DriverSpec::capability`]); `None` if the spec is not valid.
    pub driver: Option<String>,
    /// Policies of nodes that do not allow the service, with the reason of each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub forbidding_policies: BTreeMap<NodePolicyId, String>,
    /// Group that the resource names; `None` for no group.
    pub group: Option<String>,
    /// `true` if the service returns to a preferred node that is available again.
    pub failback: bool,
    /// Amounts that the service requests; `None` for an amount that is not requested.
    pub requests: Amounts,
    /// `true` if the driver can live-migrate the service.
    pub moves_live: bool,
    /// Measured use of the running service; empty if the service does not run or its use cannot be measured.
    pub measured: Amounts,
    /// `true` if the driver can replace the secondary while the service runs.
    pub replaces_secondary: bool,
    /// Storage pool that the service needs; `None` for no pool.
    pub storage_pool: Option<String>,
    /// The only nodes with the data of the service (storage modes Replicated and Local); `None` if every node that
    /// reaches the pool has the data.
    pub storage_nodes: Option<BTreeSet<NodeName>>,
    /// `true` if the service must never run twice (guarantee 1).
    pub exclusive: bool,
    /// Nodes on which the service failed to start.
    pub failed_nodes: BTreeSet<NodeName>,
    /// Nodes on which the service can never run, such as those where its program is not installed.
    pub incompatible_nodes: BTreeSet<NodeName>,
    /// Node that the service left for maintenance.
    pub maintenance_node: Option<NodeName>,
    /// Tags of the resource, of which [`View::exclusion_tags`] selects the exclusion tags.
    pub tags: BTreeSet<String>,
    /// Priority of the service; services with a higher priority are recovered first.
    pub priority: i32,
    /// `true` if the service is desired: Started is requested, and it is not in Error.
    #[serde(rename = "wanted")]
    pub is_desired: bool,
    /// `true` if Stopped is requested; with `reservation.countStopped` the failover capacity check counts the service as if
    /// it ran.
    pub stopped: bool,
    /// `true` if the service runs and no action on it is in progress, so that it can be moved now.
    pub movable: bool,
    /// `true` if the last move of the service failed and its next attempt is delayed. Services that must be together
    /// with this service move to its node and stay there.
    pub paused: bool,
    /// `true` if the service does not run and cannot start yet, because a service that it depends on does not run.
    /// Other services do not wait for this service.
    pub waits_for_others: bool,
}

impl ServiceFacts {
    /// Returns why the policy of a node does not allow the service; `None` if it does.
    pub fn policy_refusal(&self, node: &NodeFacts) -> Option<&str> {
        self.forbidding_policies.get(&node.policy?).map(String::as_str)
    }

    /// Returns the load of the service for the comparison of nodes: measured amounts in mode Dynamic where available,
    /// otherwise its requests.
    pub fn load(&self, mode: SchedulerMode) -> Amounts {
        match mode {
            SchedulerMode::Basic | SchedulerMode::Static => self.requests,
            SchedulerMode::Dynamic => Amounts {
                cpu: self.measured.cpu.or(self.requests.cpu),
                memory: self.measured.memory.or(self.requests.memory),
                disk: self.requests.disk,
            },
        }
    }

    /// Returns the size of the service: the larger of its shares of the cluster's cpu and memory, in millionths.
    /// Services are scheduled largest first, as in list scheduling, so that the small services at the end balance the
    /// load.
    pub fn size(&self, mode: SchedulerMode, cluster: &Amounts) -> u64 {
        let load = self.load(mode);
        let share = |load: Option<Quantity>, all: Option<Quantity>| {
            let (load, all) = (load?.milli(), all?.milli());
            u64::try_from(load.saturating_mul(1_000_000).checked_div(all)?).ok()
        };
        share(load.cpu, cluster.cpu).max(share(load.memory, cluster.memory)).unwrap_or_default()
    }

    /// Returns `true` if any part of [`ServiceFacts::load`] in this mode was measured.
    pub fn is_measured(&self, mode: SchedulerMode) -> bool {
        match mode {
            SchedulerMode::Basic | SchedulerMode::Static => false,
            SchedulerMode::Dynamic => self.measured != Amounts::default(),
        }
    }

    /// Returns the current node of the service or, during a move, the target. `None` if the service uses no node.
    pub fn current_or_target_node(&self) -> Option<&NodeName> {
        let other_node = self.used_nodes.iter().find(|node| Some(*node) != self.node.as_ref());
        other_node.or(self.used_nodes.first())
    }
}

/// Facts about the cluster that affect placement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct View {
    /// Nodes by name.
    pub nodes: BTreeMap<NodeName, NodeFacts>,
    /// Services by resource name.
    pub services: Services,
    /// Groups by name.
    pub groups: BTreeMap<String, GroupSpec>,
    /// Allocation policies by name of the node group; a node group that is missing here is Preferred.
    pub node_groups: BTreeMap<String, AllocationPolicy>,
    /// Active affinity rules.
    pub rules: Rules,
    /// Scheduler settings of the cluster.
    pub settings: SchedulerSpec,
    /// Settings of the failover capacity (N+1) check.
    pub reservation: ReservationSpec,
}

/// One reason that blocks a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The reason as a word.
    pub reason: Reason,
    /// The reason as a sentence, with names and amounts.
    pub message: String,
    /// Suggested action.
    pub remedy: String,
    /// `true` if a service that runs on the node leaves it for this reason; `false` if the reason only prevents new
    /// placements.
    pub evicts_running: bool,
}

/// Serialization of a `Result<(), Reason>`: null for `Ok`, the reason for `Err`.
mod ok_or_reason {
    use super::{Deserialize, Deserializer, Reason, Serialize, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
    pub(super) fn serialize<S: Serializer>(
        value: &Result<(), Reason>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.err().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Result<(), Reason>, D::Error> {
        Ok(Option::<Reason>::deserialize(deserializer)?.map_or(Ok(()), Err))
    }
}

impl View {
    /// Returns the total capacity of all nodes. An unknown amount counts as 0.
    pub fn capacity(&self) -> Amounts {
        sum(self.nodes.values().map(|node| node.capacity))
    }

    /// Returns the tags among these that are exclusion tags: two services with the same exclusion tag must not share a
    /// node.
    pub fn exclusion_tags<'a>(
        &'a self,
        tags: impl IntoIterator<Item = &'a String>,
    ) -> impl Iterator<Item = &'a String> {
        let prefixes = &self.settings.exclusion_tags;
        tags.into_iter().filter(|tag| prefixes.iter().any(|prefix| tag.starts_with(prefix.as_str())))
    }

    /// Returns the services that use a node, by name.
    pub fn users_of(&self, node: &NodeName) -> impl Iterator<Item = (&ResourceName, &ServiceFacts)> {
        let users = self.services.node_use(node).into_iter().flat_map(NodeUse::users);
        users.filter_map(|name| self.services.get_key_value(name))
    }
}
