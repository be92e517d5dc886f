//! Proofs that no service of a closed epoch still runs (FENCING, section 5, (a) to (g)).

use super::{FencedNode, devices, registration, rewrite_fence};
use crate::core::candidates;
use crate::core::plan::{Plan, Subject, node_event};
use crate::core::plan_input::PlanInput;
use crate::core::world::{Versioned, guard_of};
use ha_api_types::event::EventType;
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Fence, FenceState, MachineComparison, Proof};
use ha_store::Guard;

/// Searches for a proof for a node that is Fencing. The view contains the close, and therefore every report that was
/// committed under the old epoch. As the protocol requires, the reports were read after the close.
pub(super) fn plan(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    fence: &Versioned<Fence>,
    plan: &mut Plan,
) {
    let fencing_requested = devices::is_fencing_requested(input, subject.name);
    // An operator has requested a power cycle. A running node registers again immediately, so the device is used before
    // that registration counts.
    let awaits_device =
        |proof: &Proof| fencing_requested && subject.node.has_device && *proof == Proof::Reregistered;
    if let Some(proof) = registration_proof(subject, fence).filter(|proof| !awaits_device(proof)) {
        // Proofs (c) and (f): each service that the agent could not stop becomes an unconfirmed Error before any
        // release.
        if let Some(report) = subject.registration()
            && registration::plan_wait_for_errors(input, subject.name, fence, report, plan)
        {
            return;
        }
        confirm_fencing(input, subject, fence, &proof, plan);
        return;
    }
    let is_known_only_from_backup = input.cluster_view.is_known_only_from_backup(subject.name);
    if subject.node.active.is_empty() && !fencing_requested && !is_known_only_from_backup {
        confirm_fencing(input, subject, fence, &Proof::NothingActive, plan);
        return;
    }
    let fencing_delay = if subject.node.is_held_by_others {
        Err(Reason::JoinedLater)
    } else {
        subject.node.missed_heartbeat_fencing_delay
    };
    if let Ok(fencing_delay_ms) = fencing_delay {
        let proven_at = subject.node.observed_at + fencing_delay_ms;
        if input.now.monotonic_raw >= proven_at {
            let waited_ms = input.now.monotonic_raw.since(subject.node.observed_at);
            confirm_fencing(input, subject, fence, &Proof::Silence { waited_ms }, plan);
            return;
        }
        plan.wake_at(input, proven_at, "the fencing delay of an unreachable node has elapsed");
    }
    if subject.node.has_device {
        devices::plan_fencing(input, subject, fence, plan);
    } else if subject.node.is_held_by_others {
        candidates::wait_for_older_controller(input, subject.name, plan);
        return;
    }
    let message = match (fencing_delay, subject.node.has_device) {
        (Ok(fencing_delay_ms), false) => {
            format!(
                "Fencing is in progress, confirmation expected {:.1} s after the last heartbeat",
                fencing_delay_ms as f64 / 1000.0
            )
        }
        (Ok(fencing_delay_ms), true) => format!(
            "Fencing is in progress, confirmation expected from the fence device, or {:.1} s after the last heartbeat",
            fencing_delay_ms as f64 / 1000.0
        ),
        (Err(_), true) => "Fencing by the fence device is in progress".to_owned(),
        (Err(reason), false) => {
            format!("Registration was revoked, but fencing is not confirmed: {}", reason.sentence())
        }
    };
    plan.add_wait(Kind::Node, subject.name, Reason::Fencing, message);
}

/// Returns proof (c) or (f): a registration by another boot of the same machine, or a new one by the same boot. The
/// registration for which the closed epoch was opened does not count. Every permit guards the node's report, so no
/// service was started after the registration.
fn registration_proof(subject: &FencedNode<'_>, fence: &Versioned<Fence>) -> Option<Proof> {
    let report = subject.registration()?;
    if fence.value.request == Some(report.mod_revision) {
        return None;
    }
    let same_boot = report.value.boot_id == fence.value.boot_id;
    match report.value.machine().compare(fence.value.machine()) {
        MachineComparison::Same | MachineComparison::Unclear if same_boot => Some(Proof::Reregistered),
        MachineComparison::Same => Some(Proof::NewBoot { boot_id: report.value.boot_id.clone() }),
        // Only one of the two records has a product id, so the node may be a clone of the machine that is still
        // isolated.
        MachineComparison::Different | MachineComparison::Unclear => None,
    }
}

/// Plans the write with which the node leaves Fencing, with its proof.
fn confirm_fencing(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    fence: &Versioned<Fence>,
    proof: &Proof,
    plan: &mut Plan,
) {
    let state = if *proof == Proof::NothingActive { FenceState::Closed } else { FenceState::Fenced };
    let confirmed =
        Fence { state, proof: Some(proof.clone()), at: input.now.timestamp(), ..fence.value.clone() };
    let mut transaction = rewrite_fence(input, subject, fence, &confirmed);
    if matches!(proof, Proof::Silence { .. }) {
        // This proof also requires that no heartbeat was committed since, and that the candidate key of this
        // controller, which nodes with hold have read, is unchanged.
        transaction = transaction
            .guard(
                input.cluster_view.keys.alive(subject.name),
                guard_of(input.cluster_view.alive.get(subject.name)),
            )
            .guard(
                input.cluster_view.keys.candidate(&input.config.id),
                Guard::Unchanged(input.candidate_key.revision),
            );
    }
    let (event_type, message) = match state {
        FenceState::Closed => (EventType::Normal, Reason::LostWhileIdle.sentence().to_owned()),
        FenceState::Open | FenceState::Fencing | FenceState::Fenced => {
            (EventType::Warning, format!("Fenced: {}", proof.sentence()))
        }
    };
    let events = vec![node_event(input, subject.name, event_type, proof.reason(), message)];
    let on_applied = devices::keep_device_work_on_applied(input, subject.name, fence);
    plan.add_action(Subject::Fence(subject.name.to_owned()), transaction, events, on_applied);
}
