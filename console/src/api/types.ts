// Types of the API, written by scripts/generate-types.mjs from docs/schemas. Do not edit.

export interface AffinityRule {
  apiVersion: "hactl.io/v1";
  kind: "AffinityRule";
  metadata: {
    name?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    uid?: string;
    generation?: number;
    resourceVersion?: string;
    creationTimestamp?: string | null;
    deletionTimestamp?: string | null;
    finalizers?: Array<string>;
    managedFields?: Array<Record<string, unknown>>;
    generateName?: string;
    namespace?: string;
    ownerReferences?: Array<Record<string, unknown>>;
  };
  spec?: {
    nodeAffinity?: {
      resources?: Array<string>;
      nodes?: Record<string, number> | Array<string> | string;
      strict?: boolean;
    } | null;
    resourceAffinity?: {
      resources?: Array<string>;
      affinity?: "Positive" | "Negative";
      strict?: boolean;
    } | null;
    disabled?: boolean;
    comment?: string;
  };
  status?: {
    observedGeneration?: number;
    conditions?: Array<{
      type: string;
      status: "True" | "False" | "Unknown";
      reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
      message?: string;
      lastTransitionTime?: string | null;
      observedGeneration?: number;
    }>;
  } | null;
}

export interface Cluster {
  apiVersion: "hactl.io/v1";
  kind: "Cluster";
  metadata: {
    name?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    uid?: string;
    generation?: number;
    resourceVersion?: string;
    creationTimestamp?: string | null;
    deletionTimestamp?: string | null;
    finalizers?: Array<string>;
    managedFields?: Array<Record<string, unknown>>;
    generateName?: string;
    namespace?: string;
    ownerReferences?: Array<Record<string, unknown>>;
  };
  spec?: {
    timing?: {
      profile?: "Default" | "Fast" | "Conservative";
      heartbeatIntervalSeconds?: number | null;
      heartbeatLifetimeSeconds?: number | null;
      selfFenceMarginSeconds?: number | null;
      watchdogTimeoutSeconds?: number | null;
      watchdogClockSkewPercent?: number | null;
      watchdogMaxDelaySeconds?: number | null;
      clockRateErrorPercent?: number | null;
      ioDrainSeconds?: number | null;
      leaderLeaseSeconds?: number | null;
      nodeReturnGracePeriodSeconds?: number | null;
      freezeTimeoutSeconds?: number | null;
      shutdownTimeoutSeconds?: number | null;
      candidateRetentionSeconds?: number | null;
    };
    fencing?: {
      maxFencing?: number | string;
      windowSeconds?: number;
      requireTested?: boolean;
      onEtcdLoss?: "Stop" | "Hold";
      allowSimulatedWatchdog?: boolean;
    };
    shutdownPolicy?: "Conditional" | "Freeze" | "Failover" | "Migrate";
    scheduler?: {
      mode?: "Basic" | "Static" | "Dynamic";
      overcommit?: number;
      maxCpuRatio?: number;
      rebalanceOnStart?: boolean;
      autoRebalance?: {
        enabled?: boolean;
        method?: "BestScore" | "Topsis";
        threshold?: number;
        margin?: number;
        holdSeconds?: number;
        maxMoves?: number;
      };
      exclusionTags?: Array<string>;
      interGroupMoves?: boolean;
      preemption?: boolean;
    };
    reservation?: {
      enabled?: boolean;
      enforce?: boolean;
      intervalSeconds?: number;
      overUtilization?: number;
      scaleDown?: number;
      basis?: "Requests" | "Measured" | "Max";
      countStopped?: boolean;
    };
    maxWorkers?: number;
    maxMigrations?: number;
    notifications?: {
      kinds?: Array<"NodeFenced" | "FenceUnconfirmed" | "NodeReturned" | "ResourceError" | "ResourceRecovered" | "ReservationFailed" | "ReservationRecovered" | "Test">;
      webhooks?: Array<string | {
        url?: string;
        bearerTokenFile?: string | null;
        hmacKeyFile?: string | null;
        caFile?: string | null;
      }>;
      smtp?: {
        server?: string;
        tls?: "StartTLS" | "TLS" | "None";
        from?: string;
        to?: string | Array<string>;
        user?: string | null;
        passwordFile?: string | null;
        caFile?: string | null;
      } | null;
    } | null;
    disarmed?: "Freeze" | "Ignore" | null;
  };
  status?: {
    observedGeneration?: number;
    leader?: string | null;
    term?: number | null;
    protocol?: number;
    active?: {
      timing?: {
        profile?: "Default" | "Fast" | "Conservative";
        heartbeatIntervalSeconds?: number | null;
        heartbeatLifetimeSeconds?: number | null;
        selfFenceMarginSeconds?: number | null;
        watchdogTimeoutSeconds?: number | null;
        watchdogClockSkewPercent?: number | null;
        watchdogMaxDelaySeconds?: number | null;
        clockRateErrorPercent?: number | null;
        ioDrainSeconds?: number | null;
        leaderLeaseSeconds?: number | null;
        nodeReturnGracePeriodSeconds?: number | null;
        freezeTimeoutSeconds?: number | null;
        shutdownTimeoutSeconds?: number | null;
        candidateRetentionSeconds?: number | null;
      };
      fencing?: {
        maxFencing?: number | string;
        windowSeconds?: number;
        requireTested?: boolean;
        onEtcdLoss?: "Stop" | "Hold";
        allowSimulatedWatchdog?: boolean;
      };
      shutdownPolicy?: "Conditional" | "Freeze" | "Failover" | "Migrate";
      scheduler?: {
        mode?: "Basic" | "Static" | "Dynamic";
        overcommit?: number;
        maxCpuRatio?: number;
        rebalanceOnStart?: boolean;
        autoRebalance?: {
          enabled?: boolean;
          method?: "BestScore" | "Topsis";
          threshold?: number;
          margin?: number;
          holdSeconds?: number;
          maxMoves?: number;
        };
        exclusionTags?: Array<string>;
        interGroupMoves?: boolean;
        preemption?: boolean;
      };
      reservation?: {
        enabled?: boolean;
        enforce?: boolean;
        intervalSeconds?: number;
        overUtilization?: number;
        scaleDown?: number;
        basis?: "Requests" | "Measured" | "Max";
        countStopped?: boolean;
      };
      maxWorkers?: number;
      maxMigrations?: number;
      notifications?: {
        kinds?: Array<"NodeFenced" | "FenceUnconfirmed" | "NodeReturned" | "ResourceError" | "ResourceRecovered" | "ReservationFailed" | "ReservationRecovered" | "Test">;
        webhooks?: Array<string | {
          url?: string;
          bearerTokenFile?: string | null;
          hmacKeyFile?: string | null;
          caFile?: string | null;
        }>;
        smtp?: {
          server?: string;
          tls?: "StartTLS" | "TLS" | "None";
          from?: string;
          to?: string | Array<string>;
          user?: string | null;
          passwordFile?: string | null;
          caFile?: string | null;
        } | null;
      } | null;
      disarmed?: "Freeze" | "Ignore" | null;
    } | null;
    arming?: string;
    waitingFor?: Array<string>;
    conditions?: Array<{
      type: string;
      status: "True" | "False" | "Unknown";
      reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
      message?: string;
      lastTransitionTime?: string | null;
      observedGeneration?: number;
    }>;
    recentFences?: Array<{
      node: string;
      epoch: number;
      at: string;
      reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
      message: string;
      proof?: string;
    }>;
    allocated?: Record<string, string | number>;
    internal?: {
      disarm?: "Freeze" | "Ignore" | null;
    };
  } | null;
}

