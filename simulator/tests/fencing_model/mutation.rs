//! Deliberate faults in the protocol: each takes one rule away, and each must be caught.

use crate::progress::STUCK;
use crate::properties::{NEVER_TWO, NOT_ALONE};

/// One rule taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mutation {
    /// FENCING 3: D counts from the answer instead of from before the commit.
    DeadlineFromReceipt,
    /// FENCING 4: W is one watchdog period shorter than the inequality asks for.
    OnePeriodLess,
    /// FENCING 5: proof (a) at o + Th instead of o + W.
    ReleaseAtValidity,
    /// FENCING 5: the assignment is taken off a silent node without closing its epoch first.
    ReleaseWithoutClosing,
    /// FENCING 1: an agent's report does not guard the key that it writes.
    OwnKeyNotGuarded,
    /// FENCING 6: an agent's writes do not guard its epoch.
    EpochNotGuarded,
    /// FENCING 4: the permit does not wait for, nor guard, the committed armed: true.
    PermitBeforeArmed,
    /// FENCING 6: what runs is adopted under a new epoch, without a permit and without being stopped.
    AdoptWithoutPermit,
    /// FENCING 5: a new leader takes the age of a heartbeat from times in the store.
    StoredTimes,
    /// FENCING 3: the answer to a keep-alive extends D.
    KeepAliveProves,
    /// FENCING 4: the agent says that it is empty before it has stopped what runs.
    StayBeforeStopped,
    /// FENCING 8: the driver migrates before HandingOver is committed.
    MigrateBeforeHandOver,
    /// FENCING 8: after HandingOver the service is started afresh once the source alone is proven empty.
    FreshAfterHandOver,
    /// FENCING 8: the report of a source that registered anew no longer says that it had handed over.
    HandOverForgotten,
    /// FENCING 9: a node goes on with the grants of more than half of the candidates.
    MajorityGrants,
    /// FENCING 9: a grant does not count as an observation.
    GrantNotObserved,
    /// FENCING 9: a candidate grants although it can commit.
    GrantThoughAble,
    /// FENCING 9: a candidate that the node does not know concludes from its silence.
    GenerationIgnored,
    /// FENCING 9: a candidate that the node does not know declares nobody dead, but completes what another one has begun. Its shortest
    /// counterexample is too long to be searched for: a test of its own follows it.
    GenerationForClosingOnly,
    /// FENCING 6: `exclusive` is changed while a copy may exist.
    DefinedWithACopy,
    /// FENCING 9: a controller that is restarted deletes its candidate key, and joins as another candidate.
    KeyDeletedAtRestart,
}

impl Mutation {
    /// What is broken without the rule: promise 1, but for the rule that keeps a node that is merely cut off from being held.
    pub(crate) fn breaks(self) -> &'static str {
        match self {
            Mutation::GrantThoughAble => NOT_ALONE,
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
            | Mutation::FreshAfterHandOver
            | Mutation::HandOverForgotten
            | Mutation::MajorityGrants
            | Mutation::GrantNotObserved
            | Mutation::GenerationIgnored
            | Mutation::GenerationForClosingOnly
            | Mutation::DefinedWithACopy => NEVER_TWO,
            Mutation::KeyDeletedAtRestart => STUCK,
        }
    }

    /// All that a search for a broken promise catches: the ten that the protocol's page is measured by, then those about rules that the ten leave out.
    pub(crate) const ALL: [Mutation; 19] = [
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
        Mutation::FreshAfterHandOver,
        Mutation::HandOverForgotten,
        Mutation::MajorityGrants,
        Mutation::GrantNotObserved,
        Mutation::GrantThoughAble,
        Mutation::GenerationIgnored,
        Mutation::DefinedWithACopy,
    ];
}
