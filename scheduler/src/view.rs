//! What the scheduler looks at: nodes, services, groups and rules, as plain facts.

use crate::rules::Rules;
use crate::services::{NodeUse, Services};
use ha_api_types::cluster::{ReservationSpec, SchedulerMode, SchedulerSpec};
use ha_api_types::node::AllocationPolicy;
use ha_api_types::placement::GroupSpec;
use ha_api_types::quantity::Amounts;
use ha_api_types::reason::Reason;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

/// A node, as far as placement cares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeFacts {
    /// Whether it is Online; otherwise why not.
    #[serde(rename = "notOnline", with = "unless", skip_serializing_if = "Result::is_ok")]
    pub online: Result<(), Reason>,
    /// In maintenance.
    pub maintenance: bool,
    /// Takes new services.
    pub schedulable: bool,
    /// Whether an exclusive service may be permitted there: it can be proven dead. Otherwise why not.
    #[serde(rename = "notFenceable", with = "unless", skip_serializing_if = "Result::is_ok")]
    pub fenceable: Result<(), Reason>,
    /// Its watchdog refuses pets, so that no later loss of it could be proven: exclusive services leave it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub watchdog_failed: bool,
    /// Drivers that its agent can serve.
    pub drivers: BTreeSet<String>,
    /// Storage pools that it reaches.
    pub storage_pools: BTreeSet<String>,
    /// What it has; an amount that is not known does not limit.
    pub capacity: Amounts,
    /// What is used outside hactl: as declared, else as measured.
    pub reserved: Amounts,
    /// Its node group.
    pub node_group: Option<String>,
}

impl Default for NodeFacts {
    fn default() -> NodeFacts {
        NodeFacts {
            online: Ok(()),
            maintenance: false,
            schedulable: true,
            fenceable: Ok(()),
            watchdog_failed: false,
            drivers: BTreeSet::new(),
            storage_pools: BTreeSet::new(),
            capacity: Amounts::default(),
            reserved: Amounts::default(),
            node_group: None,
        }
    }
}

/// A service, as far as placement cares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, and all combinations occur")]
pub struct ServiceFacts {
    /// Where it is now.
    pub node: Option<String>,
    /// Every node that it uses: where it is and where it is moving. Confirmed-stopped, disabled, ignored and error
    /// services use none.
    pub uses: BTreeSet<String>,
    /// What a node must list among its drivers ([`ha_api_types::driver::DriverSpec::capability`]); `None` when the spec is not
    /// valid.
    pub driver: Option<String>,
    /// The group that it names.
    pub group: Option<String>,
    /// It goes back to a preferred node.
    pub failback: bool,
    /// What it needs.
    pub requests: Amounts,
    /// Its driver can move it without stopping it.
    pub moves_live: bool,
    /// What it was measured to use where it runs; nothing for one that does not run, or cannot be measured.
    pub measured: Amounts,
    /// Its driver can give it another secondary while it runs.
    pub replaces_secondary: bool,
    /// The storage pool that it needs.
    pub storage_pool: Option<String>,
    /// The only nodes with its data (Replicated, Local); `None`: every node that reaches the pool.
    pub storage_nodes: Option<BTreeSet<String>>,
    /// Whether promise 1 covers it.
    pub exclusive: bool,
    /// Nodes where it failed to start.
    pub failed_nodes: BTreeSet<String>,
    /// Nodes where it can never run (not installed).
    pub never_nodes: BTreeSet<String>,
    /// The node that it left for maintenance.
    pub maintenance_node: Option<String>,
    /// Its tags.
    pub tags: BTreeSet<String>,
    /// Higher is recovered first.
    pub priority: i32,
    /// It is to run: Started is requested, and it is not in Error.
    pub wanted: bool,
    /// Stopped is requested: the reservation check counts it as if it ran.
    pub stopped: bool,
    /// It runs, and nothing is under way with it: it can be moved now.
    pub movable: bool,
    /// Its last move failed, and it is not moved again yet: those that must be with it come to it and stay.
    pub paused: bool,
    /// It does not run, and cannot start yet: a service that starts before it does not run. No other service waits for its
    /// turn.
    pub waits_for_others: bool,
}

impl ServiceFacts {
    /// What it counts with when nodes are compared: in mode Dynamic what was measured, as far as it was; else its requests.
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

    /// Whether any of what it counts with in this mode was measured.
    pub fn is_measured(&self, mode: SchedulerMode) -> bool {
        match mode {
            SchedulerMode::Basic | SchedulerMode::Static => false,
            SchedulerMode::Dynamic => self.measured != Amounts::default(),
        }
    }

    /// The node where it is or will be once its move has ended; `None`: it uses no node.
    pub fn heading(&self) -> Option<&str> {
        let away = self.uses.iter().find(|node| Some(*node) != self.node.as_ref());
        away.or(self.uses.first()).map(String::as_str)
    }
}

/// The cluster, as far as placement cares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct View {
    /// Nodes by name.
    pub nodes: BTreeMap<String, NodeFacts>,
    /// Services by resource name.
    pub services: Services,
    /// Groups by name.
    pub groups: BTreeMap<String, GroupSpec>,
    /// Policies of node groups by name.
    pub node_groups: BTreeMap<String, AllocationPolicy>,
    /// Affinity rules that are in force.
    pub rules: Rules,
    /// Settings.
    pub settings: SchedulerSpec,
    /// Settings of the reservation check.
    pub reservation: ReservationSpec,
}

/// One reason against a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// In a word.
    pub reason: Reason,
    /// In a sentence, with names and amounts.
    pub message: String,
    /// What would help.
    pub remedy: String,
    /// A service that runs there leaves because of it. What does not drives nobody away, it only keeps others from coming.
    pub drives: bool,
}

/// What holds unless there is a reason against it, written as that reason.
mod unless {
    use super::{Deserialize, Deserializer, Reason, Serialize, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
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
    /// Those of these tags of which two services on one node are a clash.
    pub fn exclusion_tags<'a>(
        &'a self,
        tags: impl IntoIterator<Item = &'a String>,
    ) -> impl Iterator<Item = &'a String> {
        let prefixes = &self.settings.exclusion_tags;
        tags.into_iter().filter(|tag| prefixes.iter().any(|prefix| tag.starts_with(prefix.as_str())))
    }

    /// Services that use a node, without one.
    pub fn users_of<'a>(
        &'a self,
        node: &'a str,
        without: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a ServiceFacts)> {
        let users = self.services.on(node).into_iter().flat_map(NodeUse::users);
        let others = users.filter(move |name| *name != without);
        others
            .filter_map(|name| self.services.get_key_value(name).map(|(name, facts)| (name.as_str(), facts)))
    }
}
