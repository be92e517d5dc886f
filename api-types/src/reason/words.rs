//! Every reason: its word, its meaning, its sentence for operators, and the suggested action (empty if there is none).

use super::Subject;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

reasons! {
    Service {
        /// The leader has not processed the object yet.
        Pending => "Waiting for the leader to process the object",
            "wait a few seconds; if this persists, check that a controller is leader: hactl status",
        /// A node has not yet reported whether the service runs there.
        NotProbed => "Waiting for a node to report whether the service runs there",
            "check the node named in the message: start its agent, or fence the node",
        /// Another resource, or a service that a deleted resource left running, has the same identity on the nodes.
        IdentityTaken => "Another resource specifies the same unit, domain or container",
            "delete one of the resources, or give one of them another unit, domain or container",
        /// A copy of the service was authorized to start on a node that has not confirmed that the copy has stopped.
        CopyRemains => "A node may still run a copy of the service",
            "wait until the node is reachable again, or power it off and run hactl node confirm-fenced NODE",
        /// A copy runs under a definition whose identity or `exclusive` differs from the spec.
        DefinitionDiffers => "The running copy differs from the service in the spec",
            "stop the resource and start it again: hactl stop RESOURCE, then hactl start RESOURCE",
        /// The service is being started on its assigned node.
        Starting => "Service is starting", "",
        /// The service runs.
        Running => "Service is running", "",
        /// The service is being stopped.
        Stopping => "Service is stopping", "",
        /// The service is stopped, as the spec requests.
        Stopped => "Service is stopped as requested", "",
        /// The service is disabled, as the spec requests.
        Disabled => "Service is disabled as requested", "",
        /// The service is not managed, as the spec requests.
        Unmanaged => "Service is not managed, as requested", "",
        /// The service was found running on an eligible node and is now managed.
        Adopted => "Service was already running and is now managed", "",
        /// The node was selected by score.
        Scheduled => "Node selected by score", "",
        /// The assigned node failed.
        NodeFailed => "Assigned node failed", "check the node; the service is recovered automatically",
        /// The assigned node is being fenced.
        Fencing => "Assigned node is being fenced",
            "wait for the fencing to complete (hactl timing shows the maximum time); if the node stays in Fence, \
                power the node off, then run hactl node confirm-fenced NODE",
        /// The assigned node was fenced, and the service is being scheduled.
        Recovering => "Assigned node was fenced, scheduling the service on another node", "",
        /// The service runs on another node after its assigned node failed.
        Recovered => "Recovery after a node failure",
            "check the node that failed: hactl events --for node/NODE",
        /// No node has enough capacity; services of lower priority are moved or stopped.
        Preempting => "Preempting services of lower priority to free capacity", "",
        /// The service frees capacity for a service of higher priority.
        Preempted => "Preempted by a service of higher priority",
            "add capacity, or raise the priority of the service",
        /// A dependency does not run yet.
        WaitingForDependency => "Waiting for a dependency to start",
            "check the dependency named in the message: hactl why RESOURCE",
        /// Dependents stop first, or the service stops because a dependency stops.
        StoppingForDependency => "Stopping in reverse start order, or waiting for a dependent to stop", "",
        /// No node is eligible.
        Unschedulable => "No node is eligible",
            "run hactl why RESOURCE for the blocking reasons of each node and the suggested actions",
        /// Moved because a preferred node is available again.
        Failback => "A preferred node is available again", "",
        /// Moved because a preferred rule between services favors the other node.
        Preferred => "A preferred rule favors another node", "",
        /// Moved, or held, so that other services can move to the nodes that rules require.
        MovingForAntiAffinity => "Services with anti-affinity move one at a time", "",
        /// Moved because the load of the nodes was unequal for too long.
        Rebalanced => "Load of the nodes is being rebalanced", "",
        /// Moved because the node is no longer eligible.
        PlacementChanged => "Assigned node is no longer eligible", "",
        /// Moved because its node is in maintenance.
        Draining => "Assigned node is in maintenance", "",
        /// Moved back to the node that the service left for maintenance.
        ReturningFromMaintenance => "Maintenance of the previous node has ended", "",
        /// Requested by an operator.
        UserRequested => "Requested by an operator", "",
        /// Live migration in progress.
        Migrating => "Live migration is in progress", "",
        /// Relocation (stop and start) in progress.
        Relocating => "Relocation is in progress", "",
        /// A move succeeded.
        Moved => "Service was moved", "",
        /// A move failed; the service stays on its node.
        MoveFailed => "Move failed; the service stays on its node",
            "read the message; a move that a rule or maintenance requires is retried automatically, otherwise run \
                hactl migrate again",
        /// The secondary is being replaced.
        ReplacingSecondary => "Secondary is being replaced", "",
        /// The secondary was replaced.
        SecondaryReplaced => "Secondary was replaced", "",
        /// The secondary could not be replaced.
        ReplaceFailed => "Secondary could not be replaced; the old secondary is still in use",
            "read the message, fix the replaceSecondary command, then run hactl replace-secondary again",
        /// The agent is down for a restart.
        Frozen => "Agent is down; services are not monitored",
            "start the agent: systemctl start ha-node-agent",
        /// Deleted; the service itself is left unchanged.
        Deleted => "Resource was deleted; the service is no longer managed", "",
        /// Waits for another action.
        Waiting => "Waiting for another action to finish", "wait for the action named in the message",
    }

    Failure {
        /// The start failed.
        StartFailed => "Start failed",
            "read the message and the log of the service; after maxRestart and maxRelocate the state is Error: \
                hactl clear-error RESOURCE",
        /// The stop failed; the service may still run.
        StopFailed => "Stop failed; the service may still run",
            "stop the service manually on its node, or correct its stop program with hactl set RESOURCE … --in-place, \
                then run hactl clear-error RESOURCE; the service starts on no other node while it may still run",
        /// The service exited unexpectedly.
        Crashed => "Service exited unexpectedly",
            "read the log of the service: journalctl HACTL_RESOURCE=NAME",
        /// Restarted in place after a crash.
        Restarted => "Service was restarted after a crash",
            "if this happens often, read the log of the service: journalctl HACTL_RESOURCE=NAME",
        /// All attempts that the policy allows have failed.
        PoliciesExhausted => "All attempts that the policy allows have failed",
            "fix the cause named in the message, then run hactl clear-error RESOURCE",
        /// Two copies run.
        MultipleActive => "Service runs on two nodes",
            "check both nodes named in the message; hactl clear-error RESOURCE stops both copies and starts one",
        /// A command timed out.
        TimedOut => "Command timed out",
            "if the service needs longer, increase spec.timeouts",
        /// The agent restarted while the action was in progress.
        Interrupted => "Action was interrupted by a restart of the agent",
            "none for a start or stop, which is retried automatically; run an interrupted command again",
        /// The program or its configuration cannot work on this node.
        NotInstalled => "Program is not installed on the node",
            "install the program on the node, or exclude the node with a group or rule",
        /// The configuration of the resource is invalid.
        BadConfiguration => "Configuration of the resource is invalid",
            "correct the spec as the message suggests",
        /// The driver is not available on the node.
        DriverMissing => "Driver is not available on the node",
            "install the programs that the driver needs (hactl get nodes -o wide lists drivers), or restrict the service \
                to other nodes",
        /// The agent cannot write its journal.
        JournalFailed => "Agent cannot write its journal",
            "check that the filesystem of /var/lib/hactl/agent is writable and not full",
        /// Killed because the node could not renew its lease.
        LeaseLost => "Service was stopped because the node could not renew its lease",
            "check the network of the node and etcd; the service is recovered automatically",
        /// Stopped with a tool other than hactl.
        StoppedExternally => "Service was stopped outside hactl",
            "none: the service is started again; to stop it, run hactl stop RESOURCE",
        /// Started with a tool other than hactl.
        StartedExternally => "Service was started outside hactl",
            "stop the service with the tool that started it, or run hactl start RESOURCE",
        /// The start authorization was refused by etcd.
        PermitRefused => "Start authorization was refused",
            "none: the state has changed, and the controller retries",
        /// etcd was restored from a backup.
        EtcdRestored => "etcd was restored from a backup",
            "start the agents of the nodes named in the message; for a node that is powered off, run \
                hactl node confirm-fenced NODE",
    }

    NodeEligibility {
        /// Eligible.
        Allowed => "eligible", "",
        /// The node is not online.
        NodeNotOnline => "node is not online", "start the node or its agent",
        /// The node is in maintenance.
        NodeInMaintenance => "node is in maintenance", "hactl node maintenance disable NODE",
        /// The node is marked unschedulable.
        NodeUnschedulable => "node is unschedulable", "hactl uncordon NODE",
        /// Not a member of the restricted group.
        NotInGroup => "node is not a member of the restricted group",
            "add the node to the group, or set restricted: false",
        /// Excluded by a strict node-affinity rule.
        NodeAffinity => "node is excluded by a strict node-affinity rule",
            "change the rule named in the message, or set strict: false",
        /// The node's policy does not allow the service.
        NodePolicy => "policy of the node does not allow the service",
            "change policy in /etc/hactl/agent.yaml on the node and restart its agent, or change the resource",
        /// A service with strict anti-affinity uses the node.
        NegativePartner => "a service with strict anti-affinity uses the node",
            "move the other service away, or change the rule named in the message",
        /// A service with strict affinity is on another node.
        PositivePartner => "services with strict affinity are on another node",
            "run hactl why for the other services",
        /// Not enough memory.
        NotEnoughMemory => "not enough memory",
            "move services away (hactl balance), or lower requests",
        /// Not enough disk.
        NotEnoughDisk => "not enough disk",
            "move services away (hactl balance), or lower requests",
        /// Not enough CPU.
        NotEnoughCpu => "not enough CPU",
            "move services away (hactl balance), lower requests, or raise scheduler.maxCpuRatio",
        /// The storage pool is not connected to the node.
        StorageUnreachable => "storage pool is not connected to the node",
            "connect the node to the storage pool, or remove the requirement from the resource",
        /// The service failed to start on this node, which is tried last.
        PreviousFailure => "start failed on this node, which is tried last",
            "none while other nodes are eligible; fix the cause named in the failure message",
        /// The node cannot fence itself and has no fence device.
        WatchdogMissing => "Node has no watchdog that the cluster accepts", "hactl doctor NODE",
        /// The node was unreachable when resources were created, and has not yet reported on each of them.
        NodeUnverified => "Node has not reported on each resource that was created while the node was unreachable",
            "check the resources named in the message; if a driver cannot check, run hactl node not-here NODE",
        /// The node has a lower priority tier than the selected node.
        LowerPriorityTier => "a node of a higher priority tier is eligible",
            "none: the node is used when no node of a higher tier is eligible",
        /// The service already runs on the node.
        CurrentNode => "service is already on this node", "",
        /// A service with the same exclusion tag uses the node.
        ExclusionTag => "a service with the same exclusion tag uses the node",
            "move the other service away, or change the tags",
        /// The node group is closed to new services.
        NodeGroupUnallocable => "node group is closed to new services",
            "hactl set nodegroup/NAME allocationPolicy=Preferred",
        /// Services do not leave their node group.
        OtherNodeGroup => "services stay in their node group",
            "allow moves between node groups: hactl set cluster/default scheduler.interGroupMoves=true",
    }

    Node {
        /// Heartbeats are received.
        NodeReady => "Heartbeat received", "",
        /// Heartbeats are missing.
        HeartbeatMissed => "Heartbeats are missing",
            "check the load and network of the node, and etcd; a node that stays unreachable is fenced automatically",
        /// The agent is registering.
        Registering => "Node is registering", "wait until the previous registration expires",
        /// The agent left after an orderly shutdown.
        ShutdownComplete => "Node shut down cleanly", "start the machine or its agent when the node is needed again",
        /// An orderly shutdown of the machine is in progress.
        ShuttingDown => "Node is shutting down", "",
        /// The agent left for a restart and did not return in time.
        AgentDown => "Agent has been down for longer than freezeTimeoutSeconds",
            "run systemctl start ha-node-agent on the node: its services are unmonitored",
        /// The leader revoked the node's registration because heartbeats were missing.
        DeclaredDead => "Node failed and its registration was revoked",
            "check the machine; its services are recovered automatically",
        /// The node was fenced.
        Fenced => "Node was fenced", "check the machine; the node returns when it boots",
        /// The registration was revoked while no service was active.
        LostWhileIdle => "Registration was revoked while the node ran no exclusive services",
            "check the machine",
        /// Unreachable, and fencing cannot be confirmed.
        FencingUnavailable => "Node is unreachable and cannot be fenced (no armed watchdog, no usable fence device)",
            "power the node off, then run hactl node confirm-fenced NODE; configure a watchdog or a fence device",
        /// More nodes are unreachable than fencing.maxFencing allows to fence.
        FencingRateLimited => "Fencing limit reached: more nodes are unreachable than fencing.maxFencing allows",
            "fix the network or power that the unreachable nodes share; for each node that is powered off, run \
                hactl node confirm-fenced NODE",
        /// The leader could not commit to etcd without a gap, so failure detection restarted.
        FailureDetectionReset => "Failure detection restarted after the leader lost contact with etcd",
            "none; if this happens often, check the latency of etcd",
        /// The node is unreachable under an etcd-outage hold, and does not ask the controller that is leader.
        JoinedLater => "Node may keep running under an etcd-outage hold of controllers that joined before this leader",
            "start the controllers named in the message, or power the node off and run \
                hactl node confirm-fenced NODE",
        /// Another machine uses this node name.
        DuplicateNode => "Another machine registers under this node name",
            "start one of the two agents with another --node",
        /// A stored value was written by a newer version of hactl.
        Unreadable => "Stored value cannot be read by this version",
            "finish the upgrade or the rollback; hactl status shows the key, its writer and the writer's version",
        /// The watchdog is armed.
        WatchdogArmed => "Watchdog is armed", "",
        /// The watchdog is not armed because no service is active.
        WatchdogIdle => "Watchdog is not armed because no exclusive service requires it", "",
        /// A simulated watchdog, which does not reset a machine.
        WatchdogSimulated => "Watchdog is simulated and does not protect a real machine",
            "none in a sandbox; on a real machine, start ha-watchdogd without --simulated",
        /// The watchdog cannot be armed, or cannot be renewed.
        WatchdogFailed => "Watchdog cannot be armed or cannot be renewed",
            "hactl doctor NODE, and journalctl -u ha-watchdogd",
        /// The machine can sleep, and has no protection from sleep.
        SleepUnprotected => "Machine can sleep, so missed heartbeats do not confirm fencing",
            "run systemctl mask sleep.target suspend.target hibernate.target hybrid-sleep.target suspend-then-hibernate.target \
                on the node, or configure a fence device",
        /// The watchdog has not passed a test, which `fencing.requireTested` requires.
        WatchdogUntested => "Watchdog has not passed the test that fencing.requireTested requires",
            "hactl node test-watchdog NODE, while the node is in maintenance",
        /// The timing settings of the node violate the inequality of the fencing protocol.
        TimingRefused => "Timing settings of the node do not ensure that at most one copy of a service runs",
            "correct Cluster.spec.timing; hactl timing NODE shows which setting to change",
        /// A fence device confirmed that the node is powered off.
        FenceDeviceConfirmed => "Fence device confirmed that the node is off", "",
        /// A fence device failed.
        FenceDeviceFailed => "Fence device failed",
            "correct the device in spec.fencing.devices of the node (address, user or password), then wait for the \
                condition FenceDevicesHealthy",
        /// A fence device confirmed the machine off, and the same boot registered again.
        FenceDeviceRefuted => "Fence device confirmed a power-off that did not happen",
            "find out which machine the device controls, then correct spec.fencing.devices of the node",
        /// A fence device is running.
        FenceDeviceStarted => "Fence device was started", "",
        /// A fabric device isolates the node from network and storage until the node reboots or an operator reconnects it.
        FencedOff => "Node is disconnected by a fence device",
            "when the machine is repaired: hactl node unfence NODE",
        /// An operator confirmed that the node is powered off.
        ConfirmedByOperator => "Operator confirmed that the node is powered off", "",
        /// The machine is up again after a reset, a power loss or a panic.
        UncleanShutdown => "Unclean shutdown of the machine",
            "check the log of the machine for the cause of the reset or power loss",
        /// The node runs although fencing was requested or confirmed.
        NodeAlive => "Node is running",
            "none if the node is healthy; to move its services away, run hactl drain NODE; to stop the node without a shutdown, run hactl node fence NODE",
        /// The request refers to a state that has changed.
        Outdated => "Request is stale because the state of the node has changed",
            "check hactl status, and repeat the request if it still applies",
        /// A check of `hactl doctor` fails.
        HealthCheckFailed => "Health check of the node failed", "hactl doctor NODE shows the suggested fix",
        /// In maintenance.
        Maintenance => "Node is in maintenance", "hactl node maintenance disable NODE when the work is done",
        /// etcd runs a version with known defects.
        EtcdTooOld => "etcd version has known defects",
            "upgrade etcd to 3.5.30 or later in the 3.5 series, or to 3.6.11 or later, one member at a time",
    }

    Object {
        /// Valid and active.
        Accepted => "Object is valid and active", "",
        /// The object could not be read.
        Invalid => "Object is not valid", "correct the fields named in the message",
        /// The rule conflicts with others and is not applied.
        RuleConflict => "Rule conflicts with other rules and is not applied",
            "change or delete one of the rules named in the message",
        /// The object refers to an object that does not exist.
        NotFound => "Referenced object not found", "create the object named in the message, or correct the name",
        /// The cluster is disarmed.
        Disarmed => "Cluster is disarmed",
            "run hactl arm when the work is done; until then, no service is recovered",
        /// The objects of a Git commit are applied.
        CommitApplied => "Objects of the Git commit are applied", "",
        /// The repository cannot be fetched.
        FetchFailed => "Git repository cannot be fetched",
            "run git ls-remote REPOSITORY on the machine of hactl sync, as its user; check the network and the credentials",
        /// The commit has no valid signature of an allowed signer.
        CommitNotVerified => "Git commit has no valid signature",
            "sign the commit with an allowed key; until then, the objects of the previous commit stay",
        /// The objects of a Git commit are invalid, or the API refused one.
        CommitRefused => "Objects of the Git commit are invalid or were refused",
            "correct the files named in the message, and push another commit",
        /// Others changed fields that are in Git.
        DriftCorrected => "Change of an object that is managed in Git was undone",
            "make the change in the Git repository; hactl describe gitsync NAME names the fields and the users",
        /// No object differs from Git.
        NoDrift => "No object of the Git repository was changed by others", "",
    }

    Operation {
        /// In progress.
        InProgress => "Operation is in progress", "",
        /// Completed.
        Completed => "Operation is complete", "",
        /// Refused.
        Refused => "Operation was refused", "read the message for the blocking reason and the suggested action",
    }

    Cluster {
        /// Became leader.
        BecameLeader => "Controller became leader", "",
        /// Lost leadership.
        LostLeadership => "Controller lost leadership",
            "none: another controller becomes leader; if this happens often, check the latency of etcd and the load of the \
                controllers",
        /// The leader gave up leadership for a controller that joined earlier.
        YieldedLeadership => "Controller yielded leadership to a controller that joined earlier",
            "none: only the older controller may fence a node that is unreachable",
        /// Another process has the id of this controller.
        DuplicateController => "Another process runs with the --id of this controller",
            "give each controller its own --id; if the other process was stopped, wait a few seconds",
        /// The keys of a controller were deleted.
        ControllerDeleted => "Key of a removed controller was deleted", "",
        /// The failover capacity (N+1) check failed.
        InsufficientFailoverCapacity => "If a node fails, some services cannot be restarted elsewhere",
            "run hactl check n+1 --show-placement for the services and their unmet requirements; add capacity or lower requests",
        /// The failover capacity (N+1) check passed.
        FailoverCapacityAvailable => "Every service can be restarted after the failure of any one node", "",
        /// A notification was discarded.
        NotificationFailed => "Notification could not be delivered",
            "check the server named in the message, or correct Cluster.spec.notifications",
        /// The failover capacity (N+1) check is inconclusive.
        FailoverCapacityUnknown => "Failover capacity check is inconclusive for some node failures",
            "run hactl check n+1 --show-placement for the known results; more capacity makes the check conclusive",
    }
}