export interface GitSync {
  apiVersion: "hactl.io/v1";
  kind: "GitSync";
  metadata: {
    name?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    uid?: string;
    generation?: number;
    resourceVersion?: string;
    creationTimestamp?: string | null;
    deletionTimestamp?: string | null;
    finalizers?: Array<string>;
    managedFields?: Array<Record<string, unknown>>;
    generateName?: string;
    namespace?: string;
    ownerReferences?: Array<Record<string, unknown>>;
  };
  spec?: {
    repository?: string;
    branch?: string;
    path?: string;
    intervalSeconds?: number | null;
    verifySignatures?: boolean;
    comment?: string;
  };
  status?: {
    observedGeneration?: number;
    revision?: string;
    appliedRevision?: string;
    appliedTime?: string | null;
    checkedTime?: string | null;
    objects?: number;
    drift?: Array<{
      kind: "Resource" | "Group" | "AffinityRule" | "Node" | "NodeGroup" | "Cluster" | "Operation" | "GitSync";
      name: string;
      fields?: Array<string>;
      users?: Array<string>;
      managers?: Array<string>;
      deleted?: boolean;
    }>;
    conditions?: Array<{
      type: string;
      status: "True" | "False" | "Unknown";
      reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
      message?: string;
      lastTransitionTime?: string | null;
      observedGeneration?: number;
    }>;
  } | null;
}

export interface Group {
  apiVersion: "hactl.io/v1";
  kind: "Group";
  metadata: {
    name?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    uid?: string;
    generation?: number;
    resourceVersion?: string;
    creationTimestamp?: string | null;
    deletionTimestamp?: string | null;
    finalizers?: Array<string>;
    managedFields?: Array<Record<string, unknown>>;
    generateName?: string;
    namespace?: string;
    ownerReferences?: Array<Record<string, unknown>>;
  };
  spec?: {
    nodes?: Record<string, number> | Array<string> | string;
    restricted?: boolean;
    nofailback?: boolean;
    comment?: string;
  };
  status?: {
    observedGeneration?: number;
    conditions?: Array<{
      type: string;
      status: "True" | "False" | "Unknown";
      reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
      message?: string;
      lastTransitionTime?: string | null;
      observedGeneration?: number;
    }>;
  } | null;
}

