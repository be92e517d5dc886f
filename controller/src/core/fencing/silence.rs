//! Declaring a node dead because it is silent.

use super::limits::Budget;
use super::{Subjected, close};
use crate::core::candidates;
use crate::core::plan::{Note, Plan};
use crate::core::restored;
use crate::core::situation::Situation;
use crate::core::world::Versioned;
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Fence, Mode};

/// Declares the node dead at o + Th, if that may be done and can lead anywhere.
///
/// Only if this process's own commits had no gap longer than Th/2 since o (`silent_since` starts again after one). A
/// node with active services is closed only if proof (a) or (b) can follow; an idle one is closed so that it registers
/// anew, which costs it nothing. A node that asks controllers to hold, and does not know this one, may be going on with the
/// grants of the others.
pub(super) fn plan(
    situation: &Situation<'_>,
    subject: &Subjected<'_>,
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
    if situation.world.is_unheard(name) {
        // Nothing to close: what was active there may be more than what the backup knows of.
        plan.wait(Kind::Node, name, Reason::StoreRestored, restored::unheard(name));
        return;
    }
    if situation.world.settings().disarmed.is_some() {
        wait(plan, Reason::Disarmed, "its heartbeat is late, but the cluster is disarmed".to_owned());
        return;
    }
    if !situation.commits.is_current(situation.now.raw, valid_ms / 2) {
        wait(plan, Reason::ObserverGap, Reason::ObserverGap.sentence().to_owned());
        return;
    }
    if may_hide_something(situation, subject) {
        let message = format!(
            "it is silent since before the cluster was armed, and services may have been moved to it by hand: start its \
             agent, or confirm it off with hactl node confirm-fenced {name}"
        );
        wait(plan, Reason::NoProofPossible, message);
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
        let services: Vec<&str> = node.active.iter().map(String::as_str).collect();
        let (reason, why) = match node.silence_proves {
            Err(reason @ (Reason::WatchdogFailed | Reason::SleepUnprotected)) => {
                (reason, format!("heartbeats missed, and {}", reason.sentence()))
            }
            Ok(_) | Err(_) => (Reason::NoProofPossible, Reason::NoProofPossible.sentence().to_owned()),
        };
        let message = format!(
            "{why}; {} may still run there: confirm it off with hactl node confirm-fenced {name}",
            services.join(", ")
        );
        wait(plan, reason, message);
        return;
    }
    if !budget.take() {
        let message = format!(
            "{} (maxFencing allows {}): it goes on as the window slides, or with hactl node confirm-fenced {name}",
            Reason::MaxFencingReached.sentence(),
            budget.limit
        );
        wait(plan, Reason::MaxFencingReached, message);
        return;
    }
    close(situation, subject, fence, None, Note::ClosesOnSilence(name.to_owned()), plan);
}

/// Whether services that were let go for disarm ignore may run on a node that has not acknowledged the arming: its reports
/// do not tell, and closing its epoch would make it stop them when it returns.
fn may_hide_something(situation: &Situation<'_>, subject: &Subjected<'_>) -> bool {
    let world = situation.world;
    subject.report.is_some_and(|report| report.value.mode == Mode::Disarmed)
        && world.resource_statuses.values().any(|status| status.value.probe_arming.is_some())
}
