//! Hold: while heartbeats do not commit, the agent asks every controller not to declare this node dead (FENCING,
//! section 9).

use super::AgentCore;
use super::effect::{Effect, HoldId, Level};
use super::view::HoldCandidates;
use crate::watchdog::DualClockTime;
use ha_api_types::cluster::OnEtcdLoss;
use ha_api_types::id::ControllerId;
use ha_api_types::record::{HoldAnswer, HoldRequest};
use ha_api_types::time::{MonotonicTime, Now};
use std::collections::BTreeSet;

/// State of the requests to the controllers.
#[derive(Clone, Debug, Default)]
pub(super) struct Hold {
    round: Option<HoldRound>,
    /// Time before which no request is sent.
    next: Option<MonotonicTime>,
    /// The state that was last logged.
    last_logged: Option<String>,
}

/// A request that every controller must grant.
#[derive(Clone, Debug)]
struct HoldRound {
    id: HoldId,
    /// The clock reading before the first controller was asked.
    started: DualClockTime,
    /// Controllers that have not answered yet.
    unanswered: BTreeSet<ControllerId>,
}

impl Hold {
    /// Returns the controllers that have not granted the current request; `None` if there is no request.
    pub(super) fn controllers_without_grant(&self) -> Option<&BTreeSet<ControllerId>> {
        self.round.as_ref().map(|round| &round.unanswered)
    }
}

impl AgentCore {
    /// Asks every controller from the first late heartbeat on, and again every Ki.
    pub(super) fn advance_hold(&mut self, now: &Now) {
        self.confirm_departures();
        if !self.may_be_held(now) || !self.is_heartbeat_late(now) {
            self.hold.round = None;
            self.hold.next = None;
            if self.heartbeats_failing_since.is_none() {
                self.hold.last_logged = None;
            }
            return;
        }
        if self.hold.next.is_some_and(|next| now.monotonic_raw < next) {
            return;
        }
        let interval_ms = self.effective_timings().heartbeat_interval_ms;
        self.hold.next = Some(now.monotonic_raw + interval_ms);
        self.hold.round = None;
        let candidates = match self.view.hold_candidates(&self.config.node) {
            HoldCandidates::All(candidates) => candidates,
            HoldCandidates::Unsure => {
                return self.log_hold_state(
                    "cannot confirm that no removed controller has revoked the registration of this node",
                );
            }
        };
        if candidates.is_empty() {
            return self.log_hold_state("no controller found");
        }
        let Some(registered) = self.registration() else { return };
        let template = HoldRequest {
            candidate: ControllerId::default(),
            sent_sequence: registered.sequence,
            boot_id: self.config.boot_id.clone(),
            epoch: registered.epoch,
        };
        let id = HoldId(self.next_id());
        let unanswered = candidates.keys().cloned().collect();
        self.hold.round = Some(HoldRound { id, started: DualClockTime::from(now), unanswered });
        for (candidate, url) in candidates {
            let request = HoldRequest { candidate: candidate.clone(), ..template.clone() };
            self.effects.push_back(Effect::RequestHold {
                id,
                candidate,
                url,
                request,
                timeout_ms: interval_ms,
            });
        }
    }

    /// While etcd is reachable, reads this node's fence at a revision that is not older than the departure of a
    /// controller.
    fn confirm_departures(&mut self) {
        let unsure = self.view.has_unconfirmed_departure(&self.config.node);
        if unsure && self.active_registration().is_some() && self.read_retry_at.is_none() {
            self.read_own_keys();
        }
    }

    /// Returns `true` if the node has an active service, and its committed report certainly has Hold.
    fn may_be_held(&self, now: &Now) -> bool {
        let committed = self.node_report().is_some_and(|report| {
            report.on_etcd_loss == OnEtcdLoss::Hold
                && report.instance == self.config.instance
                && !report.watchdog_failed
        });
        let sends_another = self.unconfirmed_report
            || self.pending_heartbeat().is_some_and(|heartbeat| heartbeat.report.is_some());
        committed
            && !sends_another
            && self.active_registration().is_some()
            && self.leave_commit.is_none()
            // A watchdog must be able to end the services that continue by grants (FENCING R4.21).
            && self.watchdog.accepts_pets()
            && self.may_be_committed_armed()
            && self.proven_deadline(now).is_some()
    }

    /// Returns `true` if the newest heartbeat was not answered within Ki, or was not applied.
    fn is_heartbeat_late(&self, now: &Now) -> bool {
        self.heartbeats_failing_since.is_some()
            || self.heartbeat_late_at().is_some_and(|at| now.monotonic_raw >= at)
    }

    /// Returns when the heartbeat in progress exceeds the deadline of one attempt.
    fn heartbeat_late_at(&self) -> Option<MonotonicTime> {
        let heartbeat = self.pending_heartbeat()?;
        Some(
            MonotonicTime(heartbeat.started.monotonic_raw_ns / 1_000_000)
                + self.effective_timings().heartbeat_interval_ms,
        )
    }

    /// Returns when [`AgentCore::advance_hold`] is due again.
    pub(super) fn hold_due_at(&self) -> Option<MonotonicTime> {
        match self.hold.next {
            Some(next) => Some(next),
            None => self.heartbeat_late_at(),
        }
    }

    /// Handles the answer of a controller, or its failure to answer. If all controllers grant, D = time of the request
    /// + Th.
    pub(super) fn on_hold_answered(
        &mut self,
        now: &Now,
        id: HoldId,
        candidate: &ControllerId,
        answer: Result<HoldAnswer, String>,
    ) {
        let Some(round) = self.hold.round.as_mut().filter(|round| round.id == id) else { return };
        if !round.unanswered.contains(candidate) {
            return;
        }
        let refusal = match answer {
            Ok(HoldAnswer { granted: true, .. }) => None,
            Ok(HoldAnswer { granted: false, reason }) => Some(reason),
            Err(message) => Some(message),
        };
        if let Some(refusal) = refusal {
            self.hold.round = None;
            return self.log_hold_state(&format!("controller {candidate}: {refusal}"));
        }
        round.unanswered.remove(candidate);
        if !round.unanswered.is_empty() {
            return;
        }
        let started = round.started;
        self.hold.round = None;
        if !self.may_be_held(now) {
            return;
        }
        let proven = started.plus_ms(self.effective_timings().heartbeat_valid_ms);
        if self.deadline.is_some_and(|deadline| proven.is_earlier_on_a_clock(deadline)) {
            return;
        }
        self.deadline = Some(proven);
        self.changed = true;
        let text = "heartbeats cannot be committed, but all controllers agreed not to fence this node: services keep running";
        if self.hold.last_logged.as_deref() != Some(text) {
            self.hold.last_logged = Some(text.to_owned());
            self.log(Level::Warning, text.to_owned());
        }
    }

    /// Logs once why the node is not held.
    fn log_hold_state(&mut self, cause: &str) {
        let text = format!(
            "heartbeats cannot be committed, and not all controllers agreed not to fence this node: {cause}"
        );
        if self.hold.last_logged.as_ref() != Some(&text) {
            self.log(Level::Warning, text.clone());
            self.hold.last_logged = Some(text);
        }
    }
}