export interface Node {
  apiVersion: "hactl.io/v1";
  kind: "Node";
  metadata: {
    name?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    uid?: string;
    generation?: number;
    resourceVersion?: string;
    creationTimestamp?: string | null;
    deletionTimestamp?: string | null;
    finalizers?: Array<string>;
    managedFields?: Array<Record<string, unknown>>;
    generateName?: string;
    namespace?: string;
    ownerReferences?: Array<Record<string, unknown>>;
  };
  spec?: {
    maintenance?: boolean;
    unschedulable?: boolean;
    capacity?: {
      cpu?: string | number | null;
      memory?: string | number | null;
      disk?: string | number | null;
    } | null;
    nodeGroup?: string | null;
    storagePools?: Array<string>;
    reserved?: {
      cpu?: string | number | null;
      memory?: string | number | null;
      disk?: string | number | null;
    } | null;
    countThreads?: boolean;
    maxWorkers?: number | null;
    fencing?: {
      devices?: Array<{
        name?: string;
        priority?: number;
        kind?: "Power" | "Fabric";
        action?: "Reboot" | "Off";
        coversStorage?: boolean;
        timeoutSeconds?: number;
        retries?: number;
        parts?: Array<{
          agent?: string;
          attributes?: Record<string, string | {
            valueFrom: {
              file?: string | null;
              credential?: string | null;
              env?: string | null;
            };
          }>;
          attributesFile?: string | null;
        }>;
      }>;
      trustWatchdogOnVirtualMachine?: boolean;
    };
  };
  status?: {
    observedGeneration?: number;
    state?: "Online" | "Offline" | "Unknown" | "Fence" | "Maintenance" | "Gone";
    mode?: string;
    agent?: string;
    arming?: string;
    version?: string;
    bootId?: string;
    machineId?: string;
    watchdog?: {
      kind?: string;
      identity?: string;
      device?: string;
      timeoutSeconds?: number;
      armed?: boolean;
      failed?: boolean;
      dynamicTimeout?: boolean;
      fdStorePersistent?: boolean;
      tested?: boolean;
      lastTest?: {
        operation?: string;
        at?: string;
        bootId?: string;
        nextBootId?: string;
        timeoutSeconds?: number;
        lastedSeconds?: number;
      } | null;
      observed?: {
        nowayout?: boolean;
        minTimeoutSeconds?: number;
        maxTimeoutSeconds?: number;
        pretimeoutSeconds?: number | null;
        minMarginSeconds?: number | null;
        maxDelaySeconds?: number | null;
        realTime?: boolean;
        memoryLocked?: boolean;
      } | null;
    } | null;
    sleepProtection?: string;
    fencingDelaySeconds?: number | null;
    timing?: {
      heartbeatIntervalSeconds?: number;
      heartbeatLifetimeSeconds?: number;
      selfFenceMarginSeconds?: number;
      watchdogTimeoutSeconds?: number;
      watchdogClockSkewPercent?: number;
      watchdogMaxDelaySeconds?: number;
      clockRateErrorPercent?: number;
      ioDrainSeconds?: number;
      leaderLeaseSeconds?: number;
      nodeReturnGracePeriodSeconds?: number;
      freezeTimeoutSeconds?: number;
      shutdownTimeoutSeconds?: number;
    } | null;
    lastHeartbeatTime?: string | null;
    drivers?: Array<string>;
    policy?: {
      drivers?: Array<string> | null;
      allowRoot?: boolean;
      users?: Array<string> | null;
      paths?: Array<string> | null;
      mounts?: Array<string> | null;
      ocfProviders?: Array<string> | null;
      secrets?: Array<string> | null;
    } | null;
    capacity?: {
      cpu?: string | number | null;
      memory?: string | number | null;
      disk?: string | number | null;
    };
    allocated?: {
      cpu?: string | number | null;
      memory?: string | number | null;
      disk?: string | number | null;
    };
    usage?: {
      cpu?: string | number | null;
      memory?: string | number | null;
      diskRate?: string | number | null;
      networkRate?: string | number | null;
    } | null;
    services?: number;
    checks?: Array<{
      name?: string;
      status?: "Pass" | "Warn" | "Fail";
      message?: string;
      remediation?: string;
    }>;
    lastTermination?: {
      bootId?: string;
      message?: string;
      at?: string;
    } | null;
    lastFencingReason?: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown" | null;
    conditions?: Array<{
      type: string;
      status: "True" | "False" | "Unknown";
      reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
      message?: string;
      lastTransitionTime?: string | null;
      observedGeneration?: number;
    }>;
    internal?: {
      epoch?: number;
      fence?: string;
    };
  } | null;
}

