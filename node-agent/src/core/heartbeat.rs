//! The heartbeat: proof of this node's lease, and start of each deadline (FENCING, section 3).

use super::commits::CommitPurpose;
use super::effect::{CommitUrgency, Effect, LeaseRequestId, Level};
use super::input::LeaseKept;
use super::session::RETRY_DELAY_MS;
use super::{AgentCore, Shutdown};
use crate::watchdog::DualClockTime;
use ha_api_types::cluster::OnEtcdLoss;
use ha_api_types::id::{Epoch, Revision};
use ha_api_types::protocol::Protocol;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Alive, Mode, NodeReport};
use ha_api_types::time::{Millis, MonotonicTime, Now};
use ha_api_types::timing::{Timings, WatchdogBounds, fencing_delay_ms};
use ha_store::{Guard, LeaseId, Outcome, Transaction};

/// Name of a heartbeat in the log.
const HEARTBEAT_WRITE_NAME: &str = "heartbeat";

/// The lease of `alive`. The lease serves presence and clean-up, and is not proof.
#[derive(Clone, Debug, Default)]
pub(super) struct Lease {
    pub(super) id: Option<LeaseId>,
    requested: Option<LeaseRequestId>,
    keeping: bool,
    keep_at: Option<MonotonicTime>,
    retry_at: Option<MonotonicTime>,
}

/// A heartbeat in progress.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PendingHeartbeat {
    /// The clock reading before the commit.
    pub(super) started: DualClockTime,
    pub(super) alive: Alive,
    /// The changed node report that the heartbeat carries; `None` if the report is unchanged.
    pub(super) report: Option<NodeReport>,
}

impl AgentCore {
    /// Returns the node's report without the parts that depend on the mode.
    pub(super) fn base_report(&self) -> NodeReport {
        let timings = self.desired_timings();
        NodeReport {
            instance: self.config.instance.clone(),
            machine_id: self.config.machine_id.clone(),
            product_id: self.config.product_id.clone(),
            boot_id: self.config.boot_id.clone(),
            epoch: self.registration().map_or(Epoch(0), |registered| registered.epoch),
            mode: Mode::Active,
            armed: false,
            watchdog_failed: !self.watchdog.accepts_pets(),
            sleep_protection: self.config.sleep_protection,
            watchdog: self.watchdog.report(timings.watchdog_timeout_ms),
            timings,
            is_virtual: self.config.is_virtual,
            candidate_generation: self.view.candidate_generation(),
            on_etcd_loss: self.view.on_etcd_loss().unwrap_or_else(|| {
                self.node_report().map_or_else(OnEtcdLoss::default, |node_report| node_report.on_etcd_loss)
            }),
            not_stopped: Vec::new(),
            capacity: self.config.hardware.capacity,
            threads: self.config.hardware.threads,
            drivers: self.config.drivers.clone(),
            policy: self.config.policy.clone(),
            version: self.config.version.clone(),
            protocol: Protocol::CURRENT,
        }
    }

    /// Returns the desired node report, which the next heartbeat commits.
    pub(super) fn desired_report(&self) -> NodeReport {
        let (mode, armed) = self.desired_mode();
        NodeReport { mode, armed, ..self.base_report() }
    }

    /// Returns the desired mode, and `true` if the report is armed. The agent commits a change of the mode or of
    /// `armed` without waiting for the next heartbeat, as it does for the sleep protection and for a watchdog that
    /// refuses pets.
    fn desired_mode(&self) -> (Mode, bool) {
        let (mode, may_arm) = match self.shutdown {
            Some(Shutdown::Restart) if self.is_ready_to_restart() => (Mode::Restart, false),
            Some(Shutdown::Restart | Shutdown::Machine(_)) | None if self.is_disarming() => {
                (Mode::Disarmed, false)
            }
            Some(Shutdown::Machine(shutdown_kind)) => (Mode::Shutdown(shutdown_kind), true),
            Some(Shutdown::Restart) | None if self.is_in_maintenance() => (Mode::Maintenance, true),
            Some(Shutdown::Restart) | None => (Mode::Active, true),
        };
        let armed = may_arm
            && self.watchdog.may_report_armed(self.node_report().is_some_and(|report| report.armed))
            && self.needs_watchdog();
        (mode, armed)
    }

