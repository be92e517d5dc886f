//! What happens and is counted, as data: nobody who counts decides once more what happened.

use super::notifications::deliveries::NotificationResult;
use ha_api_types::operation::{OperationAction, OperationPhase};
use ha_api_types::reason::Reason;
use ha_api_types::time::Millis;

/// Something that happened once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// This process began to lead, or no longer does.
    Leadership {
        /// It began.
        gained: bool,
    },
    /// A service set out for another node.
    Relocation {
        /// The resource.
        resource: String,
        /// What for.
        reason: Reason,
    },
    /// A service was put on another node after its own had failed.
    Failover,
    /// A phase of a failover has ended.
    Phase {
        /// Which.
        phase: FailoverPhase,
        /// How long it took, on this process's clock.
        took_ms: Millis,
    },
    /// A node was proven dead, or a fence device could not do it.
    Fence {
        /// The kind of proof, see `Proof::NAMES`.
        method: &'static str,
        /// Whether it proved anything.
        confirmed: bool,
    },
    /// A notification was delivered, or was not.
    Notification {
        /// The kind of the target.
        target: &'static str,
        /// Which of both.
        result: NotificationResult,
    },
    /// An operation came to its end.
    Operation {
        /// What was asked for.
        action: OperationAction,
        /// The driver of the resource that it was about; empty for none.
        driver: &'static str,
        /// How it ended.
        phase: OperationPhase,
    },
}

/// A part of the time that a service does not run because its node failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailoverPhase {
    /// From the last heartbeat to the close of the epoch.
    Detect,
    /// From there to the proof.
    Fence,
    /// From there to the assignment to another node.
    Place,
    /// From there until it runs.
    Start,
}

impl FailoverPhase {
    /// Every phase, in order.
    pub const ALL: [FailoverPhase; 4] =
        [FailoverPhase::Detect, FailoverPhase::Fence, FailoverPhase::Place, FailoverPhase::Start];

    /// As in the label.
    pub fn name(self) -> &'static str {
        match self {
            FailoverPhase::Detect => "detect",
            FailoverPhase::Fence => "fence",
            FailoverPhase::Place => "place",
            FailoverPhase::Start => "start",
        }
    }
}
