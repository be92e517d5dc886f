//! Events to count in metrics, as data, so that the code that counts makes no decisions.

use super::notifications::deliveries::NotificationResult;
use ha_api_types::id::ResourceName;
use ha_api_types::operation::{OperationAction, OperationPhase};
use ha_api_types::reason::Reason;
use ha_api_types::time::Millis;

/// A single event to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricEvent {
    /// This process became leader, or is no longer leader.
    Leadership {
        /// `true` if this process became leader.
        gained: bool,
    },
    /// A service started to move to another node.
    Relocation {
        /// Name of the resource whose service moves.
        resource: ResourceName,
        /// Reason of the move.
        reason: Reason,
    },
    /// A service was assigned to another node after its own node had failed.
    Failover,
    /// A phase of a failover has ended.
    Phase {
        /// The phase that ended.
        phase: FailoverPhase,
        /// Duration in milliseconds, on this process's clock.
        duration_ms: Millis,
    },
    /// A node was fenced, or a fence device failed to fence it.
    Fence {
        /// Kind of proof, see `Proof::NAMES`.
        method: &'static str,
        /// `true` if the fencing was confirmed.
        confirmed: bool,
    },
    /// A notification was delivered, or its delivery failed.
    Notification {
        /// Kind of the target.
        target: &'static str,
        /// Result of the delivery.
        result: NotificationResult,
    },
    /// An operation ended.
    Operation {
        /// Action of the operation.
        action: OperationAction,
        /// Driver of the operation's resource; empty if the operation has no resource.
        driver: &'static str,
        /// Final phase of the operation.
        phase: OperationPhase,
    },
}

/// A part of the downtime of a service whose node failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailoverPhase {
    /// From the last heartbeat to the close of the epoch.
    Detect,
    /// From the close of the epoch to the proof.
    Fence,
    /// From the proof to the assignment to another node.
    Place,
    /// From the assignment until the service runs.
    Start,
}

impl FailoverPhase {
    /// Every phase, in order.
    pub const ALL: [FailoverPhase; 4] =
        [FailoverPhase::Detect, FailoverPhase::Fence, FailoverPhase::Place, FailoverPhase::Start];

    /// Returns the name of the phase as a metric label.
    pub fn name(self) -> &'static str {
        match self {
            FailoverPhase::Detect => "detect",
            FailoverPhase::Fence => "fence",
            FailoverPhase::Place => "place",
            FailoverPhase::Start => "start",
        }
    }
}
