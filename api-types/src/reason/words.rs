//! Every reason: its word, its meaning, its sentence for operators, and the suggested action (empty if there is none).

use super::Subject;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

reasons! {
    Service {
        /// Not seen by the leader yet.
        NotSeenYet => "the leader has not looked at it yet",
            "wait a second; if it stays, no controller leads: hactl status",
        /// A node has not yet said whether the service runs there.
        NotProbed => "a node has not yet answered whether it runs there",
            "see to the node that is named: its agent must answer, or be proven gone",
        /// Another resource, or what a deleted resource left running, is the same thing on the machines.
        IdentityTaken => "another resource names the same unit, domain or container",
            "delete one of the resources, or give one of them another unit, domain or container",
        /// A copy was permitted on a node that has not confirmed its end.
        CopyRemains => "a node may still run a copy of the service",
            "wait until the node is reachable again, or confirm that it is powered off: `hactl node confirm-fenced NODE`",
        /// A copy runs under a definition of another identity, or another `exclusive`, than the spec.
        DefinitionDiffers => "the running copy is another service than the spec names",
            "stop the resource and start it again: `hactl stop R`, then `hactl start R`",
        /// Being started on its node.
        Starting => "it is being started", "",
        /// Runs as wanted.
        Running => "it runs as wanted", "",
        /// Being stopped.
        Stopping => "it is being stopped", "",
        /// Stopped as wanted.
        StoppedAsWanted => "it is stopped as wanted", "",
        /// Disabled as wanted.
        DisabledAsWanted => "it is disabled as wanted", "",
        /// Not managed.
        IgnoredAsWanted => "it is not managed, as wanted", "",
        /// Found running where it is allowed, and taken over.
        Adopted => "it already ran there and was taken over", "",
        /// Its node was chosen by score.
        Placed => "a node was chosen", "",
        /// Its node failed.
        NodeFailed => "its node failed", "see to the node; the service is recovered by itself",
        /// Its node is being fenced.
        Fencing => "its node is being fenced",
            "wait for the proof (hactl timing says how long); if the node stays in Fence, hactl node confirm-fenced",
        /// Its node was fenced; a place is looked for.
        Recovering => "its node was fenced and a place is looked for", "",
        /// Runs elsewhere after its node failed.
        Recovered => "it is recovered, its node being proven gone",
            "see to the node that failed: hactl events --for node/NODE",
        /// It fits nowhere as things are, and services of lower priority make room for it.
        Preempting => "services of lower priority make room for it", "",
        /// It made room for a service of higher priority.
        Preempted => "it makes room for a service of higher priority",
            "give the cluster more room, or the service a higher priority",
        /// Somebody that it comes after does not run yet.
        StartOrder => "a service that it comes after does not run",
            "see to the service that is named: hactl why",
        /// Who comes after it stops first, or it stops since whom it comes after does.
        StopOrder => "services stop in the reverse of their start order", "",
        /// No node can take it.
        NoFeasibleNode => "no node can take it",
            "hactl why RESOURCE: each node with what speaks against it, and what would help",
        /// Moved because a preferred node is back.
        Failback => "a preferred node is available again", "",
        /// Moved because a rule between services that is not strict is kept better there.
        Preferred => "rules that are not strict prefer another node", "",
        /// Moved, or held, so that other services can come to where rules want them.
        MakesRoom => "services that must stay apart move one after another", "",
        /// Moved because nodes were loaded unevenly for too long.
        Rebalanced => "it evens the load of nodes", "",
        /// Moved because it is no longer allowed where it was.
        PlacementChanged => "it is no longer allowed where it was", "",
        /// Moved because its node is in maintenance.
        MaintenanceMove => "its node is in maintenance", "",
        /// Moved back to the node that it left for maintenance.
        MaintenanceReturn => "the node that it left for maintenance takes services again", "",
        /// An operator asked for it.
        OperatorRequest => "an operator asked for it", "",
        /// Live migration in progress.
        Migrating => "it is being migrated", "",
        /// Stop, move, start in progress.
        Relocating => "it is being relocated", "",
        /// A move ended well.
        Moved => "it was moved", "",
        /// A move failed; the service stays.
        MoveFailed => "the move failed and it stays where it is",
            "read the message; it is tried again by itself where a rule or maintenance asks for it, else hactl migrate again",
        /// Its secondary is being replaced.
        ReplacingSecondary => "its secondary is being replaced", "",
        /// Its secondary was replaced.
        SecondaryReplaced => "its secondary was replaced", "",
        /// Its secondary could not be replaced.
        ReplaceFailed => "its secondary could not be replaced, and the old one is still in use",
            "read the message, see to the hook, and ask again: hactl replace-secondary",
        /// Its agent is away for a restart.
        Frozen => "its agent is away and nobody touches it", "start the agent: systemctl start ha-node-agent",
        /// Deleted; the service itself is left as it is.
        Deleted => "it is no longer managed", "",
        /// Waits for another action.
        Waiting => "it waits for another action to end", "wait for what is named",
    }

    Failure {
        /// The start failed.
        StartFailed => "the start failed",
            "read the message and the service's own log; after maxRestart and maxRelocate it is in Error: hactl clear-error",
        /// The stop failed: it may still run.
        StopFailed => "the stop failed, so it may still run",
            "stop it by hand on its node, or correct its stop program with hactl set RESOURCE … --in-place; then hactl clear-error: \
                nothing starts it elsewhere as long as it may run",
        /// The service ended by itself.
        Crashed => "it ended by itself", "read the service's own log: journalctl HACTL_RESOURCE=NAME",
        /// Restarted in place after a crash.
        Restarted => "it was restarted after a crash", "if it happens often, read the service's own log",
        /// All attempts that the policy allows have failed.
        PoliciesExhausted => "all attempts that the policy allows have failed",
            "see to the cause that the message names, then hactl clear-error",
        /// Two copies run.
        RunsTwice => "it runs on two nodes",
            "look at both nodes that are named; hactl clear-error stops both and starts one",
        /// A command timed out.
        TimedOut => "a command did not end in time",
            "if the service is slow by nature, a longer time in spec.timeouts",
        /// The agent restarted while the action was under way.
        Interrupted => "the action was interrupted by a restart of the agent",
            "nothing for a start or stop, which is done again; an operation is asked for again",
        /// The program or its configuration cannot work on this node.
        NotInstalled => "the program is not installed on this node",
            "install it on that node, or keep the service away with a group or rule",
        /// The configuration of the resource is wrong.
        BadConfiguration => "the configuration of the resource is wrong",
            "correct the spec as the message says",
        /// The driver is not available on the node.
        DriverMissing => "the node has no such driver",
            "install what the driver needs (hactl get nodes -o wide shows the drivers), or keep the service to other nodes",
        /// The agent's journal cannot be written.
        JournalFailed => "the agent cannot write its journal",
            "see to the disk of /var/lib/hactl/agent: full, or read-only?",
        /// Killed because the lease could not be proven.
        LeaseLost => "it was stopped because the node could not prove its lease",
            "see to the node's network and to the store; the service is recovered by itself",
        /// Stopped with its own tool.
        StoppedOutside => "it was stopped outside hactl", "it is started again; to stop it, hactl stop",
        /// Started with its own tool.
        StartedOutside => "it was started outside hactl",
            "stop it with its own tool, or want it: hactl start",
        /// The permit was refused by the store.
        PermitRefused => "the start permit was refused",
            "nothing: something had changed meanwhile, and it is decided anew",
        /// The store was restored from a backup.
        StoreRestored => "the store was restored from a backup",
            "start the agents of the nodes that are named, or confirm those off: hactl node confirm-fenced NODE",
    }

    Place {
        /// Allowed, feasible.
        Allowed => "allowed", "",
        /// The node is not online.
        NodeNotOnline => "the node is not online", "start the node, or its agent",
        /// The node is in maintenance.
        NodeInMaintenance => "the node is in maintenance", "hactl node maintenance disable NODE",
        /// The node is marked unschedulable.
        NodeUnschedulable => "the node is not schedulable", "hactl set node/NODE schedulable=true",
        /// Not a member of the restricted group or strict rule.
        NotInGroup => "the node is not a member of the restricted group",
            "add the node to the group, or restricted: false",
        /// Not allowed by a strict node-affinity rule.
        NodeAffinity => "a strict node-affinity rule does not allow the node",
            "change the rule that is named, or strict: false",
        /// A negative partner uses the node.
        NegativePartner => "a service that must stay apart uses the node",
            "move the other service away, or change the rule that is named",
        /// A positive partner is elsewhere.
        PositivePartner => "the services that must stay together are elsewhere",
            "see why the others are where they are: hactl why",
        /// Not enough memory.
        NotEnoughMemory => "not enough memory",
            "free some: move services away (hactl balance), or lower requests",
        /// Not enough disk.
        NotEnoughDisk => "not enough disk",
            "free some: move services away (hactl balance), or lower requests",
        /// Not enough cpu.
        NotEnoughCpu => "not enough cpu",
            "free some: move services away (hactl balance), lower requests, or raise the limit that is named",
        /// The storage pool is not reachable from the node.
        StorageUnreachable => "the storage pool is not reachable from the node",
            "give the node the storage, or take the service's requirement away",
        /// The service failed to start on this node; it is tried last.
        FailedHere => "it failed to start there and is tried there last",
            "nothing as long as others can take it; mend what the message of the failure names",
        /// The node cannot fence itself and has no fence device.
        WatchdogMissing => "the node has no watchdog that the cluster accepts", "hactl doctor NODE",
        /// The node was unreachable when resources were created, and has not yet answered for each of them.
        NodeUnverified => "the node has not answered for each resource that was created while the node was unreachable",
            "check the resources that are named; if a driver cannot tell: hactl node not-here NODE",
        /// A lower priority class than the one chosen from.
        LowerPriorityClass => "a node of a higher priority class can take it",
            "nothing: it is used when no node of a higher class is left",
        /// Already there.
        AlreadyThere => "it is already there", "",
        /// Another exclusion tag.
        ExclusionTag => "a service with the same exclusion tag is there",
            "move the other service away, or change the tags",
        /// The node group takes nothing new.
        NodeGroupUnallocable => "its node group takes no services",
            "hactl set nodegroup/NAME allocationPolicy=Preferred",
        /// Services do not leave their node group.
        OtherNodeGroup => "services stay in their node group",
            "allow it: hactl set cluster/default scheduler.interGroupMoves=true",
    }

    Node {
        /// The node heartbeats.
        HeartbeatSeen => "its heartbeat is seen", "",
        /// The node's heartbeat is late.
        HeartbeatLate => "its heartbeat is late",
            "if it stays late, the node is declared dead by itself; see to its load, network and the store",
        /// Registering.
        Registering => "it is registering", "wait: the former boot's heartbeat must be silent first",
        /// The node left cleanly.
        LeftCleanly => "it left cleanly", "start the machine or its agent when it is wanted again",
        /// The machine shuts down in order.
        ShuttingDown => "its machine shuts down", "",
        /// The agent left for a restart and did not come back in time.
        AgentAway => "its agent has been away for longer than freezeTimeoutSeconds",
            "systemctl start ha-node-agent on that machine: its services run unguarded",
        /// The node was declared dead.
        DeclaredDead => "it was declared dead",
            "see to the machine; its services are recovered by themselves",
        /// The node was fenced.
        Fenced => "it was fenced", "see to the machine; it comes back when it boots",
        /// Its epoch was closed with nothing active.
        ClosedIdle => "its epoch was closed while it had nothing active",
            "see to the machine: nothing ran there",
        /// Silent, but no proof can follow.
        NoProofPossible => "it is silent, but neither its watchdog nor a fence device can prove it dead",
            "make certain that the machine is off, then hactl node confirm-fenced; for the next time give it a watchdog or a fence device",
        /// More nodes are silent than may be fenced at once.
        MaxFencingReached => "more nodes are silent than may be declared dead in the window",
            "mend the network or power that the silent nodes share; those that are certainly off: hactl node confirm-fenced",
        /// The leader's own commits had a gap, so its observation starts again.
        ObserverGap => "the leader could not commit without a gap, so it observes anew",
            "nothing: it observes anew; if it happens often, see to the store's latency",
        /// Silent, but under Hold, and the leader is none of the controllers that the node asks.
        JoinedLater => "the node may continue to run with the agreement of older controllers, and the leader joined later",
            "start the controllers that the message names, or power the node off and run hactl node confirm-fenced NODE",
        /// Another machine uses this name.
        DuplicateNode => "another machine registers under this name",
            "give one of the two machines another --node",
        /// A stored value was written by a newer version of hactl.
        Unreadable => "a stored value cannot be read by this version",
            "finish the upgrade or the rollback; hactl status names the key, its writer and the writer's version",
        /// The watchdog is armed.
        WatchdogArmed => "its watchdog is armed", "",
        /// The watchdog is not armed, as nothing is active.
        WatchdogIdle => "nothing is active, so its watchdog is not armed", "",
        /// A stand-in watchdog: not armed for real.
        WatchdogStandIn => "its watchdog is a stand-in and does not protect a real machine",
            "none in a sandbox; on a real machine, start ha-watchdogd without --stand-in",
        /// The watchdog cannot be armed, or refuses pets.
        WatchdogFailed => "its watchdog cannot be armed, or refuses pets",
            "hactl doctor NODE, and journalctl -u ha-watchdogd",
        /// The machine can sleep, and nothing keeps it awake.
        SleepUnprotected => "the machine can sleep, and nothing keeps it awake, so its silence proves nothing",
            "systemctl mask sleep.target suspend.target hibernate.target hybrid-sleep.target suspend-then-hibernate.target on the node, or give the node a fence device",
        /// The watchdog was never seen to reset the machine, and `fencing.requireTested` asks for it.
        WatchdogUntested => "its watchdog was never tested, which fencing.requireTested asks for: hactl node test-watchdog",
            "in maintenance: hactl node test-watchdog NODE",
        /// The node's timings break the inequality.
        TimingRefused => "its timing settings cannot keep services from running twice",
            "hactl timing NODE shows which setting is too tight: correct Cluster.spec.timing",
        /// A fence device confirmed it off.
        FenceDeviceConfirmed => "a fence device confirmed it off", "",
        /// A fence device failed.
        FenceDeviceFailed => "a fence device failed",
            "correct the device in the node's spec.fencing.devices: address, user or password; hactl doctor NODE",
        /// A fence device is at work.
        FenceDeviceStarted => "a fence device was started", "",
        /// A fabric device keeps a closed node off network and storage until it has booted anew or an operator lets it in.
        FencedOff => "a fence device keeps it cut off", "once the machine is well: hactl node unfence NODE",
        /// An operator confirmed it dead.
        ConfirmedByOperator => "an operator confirmed it off", "",
        /// The machine is back after a reset, a power failure or a panic.
        WentDown => "its machine went down out of order",
            "look at the machine's own log, for why it reset or lost power",
        /// The node has been declared dead by mistake: it is alive.
        NodeAlive => "the node is alive",
            "nothing if it is well; to get rid of its services, maintenance or hactl node fence",
        /// The request is about a state that has passed.
        Outdated => "the request is about a state that has passed",
            "look again (hactl status) and ask again if it still applies",
        /// A check of `hactl doctor` fails.
        DoctorFound => "hactl doctor finds something that fails", "hactl doctor: the line that mends it",
        /// In maintenance.
        Maintenance => "it is in maintenance", "hactl node maintenance disable NODE when the work is done",
        /// The store is a version with known defects.
        StoreTooOld => "the store's version has known defects",
            "upgrade etcd to 3.5.30, 3.6.11 or newer, one member after the other",
    }

    Object {
        /// Valid and in force.
        Accepted => "it is valid and in force", "",
        /// The object could not be read.
        Invalid => "it is not valid", "correct what the message names",
        /// The rule conflicts with others and is not applied.
        RuleConflict => "it conflicts with other rules and is not applied",
            "change or delete one of the rules that are named",
        /// It names something that does not exist.
        NotFound => "it names something that does not exist", "create what is named, or correct the name",
        /// The cluster is disarmed.
        Disarmed => "the cluster is disarmed",
            "hactl arm when the work is done: nothing is recovered until then",
    }

    Operation {
        /// Waits to be carried out.
        Pending => "it waits to be carried out", "",
        /// Being carried out.
        InProgress => "it is being carried out", "",
        /// Done.
        Completed => "it is done", "",
        /// Refused.
        Refused => "it was refused", "read the message: what speaks against it, and what to do",
    }

    Cluster {
        /// Became leader.
        BecameLeader => "a controller became leader", "",
        /// Lost leadership.
        LostLeadership => "a controller lost leadership",
            "nothing: another leads; if it happens often, see to the store's latency and the controllers' load",
        /// The leader gave up leadership for a controller that joined earlier.
        YieldedLeadership => "a controller yielded leadership to one that joined earlier",
            "nothing: only the older controller may fence a node that is unreachable",
        /// Another process has this controller's id.
        DuplicateController => "another process refreshes the key of this controller",
            "give each controller its own --id; if the other process was stopped, wait a few seconds",
        /// The keys of a controller were deleted.
        ControllerDeleted => "the key of a controller that is gone was deleted", "",
        /// The reservation check failed.
        ReservationFailed => "services would not find a place after a failover",
            "hactl check n+1 -v: which services, and what they lack; add room or lower requests",
        /// The reservation check holds.
        ReservationHolds => "every service would find a place after a failover", "",
        /// A notification was given up.
        NotificationFailed => "a notification could not be delivered", "see to the server that the message names, or correct Cluster.spec.notifications",
        /// The reservation check came to no end.
        ReservationUndecided => "it could not be decided whether every service would find a place after a failover",
            "hactl check n+1 -v: what is known; more room makes it certain",
    }
}
