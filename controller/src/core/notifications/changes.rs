//! Differences between the stored state and the state that was reported, in both directions.

use crate::core::health::{NodeHealth, NodeTable};
use crate::core::plan::Plan;
use crate::core::plan_input::PlanInput;
use crate::core::status::FAILOVER_CAPACITY;
use crate::core::world::Versioned;
use ha_api_types::cluster::RecentFence;
use ha_api_types::id::{Epoch, NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::meta::{Condition, ConditionStatus};
use ha_api_types::notification::{NotificationItem, NotificationKind, NotificationObject};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Fence, FenceState, Proof, SentFacts};
use ha_api_types::resource::{ResourceStatus, ServiceState};
use ha_api_types::time::{Millis, MonotonicTime};
use std::collections::BTreeMap;

/// Maximum number of reported resources in the record, which stays small even if many resources fail at the same time.
const MAX_REPORTED_ERRORS: usize = 2_000;
/// Delay in milliseconds after which a proof of fencing that is possible but missing is reported.
const UNCONFIRMED_MS: Millis = 60_000;

pub(super) type Items = BTreeMap<NotificationKind, Vec<NotificationItem>>;

/// Returns the new items to report, and the state after their notification.
pub(super) fn changes(
    input: &PlanInput<'_>,
    nodes: &NodeTable,
    reported: &SentFacts,
    plan: &mut Plan,
) -> (Items, SentFacts) {
    let mut next = reported.clone();
    let mut items = Items::new();
    errors(input, &mut next, &mut items);
    reservation(input, &mut next, &mut items);
    fences(input, &mut next, &mut items);
    add_unconfirmed_nodes(input, nodes, &mut next, &mut items, plan);
    (items, next)
}

fn errors(input: &PlanInput<'_>, next: &mut SentFacts, items: &mut Items) {
    let cluster_view = input.cluster_view;
    let in_error = |name: &ResourceName| {
        let status = cluster_view.resource_statuses.get(name).map(|stored| &stored.value);
        status
            .filter(|status| status.state == ServiceState::Error && cluster_view.resources.contains_key(name))
    };
    let over: Vec<ResourceName> =
        next.errors.iter().filter(|name| in_error(name).is_none()).cloned().collect();
    for name in over {
        next.errors.remove(&name);
        let item = recovered(&name, cluster_view.resource_statuses.get(&name).map(|stored| &stored.value));
        items.entry(NotificationKind::ResourceRecovered).or_default().push(item);
    }
    for name in cluster_view.resource_statuses.keys() {
        if next.errors.len() >= MAX_REPORTED_ERRORS {
            return;
        }
        let Some(status) = in_error(name) else { continue };
        if next.errors.insert(name.clone()) {
            let ready = condition(&status.conditions, "Ready");
            let stalled = condition(&status.conditions, "Stalled");
            let item = NotificationItem {
                object: object(Kind::Resource, name),
                node: status.node.clone(),
                since: stalled.and_then(|stalled| stalled.last_transition_time.clone()),
                reason: ready.map_or(Reason::PoliciesExhausted, |ready| ready.reason),
                message: ready.map(|ready| ready.message.clone()).unwrap_or_default(),
                action: error_action(name, status.stop_confirmed == Some(false)),
            };
            items.entry(NotificationKind::ResourceError).or_default().push(item);
        }
    }
}

fn recovered(name: &ResourceName, status: Option<&ResourceStatus>) -> NotificationItem {
    let ready = status.and_then(|status| condition(&status.conditions, "Ready"));
    let message = match (status, ready) {
        (Some(status), Some(ready)) => format!("State {:?}: {}", status.state, ready.message),
        (Some(status), None) => format!("State {:?}", status.state),
        (None, _) => Reason::Deleted.sentence().to_owned(),
    };
    NotificationItem {
        object: object(Kind::Resource, name),
        node: status.and_then(|status| status.node.clone()),
        since: status
            .and_then(|status| condition(&status.conditions, "Ready"))
            .and_then(|ready| ready.last_transition_time.clone()),
        reason: match status {
            Some(_) => ready.map_or(Reason::Unknown, |ready| ready.reason),
            None => Reason::Deleted,
        },
        message,
        action: String::new(),
    }
}

