//! Declaration that unreachable nodes have failed.

use super::limits::Budget;
use super::{FencedNode, close};
use crate::core::candidates;
use crate::core::plan::{Note, Plan};
use crate::core::restored;
use crate::core::situation::Situation;
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
/// registers again, at no cost. A node that uses Hold and does not know this controller may continue with grants of
/// the other controllers.
pub(super) fn plan(
    situation: &Situation<'_>,
    subject: &FencedNode<'_>,
    fence: &Versioned<Fence>,
    budget: &mut Budget,
    plan: &mut Plan,
) {
    let (name, node) = (subject.name, subject.node);
    if situation.now.raw < node.late_at {
        plan.heard.push(name.to_owned());
        return;
    }
    let valid_ms = situation.world.heartbeat_valid_ms(name);
    let wait =
        |plan: &mut Plan, reason: Reason, message: String| plan.wait(Kind::Node, name, reason, message);
    if situation.world.has_no_evidence(name) {
        // Do not close the epoch: more services may have been active there than the backup records.
        plan.wait(Kind::Node, name, Reason::EtcdRestored, restored::unheard(name));
        return;
    }
    if situation.world.settings().disarmed.is_some() {
        wait(
            plan,
            Reason::Disarmed,
            "Heartbeats are missing; node is not fenced because the cluster is disarmed".to_owned(),
        );
        return;
    }
    if !situation.commits.is_current(situation.now.raw, valid_ms / 2) {
        wait(plan, Reason::FailureDetectionReset, Reason::FailureDetectionReset.sentence().to_owned());
        return;
    }
    if may_hide_something(situation, subject) {
        let message = format!(
            "Node has been unreachable since before the cluster was armed, and services may have been moved to it \
             manually. Start its agent, or power the node off and run hactl node confirm-fenced {name}"
        );
        wait(plan, Reason::FencingUnavailable, message);
        return;
    }
    if node.active.is_empty() {
        close(situation, subject, fence, None, Note::None, plan);
        return;
    }
    if node.is_held_by_others {
        candidates::wait_for_older(situation, name, plan);
        return;
    }
    if node.silence_proves.is_err() && !node.has_device {
        let services: Vec<&str> = node.active.iter().map(ResourceName::as_str).collect();
        let (reason, why) = match node.silence_proves {
            Err(reason @ (Reason::WatchdogFailed | Reason::SleepUnprotected)) => {
                (reason, format!("Node is unreachable and cannot be fenced: {}", reason.sentence()))
            }
            Ok(_) | Err(_) => (Reason::FencingUnavailable, Reason::FencingUnavailable.sentence().to_owned()),
        };
        let message = format!(
            "{why}; services may still run on it ({}). Power the node off, then run hactl node confirm-fenced {name}",
            services.join(", ")
        );
        wait(plan, reason, message);
        return;
    }
    if !budget.take() {
        let message = format!(
            "Fencing limit reached: {} per {} s (fencing.maxFencing). Fencing continues when this period ends; if the \
             node is powered off, run hactl node confirm-fenced {name}",
            names::count(budget.limit, "node"),
            situation.world.settings().fencing.window_seconds
        );
        wait(plan, Reason::FencingRateLimited, message);
        return;
    }
    close(situation, subject, fence, None, Note::ClosesOnSilence(name.to_owned()), plan);
}

/// Returns `true` if services that were unmanaged during disarm ignore may run on a node that has not acknowledged
/// the arming. The node's reports do not show them, and closing its epoch would make it stop them when it returns.
fn may_hide_something(situation: &Situation<'_>, subject: &FencedNode<'_>) -> bool {
    let world = situation.world;
    subject.report.is_some_and(|report| report.value.mode == Mode::Disarmed)
        && world.resource_statuses.values().any(|status| status.value.probe_arming.is_some())
}
