//! Inputs and effects of the controller's cores.

use super::candidacy::{ElectionInputs, ElectionState};
use super::metric_event::MetricEvent;
use super::notifications::deliveries::{Delivery, DeliveryId, DeliveryOutcome};
use ha_api_types::event::Event;
use ha_api_types::id::{ControllerId, MachineId, NodeName, ProcessInstance, Revision};
use ha_api_types::node::FenceDevice;
use ha_api_types::record::{HoldAnswer, HoldRequest};
use ha_api_types::time::Millis;
pub use ha_store::election::FullReadId;
use ha_store::{Change, Entry, LeaseId, Outcome, StoreError, Transaction};

/// Identifies a commit; assigned by the core in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitId(pub u64);

/// Identifies a run of a fence device; 0 until the core assigns the number.
///
/// A run is not an action of an agent:
///
/// ```compile_fail,E0308
/// use ha_controller::core::{FencerOutcome, Input};
/// use ha_api_types::id::ActionUid;
///
/// let uid = ActionUid::from("a");
/// let input = Input::FencerDone { id: uid, outcome: FencerOutcome::Failed(String::new()) };
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

/// Identifies an agent's hold request; assigned by the shell.
///
/// A hold request is not a run:
///
/// ```compile_fail,E0308
/// use ha_controller::core::{FencerOutcome, HoldId, Input};
///
/// let input = Input::FencerDone { id: HoldId(1), outcome: FencerOutcome::Failed(String::new()) };
/// ```
///
/// Nor is it a commit:
///
/// ```compile_fail,E0308
/// use ha_controller::core::{CommitId, Effect};
/// use ha_api_types::record::HoldAnswer;
///
/// let effect = Effect::AnswerHold { id: CommitId(1), answer: HoldAnswer::default() };
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub u64);

/// Settings of this controller process. The shell draws all random values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Name of the cluster: the keys are under `/hactl/<cluster>/v1/`.
    pub cluster: String,
    /// Id of the controller, stable over restarts.
    pub id: ControllerId,
    /// URL of its API.
    pub url: String,
    /// Version of the binary.
    pub version: String,
    /// Unique id of this process.
    pub instance: ProcessInstance,
    /// Id of the machine; empty if unknown.
    pub machine: MachineId,
    /// `true` if this process holds the exclusive lock of its state directory, so that no earlier process of this id
    /// can be alive.
    pub is_only_process: bool,
}

/// Everything that can happen to the controller.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A complete linearizable read of all keys of the cluster (`Keys::root`). It replaces the view unless the view
    /// is already newer.
    Synced {
        /// All keys of the cluster, with values and revisions.
        entries: Vec<Entry>,
        /// etcd's revision of the read.
        revision: Revision,
        /// Newest [`Effect::Refresh`] that was requested before this read began; 0 if none was.
        answers: FullReadId,
    },
    /// Changes since the view's revision, in order, complete up to `revision`.
    Changed {
        /// The changes, in order of their revisions.
        changes: Vec<Change>,
        /// Revision up to which the changes are complete.
        revision: Revision,
    },
    /// Nothing changed up to this revision.
    Progress(Revision),
    /// The outcome of a commit.
    Committed {
        /// Id from the [`Effect::Commit`] that this answers.
        id: CommitId,
        /// Outcome of the commit: applied, conflict or unknown.
        outcome: Outcome,
    },
    /// The answer to [`Effect::GrantLease`].
    LeaseGranted {
        /// The lease, or the error of etcd.
        result: Result<LeaseId, StoreError>,
    },
    /// The answer to [`Effect::KeepAlive`].
    LeaseKept {
        /// Lease from the [`Effect::KeepAlive`] that this answers.
        lease: LeaseId,
        /// Remaining TTL in seconds, or the error of etcd.
        result: Result<i64, StoreError>,
    },
    /// A run of a fence device ended.
    FencerDone {
        /// Id from the [`Effect::RunFencer`] that this answers.
        id: RunId,
        /// Outcome of the run.
        outcome: FencerOutcome,
    },
    /// An attempt to deliver a notification ended.
    Delivered {
        /// Id from the [`Effect::Deliver`] that this answers.
        id: DeliveryId,
        /// Outcome of the attempt.
        outcome: DeliveryOutcome,
    },
    /// An agent that cannot commit asks not to be declared dead; answered by [`Effect::AnswerHold`].
    HoldRequested {
        /// Id that [`Effect::AnswerHold`] repeats.
        id: HoldId,
        /// Name of the agent's node.
        node: NodeName,
        /// Body of the request, with the agent's boot, epoch and sequence.
        request: HoldRequest,
    },
    /// The time of [`crate::core::Controller::deadline`] has come, or the shell requests another check.
    Tick,
    /// State of the election, for the planner.
    ElectionState(Box<ElectionState>),
    /// Facts from the planner's view, for the election.
    ElectionInputs(ElectionInputs),
    /// Delete the leader key and end; answered by [`Effect::Ended`].
    Shutdown,
}

