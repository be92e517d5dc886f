//! Epochs and fencing: which nodes are admitted, which are declared dead, and the proofs (FENCING, sections 3 and 5).

pub mod devices;
mod limits;
pub mod probes;
mod proof;
mod registration;
mod silence;

use super::health::{Health, NodeHealth, NodeTable};
use super::plan::{OnApplied, Plan, Subject, node_event, serialized};
use super::plan_input::PlanInput;
use super::service::{self, first_names};
use super::world::{Versioned, guard_of};
use ha_api_types::cluster::ShutdownPolicy;
use ha_api_types::event::EventType;
use ha_api_types::id::NodeName;
use ha_api_types::kind::Kind;
use ha_api_types::operation::OperationSpec;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Fence, FenceState, MachineComparison, Mode, NodeReport, Proof, ShutdownKind};
use ha_store::{Guard, Transaction};
use std::cell::LazyCell;

/// One node, with the data that the fencing planner needs.
pub(super) struct FencedNode<'a> {
    pub(super) name: &'a NodeName,
    pub(super) node: &'a NodeHealth,
    pub(super) report: Option<&'a Versioned<NodeReport>>,
    /// `true` if every field of the report can be read.
    pub(super) is_readable: bool,
}

impl<'a> FencedNode<'a> {
    pub(super) fn of(input: &PlanInput<'a>, name: &'a NodeName, node: &'a NodeHealth) -> FencedNode<'a> {
        let report = input.cluster_view.node_reports.get(name);
        FencedNode { name, node, report, is_readable: !input.cluster_view.is_node_report_unreadable(name) }
    }

    /// Returns the registration that the node's agent has committed, if the agent is registering.
    pub(super) fn registration(&self) -> Option<&'a Versioned<NodeReport>> {
        self.report.filter(|report| self.is_readable && report.value.mode == Mode::Registering)
    }
}

/// Returns `true` if a node's fence still has the epoch and the boot id that the operator saw when requesting an
/// action.
pub(super) fn is_unchanged_since_request(spec: &OperationSpec, fence: &Fence) -> bool {
    spec.epoch == Some(fence.epoch) && spec.boot_id.as_ref() == Some(&fence.boot_id)
}

/// Plans the epochs of all nodes.
pub fn plan(input: &PlanInput<'_>, nodes: &NodeTable, plan: &mut Plan) {
    let mut budget = limits::FencingBudget::of(input);
    let unproven = LazyCell::new(|| service::nodes_with_unproven_arrival(input));
    for (name, node) in nodes {
        let cluster_view = input.cluster_view;
        if cluster_view.is_fence_unreadable(name) {
            // An unreadable fence counts as Fencing, and only an operator's confirmation overwrites it.
            plan.add_wait(Kind::Node, name, Reason::Unreadable, unreadable_fence_message(name));
            continue;
        }
        let subject = FencedNode::of(input, name, node);
        match cluster_view.fences.get(name) {
            None => registration::plan_new(input, &subject, plan),
            Some(fence) => match fence.value.state {
                FenceState::Open => {
                    probes::plan(input, &subject, plan);
                    plan_open(input, &subject, fence, &mut budget, plan);
                }
                FenceState::Fencing => proof::plan(input, &subject, fence, plan),
                FenceState::Fenced | FenceState::Closed => {
                    plan_closed(input, &subject, fence, unproven.contains(name), plan);
                }
            },
        }
    }
    budget.wake_when_allowed(input, plan);
}

/// Returns the message about a fence that cannot be read, with the operator's options.
pub(super) fn unreadable_fence_message(name: &str) -> String {
    format!(
        "Fencing state of {name} cannot be read by this version, so no service of {name} is recovered. Finish the \
         upgrade, or power the machine off and run hactl node confirm-fenced {name}"
    )
}

fn plan_open(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    fence: &Versioned<Fence>,
    budget: &mut limits::FencingBudget,
    plan: &mut Plan,
) {
    if let Some(report) = subject.registration()
        && fence.value.request != Some(report.mod_revision)
    {
        registration::plan_close(input, subject, fence, report, plan);
        return;
    }
    if fence.value.requires_probes && subject.node.is_reachable() {
        finish_verification(input, subject, fence, plan);
    }
    if record_product_id(input, subject, fence, plan) {
        return;
    }
    match &subject.node.health {
        Health::Leaving(shutdown_kind) => {
            if subject.node.active.is_empty() && !input.cluster_view.alive.contains_key(subject.name) {
                let proof = Proof::CleanLeave { shutdown_kind: *shutdown_kind };
                close(input, subject, fence, Some(&proof), OnApplied::None, plan);
            }
        }
        Health::Late | Health::Registering | Health::Online => {
            silence::plan(input, subject, fence, budget, plan);
        }
        Health::ShuttingDown(shutdown_kind) => {
            plan_shutting_down(input, subject, *shutdown_kind, plan);
            silence::plan(input, subject, fence, budget, plan);
        }
        Health::Restarting => plan_restarting(input, subject, plan),
        Health::Unregistered | Health::Fencing | Health::Down(_) => {}
    }
}

