//! Checks of the Cluster object.

use super::context::Context;
use crate::cluster::{Cluster, CountOrPercent};
use crate::problem::field_path;
use crate::timing::{self, TimingSpec, Timings};

pub(super) fn check(cluster: &Cluster, context: &mut Context) {
    let spec = &cluster.spec;
    check_timing(&spec.timing, context);
    let fencing = &spec.fencing;
    if let (CountOrPercent::Percent(text), None) = (&fencing.max_fencing, fencing.max_fencing.of(1)) {
        context.add_invalid(
            "spec.fencing.maxFencing",
            format!("{text:?} is not a valid number of nodes or percentage such as \"50%\""),
        );
    }
    if !(1..=86_400).contains(&fencing.window_seconds) {
        context.add_invalid("spec.fencing.windowSeconds", "must be between 1 and 86400");
    }
    let scheduler = &spec.scheduler;
    for (field, value, min_seconds, max_seconds) in [
        ("overcommit", scheduler.overcommit, 0.1, 100.0),
        ("maxCpuRatio", scheduler.max_cpu_ratio, 0.1, 1000.0),
        ("autoRebalance.threshold", scheduler.auto_rebalance.threshold, 0.0, 100.0),
        ("autoRebalance.margin", scheduler.auto_rebalance.margin, 0.0, 1.0),
    ] {
        context.check_seconds(&format!("spec.scheduler.{field}"), value, min_seconds, max_seconds);
    }
    context.check_tags("spec.scheduler.exclusionTags", &scheduler.exclusion_tags);
    if let Some(notifications) = &spec.notifications {
        super::notifications::check(notifications, context);
    }
}

fn check_timing(spec: &TimingSpec, context: &mut Context) {
    let path = "spec.timing";
    let values = [
        ("heartbeatIntervalSeconds", spec.heartbeat_interval_seconds),
        ("heartbeatLifetimeSeconds", spec.heartbeat_lifetime_seconds),
        ("selfFenceMarginSeconds", spec.self_fence_margin_seconds),
        ("watchdogTimeoutSeconds", spec.watchdog_timeout_seconds),
        ("watchdogClockSkewPercent", spec.watchdog_clock_skew_percent),
        ("watchdogMaxDelaySeconds", spec.watchdog_max_delay_seconds),
        ("clockRateErrorPercent", spec.clock_rate_error_percent),
        ("ioDrainSeconds", spec.io_drain_seconds),
        ("leaderLeaseSeconds", spec.leader_lease_seconds),
        ("nodeReturnGracePeriodSeconds", spec.node_return_grace_period_seconds),
        ("freezeTimeoutSeconds", spec.freeze_timeout_seconds),
        ("shutdownTimeoutSeconds", spec.shutdown_timeout_seconds),
        ("candidateRetentionSeconds", spec.candidate_retention_seconds),
    ];
    let mut negative = false;
    for (field, value) in values {
        if value.is_some_and(|value| !(0.0..=31_536_000.0).contains(&value)) {
            negative = true;
            context.add_invalid(&field_path(path, field), "must be between 0 and 31536000 (a year)");
        }
    }
    // The types read a negative number as zero, and the zero would cause misleading further problems.
    if !negative {
        for (field, message) in timing::problems(&Timings::from(spec)) {
            context.add_invalid(&field_path(path, field), message);
        }
    }
}
