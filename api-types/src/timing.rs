//! The timing arithmetic of the fencing protocol, in one place, with its proof.
//!
//! An agent reads its clock (`s`), commits a heartbeat and may be petted until `D = s + Th`. An observer sees that
//! commit no earlier than `s`, so it waits `W` from there on its own clock, whose rate may differ by `ρ`. In that time
//! the node reaches D (`Th (1 + ρ)` on the observer's clock), the device's last period ends (`Tw' = Tw (1 + ρw) + δw`),
//! the machine resets, and its last writes drain (`δio`). See [`wait_ms`] for the three inequalities.
//!
//! All times are integer milliseconds and all rates parts per million; every division rounds against us (up).

use crate::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A named set of timings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Profile {
    /// Failover in about 13 s; for ordinary machines and networks.
    #[default]
    Default,
    /// Failover in about 7 s; for quiet machines on a fast network.
    Fast,
    /// Failover in about 39 s; for loaded machines, slow stores, emulation.
    Conservative,
}

/// `Cluster.spec.timing`: a profile, and single values that override it. Seconds may have fractions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TimingSpec {
    /// The set of values to start from.
    pub profile: Profile,
    /// Ki: heartbeat interval, and the deadline of one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_interval_seconds: Option<f64>,
    /// Th: how long one committed heartbeat is good for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_valid_seconds: Option<f64>,
    /// Ts: how long before the deadline services are killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_margin_seconds: Option<f64>,
    /// Tw: the watchdog's timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog_timeout_seconds: Option<f64>,
    /// ρw: the watchdog's rate error, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog_rate_error_percent: Option<f64>,
    /// δw: the watchdog's lateness.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog_lateness_seconds: Option<f64>,
    /// ρ: rate error between two machines' clocks, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_rate_error_percent: Option<f64>,
    /// δio: longest time in which writes of a dead machine may still reach shared storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_drain_seconds: Option<f64>,
    /// Time to live of the leader's lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader_lease_seconds: Option<f64>,
    /// How long services of a node that shut down wait for it under `Failover`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_grace_seconds: Option<f64>,
    /// After how long a frozen node is reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze_timeout_seconds: Option<f64>,
    /// How long a shutdown under `Migrate` waits; 0: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown_timeout_seconds: Option<f64>,
}

/// Timings resolved to numbers: what an agent commits as "in force" and everybody computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timings {
    /// Ki, milliseconds.
    pub heartbeat_interval_ms: Millis,
    /// Th, milliseconds.
    pub heartbeat_valid_ms: Millis,
    /// Ts, milliseconds.
    pub stop_margin_ms: Millis,
    /// Tw asked for, milliseconds; what the driver read back is in the node's report.
    pub watchdog_timeout_ms: Millis,
    /// ρw, parts per million.
    pub watchdog_rate_error_ppm: u64,
    /// δw, milliseconds.
    pub watchdog_lateness_ms: Millis,
    /// ρ, parts per million.
    pub clock_rate_error_ppm: u64,
    /// δio, milliseconds.
    pub io_drain_ms: Millis,
    /// Leader lease, milliseconds.
    pub leader_lease_ms: Millis,
    /// `returnGraceSeconds`, milliseconds.
    pub return_grace_ms: Millis,
    /// `freezeTimeoutSeconds`, milliseconds.
    pub freeze_timeout_ms: Millis,
    /// `shutdownTimeoutSeconds`, milliseconds.
    pub shutdown_timeout_ms: Millis,
}

impl Default for Timings {
    fn default() -> Timings {
        Timings::of_profile(Profile::Default)
    }
}

impl Timings {
    /// The values of a profile.
    pub fn of_profile(profile: Profile) -> Timings {
        let (ki, th, ts, tw, lateness) = match profile {
            Profile::Fast => (500, 4_000, 1_500, 2_000, 500),
            Profile::Default => (1_000, 6_000, 2_500, 5_000, 1_000),
            Profile::Conservative => (3_000, 20_000, 6_000, 15_000, 2_000),
        };
        Timings {
            heartbeat_interval_ms: ki,
            heartbeat_valid_ms: th,
            stop_margin_ms: ts,
            watchdog_timeout_ms: tw,
            watchdog_rate_error_ppm: 20_000,
            watchdog_lateness_ms: lateness,
            clock_rate_error_ppm: 1_000,
            io_drain_ms: 0,
            leader_lease_ms: 5_000,
            return_grace_ms: 60_000,
            freeze_timeout_ms: 600_000,
            shutdown_timeout_ms: 1_800_000,
        }
    }

