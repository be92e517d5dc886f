//! Everything that can happen, one step of one party at a time.

use std::fmt;

use crate::hold::Event;
use crate::store::NodeId;
use crate::write::Write;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// One tick passes, on every clock.
    Tick,
    /// A step of a node's agent.
    Agent(NodeId, AgentStep),
    /// A step of a node's watchdog daemon or device.
    Watchdog(NodeId, WatchdogStep),
    /// A step of the leader.
    Leader(LeaderStep),
    /// A late write reaches the store, and is applied or refused.
    Arrive(usize),
    /// The driver finishes the migration away from this node: the source's copy is gone, the target's runs.
    CutOver(NodeId),
    /// Something happens to a candidate: of Hold.
    Candidate(usize, Event),
    /// Something breaks, or comes back.
    Fault(Fault),
}

/// A step of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentStep {
    /// Asks the daemon to open the device; it is petted without a deadline until a heartbeat says armed.
    Arm,
    /// Learns that its heartbeat was applied: D = s + Th, and the daemon acknowledges it. An answer that is lost is one that
    /// is never learnt.
    LearnDeadline,
    /// Has the daemon release the device, armed: false being committed.
    Release,
    /// Commits a write. For a heartbeat it has read its clock before.
    Commit(Write),
    /// Sends a write that becomes late: *unknown*.
    Lose(Write),
    /// Starts under its permit (or prepares to receive).
    Begin,
    /// Ends what runs, with every right to start it: by a stop, at D − Ts, or because its epoch is closed.
    Stop,
    /// Tells the daemon that the node is empty: petted without D.
    Stay,
    /// Sees that its epoch is not the fence's any more.
    NoticeClosed,
    /// Sees that the driver has ended without moving the service.
    EndHandOver,
    /// Asks every candidate not to declare it dead.
    Ask,
    /// Every candidate has granted: D = time of asking + Th.
    HoldOn,
    /// Has read that a candidate is gone, and its own fence unchanged: asks it no more.
    DropCandidates,
    /// Mutation only: takes the answer to a keep-alive for proof.
    KeepAlive,
}

/// A step of the daemon or the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchdogStep {
    /// The daemon makes the call it decided on.
    Pet,
    /// The device's time is over: the machine is reset.
    Reset,
    /// The service manager's new daemon opens the device, D not having passed.
    Reopen,
}

/// A step of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaderStep {
    /// Commits a write.
    Commit(Write),
    /// Sends a write that becomes late: *unknown*.
    Lose(Write),
    /// Has a fence device turn a node off, and commits what it proves.
    PowerOff(NodeId),
    /// Accepts a definition with the other value of `exclusive`.
    Define,
}

/// Something breaks, or comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A machine loses its power.
    PowerLoss(NodeId),
    /// A machine boots.
    Boot(NodeId),
    /// An agent's process ends.
    AgentEnds(NodeId),
    /// An agent's process is started.
    AgentStarts(NodeId),
    /// The daemon's process ends, and the descriptor is not retained.
    DaemonEnds(NodeId),
    /// The service ends by itself.
    Crash(NodeId),
    /// A follower becomes the leader.
    LeaderChange(usize),
    /// A candidate's process is started anew; the leader's as a follower, its leader key being there still.
    CandidateRestart(usize),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Tick => write!(f, "-- a tick passes --"),
            Action::Agent(node, step) => write!(f, "node {node}, agent: {step:?}"),
            Action::Watchdog(node, step) => write!(f, "node {node}, watchdog: {step:?}"),
            Action::Leader(step) => write!(f, "leader: {step:?}"),
            Action::Arrive(_) => write!(f, "the late write arrives"),
            Action::CutOver(node) => write!(f, "node {node}, driver: the migration away from here completes"),
            Action::Candidate(number, event) => write!(f, "candidate {number}: {event:?}"),
            Action::Fault(fault) => write!(f, "fault: {fault:?}"),
        }
    }
}
