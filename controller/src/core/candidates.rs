//! Join order of controllers. The order decides which controllers may declare a node dead, which of them becomes leader
//! in that case, and which keys are obsolete (FENCING, section 9).

use super::candidacy::ElectionInputs;
use super::health::hold_terms;
use super::plan::{OnApplied, Plan, Subject, cluster_event};
use super::plan_input::PlanInput;
use super::world::{ClusterView, RefreshObservation};
use super::{Controller, Effect};
use ha_api_types::event::EventType;
use ha_api_types::id::{ControllerId, Revision};
use ha_api_types::keys::Keys;
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FenceState, HoldTerms};
use ha_api_types::time::{Millis, MonotonicTime};
use ha_store::{Guard, Transaction};

impl Controller {
    /// Returns the time until which an older controller counts as present (R9.28). An older controller counts only if
    /// it may act on the silence of a node, and this controller may not.
    pub(super) fn yields_until(&self) -> Option<MonotonicTime> {
        let joined = self.election_state.candidate_key?.joined;
        let valid_ms = self.cluster_view.timings().heartbeat_valid_ms;
        let older_controllers_until = older_controllers(&self.cluster_view, joined)
            .into_iter()
            .map(|(_, refreshed)| refreshed.since + valid_ms);
        older_controllers_until
            .filter(|older_controllers_until| *older_controllers_until > self.now.monotonic_raw)
            .max()
    }

    /// Asks the election to resign in favor of an older controller, if allowed (R9.29).
    pub(super) fn request_yield_to_older(&mut self) {
        let election_inputs = ElectionInputs::of(&self.cluster_view, self.yields_until());
        self.effects
            .push_back(Effect::UpdateElection(ElectionInputs { yields_now: true, ..election_inputs }));
    }

    /// Reports once that another process refreshes this controller's keys (R9.14).
    pub(super) fn report_duplicate(&mut self) {
        let machine = self.election_state.duplicate.clone();
        let is_new = machine.is_some() && !self.is_duplicate;
        self.is_duplicate = machine.is_some();
        if let (true, Some(machine)) = (is_new, machine) {
            let machine_text =
                if machine.is_empty() { "another machine".to_owned() } else { format!("machine {machine}") };
            let message = format!(
                "Controller {}: {} ({machine_text}), so this process only serves the API",
                self.config.id,
                Reason::DuplicateController.sentence()
            );
            self.emit_cluster_event(EventType::Warning, Reason::DuplicateController, message);
        }
    }
}

/// Returns the hold terms of nodes whose silence is not proof for a controller that joined at `joined`. The epoch of
/// such a node is open, or closed without a proof.
fn hold_terms_excluding(cluster_view: &ClusterView, joined: Revision) -> impl Iterator<Item = HoldTerms> {
    cluster_view
        .fences
        .iter()
        .filter(|(_, fence)| matches!(fence.value.state, FenceState::Open | FenceState::Fencing))
        .filter_map(|(name, fence)| {
            hold_terms(Some(&fence.value), cluster_view.node_reports.get(name).map(|report| &report.value))
        })
        .filter(move |terms| !terms.includes_candidate(joined))
}

/// Returns the older controllers that may act on the silence of a node that has not read a candidate key created at
/// `joined`.
fn older_controllers(
    cluster_view: &ClusterView,
    joined: Revision,
) -> Vec<(&ControllerId, RefreshObservation)> {
    let newest_known =
        hold_terms_excluding(cluster_view, joined).map(|terms| terms.candidate_generation).max();
    let Some(newest_known) = newest_known else { return Vec::new() };
    candidates_known_to(cluster_view, newest_known)
        .filter_map(|id| Some((id, *cluster_view.refreshed.get(id)?)))
        .collect()
}

fn candidates_known_to(
    cluster_view: &ClusterView,
    generation: Revision,
) -> impl Iterator<Item = &ControllerId> {
    let is_known = move |create_revision: Revision| {
        HoldTerms { candidate_generation: generation }.includes_candidate(create_revision)
    };
    cluster_view
        .candidate_entries
        .iter()
        .filter(move |(_, entry)| is_known(entry.create_revision))
        .map(|(id, _)| id)
}

fn is_refreshed(cluster_view: &ClusterView, id: &ControllerId, now: MonotonicTime) -> bool {
    let valid_ms = cluster_view.timings().heartbeat_valid_ms;
    cluster_view
        .refreshed
        .get(id)
        .is_some_and(|observation| observation.has_changed && now < observation.since + valid_ms)
}

