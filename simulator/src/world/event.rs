//! Everything that can happen in the simulated world.

use super::link::{Ask, Request, Token};
use super::process::{Generation, Who};
use ha_controller::core::FencerRun;
use ha_node_agent::core::{CommandId, Journal, JournalWriteId, WatchdogRequestId};
use ha_node_agent::watchdog::protocol;

/// Something that happens at a virtual time.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "events live in a queue of boxed nodes anyway")]
pub(crate) enum Event {
    /// A process looks at its clock.
    Wake(Who, Generation),
    /// A request reaches the store.
    Arrive { who: Who, generation: Generation, token: Token, ask: Ask, request: Request },
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
    JournalOnDisk { node: String, generation: Generation, id: JournalWriteId, journal: Journal },
    /// A driver's command ends.
    CommandEnds { node: String, generation: Generation, id: CommandId },
    /// A request reaches the watchdog daemon.
    ToWatchdog {
        node: String,
        boot: u64,
        generation: Generation,
        id: WatchdogRequestId,
        request: protocol::Request,
    },
    /// A reply of the watchdog daemon reaches the agent.
    FromWatchdog {
        node: String,
        generation: Generation,
        id: Option<WatchdogRequestId>,
        reply: protocol::Reply,
    },
    /// The watchdog daemon looks at its clock.
    WatchdogWake { node: String, boot: u64 },
    /// The watchdog device may have run out.
    DeviceDue { node: String, boot: u64 },
    /// A machine is up.
    Booted { node: String, boot: u64 },
    /// A suspended machine wakes.
    Awake { node: String },
    /// A fence agent's run ends.
    FencerDone { node: String, generation: Generation, run: Box<FencerRun> },
    /// A machine that shuts down goes down.
    Down { node: String, boot: u64 },
    /// A process of a machine is started again.
    StartProcess { who: Who, boot: u64 },
    /// The store answers again.
    StoreBack,
    /// The next step may be due.
    Step,
}
