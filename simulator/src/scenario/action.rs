//! The actions of steps: the verbs of scenario files.

mod command;
mod read;

pub use command::Command;

use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::record::SleepProtection;
use ha_api_types::time::Millis;
use ha_api_types::usage::Usage;

/// A verb with its objects. `node` may be the word `leader`, which means the node whose controller is the leader.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each variant shows its text, which names its fields")]
pub enum Action {
    /// `power N on|off`: off cuts the power without a shutdown.
    Power { node: NodeName, on: bool },
    /// `network N on|off`: off isolates the node from etcd and from its peers.
    Network { node: NodeName, on: bool },
    /// `reboot N`: an orderly reboot, as the shutdown policy defines it.
    Reboot { node: NodeName },
    /// `shutdown N`: an orderly shutdown, as the shutdown policy defines it.
    Shutdown { node: NodeName },
    /// `replace N [clone]`: another machine takes over the name, with an empty disk or a copy of the disk. The old
    /// machine is switched off.
    Replace { node: NodeName, clone: bool },
    /// `agent N stop|start|restart|kill|hang|resume|upgrade [words]|downgrade`.
    Agent { node: NodeName, verb: ProcessVerb },
    /// `controller N stop|start|restart|kill|hang|resume|upgrade [words]|downgrade`.
    Controller { node: NodeName, verb: ProcessVerb },
    /// `suspend N DURATION`: suspends the whole machine.
    Suspend { node: NodeName, duration_ms: Millis },
    /// `clock N rate 1.01`.
    ClockRate { node: NodeName, rate: f64 },
    /// `watchdog N stop DURATION`: the watchdog daemon is paused between reading its clock and the pet that follows.
    Watchdog { node: NodeName, duration_ms: Millis },
    /// `plan-time N DURATION`: sets how long each plan of the node's controller takes from now on.
    PlanTime { node: NodeName, duration_ms: Millis },
    /// `watchdogd N kill|start`: kills or starts the watchdog daemon.
    WatchdogDaemon { node: NodeName, start: bool },
    /// `pets N fail|fail-counting|ok|reopen`: sets whether the watchdog device accepts pets.
    Pets { node: NodeName, pets: PetBehavior },
    /// `sleep N never|masked|inhibitor|unprotected`: sets the machine's sleep protection from now on.
    Sleep { node: NodeName, protection: SleepProtection },
    /// `drivers N unknown|known`: sets whether the agent supports the drivers of the services. An agent may not support
    /// them after a rollback.
    Drivers { node: NodeName, supported: bool },
    /// `journal N full|ok|lost|old`: sets the state of the disk with the agent's journal.
    Journal { node: NodeName, fault: JournalCondition },
    /// `link A B off|on [one-way]`: drops or passes packets from A to B and, unless one-way, also from B to A.
    Link { from: LinkEnd, to: LinkEnd, on: bool, one_way: bool },
    /// `migration-network N off|on`: cuts or restores the network of live migrations.
    MigrationNetwork { node: NodeName, on: bool },
    /// `autostart N R on|off`: sets whether the service starts when the machine boots.
    Autostart { node: NodeName, resource: ResourceName, on: bool },
    /// `driver N slow R DURATION`: the driver executes orders for the service with this delay, even if the agent dies
    /// in the meantime.
    SlowDriver { node: NodeName, resource: ResourceName, duration_ms: Millis },
    /// `driver N hang|resume`: the node's drivers stop answering, such as a hung libvirtd, or answer again.
    Driver { node: NodeName, hangs: bool },
    /// `fence-device N ok|broken|no-effect`: sets the condition of the node's fence devices.
    FenceDevice { node: NodeName, condition: FenceDeviceCondition },
    /// `store outage DURATION`: etcd does not answer for this time.
    StoreOutage { duration_ms: Millis },
    /// `store leader-change`: etcd elects a leader, and commits no write in the meantime.
    StoreLeaderChange,
    /// `store leader-pause DURATION`: etcd's leader is paused and then isolated, and the other members elect a new
    /// leader.
    StoreLeaderPause { duration_ms: Millis },
    /// `store compact`: etcd compacts its history.
    StoreCompact,
    /// `store snapshot`: makes a backup.
    StoreSnapshot,
    /// `store restore [empty]`: replaces the data of etcd with its last backup, or with empty data, as `hactl restore`
    /// prepares them.
    StoreRestore { empty: bool },
    /// `store latency DURATION`: sets the latency of etcd.
    StoreLatency { duration_ms: Millis },
    /// `store flaky DURATION`: requests and answers are lost or seconds late.
    StoreFlaky { duration_ms: Millis },
    /// `store full on|off`: etcd has no space left for puts.
    StoreFull { on: bool },
    /// `store lag N DURATION`: delays the watches of a node's processes. Requests are answered as usual.
    StoreLag { node: NodeName, duration_ms: Millis },
    /// A command that a user sends to the cluster.
    Command(Command),
    /// `crash R`: the process of the service ends.
    Crash { resource: ResourceName },
    /// `load R cpu=2 memory=4Gi`: sets the usage that the agent measures; `disk` and `network` are in bytes per second.
    Load { resource: ResourceName, usage: Usage },
    /// `move-by-hand R N`: moves the service without HA.
    MoveByHand { resource: ResourceName, node: NodeName },
    /// `start-by-hand R N`: starts the service without HA.
    StartByHand { resource: ResourceName, node: NodeName },
    /// `stop-by-hand R`: stops the service without HA.
    StopByHand { resource: ResourceName },
}

