//! The kinds of fault, each with its target, its duration and its frequency.

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
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
    AllProcessesStopped,
    /// A node's watchdog rejects pets.
    WatchdogPetsRejected,
    /// A node's agent is killed, and the service manager restarts it.
    AgentKilled,
    /// A node's agent is stopped (SIGSTOP) and continued later.
    AgentStopped,
    /// A node's agent is restarted cleanly (SIGTERM), as during an upgrade.
    AgentRestarted,
    /// A node's agent is killed and not restarted for a while.
    AgentDisabled,
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
    ControllerLinkCut,
    /// A controller cannot reach etcd, but reaches all other machines.
    ControllerWithoutStore,
    /// All controllers are restarted cleanly, one at a time, as during an upgrade.
    ControllersRestartedInTurn,
    /// All controllers are killed at the same time, and again after their restart.
    AllControllersKilled,
    /// An etcd member loses its power, which is restored later.
    MemberPowerCut,
    /// An etcd member is stopped (SIGSTOP) and continued later.
    MemberStopped,
    /// The link of an etcd member is down.
    MemberLinkCut,
    /// The etcd leader transfers the leadership to another member.
    StoreLeaderMoved,
    /// The etcd leader is paused, isolated from its peers and continued, so it still acts as leader after its peers
    /// have elected another leader.
    StoreLeaderIsolated,
    /// etcd's history is compacted.
    Compaction,
    /// etcd's database is full until space is freed.
    StoreFull,
    /// All etcd members are stopped (SIGSTOP) for a while.
    AllMembersStopped,
}

/// The kind of target of a fault. While a fault lasts, its target gets no other fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultTarget {
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

