//! The upper bound of a failover's duration, and its parts.

use super::fencing_delay::{FencingDelayParts, fencing_delay_parts};
use super::{Timings, WatchdogBounds};
use crate::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Delays of etcd and of the network to it, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StoreTimes {
    /// Maximum time from sending a commit until every watcher has seen it.
    pub commit_ms: Millis,
    /// Maximum delay of etcd in ending a lease after its time to live.
    pub expiry_ms: Millis,
    /// Total time lost with unanswered requests: see [`UNANSWERED_REQUEST_MS`].
    pub unanswered_ms: Millis,
}

impl StoreTimes {
    /// Assumed delays of a healthy etcd.
    pub const HEALTHY: StoreTimes = StoreTimes { commit_ms: 100, expiry_ms: 500, unanswered_ms: 0 };
}

/// Time limit of one attempt of a request to etcd, in milliseconds; after that, the client sends the request to another
/// member too.
pub const ATTEMPT_MS: Millis = 1_000;

/// Number of attempts per request.
pub const ATTEMPTS: u32 = 3;

/// Time in milliseconds after which the outcome of an unanswered request counts as unknown, and the process reads etcd
/// again. One lost message delays a failover by at most this time, or by one attempt if the second attempt is answered.
pub const UNANSWERED_REQUEST_MS: Millis = ATTEMPT_MS * ATTEMPTS as Millis;

/// Parts of the failover bound, in milliseconds. With W they add up to the bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailoverParts {
    /// Parts of W.
    pub wait: FencingDelayParts,
    /// c: delay from the commit of the last heartbeat until the observer sees the heartbeat.
    pub observed_ms: Millis,
    /// Delay by the candidates' check. Each candidate commits every Ki, and restarts its observation if it gets no
    /// answer. The declaration may therefore come as late as `Ki + Th` after the last heartbeat. 0 while W is longer.
    pub candidate_check_ms: Millis,
    /// Delay by the election of the next leader if the old one died with the node: its lease must end first.
    /// 0 while W is longer.
    pub next_leader_ms: Millis,
    /// `3 c`: commits of the fencing confirmation, the assignment and the start authorization.
    pub commits_ms: Millis,
    /// u: time lost with unanswered messages.
    pub unanswered_ms: Millis,
}

impl FailoverParts {
    /// Returns the bound in milliseconds.
    pub fn total_ms(&self) -> Millis {
        self.wait.total_ms()
            + self.observed_ms
            + self.candidate_check_ms
            + self.next_leader_ms
            + self.commits_ms
            + self.unanswered_ms
    }
}

/// A part of the failover bound with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedPart {
    /// Name of the part.
    pub name: &'static str,
    /// Duration if only the node fails, in milliseconds.
    pub node_ms: Millis,
    /// Duration if the leader fails together with the node, in milliseconds.
    pub leader_node_ms: Millis,
    /// Whether the value is the sum of parts before it.
    pub is_sum: bool,
}

/// Returns the parts of two bounds with their names, in the order in which they add up: that of a failover of the node
/// only, and that of a failover of the leader's node.
pub fn named_parts(
    node: &FailoverParts,
    leader_node: &FailoverParts,
    watchdog: &WatchdogBounds,
) -> Vec<NamedPart> {
    let wait = &node.wait;
    let late_renewal = match (watchdog.descriptor_retained, watchdog.sliding) {
        (true, true) => "late watchdog renewal",
        (true, false) => "late watchdog renewal, which starts another timeout",
        (false, _) => "late watchdog renewal and closed descriptor, two more timeouts",
    };
    let part = |name, node_ms, leader_node_ms| NamedPart { name, node_ms, leader_node_ms, is_sum: false };
    let equal = |name, ms| part(name, ms, ms);
    vec![
        equal("heartbeat lifetime", wait.heartbeat_valid_ms),
        equal("clock error of the node", wait.heartbeat_rate_ms),
        equal("watchdog timeout", wait.watchdog_timeout_ms),
        equal("clock error of the watchdog", wait.watchdog_rate_ms),
        equal("lateness of the watchdog", wait.watchdog_lateness_ms),
        equal(late_renewal, wait.late_pet_ms),
        equal("pending writes to storage", wait.io_drain_ms),
        equal("clock error of the observer, rounded up", wait.observer_ms),
        NamedPart { is_sum: true, ..equal("fencing delay", wait.total_ms()) },
        equal("observation of the last heartbeat", node.observed_ms),
        part(
            "restart of failure detection by a candidate",
            node.candidate_check_ms,
            leader_node.candidate_check_ms,
        ),
        part(
            "election of the next leader, beyond the fencing delay",
            node.next_leader_ms,
            leader_node.next_leader_ms,
        ),
        part(
            "commits of fencing, assignment and start authorization",
            node.commits_ms,
            leader_node.commits_ms,
        ),
        part("lost requests", node.unanswered_ms, leader_node.unanswered_ms),
        NamedPart {
            is_sum: true,
            ..part(
                "total from the last heartbeat to the start elsewhere",
                node.total_ms(),
                leader_node.total_ms(),
            )
        },
    ]
}