export interface NodeGroup {
  apiVersion: "hactl.io/v1";
  kind: "NodeGroup";
  metadata: {
    name?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    uid?: string;
    generation?: number;
    resourceVersion?: string;
    creationTimestamp?: string | null;
    deletionTimestamp?: string | null;
    finalizers?: Array<string>;
    managedFields?: Array<Record<string, unknown>>;
    generateName?: string;
    namespace?: string;
    ownerReferences?: Array<Record<string, unknown>>;
  };
  spec?: {
    allocationPolicy?: "Preferred" | "LastResort" | "Unallocable";
    tags?: Array<string>;
    comment?: string;
  };
  status?: {
    observedGeneration?: number;
    nodes?: Array<string>;
    conditions?: Array<{
      type: string;
      status: "True" | "False" | "Unknown";
      reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
      message?: string;
      lastTransitionTime?: string | null;
      observedGeneration?: number;
    }>;
  } | null;
}

export interface Operation {
  apiVersion: "hactl.io/v1";
  kind: "Operation";
  metadata: {
    name?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    uid?: string;
    generation?: number;
    resourceVersion?: string;
    creationTimestamp?: string | null;
    deletionTimestamp?: string | null;
    finalizers?: Array<string>;
    managedFields?: Array<Record<string, unknown>>;
    generateName?: string;
    namespace?: string;
    ownerReferences?: Array<Record<string, unknown>>;
  };
  spec: {
    action: "Migrate" | "Relocate" | "ReplaceSecondary" | "Stop" | "Start" | "Restart" | "ClearError" | "UpdateInPlace" | "ConfirmFenced" | "Fence" | "Unfence" | "ShutdownContinue" | "FollowStore" | "TestWatchdog" | "Balance" | "TestNotifications";
    resource?: string | null;
    node?: string | null;
    timeoutSeconds?: number | null;
    epoch?: number | null;
    bootId?: string | null;
    notOn?: string | null;
    generation?: number | null;
    requestedBy?: string;
  };
  status?: {
    observedGeneration?: number;
    phase?: "Pending" | "Running" | "Succeeded" | "Failed" | "Refused";
    reason?: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
    message?: string;
    together?: Array<string>;
    blockedBy?: Array<string>;
    startTime?: string | null;
    completionTime?: string | null;
    conditions?: Array<{
      type: string;
      status: "True" | "False" | "Unknown";
      reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
      message?: string;
      lastTransitionTime?: string | null;
      observedGeneration?: number;
    }>;
  } | null;
}