fn reservation(input: &PlanInput<'_>, next: &mut SentFacts, items: &mut Items) {
    let Some(status) = &input.cluster_view.cluster_status else { return };
    let Some(condition) = condition(&status.value.conditions, FAILOVER_CAPACITY) else { return };
    let failed = match condition.status {
        ConditionStatus::True => false,
        ConditionStatus::False => true,
        // The check is undecided, so its last decided result stays.
        ConditionStatus::Unknown => return,
    };
    if next.reservation_failed == failed {
        return;
    }
    next.reservation_failed = failed;
    let (kind, action) = if failed {
        (NotificationKind::ReservationFailed, reservation_action())
    } else {
        (NotificationKind::ReservationRecovered, String::new())
    };
    let item = NotificationItem {
        object: NotificationObject::default(),
        node: None,
        since: condition.last_transition_time.clone(),
        reason: condition.reason,
        message: condition.message.clone(),
        action,
    };
    items.entry(kind).or_default().push(item);
}

/// Returns `true` if the end of an epoch is reported. The end is not reported if no service ran on the node, or if only
/// the agent registered again.
fn is_reported(fence: &RecentFence) -> bool {
    let quiet = [Proof::Reregistered.name(), Proof::NothingActive.name(), ""];
    !quiet.contains(&fence.proof.as_str())
}

fn fences(input: &PlanInput<'_>, next: &mut SentFacts, items: &mut Items) {
    for fence in input.cluster_view.cluster_status.iter().flat_map(|status| &status.value.recent_fences) {
        let is_already_sent = next.fences.get(&fence.node).is_some_and(|epoch| *epoch >= fence.epoch);
        let awaited = next.unconfirmed.get(&fence.node) == Some(&fence.epoch.previous());
        if is_already_sent || !(awaited || is_reported(fence)) {
            continue;
        }
        next.fences.insert(fence.node.clone(), fence.epoch);
        next.unconfirmed.remove(&fence.node);
        let item = NotificationItem {
            object: object(Kind::Node, &fence.node),
            node: Some(fence.node.clone()),
            since: Some(fence.at.clone()),
            reason: fence.reason,
            message: format!("Registration {}: {}", fence.epoch.previous(), fence.message),
            action: fence_action(&fence.node),
        };
        items.entry(NotificationKind::NodeFenced).or_default().push(item);
    }
}

/// Returns the epoch of a node that does not send heartbeats: the open epoch, or the epoch that was closed last.
fn open_or_closed_epoch(fence: &Fence) -> Epoch {
    match fence.state {
        FenceState::Open => fence.epoch,
        FenceState::Fencing | FenceState::Fenced | FenceState::Closed => fence.epoch.previous(),
    }
}

/// Adds nodes whose fencing has been unconfirmed for too long, and nodes that were reported as such and have returned.
fn add_unconfirmed_nodes(
    input: &PlanInput<'_>,
    nodes: &NodeTable,
    next: &mut SentFacts,
    items: &mut Items,
    plan: &mut Plan,
) {
    for (name, stored_fence) in &input.cluster_view.fences {
        let fence = &stored_fence.value;
        let epoch = open_or_closed_epoch(fence);
        let reported = next.unconfirmed.get(name).copied();
        let Some((late_at, reason, message)) = proof_missing(nodes, name, stored_fence, plan) else {
            // One of three cases applies. The node was fenced with a proof: the fencing is reported once the status
            // shows the proof. The fencing was never delayed. Or the node is reachable again.
            let is_reachable = nodes.get(name).is_some_and(NodeHealth::is_reachable);
            if reported.is_some() && fence.state == FenceState::Open && is_reachable {
                next.unconfirmed.remove(name);
                let item = NotificationItem {
                    object: object(Kind::Node, name),
                    node: Some(name.clone()),
                    since: None,
                    reason: Reason::NodeReady,
                    message: format!("{} (registration {epoch})", Reason::NodeReady.sentence()),
                    action: String::new(),
                };
                items.entry(NotificationKind::NodeReturned).or_default().push(item);
            }
            continue;
        };
        if reported == Some(epoch) {
            continue;
        }
        if input.now.monotonic_raw < late_at {
            plan.wake_at(input, late_at, "fencing has been unconfirmed long enough for a notification");
            continue;
        }
        next.unconfirmed.insert(name.clone(), epoch);
        let since = input.cluster_view.node_statuses.get(name);
        let ready = since.and_then(|status| condition(&status.value.conditions, "Ready"));
        let item = NotificationItem {
            object: object(Kind::Node, name),
            node: Some(name.clone()),
            since: ready.and_then(|ready| ready.last_transition_time.clone()),
            reason,
            message,
            action: unconfirmed_action(name),
        };
        items.entry(NotificationKind::FenceUnconfirmed).or_default().push(item);
    }
}

