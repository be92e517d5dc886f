//! The kinds of fault, each with its target, its duration and its frequency.

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A node loses its power, which is restored later.
    PowerCut,
    /// A node's link is down.
    LinkCut,
    /// All packets that a node sends are dropped.
    SendsNothing,
    /// All packets to a node are dropped.
    ReceivesNothing,
    /// A node receives only a few kilobytes a second.
    SlowLink,
    /// A node loses a random part of the packets that it receives.
    LossyLink,
    /// A node cannot reach etcd, but reaches all other machines.
    StoreUnreachable,
    /// All packets from a node to etcd are dropped; the packets from etcd arrive.
    StoreUnreachableOneWay,
    /// A node cannot reach the controllers, but reaches all other machines.
    ControllersUnreachable,
    /// A node cannot reach the other nodes, but reaches all other machines.
    PeersUnreachable,
    /// All processes of a node, including its watchdog daemon, are stopped (SIGSTOP) and continued later, like a suspended
    /// machine.
    MachineSleeps,
    /// A node's watchdog rejects pets.
    PetsRefused,
    /// A node's agent is killed, and the service manager restarts it.
    AgentKilled,
    /// A node's agent is stopped (SIGSTOP) and continued later.
    AgentStopped,
    /// A node's agent is restarted cleanly (SIGTERM), as during an upgrade.
    AgentRestarted,
    /// A node's agent is killed and not restarted for a while.
    AgentMissing,
    /// A node's watchdog daemon is killed and restarted.
    WatchdogDaemonKilled,
    /// The process of a service is killed.
    ServiceKilled,
    /// The disk of a node's journal is full for a while.
    DiskFull,
    /// Another client of etcd deletes a node's heartbeat key.
    HeartbeatDeleted,
    /// Another client of etcd revokes the lease of a node's heartbeat key.
    LeaseRevoked,
    /// A controller is killed and restarted.
    ControllerKilled,
    /// A controller is stopped (SIGSTOP) and continued later.
    ControllerStopped,
    /// A controller's link is down.
    ControllerCut,
    /// A controller cannot reach etcd, but reaches all other machines.
    ControllerWithoutStore,
    /// All controllers are restarted cleanly, one at a time, as during an upgrade.
    ControllersRolled,
    /// All controllers are killed at the same time, and again after their restart.
    ControllerStorm,
    /// An etcd member loses its power, which is restored later.
    MemberLost,
    /// An etcd member is stopped (SIGSTOP) and continued later.
    MemberStopped,
    /// The link of an etcd member is down.
    MemberCut,
    /// The etcd leader transfers the leadership to another member.
    StoreLeaderMoved,
    /// The etcd leader is paused, isolated from its peers and continued, so it still acts as leader after its peers
    /// have elected another one.
    StoreLeaderIsolated,
    /// etcd's history is compacted.
    Compaction,
    /// etcd's database is full until space is freed.
    StoreFull,
    /// All etcd members are stopped (SIGSTOP) for a while.
    StoreLost,
}

/// The kind of target of a fault. While a fault lasts, its target gets no other fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// One of the nodes.
    Node,
    /// One of the controllers.
    Controller,
    /// All controllers.
    Controllers,
    /// One etcd member.
    Member,
    /// etcd as a whole.
    Store,
    /// One of the services.
    Service,
}

