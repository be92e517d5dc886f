//! Deliberate faults in the protocol: each mutation removes one rule, and the checker must catch each.

use crate::progress::STUCK;
use crate::properties::{AT_MOST_ONE_COPY, NOT_ALONE, NOT_LOST};

/// A rule that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mutation {
    /// FENCING 3: D is measured from the answer instead of from the clock reading before the commit.
    DeadlineFromReceipt,
    /// FENCING 4: W is one watchdog period shorter than the inequality requires.
    OnePeriodLess,
    /// FENCING 5: proof (a) at o + Th instead of o + W.
    ReleaseAtValidity,
    /// FENCING 5: the leader moves the assignment off a silent node without closing the node's epoch first.
    ReleaseWithoutClosing,
    /// FENCING 1: an agent's report does not guard the key that it writes.
    OwnKeyNotGuarded,
    /// FENCING 6: an agent's writes do not guard its epoch.
    EpochNotGuarded,
    /// FENCING 4: the permit neither waits for the committed armed: true nor guards it.
    PermitBeforeArmed,
    /// FENCING 6: a running service is adopted under a new epoch, without a permit and without a stop.
    AdoptWithoutPermit,
    /// FENCING 5: a new leader derives the age of a heartbeat from times in the store.
    StoredTimes,
    /// FENCING 3: the answer to a keep-alive extends D.
    KeepAliveProves,
    /// FENCING 4: the agent states that the node is empty before it has stopped the services.
    StayBeforeStopped,
    /// FENCING 8: the driver migrates before HandingOver is committed.
    MigrateBeforeHandOver,
    /// R8.10: the driver begins without another read of the target.
    BegunWithoutReading,
    /// R8.11: the driver begins later than Ts after the target was read.
    BegunAfterMargin,
    /// R8.12: the source reports that its driver never began, and the driver begins after that.
    BegunAfterGivingUp,
    /// R8.12: the source reports that the service runs there before its driver has ended.
    ReportedWhileDriving,
    /// R8.13: a proof of the target counts before the source's end, and the service stays on the source.
    SourceEndNotAwaited,
    /// R8.17: with a driver that is not gated, a proof of the target from before the source's end counts.
    EarlierProofCounts,
    /// R8.17: the proof of a target that was asked counts as its answer.
    AnswerNotAwaited,
    /// R8.17: a target that is ordered to start what it received is not asked about an arrival.
    StartNotAsked,
    /// R8.17: the silence of a target counts although the target has no permit for the service.
    ArmedIsEnough,
    /// FENCING 8: after HandingOver, the service is started again once only the source is proven empty.
    FreshAfterHandOver,
    /// FENCING 8: the report of a source that registered again no longer states that it had handed over.
    HandOverForgotten,
    /// FENCING 9: a node continues with the grants of more than half of the candidates.
    MajorityGrants,
    /// FENCING 9: a grant does not count as an observation.
    GrantNotObserved,
    /// FENCING 9: a candidate grants although it can commit.
    GrantThoughAble,
    /// FENCING 9: a candidate whose key the node has not read draws conclusions from the node's silence.
    GenerationIgnored,
    /// FENCING 9: a candidate whose key the node has not read declares no node dead, but completes another candidate's
    /// declaration. Its shortest counterexample is too long for a search; a separate test follows it.
    GenerationForClosingOnly,
    /// FENCING 6: `exclusive` is changed while a copy may exist.
    DefinedWithACopy,
    /// FENCING 9: a restarted controller deletes its candidate key, and joins as another candidate.
    KeyDeletedAtRestart,
}

impl Mutation {
    /// Returns the property that is violated without the rule. This is guarantee 1, except for the rule that prevents
    /// the hold of a node that is merely isolated.
    pub(crate) fn violated_property(self) -> &'static str {
        match self {
            Mutation::GrantThoughAble => NOT_ALONE,
            Mutation::BegunWithoutReading | Mutation::BegunAfterMargin => NOT_LOST,
            Mutation::DeadlineFromReceipt
            | Mutation::OnePeriodLess
            | Mutation::ReleaseAtValidity
            | Mutation::ReleaseWithoutClosing
            | Mutation::OwnKeyNotGuarded
            | Mutation::EpochNotGuarded
            | Mutation::PermitBeforeArmed
            | Mutation::AdoptWithoutPermit
            | Mutation::StoredTimes
            | Mutation::KeepAliveProves
            | Mutation::StayBeforeStopped
            | Mutation::MigrateBeforeHandOver
            | Mutation::BegunAfterGivingUp
            | Mutation::ReportedWhileDriving
            | Mutation::SourceEndNotAwaited
            | Mutation::EarlierProofCounts
            | Mutation::AnswerNotAwaited
            | Mutation::StartNotAsked
            | Mutation::ArmedIsEnough
            | Mutation::FreshAfterHandOver
            | Mutation::HandOverForgotten
            | Mutation::MajorityGrants
            | Mutation::GrantNotObserved
            | Mutation::GenerationIgnored
            | Mutation::GenerationForClosingOnly
            | Mutation::DefinedWithACopy => AT_MOST_ONE_COPY,
            Mutation::KeyDeletedAtRestart => STUCK,
        }
    }

    /// Mutations that a search for a broken guarantee catches: first ten basic mutations, then the mutations of other
    /// rules.
    pub(crate) const ALL: [Mutation; 28] = [
        Mutation::DeadlineFromReceipt,
        Mutation::OnePeriodLess,
        Mutation::ReleaseAtValidity,
        Mutation::ReleaseWithoutClosing,
        Mutation::OwnKeyNotGuarded,
        Mutation::EpochNotGuarded,
        Mutation::PermitBeforeArmed,
        Mutation::AdoptWithoutPermit,
        Mutation::StoredTimes,
        Mutation::KeepAliveProves,
        Mutation::StayBeforeStopped,
        Mutation::MigrateBeforeHandOver,
        Mutation::BegunWithoutReading,
        Mutation::BegunAfterMargin,
        Mutation::BegunAfterGivingUp,
        Mutation::ReportedWhileDriving,
        Mutation::SourceEndNotAwaited,
        Mutation::EarlierProofCounts,
        Mutation::AnswerNotAwaited,
        Mutation::StartNotAsked,
        Mutation::ArmedIsEnough,
        Mutation::FreshAfterHandOver,
        Mutation::HandOverForgotten,
        Mutation::MajorityGrants,
        Mutation::GrantNotObserved,
        Mutation::GrantThoughAble,
        Mutation::GenerationIgnored,
        Mutation::DefinedWithACopy,
    ];
}
