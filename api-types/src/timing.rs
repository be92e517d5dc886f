//! The timing arithmetic of the fencing protocol, in one place, with its proof.
//!
//! An agent reads its clock (`s`) and commits a heartbeat; its watchdog may be renewed until `D = s + Th`. An observer
//! sees that commit no earlier than `s`. From then on, the observer waits `W` on its own clock, whose rate may differ
//! by `ρ`.
//!
//! In that time the node reaches D (`Th (1 + ρ)` on the observer's clock), and the device's last period ends
//! (`Tw' = Tw (1 + ρw) + δw`). Then the machine resets, and its last writes drain (`δio`). See [`fencing_delay_ms`] for the
//! three inequalities.
//!
//! All times are integer milliseconds, and all rates are parts per million. Every division rounds up, which is the safe
//! direction.

mod failover;
mod fencing_delay;
mod problems;

pub use failover::{
    ATTEMPT_MS, ATTEMPTS, FailoverParts, NamedPart, StoreTimes, UNANSWERED_REQUEST_MS, failover_bound_ms,
    failover_parts, named_parts,
};
pub use fencing_delay::{FencingDelayParts, fencing_delay_ms, fencing_delay_parts, watchdog_worst_ms};
pub use problems::{MAX_PPM, RATE_SETTINGS, RateOf, SETTING_BOUNDS, SettingBounds, problems};

use crate::time::{DecimalSeconds, Millis};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;

/// A named set of timings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Profile {
    /// Failover within about 13 s, for most machines and networks.
    #[default]
    Default,
    /// Failover within about 7 s, for lightly loaded machines on a fast network.
    Fast,
    /// Failover within about 39 s, for heavily loaded machines, slow etcd or emulation.
    Conservative,
}

/// `Cluster.spec.timing`: a profile, and single values that override it. Seconds may have fractions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TimingSpec {
    /// Profile that provides the values that are not set.
    pub profile: Profile,
    /// Heartbeat interval (Ki), in seconds; also the deadline of one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_interval_seconds: Option<f64>,
    /// Heartbeat lifetime (Th), in seconds: time for which one committed heartbeat is valid.
    #[serde(
        rename = "heartbeatValidSeconds",
        alias = "heartbeatLifetimeSeconds",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(rename = "heartbeatLifetimeSeconds")]
    pub heartbeat_lifetime_seconds: Option<f64>,
    /// Self-fence margin (Ts), in seconds: time before the end of the heartbeat lifetime at which services
    /// are killed.
    #[serde(
        rename = "stopMarginSeconds",
        alias = "selfFenceMarginSeconds",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(rename = "selfFenceMarginSeconds")]
    pub self_fence_margin_seconds: Option<f64>,
    /// Watchdog timeout (Tw), in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog_timeout_seconds: Option<f64>,
    /// Maximum rate error of the watchdog (ρw), in percent.
    #[serde(
        rename = "watchdogRateErrorPercent",
        alias = "watchdogClockSkewPercent",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(rename = "watchdogClockSkewPercent")]
    pub watchdog_clock_skew_percent: Option<f64>,
    /// Maximum delay of a watchdog renewal or reset (δw), in seconds.
    #[serde(
        rename = "watchdogLatenessSeconds",
        alias = "watchdogMaxDelaySeconds",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(rename = "watchdogMaxDelaySeconds")]
    pub watchdog_max_delay_seconds: Option<f64>,
    /// Maximum difference between the clock rates of two machines (ρ), in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_rate_error_percent: Option<f64>,
    /// Maximum time in which writes of a failed machine may still reach shared storage (δio), in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_drain_seconds: Option<f64>,
    /// Time to live of the leader's lease, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader_lease_seconds: Option<f64>,
    /// Seconds for which services of a node that shut down wait for its return (shutdown policy Failover).
    #[serde(
        rename = "returnGraceSeconds",
        alias = "nodeReturnGracePeriodSeconds",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(rename = "nodeReturnGracePeriodSeconds")]
    pub node_return_grace_period_seconds: Option<f64>,
    /// Seconds for which services of a rebooting node wait for its return (shutdown policy Conditional), and after which a
    /// node with a stopped agent is reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze_timeout_seconds: Option<f64>,
    /// Seconds for which a shutdown waits for services to move away (shutdown policy Migrate). 0:
    /// indefinitely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown_timeout_seconds: Option<f64>,
    /// Seconds after which the leader deletes the key of a controller that does not refresh it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidate_retention_seconds: Option<f64>,
}