/// Everything that the controller can request. Effects must begin in their order; their answers may come in any
/// order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Commit this transaction; answered by [`Input::Committed`].
    Commit {
        /// Id that [`Input::Committed`] repeats.
        id: CommitId,
        /// The transaction. A leader's write carries `Created(leader)`.
        transaction: Transaction,
    },
    /// Read all keys again, beginning after this effect; answered by [`Input::Synced`] with this id or a newer one.
    Refresh {
        /// Id of the request.
        id: FullReadId,
    },
    /// Grant a lease for leadership; answered by [`Input::LeaseGranted`].
    GrantLease {
        /// Seconds without a keep-alive after which etcd deletes the lease.
        ttl_seconds: i64,
    },
    /// Keep a lease alive; answered by [`Input::LeaseKept`].
    KeepAlive {
        /// Lease of this process that must not expire.
        lease: LeaseId,
    },
    /// End a lease; not answered.
    Revoke {
        /// Lease that etcd deletes with its keys.
        lease: LeaseId,
    },
    /// Run a fence device; answered by [`Input::FencerDone`].
    RunFencer(FencerRun),
    /// Write this event under a lease of `EVENT_TTL_SECONDS`, at `event/controller-<id>/<name>`; not answered.
    Event {
        /// Last part of the event's key, unique.
        name: String,
        /// Event to write.
        event: Event,
    },
    /// Deliver a notification once; answered by [`Input::Delivered`].
    Deliver(Delivery),
    /// Answer an agent's hold request. The request is dropped if the agent no longer waits: it waits at most Ki.
    AnswerHold {
        /// Id from the [`Input::HoldRequested`] that this answers.
        id: HoldId,
        /// Answer to the agent: grant or refusal.
        answer: HoldAnswer,
    },
    /// Count this in a metric; no decision depends on it.
    Count(MetricEvent),
    /// From the election to the planner: [`Input::ElectionState`].
    ReportElection(Box<ElectionState>),
    /// From the planner to the election: [`Input::ElectionInputs`].
    UpdateElection(ElectionInputs),
    /// The shutdown is complete; no effect follows.
    Ended,
}

/// One run of a fence device, with all of its parts and retries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencerRun {
    /// Id that [`Input::FencerDone`] repeats.
    pub id: RunId,
    /// Name of the node that the device fences.
    pub node: NodeName,
    /// Definition of the device, with all of its parts.
    pub device: FenceDevice,
    /// Action of the run.
    pub action: FencerAction,
    /// Limit of the run in milliseconds, counted from this effect. Processes that still run at the limit are killed.
    pub limit_ms: Millis,
}

/// An action of a fence device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FencerAction {
    /// Cut the power or the fabric, and confirm with the device's status that it is off.
    Off,
    /// Restore the power or the fabric, and confirm that it is on.
    On,
    /// Check whether the device answers.
    Monitor,
}

/// Outcome of a run of a fence device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FencerOutcome {
    /// Done, and confirmed by the status of every part of the device.
    Confirmed,
    /// Not confirmed, so the run is not proof. Contains the cause, as a sentence.
    Failed(String),
}