/// Returns the time at which a missing proof must be reported, and the reason: for a node that is closed without a
/// proof, or silent and not closed.
fn proof_missing(
    nodes: &NodeTable,
    name: &NodeName,
    fence: &Versioned<Fence>,
    plan: &Plan,
) -> Option<(MonotonicTime, Reason, String)> {
    let node = nodes.get(name)?;
    let waits = |reasons: &[Reason]| {
        plan.waits_of(Kind::Node, name).find(|waiting| reasons.contains(&waiting.reason))
    };
    match fence.value.state {
        FenceState::Open => {
            let reasons = [
                Reason::FencingUnavailable,
                Reason::WatchdogFailed,
                Reason::SleepUnprotected,
                Reason::FencingRateLimited,
                Reason::JoinedLater,
            ];
            let waiting = waits(&reasons)?;
            Some((node.late_at + UNCONFIRMED_MS, waiting.reason, waiting.message.clone()))
        }
        FenceState::Fencing => {
            let proof_at = node
                .missed_heartbeat_fencing_delay
                .map_or(fence.first_seen_at, |fencing_delay_ms| node.observed_at + fencing_delay_ms);
            let message = waits(&[Reason::Fencing])
                .map_or_else(|| Reason::Fencing.sentence().to_owned(), |waiting| waiting.message.clone());
            Some((proof_at.max(fence.first_seen_at) + UNCONFIRMED_MS, Reason::Fencing, message))
        }
        FenceState::Fenced | FenceState::Closed => None,
    }
}

fn condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

fn object(kind: Kind, name: &str) -> NotificationObject {
    NotificationObject { kind, name: name.to_owned() }
}

/// Returns the suggested action for a resource in Error: a command, and the runbook that explains it.
fn error_action(name: &ResourceName, may_run: bool) -> String {
    let first = if may_run { "WARNING: the service may still run. Confirm that it is stopped. " } else { "" };
    format!(
        "{first}Run \"hactl why {name}\", fix the cause, then run \"hactl clear-error {name}\" \
         (docs/runbooks.md#hactlresourceerror)"
    )
}

/// Returns the suggested action for a fenced node.
fn fence_action(node: &NodeName) -> String {
    format!(
        "Run \"hactl status\" to find the services of the node and \"hactl describe node {node}\" for the history; \
         check the logs of the node for the cause (docs/runbooks.md#hactlnodefenced)"
    )
}

/// Returns the suggested action for a node whose fencing cannot be confirmed.
fn unconfirmed_action(node: &NodeName) -> String {
    format!(
        "Services of the node wait for its fencing. Check that the node is powered off, then run \"hactl \
         node confirm-fenced {node}\" (docs/runbooks.md#hactlfencestuck)"
    )
}

/// Returns the suggested action for services that could not be scheduled after a failure.
fn reservation_action() -> String {
    "Run \"hactl check n+1\" (docs/runbooks.md#hactlreservationfailed)".to_owned()
}