impl TimingSpec {
    /// Returns `candidateRetentionSeconds` in milliseconds.
    pub fn candidate_retention_ms(&self) -> Millis {
        self.candidate_retention_seconds.map_or(CANDIDATE_RETENTION_MS, seconds_to_ms)
    }
}

/// Default of `candidateRetentionSeconds`: one day.
const CANDIDATE_RETENTION_MS: Millis = 86_400_000;

/// Resolved timings, as committed by an agent and used in all calculations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timings {
    /// Heartbeat interval (Ki), in milliseconds.
    pub heartbeat_interval_ms: Millis,
    /// Heartbeat lifetime (Th), in milliseconds.
    pub heartbeat_valid_ms: Millis,
    /// Self-fence margin (Ts), in milliseconds.
    pub stop_margin_ms: Millis,
    /// Requested watchdog timeout (Tw), in milliseconds. The node's report contains the timeout reported by
    /// the driver.
    pub watchdog_timeout_ms: Millis,
    /// Maximum rate error of the watchdog (ρw), in parts per million.
    pub watchdog_rate_error_ppm: u64,
    /// Maximum delay of a watchdog renewal or reset (δw), in milliseconds.
    pub watchdog_lateness_ms: Millis,
    /// Maximum difference between the clock rates of two machines (ρ), in parts per million.
    pub clock_rate_error_ppm: u64,
    /// Maximum time in which writes of a failed machine may still reach shared storage (δio), in
    /// milliseconds.
    pub io_drain_ms: Millis,
    /// Time to live of the leader's lease, in milliseconds.
    pub leader_lease_ms: Millis,
    /// `nodeReturnGracePeriodSeconds`, in milliseconds.
    pub return_grace_ms: Millis,
    /// `freezeTimeoutSeconds`, in milliseconds.
    pub freeze_timeout_ms: Millis,
    /// `shutdownTimeoutSeconds`, in milliseconds.
    pub shutdown_timeout_ms: Millis,
}

impl Default for Timings {
    fn default() -> Timings {
        Timings::of_profile(Profile::Default)
    }
}

impl Timings {
    /// Returns the values of a profile.
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

    /// Returns `leaderLeaseSeconds` in whole seconds, at least one, because etcd counts leases in seconds.
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
            heartbeat_valid_ms: ms(spec.heartbeat_lifetime_seconds, base.heartbeat_valid_ms),
            stop_margin_ms: ms(spec.self_fence_margin_seconds, base.stop_margin_ms),
            watchdog_timeout_ms: ms(spec.watchdog_timeout_seconds, base.watchdog_timeout_ms),
            watchdog_rate_error_ppm: ppm(spec.watchdog_clock_skew_percent, base.watchdog_rate_error_ppm),
            watchdog_lateness_ms: ms(spec.watchdog_max_delay_seconds, base.watchdog_lateness_ms),
            clock_rate_error_ppm: ppm(spec.clock_rate_error_percent, base.clock_rate_error_ppm),
            io_drain_ms: ms(spec.io_drain_seconds, base.io_drain_ms),
            leader_lease_ms: ms(spec.leader_lease_seconds, base.leader_lease_ms),
            return_grace_ms: ms(spec.node_return_grace_period_seconds, base.return_grace_ms),
            freeze_timeout_ms: ms(spec.freeze_timeout_seconds, base.freeze_timeout_ms),
            shutdown_timeout_ms: ms(spec.shutdown_timeout_seconds, base.shutdown_timeout_ms),
        }
    }
}