    /// `leaderLeaseSeconds` in whole seconds, at least one, as etcd counts leases.
    pub fn leader_lease_seconds(&self) -> i64 {
        i64::try_from(self.leader_lease_ms.div_ceil(1000)).unwrap_or(i64::MAX).max(1)
    }
}

impl From<&TimingSpec> for Timings {
    fn from(spec: &TimingSpec) -> Timings {
        let base = Timings::of_profile(spec.profile);
        let ms = |value: Option<f64>, base: Millis| value.map_or(base, seconds_to_ms);
        let ppm = |value: Option<f64>, base: u64| value.map_or(base, |percent| seconds_to_ms(percent * 10.0));
        Timings {
            heartbeat_interval_ms: ms(spec.heartbeat_interval_seconds, base.heartbeat_interval_ms),
            heartbeat_valid_ms: ms(spec.heartbeat_valid_seconds, base.heartbeat_valid_ms),
            stop_margin_ms: ms(spec.stop_margin_seconds, base.stop_margin_ms),
            watchdog_timeout_ms: ms(spec.watchdog_timeout_seconds, base.watchdog_timeout_ms),
            watchdog_rate_error_ppm: ppm(spec.watchdog_rate_error_percent, base.watchdog_rate_error_ppm),
            watchdog_lateness_ms: ms(spec.watchdog_lateness_seconds, base.watchdog_lateness_ms),
            clock_rate_error_ppm: ppm(spec.clock_rate_error_percent, base.clock_rate_error_ppm),
            io_drain_ms: ms(spec.io_drain_seconds, base.io_drain_ms),
            leader_lease_ms: ms(spec.leader_lease_seconds, base.leader_lease_ms),
            return_grace_ms: ms(spec.return_grace_seconds, base.return_grace_ms),
            freeze_timeout_ms: ms(spec.freeze_timeout_seconds, base.freeze_timeout_ms),
            shutdown_timeout_ms: ms(spec.shutdown_timeout_seconds, base.shutdown_timeout_ms),
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range first")]
fn seconds_to_ms(seconds: f64) -> Millis {
    // A negative or absurd value is refused by validation; here it must only not wrap.
    (seconds * 1000.0).round().clamp(0.0, 1e12) as Millis
}

/// What bounds the time from a node's deadline to its reset, as its agent reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatchdogBounds {
    /// Tw as read back from the driver, milliseconds.
    pub timeout_ms: Millis,
    /// Whether a pet can set a shorter timeout, so that the device never outlasts D.
    pub sliding: bool,
    /// Whether the service manager keeps the descriptor when its holder dies.
    pub descriptor_retained: bool,
}

/// `Tw' = Tw (1 + ρw) + δw`, milliseconds, rounded up.
pub fn watchdog_worst_ms(timings: &Timings, timeout_ms: Millis) -> Millis {
    timeout_ms + scale_up(timeout_ms, timings.watchdog_rate_error_ppm) + timings.watchdog_lateness_ms
}

/// W: what an observer waits after the last heartbeat that it saw, in milliseconds, rounded **up** to a tenth of a second.
///
/// The inequalities (FENCING, section 4):
///
/// | device | `W (1 − ρ) ≥` |
/// |---|---|
/// | sliding, descriptor retained | `Th (1 + ρ) + Tw' + δw + δio` |
/// | fixed, retained | `Th (1 + ρ) + 2 Tw' + δio` |
/// | not retained | `Th (1 + ρ) + 3 Tw' + δio` |
///
/// Guarantees: after W on any clock within ρ, a machine that was armed under these bounds has reset and its writes have
/// drained. Assumptions: the bounds are those that its agent committed with the heartbeat; its clock rate is within ρ.
pub fn wait_ms(timings: &Timings, watchdog: &WatchdogBounds) -> Millis {
    let worst = watchdog_worst_ms(timings, watchdog.timeout_ms);
    let valid =
        timings.heartbeat_valid_ms + scale_up(timings.heartbeat_valid_ms, timings.clock_rate_error_ppm);
    let device = match (watchdog.descriptor_retained, watchdog.sliding) {
        (true, true) => worst + timings.watchdog_lateness_ms,
        (true, false) => 2 * worst,
        (false, _) => 3 * worst,
    };
    let needed = u128::from(valid + device + timings.io_drain_ms);
    let remaining_ppm = u128::from(1_000_000_u64.saturating_sub(timings.clock_rate_error_ppm)).max(1);
    let wait = (needed * 1_000_000).div_ceil(remaining_ppm);
    u64::try_from(wait.div_ceil(100) * 100).unwrap_or(Millis::MAX)
}

/// What the store and the way to it add to the waiting times, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreTimes {
    /// From sending a commit until everybody who watches has seen it.
    pub commit_ms: Millis,
    /// How much later than after its time to live the store ends a lease.
    pub expiry_ms: Millis,
    /// How long answers are waited for in vain on the way, in all: see [`UNANSWERED_MS`].
    pub unanswered_ms: Millis,
}

/// The deadline of one attempt of a request to the store, milliseconds: slower than that, another member is asked too.
pub const ATTEMPT_MS: Millis = 1_000;

/// How many attempts of one request may reach the store.
pub const ATTEMPTS: u32 = 3;

/// After so long a request that nobody answered is unknown, and the store is read again. One lost message on the way costs a
/// failover at most this, and one attempt if the second one is answered.
pub const UNANSWERED_MS: Millis = ATTEMPT_MS * ATTEMPTS as Millis;

/// The longest time from a node's last applied heartbeat to the permission to start its services elsewhere, milliseconds.
///
/// Others observe the heartbeat at most a commit later, `o`, and the proof is there at `o + W`. If the leader dies with the
/// node, that is at most Ki and a commit after the last heartbeat; its key goes with its lease, then come a lease, the key and
/// the declaration of the next leader, which has observed the node as a follower. Either way three commits follow: the
/// proof, the assignment, the permit.
///
/// | who died | bound |
/// |---|---|
/// | another node | `W + 4 c + u` |
/// | the leader's node | `max(W + c, Ki + leaderLease + e + 4 c) + 3 c + u` |
///
/// c: a commit until it is seen; e: lateness of lease expiry; u: time lost with answers that do not come.
///
/// Assumptions: silence is the proof; a place is free, and its node is armed; `maxFencing` does not delay. A candidate's own
/// commit that is not answered restarts its observation, which delays the declaration to `o + Ki + u + Th` at most: no later
/// than the proof plus `u`, as long as `Ki + Th` is not longer than W.
pub fn failover_bound_ms(
    timings: &Timings,
    watchdog: &WatchdogBounds,
    store: &StoreTimes,
    leader_dies: bool,
) -> Millis {
    let commit_ms = store.commit_ms;
    let proven = wait_ms(timings, watchdog) + commit_ms;
    let declared = if leader_dies {
        let lease_ms = u64::try_from(timings.leader_lease_seconds()).unwrap_or_default() * 1000;
        timings.heartbeat_interval_ms + lease_ms + store.expiry_ms + 4 * commit_ms
    } else {
        timings.heartbeat_valid_ms + 2 * commit_ms
    };
    proven.max(declared) + 3 * commit_ms + store.unanswered_ms
}

/// The share of `time` that `ppm` parts per million are, rounded up.
fn scale_up(time: Millis, ppm: u64) -> Millis {
    u64::try_from((u128::from(time) * u128::from(ppm)).div_ceil(1_000_000)).unwrap_or(Millis::MAX)
}

/// Problems with a set of timings, each naming the field to change: (field, what is wrong).
///
/// A machine must have time to try a heartbeat twice and still kill its services before D.
pub fn problems(timings: &Timings) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    // The sentences are made only when they are needed: an agent asks with every heartbeat.
    let mut require = |holds: bool, field: &'static str, text: &dyn Fn() -> String| {
        if !holds {
            found.push((field, text()));
        }
    };
    let t = timings;
    require((100..=60_000).contains(&t.heartbeat_interval_ms), "heartbeatIntervalSeconds", &|| {
        "must be between 0.1 and 60".to_owned()
    });
    let least = 2 * t.heartbeat_interval_ms + t.stop_margin_ms;
    require(t.heartbeat_valid_ms > least, "heartbeatValidSeconds", &|| {
        format!(
            "must be more than 2 × heartbeatIntervalSeconds + stopMarginSeconds ({} s), or one slow heartbeat stops services",
            least as f64 / 1000.0
        )
    });
    require(t.heartbeat_valid_ms <= 600_000, "heartbeatValidSeconds", &|| "must be at most 600".to_owned());
    require(t.stop_margin_ms >= 500, "stopMarginSeconds", &|| {
        "must be at least 0.5, or services cannot be killed before the deadline".to_owned()
    });
    require(
        t.watchdog_timeout_ms >= 1_000
            && t.watchdog_timeout_ms <= 300_000
            && t.watchdog_timeout_ms.is_multiple_of(1000),
        "watchdogTimeoutSeconds",
        &|| "must be a whole number between 1 and 300: kernel watchdogs count seconds".to_owned(),
    );
    require(t.watchdog_rate_error_ppm <= 200_000, "watchdogRateErrorPercent", &|| {
        "must be at most 20".to_owned()
    });
    require(t.watchdog_lateness_ms <= 60_000, "watchdogLatenessSeconds", &|| "must be at most 60".to_owned());
    require(t.clock_rate_error_ppm <= 200_000, "clockRateErrorPercent", &|| "must be at most 20".to_owned());
    require(t.io_drain_ms <= 600_000, "ioDrainSeconds", &|| "must be at most 600".to_owned());
    require((1_000..=600_000).contains(&t.leader_lease_ms), "leaderLeaseSeconds", &|| {
        "must be between 1 and 600".to_owned()
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(profile: Profile, sliding: bool, descriptor_retained: bool, expected_wait_ms: Millis) {
        let timings = Timings::of_profile(profile);
        let bounds = WatchdogBounds { timeout_ms: timings.watchdog_timeout_ms, sliding, descriptor_retained };
        assert_eq!(wait_ms(&timings, &bounds), expected_wait_ms, "{profile:?} sliding {sliding}");
        assert_eq!(problems(&timings), Vec::new());
    }

    #[test]
    fn the_wait_is_the_one_the_protocol_states() {
        check(Profile::Fast, true, true, 7_100);
        check(Profile::Default, true, true, 13_200);
        check(Profile::Conservative, true, true, 39_400);
        check(Profile::Fast, false, true, 9_100);
        check(Profile::Default, false, true, 18_300);
        check(Profile::Conservative, false, true, 54_700);
        check(Profile::Default, true, false, 24_400);
    }

    fn check_bound(timings: Timings, store: StoreTimes, leader_dies: bool, expected_ms: Millis) {
        let bounds = WatchdogBounds {
            timeout_ms: timings.watchdog_timeout_ms,
            sliding: true,
            descriptor_retained: true,
        };
        assert_eq!(failover_bound_ms(&timings, &bounds, &store, leader_dies), expected_ms, "{timings:?}");
    }

    #[test]
    fn a_failover_is_bounded_also_when_the_leader_dies_with_the_node() {
        let calm = StoreTimes { commit_ms: 10, expiry_ms: 500, unanswered_ms: 0 };
        for (profile, wait_ms) in
            [(Profile::Fast, 7_100), (Profile::Default, 13_200), (Profile::Conservative, 39_400)]
        {
            let timings = Timings::of_profile(profile);
            check_bound(timings, calm, false, wait_ms + 40);
            check_bound(timings, calm, true, wait_ms + 40);
            let one_lost = StoreTimes { unanswered_ms: UNANSWERED_MS, ..calm };
            check_bound(timings, one_lost, true, wait_ms + 3_040);
        }
        // A lease that outlasts W holds the failover up, but only if its leader died.
        let long_lease = Timings { leader_lease_ms: 20_000, ..Timings::default() };
        check_bound(long_lease, calm, false, 13_240);
        check_bound(long_lease, calm, true, 1_000 + 20_000 + 500 + 70);
    }

    #[test]
    fn a_heartbeat_that_cannot_be_tried_twice_is_refused() {
        let timings = Timings { heartbeat_valid_ms: 4_500, ..Timings::default() };
        assert_eq!(problems(&timings)[0].0, "heartbeatValidSeconds");
    }
}