export interface Resource {
  apiVersion: "hactl.io/v1";
  kind: "Resource";
  metadata: {
    name?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    uid?: string;
    generation?: number;
    resourceVersion?: string;
    creationTimestamp?: string | null;
    deletionTimestamp?: string | null;
    finalizers?: Array<string>;
    managedFields?: Array<Record<string, unknown>>;
    generateName?: string;
    namespace?: string;
    ownerReferences?: Array<Record<string, unknown>>;
  };
  spec?: {
    driver?: {
      exec?: {
        command?: Array<string>;
        start?: Array<string>;
        stop?: Array<string>;
        monitor?: Array<string>;
        migrate?: Array<string>;
        replaceSecondary?: Array<string>;
        environment?: Record<string, string | {
          valueFrom: {
            file?: string | null;
            credential?: string | null;
            env?: string | null;
          };
        }>;
        workingDirectory?: string | null;
        user?: string | null;
      } | null;
      systemd?: {
        unit?: string;
        disableAtBoot?: boolean;
        command?: Array<string>;
        environment?: Record<string, string>;
        workingDirectory?: string | null;
        user?: string | null;
        limits?: {
          cpu?: string | number | null;
          memory?: string | number | null;
          tasks?: number | null;
        };
      } | null;
      ocf?: {
        agent?: string;
        parameters?: Record<string, string | {
          valueFrom: {
            file?: string | null;
            credential?: string | null;
            env?: string | null;
          };
        }>;
        monitorIntervalSeconds?: number | null;
        checkLevel?: number | null;
        allowMigrate?: boolean;
        gated?: boolean;
      } | null;
      podman?: {
        container?: string;
        image?: string;
        command?: Array<string>;
        environment?: Record<string, string | {
          valueFrom: {
            file?: string | null;
            credential?: string | null;
            env?: string | null;
          };
        }>;
        mounts?: Array<{
          source?: string;
          target?: string;
          readOnly?: boolean;
        }>;
        ports?: Array<{
          host?: number;
          container?: number | null;
          address?: string | null;
          protocol?: "TCP" | "UDP";
        }>;
        network?: string | null;
        user?: string | null;
        workingDirectory?: string | null;
        limits?: {
          cpu?: string | number | null;
          memory?: string | number | null;
          tasks?: number | null;
        };
        ulimits?: Record<string, string>;
        healthCheck?: {
          command?: Array<string>;
          intervalSeconds?: number;
          timeoutSeconds?: number;
          retries?: number;
          startPeriodSeconds?: number;
        } | null;
      } | null;
      lxc?: {
        container?: string;
        config?: string;
        limits?: {
          cpu?: string | number | null;
          memory?: string | number | null;
          tasks?: number | null;
        };
        healthCheck?: {
          command?: Array<string>;
          intervalSeconds?: number;
          timeoutSeconds?: number;
          retries?: number;
          startPeriodSeconds?: number;
        } | null;
      } | null;
      libvirt?: {
        domain?: string;
        definition?: string;
        xml?: string;
        uri?: string | null;
        migration?: {
          uri?: string | null;
          dataUri?: string | null;
          bandwidthMebibytesPerSecond?: number | null;
          maxDowntimeSeconds?: number | null;
          postCopyAfterSeconds?: number | null;
        };
      } | null;
      external?: {
        name?: string;
        settings?: Record<string, unknown>;
        allowMigrate?: boolean;
        gated?: boolean;
      } | null;
      simulated?: {
        type?: string;
        identity?: string;
        live?: boolean;
        gated?: boolean;
        startSeconds?: number;
        stopSeconds?: number;
        migrateSeconds?: number;
        replacesSecondary?: boolean;
        replaceSeconds?: number;
        startFailures?: number;
        migrateFailures?: number;
        replaceFailures?: number;
        stopFails?: boolean;
        badConfiguration?: boolean;
        failOn?: Array<string>;
        missing?: Array<string>;
      } | null;
    };
    state?: "Started" | "Stopped" | "Disabled" | "Ignored";
    group?: string | null;
    maxRestart?: number;
    maxRelocate?: number;
    failback?: boolean;
    priority?: number;
    requests?: {
      cpu?: string | number | null;
      memory?: string | number | null;
      disk?: string | number | null;
    };
    storage?: {
      pool?: string;
      mode?: "Shared" | "Replicated" | "Local";
      secondary?: string | null;
    } | null;
    exclusive?: boolean;
    allowUngated?: boolean;
    dependsOn?: Array<string>;
    externalStop?: "Restart" | "Accept";
    tags?: Array<string>;
    timeouts?: {
      startSeconds?: number;
      stopSeconds?: number;
      migrateSeconds?: number;
      replaceSeconds?: number;
      monitorSeconds?: number;
      stableSeconds?: number;
    };
    comment?: string;
  };
  status?: {
    observedGeneration?: number;
    state?: "Queued" | "RequestStart" | "Starting" | "Started" | "RequestStop" | "Stopping" | "Stopped" | "Migrate" | "Relocate" | "Fence" | "Recovery" | "Freeze" | "Error" | "Disabled" | "Ignored" | "Deleting";
    node?: string | null;
    target?: string | null;
    running?: boolean;
    failedNodes?: Array<string>;
    incompatibleNodes?: Array<string>;
    relocations?: number;
    maintenanceNode?: string | null;
    stopConfirmed?: boolean | null;
    countedEmpty?: Array<string>;
    moveFailures?: number;
    preemptedBy?: string | null;
    replicas?: Array<string>;
    replacement?: {
      uid?: string;
      node?: string;
    } | null;
    copies?: Array<{
      node?: string;
      epoch?: number;
      bootId?: string;
      definition?: {
        name?: string;
        uid?: string;
        driver?: {
          exec?: {
            command?: Array<string>;
            start?: Array<string>;
            stop?: Array<string>;
            monitor?: Array<string>;
            migrate?: Array<string>;
            replaceSecondary?: Array<string>;
            environment?: Record<string, string | {
              valueFrom: {
                file?: string | null;
                credential?: string | null;
                env?: string | null;
              };
            }>;
            workingDirectory?: string | null;
            user?: string | null;
          } | null;
          systemd?: {
            unit?: string;
            disableAtBoot?: boolean;
            command?: Array<string>;
            environment?: Record<string, string>;
            workingDirectory?: string | null;
            user?: string | null;
            limits?: {
              cpu?: string | number | null;
              memory?: string | number | null;
              tasks?: number | null;
            };
          } | null;
          ocf?: {
            agent?: string;
            parameters?: Record<string, string | {
              valueFrom: {
                file?: string | null;
                credential?: string | null;
                env?: string | null;
              };
            }>;
            monitorIntervalSeconds?: number | null;
            checkLevel?: number | null;
            allowMigrate?: boolean;
            gated?: boolean;
          } | null;
          podman?: {
            container?: string;
            image?: string;
            command?: Array<string>;
            environment?: Record<string, string | {
              valueFrom: {
                file?: string | null;
                credential?: string | null;
                env?: string | null;
              };
            }>;
            mounts?: Array<{
              source?: string;
              target?: string;
              readOnly?: boolean;
            }>;
            ports?: Array<{
              host?: number;
              container?: number | null;
              address?: string | null;
              protocol?: "TCP" | "UDP";
            }>;
            network?: string | null;
            user?: string | null;
            workingDirectory?: string | null;
            limits?: {
              cpu?: string | number | null;
              memory?: string | number | null;
              tasks?: number | null;
            };
            ulimits?: Record<string, string>;
            healthCheck?: {
              command?: Array<string>;
              intervalSeconds?: number;
              timeoutSeconds?: number;
              retries?: number;
              startPeriodSeconds?: number;
            } | null;
          } | null;
          lxc?: {
            container?: string;
            config?: string;
            limits?: {
              cpu?: string | number | null;
              memory?: string | number | null;
              tasks?: number | null;
            };
            healthCheck?: {
              command?: Array<string>;
              intervalSeconds?: number;
              timeoutSeconds?: number;
              retries?: number;
              startPeriodSeconds?: number;
            } | null;
          } | null;
          libvirt?: {
            domain?: string;
            definition?: string;
            xml?: string;
            uri?: string | null;
            migration?: {
              uri?: string | null;
              dataUri?: string | null;
              bandwidthMebibytesPerSecond?: number | null;
              maxDowntimeSeconds?: number | null;
              postCopyAfterSeconds?: number | null;
            };
          } | null;
          external?: {
            name?: string;
            settings?: Record<string, unknown>;
            allowMigrate?: boolean;
            gated?: boolean;
          } | null;
          simulated?: {
            type?: string;
            identity?: string;
            live?: boolean;
            gated?: boolean;
            startSeconds?: number;
            stopSeconds?: number;
            migrateSeconds?: number;
            replacesSecondary?: boolean;
            replaceSeconds?: number;
            startFailures?: number;
            migrateFailures?: number;
            replaceFailures?: number;
            stopFails?: boolean;
            badConfiguration?: boolean;
            failOn?: Array<string>;
            missing?: Array<string>;
          } | null;
        };
        timeouts?: {
          startSeconds?: number;
          stopSeconds?: number;
          migrateSeconds?: number;
          replaceSeconds?: number;
          monitorSeconds?: number;
          stableSeconds?: number;
        };
        maxRestart?: number;
        priority?: number;
        exclusive?: boolean;
        dependsOn?: Array<string>;
      };
      letGo?: boolean;
    }>;
    operation?: string | null;
    availability?: {
      recordedSince?: string;
      state?: "NotRequired" | "Up" | "Down";
      since?: string;
      spans?: Array<{
        startDate?: string;
        days?: number;
        downSeconds?: number;
        notRequiredSeconds?: number;
      }>;
    } | null;
    runningSince?: string | null;
    conditions?: Array<{
      type: string;
      status: "True" | "False" | "Unknown";
      reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
      message?: string;
      lastTransitionTime?: string | null;
      observedGeneration?: number;
    }>;
    internal?: {
      uid?: string;
      epoch?: number | null;
      actionUid?: string | null;
      probeGeneration?: number | null;
      probeArming?: number | null;
      askedIdentity?: string | null;
      askedGeneration?: number;
      declaredSecondary?: string | null;
    };
  } | null;
}