    /// Returns the cluster's timings if they are valid, otherwise the active timings.
    pub(super) fn desired_timings(&self) -> Timings {
        self.view.timings.unwrap_or(self.active_timings)
    }

    /// Returns the timings that this process follows: the active ones, except that a shorter validity applies even
    /// before it is committed. Observers use the shorter validity from its commit on, so the watchdog must use it
    /// earlier.
    pub(super) fn effective_timings(&self) -> Timings {
        let (desired, in_force) = (self.desired_timings(), self.active_timings);
        if desired.heartbeat_valid_ms >= in_force.heartbeat_valid_ms {
            return in_force;
        }
        Timings {
            heartbeat_valid_ms: desired.heartbeat_valid_ms,
            heartbeat_interval_ms: desired.heartbeat_interval_ms.min(in_force.heartbeat_interval_ms),
            stop_margin_ms: desired.stop_margin_ms.min(in_force.stop_margin_ms),
            ..in_force
        }
    }

    /// Returns the timings for arming: the desired Tw with the committed Th.
    pub(super) fn arming_timings(&self) -> Timings {
        Timings { heartbeat_valid_ms: self.active_timings.heartbeat_valid_ms, ..self.desired_timings() }
    }

    /// Returns D while it is in the future.
    pub(super) fn proven_deadline(&self, now: &Now) -> Option<DualClockTime> {
        self.deadline.filter(|deadline| DualClockTime::from(now).remaining_ns(*deadline).is_some())
    }

    /// Returns `true` if the node's report is armed, or if a write with an unknown outcome may have made it armed.
    pub(super) fn may_be_committed_armed(&self) -> bool {
        self.node_report().is_some_and(|report| report.armed)
            || self.unconfirmed_armed
            || self.is_sending_report(|report| report.armed)
    }

    /// Returns `true` if a heartbeat that withdraws *armed: true* is in progress or was never answered. A permit that
    /// is applied before that heartbeat would be contradicted by the report in the heartbeat.
    pub(super) fn may_be_withdrawing_armed(&self) -> bool {
        self.unconfirmed_report || self.is_sending_report(|report| !report.armed)
    }

    /// Returns `true` if a heartbeat in progress writes a report that matches the predicate.
    fn is_sending_report(&self, predicate: impl Fn(&NodeReport) -> bool) -> bool {
        self.commits
            .values()
            .filter_map(CommitPurpose::heartbeat)
            .filter_map(|heartbeat| heartbeat.report.as_ref())
            .any(predicate)
    }

