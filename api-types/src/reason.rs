//! The closed vocabulary of causes: conditions, events, metric labels, `hactl why` and the docs all draw from it.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

macro_rules! reasons {
    ($( $(#[doc = $doc:expr])+ $name:ident => $sentence:literal ),+ $(,)?) => {
        /// A cause, in one word. [`Reason::sentence`] is what an operator reads first.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
        pub enum Reason {
            $( $(#[doc = $doc])+ $name, )+
            /// Written by a newer version of hactl.
            #[default]
            Unknown,
        }

        impl Reason {
            /// Every reason of this version.
            pub const ALL: &'static [Reason] = &[ $( Reason::$name, )+ Reason::Unknown ];

            /// The word.
            pub fn as_str(self) -> &'static str {
                match self { $( Reason::$name => stringify!($name), )+ Reason::Unknown => "Unknown" }
            }

            /// The cause as a sentence without names: lower case, no full stop.
            pub fn sentence(self) -> &'static str {
                match self { $( Reason::$name => $sentence, )+ Reason::Unknown => "a reason this version does not know" }
            }
        }

        impl<'de> Deserialize<'de> for Reason {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Reason, D::Error> {
                let text = String::deserialize(deserializer)?;
                Ok(match text.as_str() { $( stringify!($name) => Reason::$name, )+ _ => Reason::Unknown })
            }
        }
    };
}

reasons! {
    // Why a service is where it is, and in the state it is in.
    /// Not seen by the leader yet.
    NotSeenYet => "the leader has not looked at it yet",
    /// A node has not yet said whether the service runs there.
    NotProbed => "a node has not yet answered whether it runs there",
    /// Being started on its node.
    Starting => "it is being started",
    /// Runs as wanted.
    Running => "it runs as wanted",
    /// Being stopped.
    Stopping => "it is being stopped",
    /// Stopped as wanted.
    StoppedAsWanted => "it is stopped as wanted",
    /// Disabled as wanted.
    DisabledAsWanted => "it is disabled as wanted",
    /// Not managed.
    IgnoredAsWanted => "it is not managed, as wanted",
    /// Found running where it is allowed, and taken over.
    Adopted => "it already ran there and was taken over",
    /// Its node was chosen by score.
    Placed => "a node was chosen",
    /// Its node failed.
    NodeFailed => "its node failed",
    /// Its node is being fenced.
    Fencing => "its node is being fenced",
    /// Its node was fenced; a place is looked for.
    Recovering => "its node was fenced and a place is looked for",
    /// Runs elsewhere after its node failed.
    Recovered => "it is recovered, its node being proven gone",
    /// It fits nowhere as things are, and services of lower priority make room for it.
    Preempting => "services of lower priority make room for it",
    /// It made room for a service of higher priority.
    Preempted => "it makes room for a service of higher priority",
    /// Somebody that it comes after does not run yet.
    StartOrder => "a service that it comes after does not run",
    /// Who comes after it stops first, or it stops since whom it comes after does.
    StopOrder => "services stop in the reverse of their start order",
    /// No node can take it.
    NoFeasibleNode => "no node can take it",
    /// Moved because a preferred node is back.
    Failback => "a preferred node is available again",
    /// Moved because a rule between services that is not strict is kept better there.
    Preferred => "rules that are not strict prefer another node",
    /// Moved, or held, so that other services can come to where rules want them.
    MakesRoom => "services that must stay apart move one after another",
    /// Moved because nodes were loaded unevenly for too long.
    Rebalanced => "it evens the load of nodes",
    /// Moved because it is no longer allowed where it was.
    PlacementChanged => "it is no longer allowed where it was",
    /// Moved because its node is in maintenance.
    MaintenanceMove => "its node is in maintenance",
    /// Moved back to the node that it left for maintenance.
    MaintenanceReturn => "the node that it left for maintenance takes services again",
    /// An operator asked for it.
    OperatorRequest => "an operator asked for it",
    /// Live migration in progress.
    Migrating => "it is being migrated",
    /// Stop, move, start in progress.
    Relocating => "it is being relocated",
    /// A move ended well.
    Moved => "it was moved",
    /// A move failed; the service stays.
    MoveFailed => "the move failed and it stays where it is",
    /// Its secondary is being replaced.
    ReplacingSecondary => "its secondary is being replaced",
    /// Its secondary was replaced.
    SecondaryReplaced => "its secondary was replaced",
    /// Its secondary could not be replaced.
    ReplaceFailed => "its secondary could not be replaced, and the old one is still in use",
    /// Its agent is away for a restart.
    Frozen => "its agent is away and nobody touches it",
    /// Deleted; the service itself is left as it is.
    Deleted => "it is no longer managed",
    /// Waits for another action.
    Waiting => "it waits for another action to end",

    // Failures of services.
    /// The start failed.
    StartFailed => "the start failed",
    /// The stop failed: it may still run.
    StopFailed => "the stop failed, so it may still run",
    /// The service ended by itself.
    Crashed => "it ended by itself",
    /// Restarted in place after a crash.
    Restarted => "it was restarted after a crash",
    /// All attempts that the policy allows have failed.
    PoliciesExhausted => "all attempts that the policy allows have failed",
    /// Two copies run.
    RunsTwice => "it runs on two nodes",
    /// A command timed out.
    TimedOut => "a command did not end in time",
    /// The agent restarted while the action was under way.
    Interrupted => "the action was interrupted by a restart of the agent",
    /// The program or its configuration cannot work on this node.
    NotInstalled => "the program is not installed on this node",
    /// The configuration of the resource is wrong.
    BadConfiguration => "the configuration of the resource is wrong",
    /// The driver is not available on the node.
    DriverMissing => "the node has no such driver",
    /// The agent's journal cannot be written.
    JournalFailed => "the agent cannot write its journal",
    /// Killed because the lease could not be proven.
    LeaseLost => "it was stopped because the node could not prove its lease",
    /// Stopped with its own tool.
    StoppedOutside => "it was stopped outside hactl",
    /// Started with its own tool.
    StartedOutside => "it was started outside hactl",
    /// The permit was refused by the store.
    PermitRefused => "the start permit was refused",
    /// The store was restored from a backup.
    StoreRestored => "the store was restored from a backup",

    // Why a node is refused.
    /// Allowed, feasible.
    Allowed => "allowed",
    /// The node is not online.
    NodeNotOnline => "the node is not online",
    /// The node is in maintenance.
    NodeInMaintenance => "the node is in maintenance",
    /// The node is marked unschedulable.
    NodeUnschedulable => "the node is not schedulable",
    /// Not a member of the restricted group or strict rule.
    NotInGroup => "the node is not a member of the restricted group",
    /// Not allowed by a strict node-affinity rule.
    NodeAffinity => "a strict node-affinity rule does not allow the node",
    /// A negative partner uses the node.
    NegativePartner => "a service that must stay apart uses the node",
    /// A positive partner is elsewhere.
    PositivePartner => "the services that must stay together are elsewhere",
    /// Not enough memory.
    NotEnoughMemory => "not enough memory",
    /// Not enough disk.
    NotEnoughDisk => "not enough disk",
    /// Not enough cpu.
    NotEnoughCpu => "not enough cpu",
    /// The storage pool is not reachable from the node.
    StorageUnreachable => "the storage pool is not reachable from the node",
    /// The service failed to start on this node; it is tried last.
    FailedHere => "it failed to start there and is tried there last",
    /// The node cannot fence itself and has no fence device.
    WatchdogMissing => "the node has no watchdog that the cluster accepts",
    /// A lower priority class than the one chosen from.
    LowerPriorityClass => "a node of a higher priority class can take it",
    /// Already there.
    AlreadyThere => "it is already there",
    /// Another exclusion tag.
    ExclusionTag => "a service with the same exclusion tag is there",
    /// The node group takes nothing new.
    NodeGroupUnallocable => "its node group takes no services",
    /// Services do not leave their node group.
    OtherNodeGroup => "services stay in their node group",

    // Nodes.
    /// The node heartbeats.
    HeartbeatSeen => "its heartbeat is seen",
    /// The node's heartbeat is late.
    HeartbeatLate => "its heartbeat is late",
    /// Registering.
    Registering => "it is registering",
    /// The node left cleanly.
    LeftCleanly => "it left cleanly",
    /// The machine shuts down in order.
    ShuttingDown => "its machine shuts down",
    /// The agent left for a restart and did not come back in time.
    AgentAway => "its agent has been away for longer than freezeTimeoutSeconds",
    /// The node was declared dead.
    DeclaredDead => "it was declared dead",
    /// The node was fenced.
    Fenced => "it was fenced",
    /// Its epoch was closed with nothing active.
    ClosedIdle => "its epoch was closed while it had nothing active",
    /// Silent, but no proof can follow.
    NoProofPossible => "it is silent, but neither its watchdog nor a fence device can prove it dead",
    /// More nodes are silent than may be fenced at once.
    MaxFencingReached => "more nodes are silent than may be declared dead in the window",
    /// The leader's own commits had a gap, so its observation starts again.
    ObserverGap => "the leader could not commit without a gap, so it observes anew",
    /// Silent, but under Hold, and the leader is none of the controllers that the node asks.
    JoinedLater => "it may go on by the grants of the controllers that it knows, and the leader joined later",
    /// Another machine uses this name.
    DuplicateNode => "another machine registers under this name",
    /// The watchdog is armed.
    WatchdogArmed => "its watchdog is armed",
    /// The watchdog is not armed, as nothing is active.
    WatchdogIdle => "nothing is active, so its watchdog is not armed",
    /// A stand-in watchdog: not armed for real.
    WatchdogStandIn => "its watchdog is a stand-in and does not protect a real machine",
    /// The watchdog cannot be armed.
    WatchdogFailed => "its watchdog cannot be armed",
    /// The watchdog was never seen to reset the machine, and `fencing.requireTested` asks for it.
    WatchdogUntested => "its watchdog was never tested, which fencing.requireTested asks for: hactl node test-watchdog",
    /// The node's timings break the inequality.
    TimingRefused => "its timing settings cannot keep services from running twice",
    /// A fence device confirmed it off.
    FenceDeviceConfirmed => "a fence device confirmed it off",
    /// A fence device failed.
    FenceDeviceFailed => "a fence device failed",
    /// A fence device is at work.
    FenceDeviceStarted => "a fence device was started",
    /// A fabric device keeps a closed node off network and storage until it has booted anew or an operator lets it in.
    FencedOff => "a fence device keeps it cut off",
    /// An operator confirmed it dead.
    ConfirmedByOperator => "an operator confirmed it off",
    /// The machine is back after a reset, a power failure or a panic.
    WentDown => "its machine went down out of order",
    /// The node has been declared dead by mistake: it is alive.
    NodeAlive => "the node is alive",
    /// The request is about a state that has passed.
    Outdated => "the request is about a state that has passed",
    /// A check of `hactl doctor` fails.
    DoctorFound => "hactl doctor finds something that fails",
    /// In maintenance.
    Maintenance => "it is in maintenance",
    /// The store is a version with known defects.
    StoreTooOld => "the store's version has known defects",

    // Objects and rules.
    /// Valid and in force.
    Accepted => "it is valid and in force",
    /// The object could not be read.
    Invalid => "it is not valid",
    /// The rule conflicts with others and is not applied.
    RuleConflict => "it conflicts with other rules and is not applied",
    /// It names something that does not exist.
    NotFound => "it names something that does not exist",
    /// The cluster is disarmed.
    Disarmed => "the cluster is disarmed",

    // Operations.
    /// Waits to be carried out.
    Pending => "it waits to be carried out",
    /// Being carried out.
    InProgress => "it is being carried out",
    /// Done.
    Completed => "it is done",
    /// Refused.
    Refused => "it was refused",

    // Controllers.
    /// Became leader.
    BecameLeader => "a controller became leader",
    /// Lost leadership.
    LostLeadership => "a controller lost leadership",
    /// The reservation check failed.
    ReservationFailed => "services would not find a place after a failover",
    /// The reservation check holds.
    ReservationHolds => "every service would find a place after a failover",
    /// A notification was given up.
    NotificationFailed => "a notification could not be delivered",
    /// The reservation check came to no end.
    ReservationUndecided => "it could not be decided whether every service would find a place after a failover",
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back() {
        for reason in Reason::ALL {
            let text = serde_json::to_string(reason).expect("a word");
            assert_eq!(text, format!("{:?}", reason.as_str()));
            assert_eq!(serde_json::from_str::<Reason>(&text).expect("a reason"), *reason);
        }
    }

    #[test]
    fn a_word_of_a_newer_version_is_unknown() {
        assert_eq!(serde_json::from_str::<Reason>("\"Moonstruck\"").expect("a reason"), Reason::Unknown);
        assert!(!Reason::Unknown.sentence().is_empty());
    }
}
