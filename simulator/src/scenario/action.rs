//! What a step does: the verbs of scenario files.

mod command;
mod place;
mod read;

pub use command::Command;
pub use place::End;

use ha_api_types::record::SleepProtection;
use ha_api_types::time::Millis;
use ha_api_types::usage::Usage;

/// One verb with its objects. `node` may be the word `leader`: the node whose controller leads.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each variant shows its text, which names its fields")]
pub enum Action {
    /// `power N on|off`: a cut, no goodbye.
    Power { node: String, on: bool },
    /// `network N on|off`: cut from store and peers.
    Network { node: String, on: bool },
    /// `reboot N`: in order, as the shutdown policy says.
    Reboot { node: String },
    /// `shutdown N`: in order, as the shutdown policy says.
    Shutdown { node: String },
    /// `replace N [clone]`: another machine under the same name, with an empty disk or a copy of the disk; the old one is
    /// switched off.
    Replace { node: String, clone: bool },
    /// `agent N stop|start|restart|kill|hang|resume|upgrade [words]|downgrade`.
    Agent { node: String, verb: ProcessVerb },
    /// `controller N stop|start|restart|kill|hang|resume|upgrade [words]|downgrade`.
    Controller { node: String, verb: ProcessVerb },
    /// `suspend N DURATION`: the whole machine.
    Suspend { node: String, length_ms: Millis },
    /// `clock N rate 1.01`.
    ClockRate { node: String, rate: f64 },
    /// `watchdog N stop DURATION`: its daemon stands still between looking at its clock and the pet that follows.
    Watchdog { node: String, length_ms: Millis },
    /// `plan-time N DURATION`: how long each plan of its controller takes from now on.
    PlanTime { node: String, length_ms: Millis },
    /// `watchdogd N kill|start`: its daemon dies, or is started again.
    WatchdogDaemon { node: String, start: bool },
    /// `pets N fail|fail-counting|ok|reopen`: whether its watchdog device takes pets.
    Pets { node: String, pets: Pets },
    /// `sleep N never|masked|inhibitor|unprotected`: what keeps the machine awake from now on.
    Sleep { node: String, protection: SleepProtection },
    /// `drivers N unknown|known`: whether its agent knows the drivers of services, as a version that was rolled back may not.
    Drivers { node: String, known: bool },
    /// `journal N full|ok|lost|old`: the disk with the agent's journal.
    Journal { node: String, what: JournalFault },
    /// `link A B off|on [one-way]`: packets from A to B, and, unless one-way, from B to A.
    Link { from: End, to: End, on: bool, one_way: bool },
    /// `migration-network N off|on`: the network over which live migrations go.
    MigrationNetwork { node: String, on: bool },
    /// `autostart N R on|off`: whether the service starts when the machine boots.
    Autostart { node: String, resource: String, on: bool },
    /// `driver N slow R DURATION`: orders about the service are carried out that much later, also after the agent's death.
    SlowDriver { node: String, resource: String, length_ms: Millis },
    /// `driver N hang|resume`: the drivers of a node answer nothing, as a libvirtd that hangs.
    Driver { node: String, hangs: bool },
    /// `fence-device N ok|broken`: whether the fence devices of a node do what they are told.
    FenceDevice { node: String, broken: bool },
    /// `store outage DURATION`.
    StoreOutage { length_ms: Millis },
    /// `store leader-change`.
    StoreLeaderChange,
    /// `store leader-pause DURATION`.
    StoreLeaderPause { length_ms: Millis },
    /// `store compact`.
    StoreCompact,
    /// `store snapshot`: a backup is made.
    StoreSnapshot,
    /// `store restore [empty]`: the store is replaced by its last backup, or by an empty one, as `hactl restore` prepares it.
    StoreRestore { empty: bool },
    /// `store latency DURATION`.
    StoreLatency { length_ms: Millis },
    /// `store flaky DURATION`: requests and answers are lost or come seconds late.
    StoreFlaky { length_ms: Millis },
    /// `store full on|off`: etcd has no space left for what is put.
    StoreFull { on: bool },
    /// `store lag N DURATION`: the watches of a node's processes lag behind; requests are answered as ever.
    StoreLag { node: String, length_ms: Millis },
    /// What a user asks of the cluster.
    Command(Command),
    /// `crash R`: its process ends.
    Crash { resource: String },
    /// `load R cpu=2 memory=4Gi`: what the agent measures; `disk` and `network` are bytes a second.
    Load { resource: String, usage: Usage },
    /// `move-by-hand R N`: outside HA.
    MoveByHand { resource: String, node: String },
    /// `start-by-hand R N`: outside HA.
    StartByHand { resource: String, node: String },
    /// `stop-by-hand R`: outside HA.
    StopByHand { resource: String },
}

/// How a watchdog device takes pets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pets {
    /// It takes them.
    #[default]
    Work,
    /// It refuses them and does not count any more: its driver was unbound, or its controller was reset.
    Fail,
    /// It refuses them and counts down.
    FailCounting,
    /// It takes them again once it is opened again: its driver was bound again.
    Reopen,
}

/// What happens to the journal of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalFault {
    /// Writes fail.
    Full,
    /// Writes succeed again.
    Ok,
    /// The file is gone.
    Lost,
    /// The file is the one with which the machine booted.
    Old,
}

/// What can be done to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessVerb {
    /// Ends in order (SIGTERM).
    Stop,
    /// Starts.
    Start,
    /// Stop, then start.
    Restart,
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Hang,
    /// SIGCONT.
    Resume,
    /// Restarts as the next version; with `words` it writes at once what this version cannot read.
    Upgrade {
        /// It does not wait until every reader knows its words.
        words: bool,
    },
    /// Restarts as this version.
    Downgrade,
}

impl Action {
    /// The machine and the service that something happens to: they must be the scenario's own. Most commands name what they
    /// like, since the cluster refuses what does not exist.
    pub(super) fn objects(&self) -> (Option<&str>, Option<&str>) {
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
            // The other end is looked at by `other_machine`.
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

    /// A second machine that something happens to.
    pub(super) fn other_machine(&self) -> Option<&str> {
        if let Action::Link { to, .. } = self { to.node() } else { None }
    }
}

/// `100` of `vm:100`.
pub fn bare(name: &str) -> String {
    ha_api_types::names::bare(name).to_owned()
}
