//! What can happen to the controller, and what it can ask for.

use super::candidacy::{Orders, Standing};
use super::counted::Counted;
use super::notifications::deliveries::{Delivery, DeliveryId, DeliveryOutcome};
use ha_api_types::event::Event;
use ha_api_types::node::FenceDevice;
use ha_api_types::record::{HoldAnswer, HoldRequest, Revision};
use ha_api_types::time::Millis;
use ha_store::{Change, Entry, LeaseId, Outcome, StoreError, Transaction};

/// Tells one commit from another; given by the core, in rising order.
pub type CommitId = u64;
/// Tells one request for a reading from another, in rising order.
pub type RefreshId = u64;
/// Tells one run of a fence device from another.
pub type RunId = u64;

/// Tells one question of an agent from another; given by the shell.
pub type HoldId = u64;

/// Who this controller is. Everything random in it is drawn by the shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The cluster: the keys are under `/hactl/<cluster>/v1/`.
    pub cluster: String,
    /// The controller's id, stable over restarts.
    pub id: String,
    /// Where its API is reached.
    pub url: String,
    /// Its version.
    pub version: String,
    /// This process, unlike any other.
    pub instance: String,
    /// The machine; empty when unknown.
    pub machine: String,
    /// This process holds the exclusive lock of its state directory, so no earlier process of this id can be alive.
    pub is_only_process: bool,
}

/// Everything that can happen to the controller.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A complete linearizable reading of all keys of the cluster (`Keys::root`); it replaces the view unless that is
    /// already newer.
    Synced {
        /// The entries.
        entries: Vec<Entry>,
        /// The store's revision of the reading.
        revision: Revision,
        /// The newest [`Effect::Refresh`] that was asked for before this reading was begun; 0: none.
        answers: RefreshId,
    },
    /// Changes since the view's revision, in order, complete up to `revision`.
    Changed {
        /// The changes.
        changes: Vec<Change>,
        /// Complete up to here.
        revision: Revision,
    },
    /// Nothing changed up to this revision.
    Progress(Revision),
    /// What became of a commit.
    Committed {
        /// The commit.
        id: CommitId,
        /// Its outcome.
        outcome: Outcome,
    },
    /// The answer to [`Effect::GrantLease`].
    LeaseGranted {
        /// The lease, or why there is none.
        result: Result<LeaseId, StoreError>,
    },
    /// The answer to [`Effect::KeepAlive`].
    LeaseKept {
        /// The lease that was kept alive.
        lease: LeaseId,
        /// Its time to live in seconds, or what went wrong.
        result: Result<i64, StoreError>,
    },
    /// A run of a fence device ended.
    FencerDone {
        /// The run.
        id: RunId,
        /// Its outcome.
        outcome: FencerOutcome,
    },
    /// An attempt to deliver a notification has ended.
    Delivered {
        /// The attempt.
        id: DeliveryId,
        /// What became of it.
        outcome: DeliveryOutcome,
    },
    /// An agent that cannot commit asks not to be declared dead; answered by [`Effect::AnswerHold`].
    HoldAsked {
        /// The question.
        id: HoldId,
        /// The node.
        node: String,
        /// What it says of itself.
        request: HoldRequest,
    },
    /// The time of [`crate::core::Controller::deadline`] has come, or the shell wants the core to look again.
    Tick,
    /// To the planner: how the election stands.
    Standing(Box<Standing>),
    /// To the election: what the planner's view says of it.
    Orders(Orders),
    /// Give up everything and end: answered by [`Effect::Ended`].
    Shutdown,
}

/// Everything that the controller can ask for. The order of effects is the order in which they must be begun; their
/// answers may come in any order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Commit this transaction; answered by [`Input::Committed`].
    Commit {
        /// The commit.
        id: CommitId,
        /// What to write. A leader's write carries `Created(leader)`.
        transaction: Transaction,
    },
    /// Read everything again, beginning after this effect; answered by [`Input::Synced`] with this or a newer id.
    Refresh {
        /// The request.
        id: RefreshId,
    },
    /// Grant a lease for leadership; answered by [`Input::LeaseGranted`].
    GrantLease {
        /// Its time to live, seconds.
        ttl_seconds: i64,
    },
    /// Keep a lease alive; answered by [`Input::LeaseKept`].
    KeepAlive {
        /// The lease.
        lease: LeaseId,
    },
    /// End a lease; not answered.
    Revoke {
        /// The lease.
        lease: LeaseId,
    },
    /// Run a fence device; answered by [`Input::FencerDone`].
    RunFencer(FencerRun),
    /// Write this event under a lease of `EVENT_TTL_SECONDS`, at `event/controller-<id>/<name>`; not answered.
    Event {
        /// The last part of the event's key, unique.
        name: String,
        /// The event.
        event: Event,
    },
    /// Deliver this once; answered by [`Input::Delivered`].
    Deliver(Delivery),
    /// Answer an agent's question, or let it go: it waits for no longer than Ki.
    AnswerHold {
        /// The question.
        id: HoldId,
        /// The answer.
        answer: HoldAnswer,
    },
    /// Count this; nothing is decided from it.
    Count(Counted),
    /// Of the election, to the planner: [`Input::Standing`].
    Tell(Box<Standing>),
    /// Of the planner, to the election: [`Input::Orders`].
    Order(Orders),
    /// The shutdown is done; nothing follows.
    Ended,
}

/// One run of a fence device, all its parts and retries included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencerRun {
    /// The run.
    pub id: RunId,
    /// The node that the device fences.
    pub node: String,
    /// The device.
    pub device: FenceDevice,
    /// What to do with it.
    pub action: FencerAction,
    /// The run must have ended after so long, counted from this effect: whatever still works on it is killed.
    pub limit_ms: Millis,
}

/// What to do with a fence device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FencerAction {
    /// Cut the power or the fabric, and confirm with the device's status that it is off.
    Off,
    /// Give it back, and confirm that it is on.
    On,
    /// See whether the device answers.
    Monitor,
}

/// What became of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FencerOutcome {
    /// Done and confirmed by the device's own status, for every part.
    Confirmed,
    /// Not confirmed: it counts for nothing. What went wrong, as a sentence.
    Failed(String),
}