    /// Sends a heartbeat if one is due.
    pub(super) fn advance_heartbeat(&mut self, now: &Now) {
        let Some(registered) = self.registration() else { return };
        if registered.heartbeat.is_some() || registered.needs_reread || self.leave_commit.is_some() {
            return;
        }
        if !self.is_own_fence(registered) {
            return;
        }
        let committed = self.node_report();
        if now.monotonic_raw < registered.next_heartbeat_at {
            if registered.create_revision.is_none() || self.heartbeats_failing_since.is_some() {
                return;
            }
            let (mode, armed) = self.desired_mode();
            let is_committed = |report: &NodeReport| {
                report.armed == armed
                    && report.mode == mode
                    && report.watchdog_failed != self.watchdog.accepts_pets()
                    && report.sleep_protection == self.config.sleep_protection
            };
            if committed.is_some_and(is_committed) && !self.is_daemon_loss_uncommitted() {
                return;
            }
        }
        let mut desired_report = self.desired_report();
        let shorter = DualClockTime::from(now).plus_ms(desired_report.timings.heartbeat_valid_ms);
        if desired_report.timings.heartbeat_valid_ms < self.active_timings.heartbeat_valid_ms
            && !self.watchdog.has_no_deadline_after(shorter)
        {
            // A shorter validity is committed only once the daemon has no longer deadline left.
            desired_report.timings = self.active_timings;
        }
        let Some(lease) = self.lease.id else { return };
        let node = self.config.node.clone();
        let keys = self.config.keys.clone();
        let alive_key = keys.alive(&node);
        // Observers count a change of `alive` as a working node. Without answers, D passes and no service can run here.
        // Heartbeats that are applied nevertheless must not continue to hide that (FENCING R3.31).
        let confirmed = registered.confirmed.filter(|_| self.proven_deadline(now).is_none());
        let guard = match (registered.create_revision, self.view.alive.get(&node)) {
            (Some(create_revision), _) => confirmed.map_or(Guard::Created(create_revision), Guard::Unchanged),
            (None, None) => Guard::Absent,
            (None, Some(stored)) => {
                // An old key is deleted one transaction earlier.
                let transaction = Transaction::new()
                    .delete(alive_key, Guard::Unchanged(stored.mod_revision))
                    .guard(keys.fence(&node), self.fence_guard());
                let id = self.commit(transaction, CommitUrgency::Ordinary, CommitPurpose::DeleteAlive);
                if let Some(registered) = self.registered_mut() {
                    registered.heartbeat = Some(id);
                }
                return;
            }
        };
        let alive = Alive {
            instance: self.config.instance.clone(),
            epoch: registered.epoch,
            sequence: registered.sequence + 1,
        };
        // A new write of the key makes a delayed earlier write conflict.
        let may_be_armed = self.unconfirmed_armed && !desired_report.armed;
        let report = (committed != Some(&desired_report) || self.unconfirmed_report || may_be_armed)
            .then_some(desired_report);
        let Ok(value) = serde_json::to_vec(&alive) else { return };
        let report_key = keys.node_report(&node);
        let report_guard = self.view.node_reports.guard(&node);
        let mut transaction = Transaction::new()
            .put_leased(alive_key, guard, value, lease)
            .guard(keys.fence(&node), self.fence_guard());
        transaction = match &report {
            Some(report) => {
                let Ok(value) = serde_json::to_vec(report) else { return };
                transaction.put(report_key, report_guard, value)
            }
            None => transaction.guard(report_key, report_guard),
        };
        let started = DualClockTime::from(now);
        if let Some(report) = &report {
            // If the commit is applied but its answer is lost, observers already use the new Th.
            let bound = started.plus_ms(report.timings.heartbeat_valid_ms);
            if self.deadline.is_some_and(|deadline| bound.is_earlier_on_a_clock(deadline)) {
                self.deadline = Some(bound);
            }
            self.unconfirmed_armed |= report.armed;
        }
        let timeout_ms = self.effective_timings().heartbeat_interval_ms;
        let next_heartbeat_at = now.monotonic_raw + timeout_ms;
        let heartbeat = PendingHeartbeat { started, alive, report };
        let id = self.commit(
            transaction,
            CommitUrgency::Heartbeat { timeout_ms },
            CommitPurpose::Heartbeat(heartbeat),
        );
        if let Some(registered) = self.registered_mut() {
            registered.heartbeat = Some(id);
            registered.sequence += 1;
            registered.next_heartbeat_at = next_heartbeat_at;
        }
    }

    /// Returns `true` if the loss of the daemon is not committed yet. It must be committed before the reports of the
    /// services that were stopped because of it. Otherwise the leader would start these services on this node again.
    pub(super) fn is_daemon_loss_uncommitted(&self) -> bool {
        self.watchdog.problem_reason == Some(Reason::WatchdogMissing)
            && self.watchdog.is_running()
            && self.watchdog.is_disconnected()
            && self
                .node_report()
                .is_some_and(|report| report.watchdog.reason != Some(Reason::WatchdogMissing))
    }