export interface AuditPage {
  controller: string;
  file: string;
  items: Array<{
    time: string;
    user: string;
    groups: Array<string>;
    source: string;
    verb: string;
    group: string;
    resource: string;
    name: string;
    subresource: string;
    path?: string | null;
    fieldManager: string;
    dryRun: boolean;
    code: number;
    outcome: string;
  }>;
  continue?: string | null;
}

export interface BalancePlan {
  groups: Array<{
    group: string;
    scoreBefore: number;
    scoreAfter: number;
    timeLimited: boolean;
    batches: Array<Array<{
      resource: string;
      with: Array<string>;
      from: Array<string>;
      to: Array<string>;
      score: number;
      operations: Array<{
        action: "Migrate" | "Relocate" | "ReplaceSecondary" | "Stop" | "Start" | "Restart" | "ClearError" | "UpdateInPlace" | "ConfirmFenced" | "Fence" | "Unfence" | "ShutdownContinue" | "FollowStore" | "TestWatchdog" | "Balance" | "TestNotifications";
        resource: string;
        node: string;
      }>;
    }>>;
    nodes: Array<{
      node: string;
      before: {
        services: number;
        memoryMebibytes: number;
        cpuMilli: number;
      };
      after: {
        services: number;
        memoryMebibytes: number;
        cpuMilli: number;
      };
    }>;
  }>;
}