/// A rate in parts per million that users read as a decimal number of percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percent(pub u64);

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 10_000.0)
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Percent, D::Error> {
        Ok(Percent(seconds_to_ms(f64::deserialize(deserializer)? * 10.0)))
    }
}

impl JsonSchema for Percent {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Percent".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number", "format": "double", "minimum": 0})
    }
}

/// `Node.status.timing`: the [`Timings`] of an agent in the names and units of [`TimingSpec`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ActiveTiming {
    /// Heartbeat interval (Ki), in seconds.
    pub heartbeat_interval_seconds: DecimalSeconds,
    /// Heartbeat lifetime (Th), in seconds.
    #[serde(rename = "heartbeatValidSeconds", alias = "heartbeatLifetimeSeconds")]
    #[schemars(rename = "heartbeatLifetimeSeconds")]
    pub heartbeat_lifetime_seconds: DecimalSeconds,
    /// Self-fence margin (Ts), in seconds.
    #[serde(rename = "stopMarginSeconds", alias = "selfFenceMarginSeconds")]
    #[schemars(rename = "selfFenceMarginSeconds")]
    pub self_fence_margin_seconds: DecimalSeconds,
    /// Requested watchdog timeout (Tw), in seconds. `status.watchdog` contains the timeout reported by the
    /// driver.
    pub watchdog_timeout_seconds: DecimalSeconds,
    /// Maximum rate error of the watchdog (ρw), in percent.
    #[serde(rename = "watchdogRateErrorPercent", alias = "watchdogClockSkewPercent")]
    #[schemars(rename = "watchdogClockSkewPercent")]
    pub watchdog_clock_skew_percent: Percent,
    /// Maximum delay of a watchdog renewal or reset (δw), in seconds.
    #[serde(rename = "watchdogLatenessSeconds", alias = "watchdogMaxDelaySeconds")]
    #[schemars(rename = "watchdogMaxDelaySeconds")]
    pub watchdog_max_delay_seconds: DecimalSeconds,
    /// Maximum difference between the clock rates of two machines (ρ), in percent.
    pub clock_rate_error_percent: Percent,
    /// Maximum time in which writes of a failed machine may still reach shared storage (δio), in seconds.
    pub io_drain_seconds: DecimalSeconds,
    /// Time to live of the leader's lease, in seconds.
    pub leader_lease_seconds: DecimalSeconds,
    /// Time for which services of a node that shut down wait for its return, in seconds.
    #[serde(rename = "returnGraceSeconds", alias = "nodeReturnGracePeriodSeconds")]
    #[schemars(rename = "nodeReturnGracePeriodSeconds")]
    pub node_return_grace_period_seconds: DecimalSeconds,
    /// Time for which services of a rebooting node wait for its return, and after which a node with a stopped agent is
    /// reported, in seconds.
    pub freeze_timeout_seconds: DecimalSeconds,
    /// Time for which a shutdown waits for services to move away, in seconds. 0: indefinitely.
    pub shutdown_timeout_seconds: DecimalSeconds,
}

impl From<Timings> for ActiveTiming {
    fn from(timings: Timings) -> ActiveTiming {
        ActiveTiming {
            heartbeat_interval_seconds: DecimalSeconds(timings.heartbeat_interval_ms),
            heartbeat_lifetime_seconds: DecimalSeconds(timings.heartbeat_valid_ms),
            self_fence_margin_seconds: DecimalSeconds(timings.stop_margin_ms),
            watchdog_timeout_seconds: DecimalSeconds(timings.watchdog_timeout_ms),
            watchdog_clock_skew_percent: Percent(timings.watchdog_rate_error_ppm),
            watchdog_max_delay_seconds: DecimalSeconds(timings.watchdog_lateness_ms),
            clock_rate_error_percent: Percent(timings.clock_rate_error_ppm),
            io_drain_seconds: DecimalSeconds(timings.io_drain_ms),
            leader_lease_seconds: DecimalSeconds(timings.leader_lease_ms),
            node_return_grace_period_seconds: DecimalSeconds(timings.return_grace_ms),
            freeze_timeout_seconds: DecimalSeconds(timings.freeze_timeout_ms),
            shutdown_timeout_seconds: DecimalSeconds(timings.shutdown_timeout_ms),
        }
    }
}