    pub(super) fn on_alive_deleted(&mut self, now: &Now, outcome: &Outcome) {
        let node = self.config.node.clone();
        if let Some(registered) = self.registered_mut() {
            registered.heartbeat = None;
            match outcome {
                Outcome::Applied(revision) => {
                    registered.next_heartbeat_at = now.monotonic_raw;
                    self.view.alive.on_deleted(node, *revision);
                }
                Outcome::Conflict(_) | Outcome::LeaseNotFound | Outcome::Refused(_) | Outcome::Unknown(_) => {
                    registered.needs_reread = true;
                    registered.next_heartbeat_at = now.monotonic_raw + RETRY_DELAY_MS / 4;
                }
            }
        }
    }

    /// Handles the outcome of a heartbeat. FENCING 3: if applied, D = s + Th with s read before the commit; if unknown,
    /// D is not extended.
    pub(super) fn on_heartbeat_committed(
        &mut self,
        now: &Now,
        heartbeat: PendingHeartbeat,
        outcome: &Outcome,
    ) {
        let node = self.config.node.clone();
        let interval_ms = self.active_timings.heartbeat_interval_ms;
        let continues_previous =
            heartbeat.report.is_none() && self.active_registration().is_some() && self.is_before_margin(now);
        let Some(registered) = self.registered_mut() else { return };
        registered.heartbeat = None;
        match outcome {
            Outcome::Applied(revision) => {
                if registered.create_revision.is_none() {
                    registered.create_revision = Some(*revision);
                }
                registered.confirmed = Some(*revision);
                registered.has_created_alive = true;
                // No step waits for a heartbeat that commits while the previous one is still valid.
                self.are_all_dirty |= !continues_previous;
                self.view.alive.record_write(node, heartbeat.alive, *revision);
                if let Some(report) = heartbeat.report {
                    self.on_report_committed(report, *revision);
                }
                // D is set, not raised: with a smaller Th, D is earlier, and observers use the smaller Th.
                self.deadline = Some(heartbeat.started.plus_ms(self.effective_timings().heartbeat_valid_ms));
                if self.heartbeats_failing_since.take().is_some() {
                    self.failed_writes.remove(HEARTBEAT_WRITE_NAME);
                    self.log(Level::Info, "heartbeats are committed again".to_owned());
                }
            }
            Outcome::Conflict(_) => {
                registered.needs_reread = true;
                registered.next_heartbeat_at = now.monotonic_raw;
            }
            Outcome::LeaseNotFound => {
                registered.needs_reread = true;
                registered.next_heartbeat_at = now.monotonic_raw;
                self.lease = Lease::default();
            }
            Outcome::Refused(_) | Outcome::Unknown(_) => {
                // A plain heartbeat changes no key that the next heartbeat guards before D, so the next one may follow
                // an unknown outcome immediately. After D, the next one may conflict, and then the keys are read. A
                // heartbeat that changes the report or creates `alive` changes such a key: the next heartbeat must
                // guard the stored values, so the keys are read first.
                registered.needs_reread = heartbeat.report.is_some() || registered.create_revision.is_none();
                self.unconfirmed_report |=
                    heartbeat.report.is_some() && matches!(outcome, Outcome::Unknown(_));
                let Some(registered) = self.registered_mut() else { return };
                registered.next_heartbeat_at = registered
                    .next_heartbeat_at
                    .min(now.monotonic_raw + interval_ms / 4)
                    .max(now.monotonic_raw);
                if self.heartbeats_failing_since.is_none() {
                    self.log_outcome(HEARTBEAT_WRITE_NAME, outcome);
                    self.heartbeats_failing_since = Some(now.monotonic_raw);
                }
            }
        }
    }

    /// Applies a committed node report. Its timings are active from the heartbeat that carried it.
    fn on_report_committed(&mut self, report: NodeReport, revision: Revision) {
        let was_armed =
            self.node_report().is_some_and(|node_report| node_report.armed && !node_report.watchdog_failed);
        if report.armed && !report.watchdog_failed && !was_armed {
            self.watchdog.on_armed_committed();
        }
        self.unconfirmed_armed = false;
        self.unconfirmed_report = false;
        self.active_timings = report.timings;
        self.journal.timings = Some(report.timings);
        self.view.node_reports.record_write(self.config.node.clone(), report, revision);
        self.changed = true;
    }