export interface Explanation {
  resource: string;
  type: string;
  requested: "Started" | "Stopped" | "Disabled" | "Ignored";
  state: "Queued" | "RequestStart" | "Starting" | "Started" | "RequestStop" | "Stopping" | "Stopped" | "Migrate" | "Relocate" | "Fence" | "Recovery" | "Freeze" | "Error" | "Disabled" | "Ignored" | "Deleting";
  node?: string | null;
  target?: string | null;
  running: boolean;
  usage?: {
    cpu?: string | number | null;
    memory?: string | number | null;
    diskRate?: string | number | null;
    networkRate?: string | number | null;
  } | null;
  reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
  message: string;
  waitingFor: Array<string>;
  conditions: Array<{
    type: string;
    status: "True" | "False" | "Unknown";
    reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
    message: string;
    lastTransitionTime?: string | null;
    observedGeneration: number;
  }>;
  balance?: string | null;
  nodes: Array<{
    node: string;
    current: boolean;
    chosen: boolean;
    allowed: boolean;
    priority?: number | null;
    score?: string | null;
    load?: string | null;
    causes: Array<{
      reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
      message: string;
      help?: string;
    }>;
  }>;
  help: Array<string>;
}

export interface Overview {
  cluster: string;
  answeredBy: string;
  version: string;
  store: {
    quorum: boolean;
    revision: number;
    members: Array<{
      name: string;
      url: string;
      healthy: boolean;
      leader: boolean;
      version: string;
      databaseBytes: number;
      problem?: string;
    }>;
    backup?: {
      at: string;
      revision: number;
      sizeBytes: number;
      encrypted: boolean;
    } | null;
  };
  leader?: {
    id: string;
    url: string;
    term: number;
    since: string;
  } | null;
  controllers: Array<{
    id: string;
    url: string;
    version: string;
    state: "Standby" | "Leading" | "Lost";
    silentSeconds?: number | null;
  }>;
  nodes: Array<{
    name: string;
    state: "Online" | "Offline" | "Unknown" | "Fence" | "Maintenance" | "Gone";
    agent: string;
    mode: string;
    arming?: string;
    version?: string;
    registration: number;
    registrationState: string;
    lease: boolean;
    watchdog?: {
      kind: string;
      identity: string;
      device: string;
      timeoutSeconds: number;
      armed: boolean;
      failed?: boolean;
      dynamicTimeout: boolean;
      fdStorePersistent: boolean;
      tested?: boolean;
      lastTest?: {
        operation: string;
        at: string;
        bootId: string;
        nextBootId: string;
        timeoutSeconds: number;
        lastedSeconds: number;
      } | null;
      observed?: {
        nowayout: boolean;
        minTimeoutSeconds: number;
        maxTimeoutSeconds: number;
        pretimeoutSeconds?: number | null;
        minMarginSeconds?: number | null;
        maxDelaySeconds?: number | null;
        realTime: boolean;
        memoryLocked: boolean;
      } | null;
    } | null;
    silentSeconds?: number | null;
    lastHeartbeatTime?: string | null;
    services: number;
    reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
    message?: string;
  }>;
  services: Record<string, number>;
  arming: string;
  waitingFor: Array<string>;
  problems: Array<{
    severity: "Degraded" | "Failed";
    about: string;
    reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
    message: string;
    help?: string;
  }>;
  checks: Array<{
    name: string;
    status: "Pass" | "Warn" | "Fail";
    message: string;
    remediation?: string;
  }>;
  recentFences: Array<{
    node: string;
    epoch: number;
    at: string;
    reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
    message: string;
    proof?: string;
  }>;
}

export interface PlacementHistory {
  since?: string | null;
  at: string;
  changes: Array<{
    time: string;
    kind: "Resource" | "Group" | "AffinityRule" | "Node" | "NodeGroup" | "Cluster" | "Operation" | "GitSync";
    name: string;
    before?: {
      node?: string | null;
      state: string;
    } | null;
    after?: {
      node?: string | null;
      state: string;
    } | null;
  }>;
}

export interface Plan {
  effects: Array<{
    resource: string;
    effect: "Start" | "Stop" | "Restart" | "Migrate" | "Relocate" | "Wait" | "Release";
    from?: string | null;
    to?: string | null;
    reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
    message?: string;
  }>;
  waitingFor: Array<string>;
  warnings: Array<string>;
}

