//! Declaration that unreachable nodes have failed.

use super::limits::FencingBudget;
use super::{FencedNode, close};
use crate::core::candidates;
use crate::core::plan::{OnApplied, Plan};
use crate::core::plan_input::PlanInput;
use crate::core::restored;
use crate::core::world::Versioned;
use ha_api_types::id::ResourceName;
use ha_api_types::kind::Kind;
use ha_api_types::names;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Fence, Mode};

/// Declares the node dead at o + Th, if allowed and useful.
///
/// This process's own commits must not have had a gap longer than Th/2 since o (`silent_since` starts again after a
/// gap). A node with active services is closed only if proof (a) or (b) can follow. An idle node is closed so that it
/// registers again, at no cost. A node that uses Hold, and has not read the key of this controller, may continue with
/// the grants of the other controllers.
pub(super) fn plan(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    fence: &Versioned<Fence>,
    budget: &mut FencingBudget,
    plan: &mut Plan,
) {
    let (name, node) = (subject.name, subject.node);
    if input.now.monotonic_raw < node.late_at {
        plan.timely_nodes.push(name.to_owned());
        return;
    }
    let valid_ms = input.cluster_view.heartbeat_valid_ms(name);
    let wait =
        |plan: &mut Plan, reason: Reason, message: String| plan.add_wait(Kind::Node, name, reason, message);
    if input.cluster_view.is_known_only_from_backup(name) {
        // Do not close the epoch: more services may have been active there than the backup records.
        plan.add_wait(Kind::Node, name, Reason::EtcdRestored, restored::unreachable_since_restore(name));
        return;
    }
    if input.cluster_view.settings().disarmed.is_some() {
        wait(
            plan,
            Reason::Disarmed,
            "Heartbeats are missing; node is not fenced because the cluster is disarmed".to_owned(),
        );
        return;
    }
    if !input.commit_gaps.is_current(input.now.monotonic_raw, valid_ms / 2) {
        wait(plan, Reason::FailureDetectionReset, Reason::FailureDetectionReset.sentence().to_owned());
        return;
    }
    if may_run_unreported_services(input, subject) {
        let message = format!(
            "Node has been unreachable since before the cluster was armed, and services may have been moved to it \
             manually. Start its agent, or power the node off and run hactl node confirm-fenced {name}"
        );
        wait(plan, Reason::FencingUnavailable, message);
        return;
    }
    if node.active.is_empty() {
        close(input, subject, fence, None, OnApplied::None, plan);
        return;
    }
    if node.is_held_by_others {
        candidates::wait_for_older_controller(input, name, plan);
        return;
    }
    if node.missed_heartbeat_fencing_delay.is_err() && !node.has_device {
        let services: Vec<&str> = node.active.iter().map(ResourceName::as_str).collect();
        let (reason, wake_reason) = match node.missed_heartbeat_fencing_delay {
            Err(reason @ (Reason::WatchdogFailed | Reason::SleepUnprotected)) => {
                (reason, format!("Node is unreachable and cannot be fenced: {}", reason.sentence()))
            }
            Ok(_) | Err(_) => (Reason::FencingUnavailable, Reason::FencingUnavailable.sentence().to_owned()),
        };
        let message = format!(
            "{wake_reason}; services may still run on it ({}). Power the node off, then run hactl node confirm-fenced {name}",
            services.join(", ")
        );
        wait(plan, reason, message);
        return;
    }
    if !budget.try_use() {
        let message = format!(
            "Fencing limit reached: {} per {} s (fencing.maxFencing). Fencing continues when this period ends; if the \
             node is powered off, run hactl node confirm-fenced {name}",
            names::count_with_noun(budget.limit, "node"),
            input.cluster_view.settings().fencing.window_seconds
        );
        wait(plan, Reason::FencingRateLimited, message);
        return;
    }
    close(input, subject, fence, None, OnApplied::ClosesOnSilence(name.to_owned()), plan);
}

/// Returns `true` if services that were unmanaged during disarm ignore may run on a node that has not acknowledged the
/// arming. The node's reports do not contain these services. If the epoch were closed, the node would stop them when it
/// returns.
fn may_run_unreported_services(input: &PlanInput<'_>, subject: &FencedNode<'_>) -> bool {
    let cluster_view = input.cluster_view;
    subject.report.is_some_and(|report| report.value.mode == Mode::Disarmed)
        && cluster_view.resource_statuses.values().any(|status| status.value.probe_arming.is_some())
}