impl FaultKind {
    /// All kinds, in the order of the report.
    pub const ALL: &'static [FaultKind] = &[
        FaultKind::PowerCut,
        FaultKind::LinkCut,
        FaultKind::SendsNothing,
        FaultKind::ReceivesNothing,
        FaultKind::SlowLink,
        FaultKind::LossyLink,
        FaultKind::StoreUnreachable,
        FaultKind::StoreUnreachableOneWay,
        FaultKind::ControllersUnreachable,
        FaultKind::PeersUnreachable,
        FaultKind::AllProcessesStopped,
        FaultKind::WatchdogPetsRejected,
        FaultKind::AgentKilled,
        FaultKind::AgentStopped,
        FaultKind::AgentRestarted,
        FaultKind::AgentDisabled,
        FaultKind::WatchdogDaemonKilled,
        FaultKind::ServiceKilled,
        FaultKind::DiskFull,
        FaultKind::HeartbeatDeleted,
        FaultKind::LeaseRevoked,
        FaultKind::ControllerKilled,
        FaultKind::ControllerStopped,
        FaultKind::ControllerLinkCut,
        FaultKind::ControllerWithoutStore,
        FaultKind::ControllersRestartedInTurn,
        FaultKind::AllControllersKilled,
        FaultKind::MemberPowerCut,
        FaultKind::MemberStopped,
        FaultKind::MemberLinkCut,
        FaultKind::StoreLeaderMoved,
        FaultKind::StoreLeaderIsolated,
        FaultKind::Compaction,
        FaultKind::StoreFull,
        FaultKind::AllMembersStopped,
    ];

    /// Returns the name of the kind in reports.
    pub fn title(self) -> &'static str {
        match self {
            FaultKind::PowerCut => "node: power cut",
            FaultKind::LinkCut => "node: link cut",
            FaultKind::SendsNothing => "node: sends nothing",
            FaultKind::ReceivesNothing => "node: receives nothing",
            FaultKind::SlowLink => "node: slow link",
            FaultKind::LossyLink => "node: lossy link",
            FaultKind::StoreUnreachable => "node: etcd unreachable",
            FaultKind::StoreUnreachableOneWay => "node: etcd unreachable, one way",
            FaultKind::ControllersUnreachable => "node: controllers unreachable",
            FaultKind::PeersUnreachable => "node: other nodes unreachable",
            FaultKind::AllProcessesStopped => "node: all processes stopped for a while",
            FaultKind::WatchdogPetsRejected => "watchdog: refuses pets",
            FaultKind::AgentKilled => "agent: killed",
            FaultKind::AgentStopped => "agent: stopped for a while",
            FaultKind::AgentRestarted => "agent: restarted cleanly",
            FaultKind::AgentDisabled => "agent: killed, missing for a while",
            FaultKind::WatchdogDaemonKilled => "watchdog daemon: killed",
            FaultKind::ServiceKilled => "service: killed",
            FaultKind::DiskFull => "node: disk full",
            FaultKind::HeartbeatDeleted => "node: heartbeat key deleted",
            FaultKind::LeaseRevoked => "node: lease revoked",
            FaultKind::ControllerKilled => "controller: killed",
            FaultKind::ControllerStopped => "controller: stopped for a while",
            FaultKind::ControllerLinkCut => "controller: link cut",
            FaultKind::ControllerWithoutStore => "controller: etcd unreachable",
            FaultKind::ControllersRestartedInTurn => "controllers: restarted one at a time",
            FaultKind::AllControllersKilled => "controllers: all killed, twice",
            FaultKind::MemberPowerCut => "etcd: member lost",
            FaultKind::MemberStopped => "etcd: member stopped for a while",
            FaultKind::MemberLinkCut => "etcd: member's link cut",
            FaultKind::StoreLeaderMoved => "etcd: leader moved",
            FaultKind::StoreLeaderIsolated => "etcd: leader paused and isolated",
            FaultKind::Compaction => "etcd: compaction",
            FaultKind::StoreFull => "etcd: full",
            FaultKind::AllMembersStopped => "etcd: all members stopped",
        }
    }

    /// Returns the kind of target.
    pub fn target(self) -> FaultTarget {
        match self {
            FaultKind::PowerCut
            | FaultKind::LinkCut
            | FaultKind::SendsNothing
            | FaultKind::ReceivesNothing
            | FaultKind::SlowLink
            | FaultKind::LossyLink
            | FaultKind::StoreUnreachable
            | FaultKind::StoreUnreachableOneWay
            | FaultKind::ControllersUnreachable
            | FaultKind::PeersUnreachable
            | FaultKind::AllProcessesStopped
            | FaultKind::WatchdogPetsRejected
            | FaultKind::AgentKilled
            | FaultKind::AgentStopped
            | FaultKind::AgentRestarted
            | FaultKind::AgentDisabled
            | FaultKind::WatchdogDaemonKilled
            | FaultKind::DiskFull
            | FaultKind::HeartbeatDeleted
            | FaultKind::LeaseRevoked => FaultTarget::Node,
            FaultKind::ServiceKilled => FaultTarget::Service,
            FaultKind::ControllerKilled
            | FaultKind::ControllerStopped
            | FaultKind::ControllerLinkCut
            | FaultKind::ControllerWithoutStore => FaultTarget::Controller,
            FaultKind::AllControllersKilled | FaultKind::ControllersRestartedInTurn => {
                FaultTarget::Controllers
            }
            FaultKind::MemberPowerCut | FaultKind::MemberStopped | FaultKind::MemberLinkCut => {
                FaultTarget::Member
            }
            FaultKind::StoreLeaderMoved
            | FaultKind::StoreLeaderIsolated
            | FaultKind::Compaction
            | FaultKind::StoreFull
            | FaultKind::AllMembersStopped => FaultTarget::Store,
        }
    }

    /// Returns the shortest and longest duration in milliseconds; `None` for an instantaneous fault.
    ///
    /// The longest durations exceed W of the fast profile (9.1 s), so campaigns exercise the whole protocol.
    pub fn duration_range_ms(self) -> Option<(u64, u64)> {
        match self {
            FaultKind::AgentKilled
            | FaultKind::AgentRestarted
            | FaultKind::WatchdogDaemonKilled
            | FaultKind::ServiceKilled
            | FaultKind::HeartbeatDeleted
            | FaultKind::LeaseRevoked
            | FaultKind::ControllerKilled
            | FaultKind::ControllersRestartedInTurn
            | FaultKind::StoreLeaderMoved
            | FaultKind::Compaction => None,
            FaultKind::PowerCut
            | FaultKind::LinkCut
            | FaultKind::SendsNothing
            | FaultKind::ReceivesNothing
            | FaultKind::StoreUnreachable
            | FaultKind::StoreUnreachableOneWay
            | FaultKind::ControllersUnreachable
            | FaultKind::PeersUnreachable
            | FaultKind::AgentDisabled => Some((500, 20_000)),
            FaultKind::SlowLink | FaultKind::LossyLink | FaultKind::DiskFull => Some((2_000, 20_000)),
            FaultKind::AgentStopped | FaultKind::AllProcessesStopped => Some((200, 15_000)),
            FaultKind::WatchdogPetsRejected => Some((500, 10_000)),
            FaultKind::ControllerStopped
            | FaultKind::ControllerLinkCut
            | FaultKind::ControllerWithoutStore => Some((500, 15_000)),
            FaultKind::AllControllersKilled => Some((500, 3_000)),
            FaultKind::MemberPowerCut
            | FaultKind::MemberStopped
            | FaultKind::MemberLinkCut
            | FaultKind::StoreLeaderIsolated => Some((500, 12_000)),
            FaultKind::StoreFull => Some((1_000, 6_000)),
            FaultKind::AllMembersStopped => Some((200, 8_000)),
        }
    }

    /// Returns the relative frequency of the kind. A fault that disrupts the whole cluster is rare, so that the cluster recovers
    /// in between.
    pub fn weight(self) -> u32 {
        match self {
            FaultKind::StoreFull
            | FaultKind::AllMembersStopped
            | FaultKind::AllControllersKilled
            | FaultKind::ControllersRestartedInTurn => 2,
            FaultKind::StoreLeaderIsolated
            | FaultKind::MemberPowerCut
            | FaultKind::MemberStopped
            | FaultKind::MemberLinkCut => 3,
            FaultKind::Compaction
            | FaultKind::StoreLeaderMoved
            | FaultKind::SlowLink
            | FaultKind::LossyLink
            | FaultKind::StoreUnreachable
            | FaultKind::StoreUnreachableOneWay
            | FaultKind::ControllersUnreachable
            | FaultKind::PeersUnreachable
            | FaultKind::AllProcessesStopped
            | FaultKind::WatchdogPetsRejected
            | FaultKind::ControllerWithoutStore => 4,
            FaultKind::PowerCut
            | FaultKind::LinkCut
            | FaultKind::SendsNothing
            | FaultKind::ReceivesNothing
            | FaultKind::AgentKilled
            | FaultKind::AgentStopped
            | FaultKind::AgentRestarted
            | FaultKind::AgentDisabled
            | FaultKind::WatchdogDaemonKilled
            | FaultKind::ServiceKilled
            | FaultKind::DiskFull
            | FaultKind::HeartbeatDeleted
            | FaultKind::LeaseRevoked
            | FaultKind::ControllerKilled
            | FaultKind::ControllerStopped
            | FaultKind::ControllerLinkCut => 6,
        }
    }
}
