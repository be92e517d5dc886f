//! The kinds of fault: what each is done to, how long it lasts, and how often it is drawn.

/// What is done to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A node loses its power, and gets it back.
    PowerCut,
    /// A node's link is down.
    LinkCut,
    /// Nothing that a node sends arrives.
    SendsNothing,
    /// Nothing that is sent to a node arrives.
    ReceivesNothing,
    /// A node receives a few kilobytes a second.
    SlowLink,
    /// A node loses a part of what it receives, by chance.
    LossyLink,
    /// A node does not reach the store, and reaches everything else.
    StoreUnreachable,
    /// Nothing that a node sends to the store arrives; what the store sends does.
    StoreUnreachableOneWay,
    /// A node does not reach the controllers, and reaches everything else.
    ControllersUnreachable,
    /// A node does not reach the other nodes, and reaches everything else.
    PeersUnreachable,
    /// All processes of a node are stopped (SIGSTOP), its watchdog daemon too, and continue later: a machine that sleeps.
    MachineSleeps,
    /// A node's watchdog refuses to be petted.
    PetsRefused,
    /// A node's agent is killed, and started again by the service manager.
    AgentKilled,
    /// A node's agent is stopped (SIGSTOP), and goes on later.
    AgentStopped,
    /// A node's agent is asked to end, as an upgrade does, and started again.
    AgentRestarted,
    /// A node's agent is killed, and not started again for a while.
    AgentMissing,
    /// The watchdog's daemon is killed, and started again.
    WatchdogDaemonKilled,
    /// The process of a service is killed.
    ServiceKilled,
    /// The disk of a node's journal is full.
    DiskFull,
    /// Somebody deletes a node's heartbeat key.
    HeartbeatDeleted,
    /// Somebody revokes the lease of a node's heartbeat key.
    LeaseRevoked,
    /// A controller is killed, and started again.
    ControllerKilled,
    /// A controller is stopped (SIGSTOP), and goes on later.
    ControllerStopped,
    /// A controller's link is down.
    ControllerCut,
    /// A controller does not reach the store, and reaches everything else.
    ControllerWithoutStore,
    /// All controllers are restarted in order, one at a time, as an upgrade does.
    ControllersRolled,
    /// All controllers are killed at once, and again when they are back.
    ControllerStorm,
    /// A member of the store loses its power, and gets it back.
    MemberLost,
    /// A member of the store is stopped (SIGSTOP), and goes on later.
    MemberStopped,
    /// A member of the store's link is down.
    MemberCut,
    /// The store's leader hands over to another member.
    StoreLeaderMoved,
    /// The store's leader is paused, cut off from its peers, and goes on: it does not know that it was deposed.
    StoreLeaderIsolated,
    /// The store forgets its history.
    Compaction,
    /// The store is full, until somebody makes room.
    StoreFull,
    /// All members of the store are stopped.
    StoreLost,
}

/// What a fault is done to; while it lasts, no other fault is done to the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// One of the nodes.
    Node,
    /// One of the controllers.
    Controller,
    /// All controllers.
    Controllers,
    /// One member of the store.
    Member,
    /// The store as a whole.
    Store,
    /// One of the services.
    Service,
}

impl Kind {
    /// Every kind.
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

    /// Its name in reports.
    pub fn title(self) -> &'static str {
        match self {
            Kind::PowerCut => "node: power cut",
            Kind::LinkCut => "node: link cut",
            Kind::SendsNothing => "node: sends nothing",
            Kind::ReceivesNothing => "node: receives nothing",
            Kind::SlowLink => "node: slow link",
            Kind::LossyLink => "node: lossy link",
            Kind::StoreUnreachable => "node: store unreachable",
            Kind::StoreUnreachableOneWay => "node: store unreachable, one way",
            Kind::ControllersUnreachable => "node: controllers unreachable",
            Kind::PeersUnreachable => "node: other nodes unreachable",
            Kind::MachineSleeps => "node: all processes stopped for a while",
            Kind::PetsRefused => "watchdog: refuses pets",
            Kind::AgentKilled => "agent: killed",
            Kind::AgentStopped => "agent: stopped for a while",
            Kind::AgentRestarted => "agent: restarted in order",
            Kind::AgentMissing => "agent: killed, missing for a while",
            Kind::WatchdogDaemonKilled => "watchdog daemon: killed",
            Kind::ServiceKilled => "service: killed",
            Kind::DiskFull => "node: disk full",
            Kind::HeartbeatDeleted => "node: heartbeat key deleted",
            Kind::LeaseRevoked => "node: lease revoked",
            Kind::ControllerKilled => "controller: killed",
            Kind::ControllerStopped => "controller: stopped for a while",
            Kind::ControllerCut => "controller: link cut",
            Kind::ControllerWithoutStore => "controller: store unreachable",
            Kind::ControllersRolled => "controllers: restarted one at a time",
            Kind::ControllerStorm => "controllers: all killed, twice",
            Kind::MemberLost => "store: member lost",
            Kind::MemberStopped => "store: member stopped for a while",
            Kind::MemberCut => "store: member's link cut",
            Kind::StoreLeaderMoved => "store: leader moved",
            Kind::StoreLeaderIsolated => "store: leader paused and isolated",
            Kind::Compaction => "store: compaction",
            Kind::StoreFull => "store: full",
            Kind::StoreLost => "store: all members stopped",
        }
    }

    /// What it is done to.
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

    /// Shortest and longest time that it lasts, in milliseconds; `None`: it is done in a moment.
    ///
    /// The longest ones are longer than the fast profile's W of 9.1 s, so that all of the protocol is run through.
    pub fn lasts_ms(self) -> Option<(u64, u64)> {
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

    /// How often it is drawn, in relation to the others. What takes everything down at once is rare: in between there must be
    /// something to disturb.
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