/// An end of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkEnd {
    /// The machine with this name.
    Node(NodeName),
    /// etcd, with all its members.
    Store,
    /// Every controller on another machine.
    Controllers,
    /// Every other machine.
    Peers,
}

impl LinkEnd {
    /// Parses an end: a word that names a group, or the name of a machine.
    fn parse(word: &str) -> LinkEnd {
        match word {
            "store" => LinkEnd::Store,
            "controllers" => LinkEnd::Controllers,
            "peers" => LinkEnd::Peers,
            node => LinkEnd::Node(node.into()),
        }
    }

    /// Returns the name of the machine; `None` for etcd and groups.
    fn node(&self) -> Option<&str> {
        match self {
            LinkEnd::Node(node) => Some(node),
            LinkEnd::Store | LinkEnd::Controllers | LinkEnd::Peers => None,
        }
    }
}

/// Behavior of a watchdog device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PetBehavior {
    /// The device accepts pets.
    #[default]
    Accept,
    /// The device refuses pets and its countdown has stopped: its driver was unbound, or its controller was reset.
    Fail,
    /// The device refuses pets and its countdown continues.
    FailCounting,
    /// The device accepts pets after it is opened again, because its driver was bound again.
    Reopen,
}

/// Condition of a node's fence devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceDeviceCondition {
    /// The devices execute their orders.
    Works,
    /// The fence devices of the node fail.
    Broken,
    /// The devices confirm their orders, but switch another machine or no machine.
    WithoutEffect,
}

/// State of an agent's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalCondition {
    /// Writes to the journal fail.
    Full,
    /// Writes to the journal succeed again.
    Works,
    /// The file is missing.
    Lost,
    /// The file has the content that it had when the machine booted.
    Old,
}

/// Operations on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessVerb {
    /// Sends SIGTERM, for an orderly exit.
    Stop,
    /// Starts the process.
    Start,
    /// Stops the process, then starts it.
    Restart,
    /// Sends SIGKILL.
    Kill,
    /// Sends SIGSTOP.
    Hang,
    /// Sends SIGCONT.
    Resume,
    /// Restarts the process as the next version. With `words`, the process immediately writes values that this version
    /// cannot read.
    Upgrade {
        /// `true` if the process writes new values before every reader understands them.
        writes_new_values: bool,
    },
    /// Restarts the process as this version.
    Downgrade,
}

impl Action {
    /// Returns the machine and the service that the action changes, which the scenario must define. Most commands may
    /// name undefined objects, because the cluster refuses them.
    pub(super) fn node_and_resource(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Action::Power { node, .. }
            | Action::Network { node, .. }
            | Action::Reboot { node }
            | Action::Shutdown { node }
            | Action::Replace { node, .. }
            | Action::Agent { node, .. }
            | Action::Controller { node, .. }
            | Action::Suspend { node, .. }
            | Action::ClockRate { node, .. }
            | Action::Watchdog { node, .. }
            | Action::PlanTime { node, .. }
            | Action::WatchdogDaemon { node, .. }
            | Action::Pets { node, .. }
            | Action::Sleep { node, .. }
            | Action::Drivers { node, .. }
            | Action::StoreLag { node, .. }
            | Action::Journal { node, .. }
            | Action::MigrationNetwork { node, .. }
            | Action::Driver { node, .. }
            | Action::FenceDevice { node, .. } => (Some(node), None),
            Action::MoveByHand { resource, node }
            | Action::StartByHand { resource, node }
            | Action::Autostart { node, resource, .. }
            | Action::SlowDriver { node, resource, .. } => (Some(node), Some(resource)),
            // `other_end_node` returns the other end.
            Action::Link { from, .. } => (from.node(), None),
            Action::Crash { resource } | Action::Load { resource, .. } | Action::StopByHand { resource } => {
                (None, Some(resource))
            }
            Action::Command(command) => (command.machine(), None),
            Action::StoreOutage { .. }
            | Action::StoreLeaderChange
            | Action::StoreLeaderPause { .. }
            | Action::StoreCompact
            | Action::StoreSnapshot
            | Action::StoreRestore { .. }
            | Action::StoreLatency { .. }
            | Action::StoreFlaky { .. }
            | Action::StoreFull { .. } => (None, None),
        }
    }

    /// Returns the second machine that the action changes, if any.
    pub(super) fn other_end_node(&self) -> Option<&str> {
        if let Action::Link { to, .. } = self { to.node() } else { None }
    }
}

/// Returns the name without its type: `100` for `vm:100`.
pub fn without_type_prefix(name: &str) -> ResourceName {
    ha_api_types::names::without_type(name).into()
}