    /// Requests a lease, and keeps it alive.
    pub(super) fn advance_lease(&mut self, now: &Now) {
        if self.registration().is_none() || self.leave_commit.is_some() {
            return;
        }
        match self.lease.id {
            None => {
                if self.lease.requested.is_none()
                    && self.lease.retry_at.is_none_or(|retry_at| now.monotonic_raw >= retry_at)
                {
                    let id = LeaseRequestId(self.next_id());
                    self.lease.requested = Some(id);
                    let ttl_seconds = self.lease_ttl_seconds();
                    self.effects.push_back(Effect::GrantLease { id, ttl_seconds });
                }
            }
            Some(id) => {
                if !self.lease.keeping
                    && self.lease.keep_at.is_none_or(|keep_at| now.monotonic_raw >= keep_at)
                {
                    self.lease.keeping = true;
                    self.effects.push_back(Effect::KeepAlive(id));
                }
            }
        }
    }

    /// Returns a TTL of at least 3 W for the worst kind of device. The lease serves only the clean-up.
    fn lease_ttl_seconds(&self) -> i64 {
        let timings = self.desired_timings();
        let worst = WatchdogBounds {
            timeout_ms: timings.watchdog_timeout_ms.max(self.active_timings.watchdog_timeout_ms),
            sliding: false,
            descriptor_retained: false,
        };
        let fencing_wait_ms =
            fencing_delay_ms(&timings, &worst).max(fencing_delay_ms(&self.active_timings, &worst));
        i64::try_from((3 * fencing_wait_ms).div_ceil(1000)).unwrap_or(i64::MAX)
    }

    fn keep_interval_ms(&self) -> Millis {
        u64::try_from(self.lease_ttl_seconds()).unwrap_or(1) * 1000 / 4
    }

    pub(super) fn on_lease_granted(
        &mut self,
        now: &Now,
        id: LeaseRequestId,
        result: Result<LeaseId, String>,
    ) {
        if self.lease.requested != Some(id) {
            return;
        }
        self.lease.requested = None;
        match result {
            Ok(lease) => {
                self.lease.id = Some(lease);
                self.lease.keep_at = Some(now.monotonic_raw + self.keep_interval_ms());
                self.lease.retry_at = None;
            }
            Err(message) => {
                if self.lease.retry_at.is_none() {
                    self.log(Level::Warning, format!("cannot get a lease: {message}"));
                }
                self.lease.retry_at = Some(now.monotonic_raw + RETRY_DELAY_MS / 2);
            }
        }
    }

    pub(super) fn on_lease_kept(&mut self, now: &Now, lease: LeaseId, kept: &LeaseKept) {
        if self.lease.id != Some(lease) {
            return;
        }
        self.lease.keeping = false;
        match kept {
            LeaseKept::Kept => self.lease.keep_at = Some(now.monotonic_raw + self.keep_interval_ms()),
            LeaseKept::Gone => {
                self.lease = Lease::default();
                if let Some(registered) = self.registered_mut() {
                    registered.needs_reread = true;
                }
            }
            LeaseKept::Unknown(_) => self.lease.keep_at = Some(now.monotonic_raw + RETRY_DELAY_MS),
        }
    }

    /// Returns the heartbeat that is in progress.
    pub(super) fn pending_heartbeat(&self) -> Option<&PendingHeartbeat> {
        self.commits.get(&self.registration()?.heartbeat?)?.heartbeat()
    }

    pub(super) fn heartbeat_due_at(&self) -> Option<MonotonicTime> {
        let registered = self.registration()?;
        let heartbeat =
            (registered.heartbeat.is_none() && self.lease.id.is_some() && !registered.needs_reread)
                .then_some(registered.next_heartbeat_at);
        let lease = match self.lease.id {
            None => self.lease.retry_at.filter(|_| self.lease.requested.is_none()),
            Some(_) => self.lease.keep_at.filter(|_| !self.lease.keeping),
        };
        [heartbeat, lease].into_iter().flatten().min()
    }
}