/// Returns `true` if an older controller is present that may act on the silence of a node, and a controller that joined
/// at `joined` may not.
pub(super) fn is_older_controller_present(
    cluster_view: &ClusterView,
    now: MonotonicTime,
    joined: Revision,
) -> bool {
    older_controllers(cluster_view, joined).into_iter().any(|(id, _)| is_refreshed(cluster_view, id, now))
}

/// Adds a wait for a controller that joined before the node's last report, with a suggested action (R9.27).
pub(super) fn wait_for_older_controller(input: &PlanInput<'_>, name: &str, plan: &mut Plan) {
    plan.is_held_by_others = true;
    let cluster_view = input.cluster_view;
    let fence = cluster_view.fences.get(name).map(|fence| &fence.value);
    let report = cluster_view.node_reports.get(name).map(|report| &report.value);
    let generation =
        hold_terms(fence, report).map_or(Revision::default(), |terms| terms.candidate_generation);
    let candidate_ids: Vec<&str> =
        candidates_known_to(cluster_view, generation).map(ControllerId::as_str).collect();
    let present: Vec<&str> = candidates_known_to(cluster_view, generation)
        .filter(|id| is_refreshed(cluster_view, id, input.now.monotonic_raw))
        .map(ControllerId::as_str)
        .collect();
    let confirm_hint =
        format!("If you have confirmed that {name} is powered off, run hactl node confirm-fenced {name}");
    let message = if !present.is_empty() {
        format!(
            "Waiting for controller {} to become leader: node {name} may keep running under an etcd-outage hold of controllers \
             that joined before this leader. {confirm_hint}",
            present.join(" or ")
        )
    } else if candidate_ids.is_empty() {
        format!(
            "No controller that can end the etcd-outage hold of node {name} remains. \
             Power {name} off, then run hactl node confirm-fenced {name}"
        )
    } else {
        format!(
            "Start controller {} again: node {name} may keep running under the etcd-outage hold of that controller, and this leader \
             joined later. {confirm_hint}",
            candidate_ids.join(" or ")
        )
    };
    plan.add_wait(Kind::Node, name, Reason::JoinedLater, message);
    // The presence of an older controller can change without an input that causes a plan.
    plan.wake_at(
        input,
        input.now.monotonic_raw + OLDER_CHECK_INTERVAL_MS,
        "an older controller may be available again",
    );
}

/// Interval, in milliseconds, at which a leader that waits for an older controller checks for one.
const OLDER_CHECK_INTERVAL_MS: Millis = 1_000;

/// Deletes the keys of controllers that were not refreshed for `candidateRetentionSeconds`. The time restarts after a
/// start of this process or a gap in its own commits (R9.23).
pub(super) fn plan(input: &PlanInput<'_>, plan: &mut Plan) {
    let cluster_view = input.cluster_view;
    let retention_ms = cluster_view.settings().timing.candidate_retention_ms();
    let gap_ms = cluster_view.timings().heartbeat_valid_ms / 2;
    for (id, entry) in &cluster_view.candidate_entries {
        let Some(refreshed) = cluster_view.refreshed.get(id).filter(|_| *id != input.config.id) else {
            continue;
        };
        let since = input.commit_gaps.restart_time_of(refreshed.since, gap_ms).unwrap_or(refreshed.since);
        let due = since + retention_ms;
        if input.now.monotonic_raw < due {
            continue;
        }
        let message = format!("Deleted controller {id}: not refreshed for {} s", retention_ms / 1000);
        let event = cluster_event(input, EventType::Normal, Reason::ControllerDeleted, message);
        let refresh = cluster_view.refresh_entries.get(id).map(|entry| entry.mod_revision);
        let transaction = controller_deletion(&cluster_view.keys, id, entry.mod_revision, refresh);
        plan.add_action(Subject::Candidate(id.to_string()), transaction, vec![event], OnApplied::None);
    }
}

/// Returns the transaction that deletes a controller's keys, guarded by their revisions.
pub fn controller_deletion(
    keys: &Keys,
    id: &ControllerId,
    candidate: Revision,
    refresh: Option<Revision>,
) -> Transaction {
    let transaction = Transaction::new().delete(keys.candidate(id), Guard::Unchanged(candidate));
    match refresh {
        Some(revision) => transaction.delete(keys.refresh(id), Guard::Unchanged(revision)),
        None => transaction.guard(keys.refresh(id), Guard::Absent),
    }
}