/// Clears `requires_probes` in the fence once the agent has reported on every resource for which the node was counted
/// as empty. Permits are then possible on the node again. Until then, adds a wait that names those resources.
fn finish_verification(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    fence: &Versioned<Fence>,
    plan: &mut Plan,
) {
    let name = subject.name;
    let cluster_view = input.cluster_view;
    if let Some(resources) = cluster_view.unverified_resources().get(name) {
        let sentence = Reason::NodeUnverified.sentence();
        let message = format!("{sentence}: {}", first_names(resources));
        plan.add_wait(Kind::Node, name, Reason::NodeUnverified, message);
        return;
    }
    let value = Fence { requires_probes: false, ..fence.value.clone() };
    let transaction = Transaction::new().put(
        cluster_view.keys.fence(name),
        Guard::Unchanged(fence.mod_revision),
        serialized(&value),
    );
    plan.add_action(Subject::Fence(name.to_owned()), transaction, Vec::new(), OnApplied::None);
}

/// Adds the hardware's product id to a fence that was opened before the agent reported the id, such as after an upgrade
/// of agents. The next boot of the machine is a proof only if both product ids are known. Returns `true` if the fence
/// is written.
fn record_product_id(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    fence: &Versioned<Fence>,
    plan: &mut Plan,
) -> bool {
    let Some(report) = subject.report.filter(|_| subject.node.is_reachable()) else { return false };
    let is_same_registration = report.value.epoch == fence.value.epoch
        && report.value.boot_id == fence.value.boot_id
        && report.value.machine().compare(fence.value.machine()) == MachineComparison::Unclear
        && fence.value.product_id.is_none()
        && !fence.value.requires_probes;
    if !is_same_registration {
        return false;
    }
    let completed_fence = Fence { product_id: report.value.product_id.clone(), ..fence.value.clone() };
    let transaction = rewrite_fence(input, subject, fence, &completed_fence);
    plan.add_action(Subject::Fence(subject.name.to_owned()), transaction, Vec::new(), OnApplied::None);
    true
}

/// Reports the services that delay a shutdown.
fn plan_shutting_down(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    shutdown_kind: ShutdownKind,
    plan: &mut Plan,
) {
    let cluster_view = input.cluster_view;
    let name = subject.name;
    let delaying_services: Vec<&str> = cluster_view
        .service_reports
        .iter()
        .filter(|(service, reports)| {
            reports.get(name).is_some_and(|report| {
                cluster_view.is_report_current(service, name, report) && report.value.phase.may_run()
            })
        })
        .map(|(service, _)| service.as_str())
        .collect();
    let activity = match shutdown_kind {
        ShutdownKind::Poweroff => "powering off",
        ShutdownKind::Reboot => "rebooting",
    };
    let message = match (cluster_view.shutdown_policy(name), delaying_services.is_empty()) {
        (_, true) => format!("Node is {activity}"),
        (ShutdownPolicy::Migrate, false) => format!(
            "Node is {activity} and is waiting for {} to move away (hactl node shutdown-continue {name} ends the wait)",
            delaying_services.join(", ")
        ),
        (ShutdownPolicy::Conditional | ShutdownPolicy::Freeze | ShutdownPolicy::Failover, false) => {
            format!("Node is {activity} and is stopping {}", delaying_services.join(", "))
        }
    };
    plan.add_wait(Kind::Node, name, Reason::ShuttingDown, message);
}

/// Handles a node whose agent is down for a restart. The services continue unmonitored, and the node is not declared
/// dead on silence (FENCING, section 10). After `freezeTimeoutSeconds`, the plan reports that the agent is down.
fn plan_restarting(input: &PlanInput<'_>, subject: &FencedNode<'_>, plan: &mut Plan) {
    let Some(report) = subject.report else { return };
    let alert_at = report.first_seen_at + input.cluster_view.timings().freeze_timeout_ms;
    if input.now.monotonic_raw < alert_at {
        plan.wake_at(input, alert_at, "a restarting agent has been down for freezeTimeoutSeconds");
        return;
    }
    let name = subject.name;
    let message = format!(
        "Agent was stopped for a restart and has not started again; its services continue unmonitored. Start \
         ha-node-agent on {name}, or, if the machine is powered off, run hactl node confirm-fenced {name}"
    );
    plan.add_wait(Kind::Node, name, Reason::AgentDown, message);
}