impl From<ActiveTiming> for Timings {
    fn from(active: ActiveTiming) -> Timings {
        Timings {
            heartbeat_interval_ms: active.heartbeat_interval_seconds.ms(),
            heartbeat_valid_ms: active.heartbeat_lifetime_seconds.ms(),
            stop_margin_ms: active.self_fence_margin_seconds.ms(),
            watchdog_timeout_ms: active.watchdog_timeout_seconds.ms(),
            watchdog_rate_error_ppm: active.watchdog_clock_skew_percent.0,
            watchdog_lateness_ms: active.watchdog_max_delay_seconds.ms(),
            clock_rate_error_ppm: active.clock_rate_error_percent.0,
            io_drain_ms: active.io_drain_seconds.ms(),
            leader_lease_ms: active.leader_lease_seconds.ms(),
            return_grace_ms: active.node_return_grace_period_seconds.ms(),
            freeze_timeout_ms: active.freeze_timeout_seconds.ms(),
            shutdown_timeout_ms: active.shutdown_timeout_seconds.ms(),
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range first")]
fn seconds_to_ms(seconds: f64) -> Millis {
    // Validation rejects negative and absurd values. This conversion only has to avoid an overflow.
    (seconds * 1000.0).round().clamp(0.0, 1e12) as Millis
}

/// Properties that bound the time from a node's deadline to its reset, as reported by its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatchdogBounds {
    /// Watchdog timeout (Tw) reported by the driver, in milliseconds.
    pub timeout_ms: Millis,
    /// Whether a renewal can set a shorter timeout, so that the device does not outlast the deadline D.
    pub sliding: bool,
    /// Whether the service manager keeps the descriptor when its holder ends.
    pub descriptor_retained: bool,
}

/// Returns `ppm` parts per million of `time`, rounded up.
fn scale_up(time: Millis, ppm: u64) -> Millis {
    u64::try_from((u128::from(time) * u128::from(ppm)).div_ceil(1_000_000)).unwrap_or(Millis::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json, to_value};

    fn spec() -> TimingSpec {
        let fields = json!({
            "heartbeatIntervalSeconds": 0.5,
            "watchdogClockSkewPercent": 1.5,
            "clockRateErrorPercent": 0.05,
            "candidateRetentionSeconds": 90.5,
        });
        from_value(fields).expect("valid settings")
    }

    #[test]
    fn decimal_settings_become_milliseconds_and_parts_per_million() {
        let timings = Timings::from(&spec());
        assert_eq!(timings.heartbeat_interval_ms, 500);
        assert_eq!(timings.watchdog_rate_error_ppm, 15_000);
        assert_eq!(timings.clock_rate_error_ppm, 500);
        assert_eq!(timings.heartbeat_valid_ms, Timings::of_profile(Profile::Default).heartbeat_valid_ms);
        assert_eq!(spec().candidate_retention_ms(), 90_500);
        assert_eq!(TimingSpec::default().candidate_retention_ms(), CANDIDATE_RETENTION_MS);
    }

    #[test]
    fn reported_timings_are_read_back_unchanged() {
        let timings = Timings::from(&spec());
        let reported = to_value(ActiveTiming::from(timings)).expect("the timings are written");
        assert_eq!(reported["clockRateErrorPercent"], 0.05);
        let read: ActiveTiming = from_value(reported).expect("the timings are read");
        assert_eq!(Timings::from(read), timings);
    }
}