/// Computes the bound of a failover, part by part: from the last applied heartbeat of a node to the permission to start
/// its services elsewhere.
///
/// The other processes observe the heartbeat at most one commit later, at `o`, and the proof exists at `o + W`. If the
/// leader dies with the node, its death is at most Ki and a commit after the last heartbeat, and its key expires with
/// its lease. The next leader, which has observed the node as a follower, then obtains a lease, creates the key, and
/// declares the node dead. In both cases three commits follow: the proof, the assignment, the permit.
///
/// | failed machine | bound |
/// |---|---|
/// | another node | `max(W + c, Ki + Th + 2 c) + 3 c + u` |
/// | the leader's node | `max(W + c, Ki + Th + 2 c, Ki + leaderLease + e + 4 c) + 3 c + u` |
///
/// c: time until a commit is seen; e: lateness of lease expiry; u: time lost with missing answers.
///
/// Assumptions: silence is the proof; an eligible node exists and is armed; `maxFencing` does not delay. If a
/// candidate's own commit is not answered, its observation restarts, which delays the declaration to at most
/// `o + Ki + u + Th`.
pub fn failover_parts(
    timings: &Timings,
    watchdog: &WatchdogBounds,
    store: &StoreTimes,
    leader_dies: bool,
) -> FailoverParts {
    let commit_ms = store.commit_ms;
    let wait = fencing_delay_parts(timings, watchdog);
    let proven_ms = wait.total_ms() + commit_ms;
    let declared_ms = timings.heartbeat_interval_ms + timings.heartbeat_valid_ms + 2 * commit_ms;
    let candidate_check_ms = declared_ms.saturating_sub(proven_ms);
    let next_leader_ms = if leader_dies {
        let lease_ms = u64::try_from(timings.leader_lease_seconds()).unwrap_or_default() * 1000;
        let leads_ms = timings.heartbeat_interval_ms + lease_ms + store.expiry_ms + 4 * commit_ms;
        leads_ms.saturating_sub(proven_ms + candidate_check_ms)
    } else {
        0
    };
    FailoverParts {
        wait,
        observed_ms: commit_ms,
        candidate_check_ms,
        next_leader_ms,
        commits_ms: 3 * commit_ms,
        unanswered_ms: store.unanswered_ms,
    }
}

/// Computes the longest time from the last applied heartbeat of a node to the permission to start its services elsewhere,
/// in milliseconds. It is the sum of [`failover_parts`], which contains the proof.
pub fn failover_bound_ms(
    timings: &Timings,
    watchdog: &WatchdogBounds,
    store: &StoreTimes,
    leader_dies: bool,
) -> Millis {
    failover_parts(timings, watchdog, store, leader_dies).total_ms()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::Profile;

    fn bounds(timings: &Timings) -> WatchdogBounds {
        WatchdogBounds { timeout_ms: timings.watchdog_timeout_ms, sliding: true, descriptor_retained: true }
    }

    fn check_bound(timings: Timings, store: StoreTimes, leader_dies: bool, expected_ms: Millis) {
        let bound_ms = failover_bound_ms(&timings, &bounds(&timings), &store, leader_dies);
        assert_eq!(bound_ms, expected_ms, "{timings:?}");
    }

    #[test]
    fn failover_bound_covers_simultaneous_leader_failure() {
        let calm = StoreTimes { commit_ms: 10, expiry_ms: 500, unanswered_ms: 0 };
        for (profile, fencing_delay_ms) in
            [(Profile::Fast, 7_100), (Profile::Default, 13_200), (Profile::Conservative, 39_400)]
        {
            let timings = Timings::of_profile(profile);
            check_bound(timings, calm, false, fencing_delay_ms + 40);
            check_bound(timings, calm, true, fencing_delay_ms + 40);
            let one_lost = StoreTimes { unanswered_ms: UNANSWERED_REQUEST_MS, ..calm };
            check_bound(timings, one_lost, true, fencing_delay_ms + 3_040);
        }
        // A lease longer than W delays the failover, but only if its leader died.
        let long_lease = Timings { leader_lease_ms: 20_000, ..Timings::default() };
        check_bound(long_lease, calm, false, 13_240);
        check_bound(long_lease, calm, true, 1_000 + 20_000 + 500 + 70);
    }

    #[test]
    fn failover_names_steps_longer_than_fencing_delay() {
        let calm = StoreTimes { commit_ms: 10, expiry_ms: 500, unanswered_ms: 0 };
        let rare =
            Timings { heartbeat_interval_ms: 30_000, heartbeat_valid_ms: 70_000, ..Timings::default() };
        let parts = failover_parts(&rare, &bounds(&rare), &calm, true);
        // W is 77.3 s; a candidate that restarts its observation after 30 s declares the node dead after 100.02 s.
        assert_eq!(
            (parts.wait.total_ms(), parts.candidate_check_ms, parts.next_leader_ms),
            (77_300, 22_710, 0)
        );
        let long_lease = Timings { leader_lease_ms: 20_000, ..Timings::default() };
        let parts = failover_parts(&long_lease, &bounds(&long_lease), &calm, true);
        assert_eq!((parts.candidate_check_ms, parts.next_leader_ms), (0, 21_540 - 13_210));
    }
}