export interface ReservationReport {
  cluster: string;
  basis: "Requests" | "Measured" | "Max";
  countStopped: boolean;
  failures: number;
  verdict: "Survives" | "Unknown" | "Fails";
  failureTolerance?: number | null;
  checked: number;
  message?: string;
  items: Array<{
    what: string;
    nodes: Array<string>;
    verdict: "Survives" | "Unknown" | "Fails";
    because: string;
    moves?: Array<{
      resource: string;
      from: string;
      to: string;
    }>;
    makeRoom?: Array<{
      resource: string;
      from: string;
      to: string;
    }>;
    withoutPlace?: Array<{
      resource: string;
      node: string;
      lacks: Array<{
        node: string;
        reason: "Pending" | "NotProbed" | "IdentityTaken" | "CopyRemains" | "DefinitionDiffers" | "Starting" | "Running" | "Stopping" | "Stopped" | "Disabled" | "Unmanaged" | "Adopted" | "Scheduled" | "NodeFailed" | "Fencing" | "Recovering" | "Recovered" | "Preempting" | "Preempted" | "WaitingForDependency" | "StoppingForDependency" | "Unschedulable" | "Failback" | "Preferred" | "MovingForAntiAffinity" | "Rebalanced" | "PlacementChanged" | "Draining" | "ReturningFromMaintenance" | "UserRequested" | "Migrating" | "Relocating" | "Moved" | "MoveFailed" | "ReplacingSecondary" | "SecondaryReplaced" | "ReplaceFailed" | "Frozen" | "Deleted" | "Waiting" | "StartFailed" | "StopFailed" | "Crashed" | "Restarted" | "PoliciesExhausted" | "MultipleActive" | "TimedOut" | "Interrupted" | "NotInstalled" | "BadConfiguration" | "DriverMissing" | "JournalFailed" | "LeaseLost" | "StoppedExternally" | "StartedExternally" | "PermitRefused" | "EtcdRestored" | "Allowed" | "NodeNotOnline" | "NodeInMaintenance" | "NodeUnschedulable" | "NotInGroup" | "NodeAffinity" | "NodePolicy" | "NegativePartner" | "PositivePartner" | "NotEnoughMemory" | "NotEnoughDisk" | "NotEnoughCpu" | "StorageUnreachable" | "PreviousFailure" | "WatchdogMissing" | "NodeUnverified" | "LowerPriorityTier" | "CurrentNode" | "ExclusionTag" | "NodeGroupUnallocable" | "OtherNodeGroup" | "NodeReady" | "HeartbeatMissed" | "Registering" | "ShutdownComplete" | "ShuttingDown" | "AgentDown" | "DeclaredDead" | "Fenced" | "LostWhileIdle" | "FencingUnavailable" | "FencingRateLimited" | "FailureDetectionReset" | "JoinedLater" | "DuplicateNode" | "Unreadable" | "WatchdogArmed" | "WatchdogIdle" | "WatchdogSimulated" | "WatchdogFailed" | "SleepUnprotected" | "WatchdogUntested" | "TimingRefused" | "FenceDeviceConfirmed" | "FenceDeviceFailed" | "FenceDeviceRefuted" | "FenceDeviceStarted" | "FencedOff" | "ConfirmedByOperator" | "UncleanShutdown" | "NodeAlive" | "Outdated" | "HealthCheckFailed" | "Maintenance" | "EtcdTooOld" | "Accepted" | "Invalid" | "RuleConflict" | "NotFound" | "Disarmed" | "CommitApplied" | "FetchFailed" | "CommitNotVerified" | "CommitRefused" | "DriftCorrected" | "NoDrift" | "InProgress" | "Completed" | "Refused" | "BecameLeader" | "LostLeadership" | "YieldedLeadership" | "DuplicateController" | "ControllerDeleted" | "InsufficientFailoverCapacity" | "FailoverCapacityAvailable" | "NotificationFailed" | "FailoverCapacityUnknown" | "Unknown";
        message: string;
      }>;
      more: number;
    }>;
  }>;
}

export interface TimingReport {
  settings: Array<{
    field: string;
    value: number;
    profileValue: number;
    min: number;
    max?: number | null;
  }>;
  problems: Array<{
    field: string;
    message: string;
  }>;
  failovers: Array<{
    nodes: Array<string>;
    fencingDelaySeconds: number;
    totalSeconds: number;
    leaderNodeTotalSeconds: number;
    parts: Array<{
      name: string;
      nodeSeconds: number;
      leaderNodeSeconds: number;
      isSum: boolean;
    }>;
  }>;
  unreportedNodes: Array<string>;
}

export interface UsageOverview {
  nodes: Array<{
    name: string;
    usage?: {
      cpu?: string | number | null;
      memory?: string | number | null;
      diskRate?: string | number | null;
      networkRate?: string | number | null;
    } | null;
    capacity: {
      cpu?: string | number | null;
      memory?: string | number | null;
      disk?: string | number | null;
    };
    allocated: {
      cpu?: string | number | null;
      memory?: string | number | null;
      disk?: string | number | null;
    };
  }>;
  resources: Array<{
    name: string;
    type: string;
    node: string;
    usage?: {
      cpu?: string | number | null;
      memory?: string | number | null;
      diskRate?: string | number | null;
      networkRate?: string | number | null;
    } | null;
    requests: {
      cpu?: string | number | null;
      memory?: string | number | null;
      disk?: string | number | null;
    };
  }>;
}