fn plan_closed(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    fence: &Versioned<Fence>,
    needs_later_proof: bool,
    plan: &mut Plan,
) {
    if devices::plan_closed(input, subject, fence, needs_later_proof, plan) {
        return;
    }
    registration::plan_admission(input, subject, fence, plan);
}

/// Closes an open epoch: commits epoch + 1, guarding the fence, the node's report, and the heartbeat at the revision
/// observed. With a proof that holds under these guards the node is Fenced immediately, otherwise Fencing.
fn close(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    fence: &Versioned<Fence>,
    proof: Option<&Proof>,
    on_applied: OnApplied,
    plan: &mut Plan,
) {
    let on_missed_heartbeats = matches!(on_applied, OnApplied::ClosesOnSilence(_));
    let (transaction, message) = closing_transaction(input, subject, fence, proof, on_missed_heartbeats);
    let reason = proof.map_or(Reason::DeclaredDead, Proof::reason);
    let event_type = if matches!(proof, Some(Proof::CleanLeave { .. } | Proof::NewBoot { .. })) {
        EventType::Normal
    } else {
        EventType::Warning
    };
    let events = vec![node_event(input, subject.name, event_type, reason, message)];
    plan.add_action(Subject::Fence(subject.name.to_owned()), transaction, events, on_applied);
}

/// Returns the transaction that closes an open epoch, and its events.
pub(super) fn closing_transaction(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    fence: &Versioned<Fence>,
    proof: Option<&Proof>,
    on_missed_heartbeats: bool,
) -> (Transaction, String) {
    let cluster_view = input.cluster_view;
    let name = subject.name;
    let epoch = fence.value.epoch + 1;
    let message = match proof {
        None => format!("Registration {} was revoked; fencing is not confirmed yet", epoch - 1),
        Some(proof) => format!("Registration {} was revoked: {}", epoch - 1, proof.sentence()),
    };
    let closed = Fence {
        epoch,
        state: if proof.is_some() { FenceState::Fenced } else { FenceState::Fencing },
        proof: proof.cloned(),
        proof_revision: None,
        off_revision: None,
        on_missed_heartbeats,
        armed_fencing_delay_ms: subject.node.missed_heartbeat_fencing_delay.ok(),
        hold: subject.report.and_then(|report| report.value.hold_terms()),
        device: None,
        switched_off: Vec::new(),
        at: input.now.timestamp(),
        ..fence.value.clone()
    };
    let transaction = Transaction::new()
        .put(cluster_view.keys.fence(name), Guard::Unchanged(fence.mod_revision), serialized(&closed))
        .guard(cluster_view.keys.node_report(name), guard_of(subject.report))
        .guard(cluster_view.keys.alive(name), guard_of(cluster_view.alive.get(name)))
        .guard(cluster_view.keys.candidate(&input.config.id), Guard::Unchanged(input.candidate_key.revision));
    (transaction, message)
}

/// Replaces an unreadable fence after an operator's confirmation. The new epoch is above every epoch that a key of the
/// node names. No write under an earlier epoch can therefore commit (FENCING, R1.24).
pub(super) fn unreadable_fence_replacement(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    fence: &Versioned<Fence>,
    proof: &Proof,
) -> Transaction {
    let cluster_view = input.cluster_view;
    let value = Fence {
        epoch: cluster_view.highest_epoch(subject.name) + 1,
        machine_id: fence.value.machine_id.clone(),
        boot_id: fence.value.boot_id.clone(),
        request: fence.value.request,
        state: FenceState::Fenced,
        proof: Some(proof.clone()),
        at: input.now.timestamp(),
        ..Fence::default()
    };
    rewrite_fence(input, subject, fence, &value)
        .guard(cluster_view.keys.alive(subject.name), guard_of(cluster_view.alive.get(subject.name)))
}

/// Returns a transaction that changes a fence, guarding the fence and the node's report. A proof that stays keeps its
/// revision.
fn rewrite_fence(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    fence: &Versioned<Fence>,
    value: &Fence,
) -> Transaction {
    let keys = &input.cluster_view.keys;
    let keeps_proof = value.proof.is_some()
        && value.proof == fence.value.proof
        && value.off_revision == fence.value.off_revision
        && value.state == fence.value.state;
    let proof_revision = keeps_proof.then(|| fence.value.proven_at(fence.mod_revision));
    let value = Fence { proof_revision, ..value.clone() };
    Transaction::new()
        .put(keys.fence(subject.name), Guard::Unchanged(fence.mod_revision), serialized(&value))
        .guard(keys.node_report(subject.name), guard_of(subject.report))
}
