//! The steps of the model: one step of one party at a time.

use std::fmt;

use crate::hold::Event;
use crate::store::NodeId;
use crate::write::Write;

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// One tick passes, on every clock.
    Tick,
    /// A step of a node's agent.
    Agent(NodeId, AgentStep),
    /// A step of a node's watchdog daemon or device.
    Watchdog(NodeId, WatchdogStep),
    Leader(LeaderStep),
    /// A late write reaches etcd, which applies or refuses it.
    Arrive(usize),
    /// The driver finishes the migration away from this node: the source's copy is gone, and the target's copy runs.
    CutOver(NodeId),
    /// An event of a candidate, for Hold.
    Candidate(usize, Event),
    /// A fault, or the end of one.
    Fault(Fault),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentStep {
    /// The agent asks the daemon to open the device. The daemon pets without a deadline until a heartbeat with the
    /// watchdog armed is committed.
    Arm,
    /// The agent receives the answer that its heartbeat was applied. It sets D = s + Th, and the daemon acknowledges D.
    /// After a lost answer, the agent does not take this step.
    LearnDeadline,
    /// The agent requests that the daemon releases the device, after armed: false was committed.
    Release,
    /// The agent commits a write. For a heartbeat, the agent has read its clock before.
    Commit(Write),
    /// The agent sends a write whose outcome is *unknown*: the write may be applied later, or never.
    Lose(Write),
    /// The agent starts the service under its permit, or prepares to receive it.
    Begin,
    /// The agent stops the service and ends every right to start it: on request, at D − Ts, or because its epoch is
    /// closed.
    Stop,
    /// The agent reports to the daemon that the node is empty: the daemon pets without D.
    PetWithoutDeadline,
    /// The agent reads that the fence has another epoch.
    NoticeClosed,
    /// Source of a migration, after HandingOver: the agent reads the target's report and fence again.
    CheckTarget,
    /// Source of a migration: the agent starts the driver.
    BeginDriver,
    /// The agent reads that the driver has ended without moving the service, or decides that the driver never begins.
    EndHandOver,
    /// The agent asks every candidate not to declare its node dead.
    Ask,
    /// Every candidate has granted, so the agent sets D to the time of the request plus Th.
    HoldOn,
    /// The agent has read that a candidate key was deleted while the fence of the agent's node is unchanged. It no
    /// longer asks that candidate.
    DropCandidates,
    /// Mutation only: the agent treats the answer to a keep-alive as proof.
    KeepAlive,
}

/// A step of the watchdog daemon or its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchdogStep {
    /// The daemon makes the call that it decided on.
    Pet,
    /// The device's timeout has passed: the machine is reset.
    Reset,
    /// The service manager's new daemon opens the device before D.
    Reopen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaderStep {
    Commit(Write),
    /// The leader sends a write that becomes late; its outcome is *unknown*.
    Lose(Write),
    /// A fence device powers off a node on request of the leader, and the leader commits the proof.
    PowerOff(NodeId),
    /// The leader accepts a definition with the other value of `exclusive`.
    Define,
}

/// A fault, or the end of one.
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
    /// The service ends without a command.
    Crash(NodeId),
    /// A follower becomes the leader.
    LeaderChange(usize),
    /// A candidate's process is restarted; the leader's process becomes a follower, although its leader key still exists.
    CandidateRestart(usize),
    /// A candidate's process ends permanently. Its candidate key stays.
    CandidateDies(usize),
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