impl Kind {
    /// All kinds, in the order of the report.
    pub const ALL: &'static [Kind] = &[
        Kind::PowerCut,
        Kind::LinkCut,
        Kind::SendsNothing,
        Kind::ReceivesNothing,
        Kind::SlowLink,
        Kind::LossyLink,
        Kind::StoreUnreachable,
        Kind::StoreUnreachableOneWay,
        Kind::ControllersUnreachable,
        Kind::PeersUnreachable,
        Kind::MachineSleeps,
        Kind::PetsRefused,
        Kind::AgentKilled,
        Kind::AgentStopped,
        Kind::AgentRestarted,
        Kind::AgentMissing,
        Kind::WatchdogDaemonKilled,
        Kind::ServiceKilled,
        Kind::DiskFull,
        Kind::HeartbeatDeleted,
        Kind::LeaseRevoked,
        Kind::ControllerKilled,
        Kind::ControllerStopped,
        Kind::ControllerCut,
        Kind::ControllerWithoutStore,
        Kind::ControllersRolled,
        Kind::ControllerStorm,
        Kind::MemberLost,
        Kind::MemberStopped,
        Kind::MemberCut,
        Kind::StoreLeaderMoved,
        Kind::StoreLeaderIsolated,
        Kind::Compaction,
        Kind::StoreFull,
        Kind::StoreLost,
    ];

    /// Returns the name of the kind in reports.
    pub fn title(self) -> &'static str {
        match self {
            Kind::PowerCut => "node: power cut",
            Kind::LinkCut => "node: link cut",
            Kind::SendsNothing => "node: sends nothing",
            Kind::ReceivesNothing => "node: receives nothing",
            Kind::SlowLink => "node: slow link",
            Kind::LossyLink => "node: lossy link",
            Kind::StoreUnreachable => "node: etcd unreachable",
            Kind::StoreUnreachableOneWay => "node: etcd unreachable, one way",
            Kind::ControllersUnreachable => "node: controllers unreachable",
            Kind::PeersUnreachable => "node: other nodes unreachable",
            Kind::MachineSleeps => "node: all processes stopped for a while",
            Kind::PetsRefused => "watchdog: refuses pets",
            Kind::AgentKilled => "agent: killed",
            Kind::AgentStopped => "agent: stopped for a while",
            Kind::AgentRestarted => "agent: restarted cleanly",
            Kind::AgentMissing => "agent: killed, missing for a while",
            Kind::WatchdogDaemonKilled => "watchdog daemon: killed",
            Kind::ServiceKilled => "service: killed",
            Kind::DiskFull => "node: disk full",
            Kind::HeartbeatDeleted => "node: heartbeat key deleted",
            Kind::LeaseRevoked => "node: lease revoked",
            Kind::ControllerKilled => "controller: killed",
            Kind::ControllerStopped => "controller: stopped for a while",
            Kind::ControllerCut => "controller: link cut",
            Kind::ControllerWithoutStore => "controller: etcd unreachable",
            Kind::ControllersRolled => "controllers: restarted one at a time",
            Kind::ControllerStorm => "controllers: all killed, twice",
            Kind::MemberLost => "etcd: member lost",
            Kind::MemberStopped => "etcd: member stopped for a while",
            Kind::MemberCut => "etcd: member's link cut",
            Kind::StoreLeaderMoved => "etcd: leader moved",
            Kind::StoreLeaderIsolated => "etcd: leader paused and isolated",
            Kind::Compaction => "etcd: compaction",
            Kind::StoreFull => "etcd: full",
            Kind::StoreLost => "etcd: all members stopped",
        }
    }

    /// Returns the kind of target.
    pub fn target(self) -> Target {
        match self {
            Kind::PowerCut
            | Kind::LinkCut
            | Kind::SendsNothing
            | Kind::ReceivesNothing
            | Kind::SlowLink
            | Kind::LossyLink
            | Kind::StoreUnreachable
            | Kind::StoreUnreachableOneWay
            | Kind::ControllersUnreachable
            | Kind::PeersUnreachable
            | Kind::MachineSleeps
            | Kind::PetsRefused
            | Kind::AgentKilled
            | Kind::AgentStopped
            | Kind::AgentRestarted
            | Kind::AgentMissing
            | Kind::WatchdogDaemonKilled
            | Kind::DiskFull
            | Kind::HeartbeatDeleted
            | Kind::LeaseRevoked => Target::Node,
            Kind::ServiceKilled => Target::Service,
            Kind::ControllerKilled
            | Kind::ControllerStopped
            | Kind::ControllerCut
            | Kind::ControllerWithoutStore => Target::Controller,
            Kind::ControllerStorm | Kind::ControllersRolled => Target::Controllers,
            Kind::MemberLost | Kind::MemberStopped | Kind::MemberCut => Target::Member,
            Kind::StoreLeaderMoved
            | Kind::StoreLeaderIsolated
            | Kind::Compaction
            | Kind::StoreFull
            | Kind::StoreLost => Target::Store,
        }
    }

    /// Returns the shortest and longest duration in milliseconds; `None` for an instantaneous fault.
    ///
    /// The longest durations exceed W of the fast profile (9.1 s), so campaigns exercise the whole protocol.
    pub fn duration_range_ms(self) -> Option<(u64, u64)> {
        match self {
            Kind::AgentKilled
            | Kind::AgentRestarted
            | Kind::WatchdogDaemonKilled
            | Kind::ServiceKilled
            | Kind::HeartbeatDeleted
            | Kind::LeaseRevoked
            | Kind::ControllerKilled
            | Kind::ControllersRolled
            | Kind::StoreLeaderMoved
            | Kind::Compaction => None,
            Kind::PowerCut
            | Kind::LinkCut
            | Kind::SendsNothing
            | Kind::ReceivesNothing
            | Kind::StoreUnreachable
            | Kind::StoreUnreachableOneWay
            | Kind::ControllersUnreachable
            | Kind::PeersUnreachable
            | Kind::AgentMissing => Some((500, 20_000)),
            Kind::SlowLink | Kind::LossyLink | Kind::DiskFull => Some((2_000, 20_000)),
            Kind::AgentStopped | Kind::MachineSleeps => Some((200, 15_000)),
            Kind::PetsRefused => Some((500, 10_000)),
            Kind::ControllerStopped | Kind::ControllerCut | Kind::ControllerWithoutStore => {
                Some((500, 15_000))
            }
            Kind::ControllerStorm => Some((500, 3_000)),
            Kind::MemberLost | Kind::MemberStopped | Kind::MemberCut | Kind::StoreLeaderIsolated => {
                Some((500, 12_000))
            }
            Kind::StoreFull => Some((1_000, 6_000)),
            Kind::StoreLost => Some((200, 8_000)),
        }
    }

    /// Returns the relative frequency of the kind. A fault that disrupts the whole cluster is rare, so that the cluster recovers
    /// in between.
    pub fn weight(self) -> u32 {
        match self {
            Kind::StoreFull | Kind::StoreLost | Kind::ControllerStorm | Kind::ControllersRolled => 2,
            Kind::StoreLeaderIsolated | Kind::MemberLost | Kind::MemberStopped | Kind::MemberCut => 3,
            Kind::Compaction
            | Kind::StoreLeaderMoved
            | Kind::SlowLink
            | Kind::LossyLink
            | Kind::StoreUnreachable
            | Kind::StoreUnreachableOneWay
            | Kind::ControllersUnreachable
            | Kind::PeersUnreachable
            | Kind::MachineSleeps
            | Kind::PetsRefused
            | Kind::ControllerWithoutStore => 4,
            Kind::PowerCut
            | Kind::LinkCut
            | Kind::SendsNothing
            | Kind::ReceivesNothing
            | Kind::AgentKilled
            | Kind::AgentStopped
            | Kind::AgentRestarted
            | Kind::AgentMissing
            | Kind::WatchdogDaemonKilled
            | Kind::ServiceKilled
            | Kind::DiskFull
            | Kind::HeartbeatDeleted
            | Kind::LeaseRevoked
            | Kind::ControllerKilled
            | Kind::ControllerStopped
            | Kind::ControllerCut => 6,
        }
    }
}
