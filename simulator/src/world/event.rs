//! Everything that can happen in the simulated world.

use super::hold::Question;
use super::link::{Ask, Request, Token};
use super::process::{Generation, Who};
use ha_api_types::record::{HoldAnswer, HoldRequest, Revision};
use ha_api_types::time::Millis;
use ha_controller::core::FencerRun;
use ha_controller::core::notifications::deliveries::Delivery;
use ha_node_agent::core::{CommandId, DriverEvent, Journal, JournalWriteId, WatchdogRequestId};
use ha_node_agent::watchdog::protocol;

/// Who sent a request, when, and as what.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// The process.
    pub who: Who,
    /// Which process of that name.
    pub generation: Generation,
    /// When it was sent, virtual time.
    pub sent: Millis,
    /// The term that a controller believed in then.
    pub term: Option<Revision>,
}

/// Something that happens at a virtual time.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "events live in a queue of boxed nodes anyway")]
pub(crate) enum Event {
    /// A process looks at its clock, unless it has been woken otherwise since this was scheduled for that time.
    Wake(Who, Generation, Millis),
    /// A request reaches the store.
    Arrive { sender: Sender, token: Token, ask: Ask, request: Request },
    /// An answer reaches a process.
    Answer { who: Who, generation: Generation, token: Token, ask: Ask, answer: super::link::Answer },
    /// Nobody answered in time.
    Timeout { who: Who, generation: Generation, token: Token, ask: Ask },
    /// A process looks what changed in the store.
    Watch(Who, Generation),
    /// A process reads everything again, as it does every minute.
    Relist(Who, Generation),
    /// A reading that failed is tried again; for a controller: the newest refresh that it answers.
    SyncAgain(Who, Generation, u64),
    /// Leases run out.
    LeasesExpire,
    /// A journal reaches the disk.
    JournalOnDisk { node: String, generation: Generation, id: JournalWriteId, journal: Box<Journal> },
    /// A driver's command ends.
    CommandEnds { node: String, generation: Generation, id: CommandId },
    /// A request reaches the watchdog daemon.
    ToWatchdog {
        node: String,
        boot: u64,
        generation: Generation,
        id: WatchdogRequestId,
        request: Box<protocol::Request>,
    },
    /// A reply of the watchdog daemon reaches the agent.
    FromWatchdog {
        node: String,
        generation: Generation,
        id: Option<WatchdogRequestId>,
        reply: Box<protocol::Reply>,
    },
    /// The watchdog daemon looks at its clock.
    WatchdogWake { node: String, boot: u64, at: Millis },
    /// An agent finds the watchdog daemon that was started.
    WatchdogConnects { node: String, generation: Generation },
    /// A controller's plan is made.
    PlanMade { node: String, generation: Generation },
    /// A watchdog daemon that stood still goes on.
    WatchdogGoesOn { node: String, boot: u64 },
    /// The watchdog device may have run out.
    DeviceDue { node: String, boot: u64, at: Millis },
    /// The server of a slow driver carries out an order.
    OrderDue { node: String, boot: u64, order: u64 },
    /// An agent sees what was done to a service by hand.
    ByHand { node: String, generation: Generation, event: DriverEvent },
    /// A machine is up.
    Booted { node: String, boot: u64 },
    /// A suspended machine wakes.
    Awake { node: String },
    /// A fence agent's run ends.
    FencerDone { node: String, generation: Generation, run: Box<FencerRun> },
    /// A notification reaches its target, or does not.
    Delivery { node: String, generation: Generation, delivery: Box<Delivery> },
    /// An agent's question reaches a controller.
    HoldAsked { question: Question, request: Box<HoldRequest> },
    /// A controller's answer reaches an agent, or it has waited for long enough.
    HoldAnswered { question: Question, answer: Result<HoldAnswer, String> },
    /// A machine that shuts down goes down.
    Down { node: String, boot: u64 },
    /// A process of a machine is started again.
    StartProcess { who: Who, boot: u64 },
    /// The store forgets its history up to this revision, as it is set up to do every few minutes.
    Compact(Revision),
    /// The store answers again.
    StoreBack,
    /// The next step may be due.
    Step,
}
