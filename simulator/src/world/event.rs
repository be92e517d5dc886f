//! Events of the simulated world.

use super::hold::HoldQuestion;
use super::link::{Purpose, Request, Token};
use super::process::{Client, Generation};
use ha_api_types::id::{NodeName, Revision, Term};
use ha_api_types::record::{HoldAnswer, HoldRequest};
use ha_api_types::time::Millis;
use ha_controller::core::notifications::deliveries::Delivery;
use ha_controller::core::{FencerRun, FullReadId};
use ha_node_agent::core::{CommandId, DriverEvent, Journal, JournalWriteId, WatchdogRequestId};
use ha_node_agent::watchdog::protocol;

/// The sender of a request.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// Role and node of the process.
    pub client: Client,
    /// Generation of the process, which distinguishes it from earlier and later processes of that role and node.
    pub generation: Generation,
    /// Virtual time at which the request was sent.
    pub sent: Millis,
    /// Term in which the controller acted as leader at that time.
    pub term: Option<Term>,
}

/// An event at a virtual time.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "events live in a queue of boxed nodes anyway")]
pub(crate) enum Event {
    /// A process handles its deadline, unless another event woke the process after this event was scheduled.
    Wake(Client, Generation, Millis),
    /// A request reaches etcd.
    Arrive { sender: Sender, token: Token, purpose: Purpose, request: Request },
    /// An answer of etcd reaches a process.
    Answer {
        client: Client,
        generation: Generation,
        token: Token,
        purpose: Purpose,
        answer: super::link::Answer,
    },
    /// A request has timed out.
    Timeout { client: Client, generation: Generation, token: Token, purpose: Purpose },
    /// A process reads the changes of its watch.
    Watch(Client, Generation),
    /// A process reads all keys again, once a minute.
    Relist(Client, Generation),
    /// A process retries a failed read. For a controller, the number is the newest refresh that this read answers.
    SyncAgain(Client, Generation, FullReadId),
    /// Leases may have expired.
    LeasesExpire,
    /// A journal reaches the disk.
    JournalOnDisk { node: NodeName, generation: Generation, id: JournalWriteId, journal: Box<Journal> },
    /// A driver's command ends.
    CommandEnds { node: NodeName, generation: Generation, id: CommandId },
    /// A request reaches the watchdog daemon.
    ToWatchdog {
        node: NodeName,
        boot: u64,
        generation: Generation,
        id: WatchdogRequestId,
        request: Box<protocol::Request>,
    },
    /// A reply of the watchdog daemon reaches the agent.
    FromWatchdog {
        node: NodeName,
        generation: Generation,
        id: Option<WatchdogRequestId>,
        reply: Box<protocol::Reply>,
    },
    /// The watchdog daemon reads its clock.
    WatchdogWake { node: NodeName, boot: u64, at: Millis },
    /// An agent connects to a watchdog daemon that was started.
    WatchdogConnects { node: NodeName, generation: Generation },
    /// A controller's plan is made.
    PlanMade { node: NodeName, generation: Generation },
    /// A paused watchdog daemon continues.
    WatchdogResumes { node: NodeName, boot: u64 },
    /// The countdown of the watchdog device may have expired.
    DeviceCheckDue { node: NodeName, boot: u64, at: Millis },
    /// The server of a slow driver executes an order.
    DriverRequestDue { node: NodeName, boot: u64, request: u64 },
    /// An agent discovers that a service was changed by hand.
    ByHand { node: NodeName, generation: Generation, event: DriverEvent },
    /// A machine has booted.
    Booted { node: NodeName, boot: u64 },
    /// A suspended machine wakes.
    Awake { node: NodeName },
    /// A run of a fence agent ends.
    FencerDone { node: NodeName, generation: Generation, run: Box<FencerRun> },
    /// A notification reaches its target or fails.
    Delivery { node: NodeName, generation: Generation, delivery: Box<Delivery> },
    /// An agent's request for hold reaches a controller.
    HoldAsked { question: HoldQuestion, request: Box<HoldRequest> },
    /// A controller's answer reaches an agent, or the agent's wait has timed out.
    HoldAnswered { question: HoldQuestion, answer: Result<HoldAnswer, String> },
    /// A machine completes its shutdown.
    Down { node: NodeName, boot: u64 },
    /// A process of a machine is started.
    StartProcess { client: Client, boot: u64 },
    /// etcd compacts its history up to this revision, as its settings demand every few minutes.
    Compact(Revision),
    /// etcd answers again after an outage.
    StoreAvailable,
    /// The next step of the scenario may be due.
    Step,
}
