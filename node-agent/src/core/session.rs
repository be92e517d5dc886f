//! The session of this process: waiting, clearing, requesting an epoch, registered, ended.

use super::effect::{CommitId, Effect, Exit, Level, ReadId};
use super::service::{KillReason, Presence};
use super::view::View;
use super::{AgentCore, Shutdown};
use crate::watchdog::DualClockTime;
use ha_api_types::id::{ActionUid, Epoch, ResourceName, Revision};
use ha_api_types::record::{Fence, FenceState, NodeReport};
use ha_api_types::time::{Millis, MonotonicTime, Now};
use ha_store::Entry;

/// The stage of this process on its way to act for the node.
#[derive(Clone, Debug)]
pub(super) enum Session {
    /// Waits for a complete view.
    Waiting,
    /// Stops and verifies every exclusive service, before the agent may register.
    Clearing,
    /// Requests an epoch.
    Requesting(Requesting),
    /// Acts under an epoch that was opened for this process.
    Registered(Registered),
    /// The agent takes no further action; the process is about to exit.
    Ended,
}

/// State of a request for an epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Requesting {
    /// The revision at which this process's request is stored in the node's report.
    pub(super) request: Option<Revision>,
    pub(super) pending_write: Option<CommitId>,
    pub(super) retry_at: Option<MonotonicTime>,
    pub(super) has_warned: bool,
}

/// State of a registered process.
#[derive(Clone, Debug)]
pub(super) struct Registered {
    pub(super) epoch: Epoch,
    pub(super) request: Revision,
    /// The create revision of this process's `alive`; `None` while there is none.
    pub(super) create_revision: Option<Revision>,
    /// The revision of `alive` in the last answer that this process received: of a heartbeat, or of a read.
    pub(super) confirmed: Option<Revision>,
    /// `true` if this process has created an `alive`. Another instance in the key then means that another process has
    /// taken over.
    pub(super) has_created_alive: bool,
    pub(super) sequence: u64,
    pub(super) heartbeat: Option<CommitId>,
    pub(super) next_heartbeat_at: MonotonicTime,
    /// `true` if a key has changed unexpectedly and must be read again before the next heartbeat.
    pub(super) needs_reread: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReadPurpose {
    /// This node's own keys: fence, alive, node report.
    Own,
    /// A service's keys after a write that was not applied.
    Service(ResourceName),
    /// The keys of the other side of a service's migration.
    Peer(ResourceName),
    /// The target of a committed hand-over, before the driver begins.
    Target { name: ResourceName, uid: ActionUid },
}

#[derive(Clone, Debug)]
pub(super) struct PendingRead {
    pub(super) purpose: ReadPurpose,
    pub(super) keys: Vec<String>,
    /// The highest revision known when the read began. An older answer comes from a restored etcd.
    pub(super) min_revision: Revision,
}

/// Delay before a request without an answer is repeated.
pub(super) const RETRY_DELAY_MS: Millis = 1_000;

impl AgentCore {
    /// Returns the node's report as stored in etcd.
    pub(super) fn node_report(&self) -> Option<&NodeReport> {
        self.view.node_reports.value(&self.config.node)
    }

    pub(super) fn fence(&self) -> Option<&Fence> {
        self.view.fences.value(&self.config.node)
    }

    /// Returns `true` if resources counted this node as empty while it was unreachable, and this node has not yet
    /// answered for these resources.
    pub(super) fn requires_probes(&self) -> bool {
        self.fence().is_some_and(|fence| fence.requires_probes)
    }

    /// Returns the revision of the fence with the order to answer again for resources that are not assigned here; 0
    /// without such an order.
    pub(super) fn probe_order_revision(&self) -> Revision {
        let fence = self.view.fences.get(&self.config.node);
        fence.filter(|_| self.requires_probes()).map_or(Revision(0), |fence| fence.mod_revision)
    }

    pub(super) fn registration(&self) -> Option<&Registered> {
        match &self.session {
            Session::Registered(registered) => Some(registered),
            Session::Waiting | Session::Clearing | Session::Requesting(_) | Session::Ended => None,
        }
    }

    pub(super) fn registered_mut(&mut self) -> Option<&mut Registered> {
        match &mut self.session {
            Session::Registered(registered) => Some(registered),
            Session::Waiting | Session::Clearing | Session::Requesting(_) | Session::Ended => None,
        }
    }

    /// Returns the epoch and the create revision of `alive`, while the fence contains the registration of this process
    /// and the process has created the key.
    pub(super) fn active_registration(&self) -> Option<(Epoch, Revision)> {
        let registered = self.registration()?;
        if !self.is_own_fence(registered) {
            return None;
        }
        Some((registered.epoch, registered.create_revision?))
    }

    /// Returns `true` if the fence is open for this registration: epoch, boot id, machine id and request are equal
    /// (FENCING R3.29).
    pub(super) fn is_own_fence(&self, registered: &Registered) -> bool {
        self.fence().is_some_and(|fence| {
            fence.state == FenceState::Open
                && fence.epoch == registered.epoch
                && fence.boot_id == self.config.boot_id
                && fence.machine_id == self.config.machine_id
                && fence.request == Some(registered.request)
        })
    }

    /// Reads this node's own keys, unless such a read is in progress.
    pub(super) fn read_own_keys(&mut self) {
        let keys = vec![
            self.config.keys.fence(&self.config.node),
            self.config.keys.alive(&self.config.node),
            self.config.keys.node_report(&self.config.node),
        ];
        self.read(ReadPurpose::Own, keys);
    }

    pub(super) fn read(&mut self, purpose: ReadPurpose, keys: Vec<String>) {
        if self.reads.values().any(|reading| reading.purpose == purpose) {
            return;
        }
        let id = ReadId(self.next_id());
        let min_revision = self.highest_revision;
        self.reads.insert(id, PendingRead { purpose, keys: keys.clone(), min_revision });
        self.effects.push_back(Effect::Read { id, keys });
    }

    pub(super) fn is_reading(&self, purpose: &ReadPurpose) -> bool {
        self.reads.values().any(|reading| reading.purpose == *purpose)
    }

    pub(super) fn on_read_answered(
        &mut self,
        now: &Now,
        id: ReadId,
        result: Result<(Vec<Entry>, Revision), String>,
    ) {
        let Some(reading) = self.reads.remove(&id) else { return };
        match result {
            Ok((entries, revision)) => {
                if revision < reading.min_revision {
                    self.log(
                        Level::Error,
                        format!(
                            "etcd revision decreased from {} to {revision}: etcd was restored",
                            reading.min_revision
                        ),
                    );
                    self.highest_revision = revision;
                    self.restart_after_restore(now);
                    return;
                }
                self.highest_revision = self.highest_revision.max(revision);
                self.view.read(&reading.keys, &entries, revision);
                match reading.purpose {
                    ReadPurpose::Own => self.handle_own_keys_read(now),
                    ReadPurpose::Service(name) => {
                        if let Some(service) = self.services.get_mut(&name) {
                            service.needs_reread = false;
                        }
                    }
                    ReadPurpose::Peer(_) => {}
                    ReadPurpose::Target { name, uid } => {
                        let revisions = reading.keys.iter().map(|key| {
                            entries.iter().find(|entry| entry.key == *key).map(|entry| entry.mod_revision)
                        });
                        let revisions: Option<Vec<Revision>> = revisions.collect();
                        self.on_target_read(now, &name, &uid, revisions.as_deref());
                    }
                }
            }
            Err(message) => {
                self.log(Level::Debug, format!("cannot read etcd again: {message}"));
                match reading.purpose {
                    ReadPurpose::Own => self.read_retry_at = Some(now.monotonic_raw + RETRY_DELAY_MS / 4),
                    ReadPurpose::Service(name) => {
                        if let Some(service) = self.services.get_mut(&name) {
                            service.write_not_before = Some(now.monotonic_raw + RETRY_DELAY_MS);
                        }
                    }
                    // A read of the peer is repeated soon. If a read of the target is not answered within Ts, the
                    // migration never begins.
                    ReadPurpose::Peer(_) | ReadPurpose::Target { .. } => {}
                }
            }
        }
    }

    fn handle_own_keys_read(&mut self, now: &Now) {
        self.has_read_own_keys = true;
        match &self.session {
            Session::Registered(_) => self.resolve_heartbeat_conflict(now),
            Session::Requesting(_) => self.adopt_stored_request(),
            Session::Waiting | Session::Clearing | Session::Ended => {}
        }
    }

    /// Determines the change because of which a heartbeat conflicted (FENCING R3.26 to R3.30).
    fn resolve_heartbeat_conflict(&mut self, now: &Now) {
        let alive = self.view.alive.get(&self.config.node).cloned();
        let instance = self.config.instance.clone();
        let Some(registered) = self.registered_mut() else { return };
        registered.needs_reread = false;
        match alive {
            Some(stored) if stored.value.as_ref().is_some_and(|alive| alive.instance == instance) => {
                // A creation with an unknown outcome was applied.
                registered.create_revision = Some(stored.create_revision);
                registered.confirmed = Some(stored.mod_revision);
                registered.has_created_alive = true;
            }
            Some(_) if registered.has_created_alive => return self.exit_superseded(),
            Some(_) | None => registered.create_revision = None,
        }
        if let Some(registered) = self.registration()
            && !self.is_own_fence(registered)
        {
            self.on_epoch_closed(now, "the leader revoked the registration of this node");
        }
    }

    /// Exits because another process of this node holds `alive`. This process sends no further writes, and leaves all
    /// services unchanged.
    fn exit_superseded(&mut self) {
        self.log(
            Level::Error,
            "another agent process has taken over this node: stopping without changes to services".to_owned(),
        );
        self.exit_with(Exit::Superseded);
    }

    pub(super) fn exit_with(&mut self, exit: Exit) {
        self.session = Session::Ended;
        self.commits.clear();
        self.reads.clear();
        self.effects.push_back(Effect::Exit(exit));
    }

    /// Handles the loss of the epoch: etcd contains another epoch, or its revision is below the journal's. Stops every
    /// exclusive service, verifies the stops, and registers (FENCING R3.30).
    pub(super) fn on_epoch_closed(&mut self, now: &Now, cause: &str) {
        // A session that waits for a complete view clears the services later, based on that view.
        if matches!(self.session, Session::Ended | Session::Clearing | Session::Waiting) {
            return;
        }
        self.log(Level::Warning, format!("{cause}: stopping all exclusive services, then registering again"));
        self.begin_clearing(now);
    }

    /// Handles an etcd revision below the one that this process has seen, as after a restore without `hactl restore`.
    /// Every exclusive service is stopped (R3.30). Earlier reads do not describe the restored data, so all keys are
    /// read again, and the agent registers as after a start.
    fn restart_after_restore(&mut self, now: &Now) {
        if matches!(self.session, Session::Ended | Session::Waiting) {
            // This process has read no other data.
            return;
        }
        self.on_epoch_closed(now, "etcd was restored from a backup");
        self.reads.clear();
        self.view = View::new(&self.config.keys, &self.config.node);
        self.has_read_own_keys = false;
        self.read_retry_at = None;
        self.session = Session::Waiting;
        self.changed = true;
    }

    pub(super) fn begin_clearing(&mut self, now: &Now) {
        self.session = Session::Clearing;
        self.changed = true;
        self.are_all_dirty = true;
        // Commits in progress guard the fence that has changed, so they can no longer be applied. Their answers
        // belong to the closed epoch.
        self.commits.clear();
        self.seed_services();
        for name in self.service_names() {
            self.with_service(&name, |core, service| {
                service.permit = None;
                service.desired_report = None;
                service.begun_action = None;
                service.pending_write = None;
                service.cleared_definitions.clear();
                if core.is_guarded(service) {
                    // Every service is verified again, even if it is known to be stopped, because the registration
                    // depends on it.
                    if service.presence == Presence::Stopped {
                        service.presence = Presence::Unprobed;
                    }
                    core.kill(now, service, KillReason::Clearing);
                }
            });
        }
    }

    /// Advances the session; it leaves Waiting once the view is complete.
    pub(super) fn advance_session(&mut self, now: &Now) {
        if let Some(retry_at) = self.read_retry_at
            && now.monotonic_raw >= retry_at
        {
            self.read_retry_at = None;
        }
        match &self.session {
            Session::Waiting => {
                if !self.view.is_complete() {
                    return;
                }
                if !self.has_read_own_keys {
                    if self.read_retry_at.is_none() {
                        self.read_own_keys();
                    }
                    return;
                }
                self.discard_cleanly_ended_boot();
                self.begin_session(now);
            }
            Session::Clearing => self.advance_clearing(now),
            Session::Requesting(_) => self.advance_registration_request(now),
            Session::Registered(registered) => {
                let (needs_reread, fence_known) =
                    (registered.needs_reread, self.view.fences.get(&self.config.node).is_some());
                if fence_known && !self.is_own_fence(registered) {
                    return self.on_epoch_closed(now, "the registration of this node was revoked");
                }
                if needs_reread && self.read_retry_at.is_none() {
                    self.read_own_keys();
                }
            }
            Session::Ended => {}
        }
    }

    /// Takes over immediately if boot and epoch are unchanged (the file lock is held). Otherwise stops the running
    /// services, verifies, and registers (FENCING 3 and 6).
    fn begin_session(&mut self, now: &Now) {
        self.seed_services();
        let own_registration = self.fence().and_then(|fence| {
            let is_same_boot = fence.state == FenceState::Open
                && fence.boot_id == self.config.boot_id
                && fence.machine_id == self.config.machine_id
                && self.journal.boot_id == self.config.boot_id
                && fence.request.is_some()
                && fence.request == self.journal.request
                && self.view.revision >= self.journal.revision;
            is_same_boot.then(|| (fence.epoch, fence.request.unwrap_or_default()))
        });
        if let Some((epoch, request)) = own_registration {
            if let Some(report) = self.node_report().filter(|report| report.boot_id == self.config.boot_id) {
                self.active_timings = report.timings;
            }
            self.log(Level::Info, format!("continuing with registration {epoch}: same boot"));
            self.register(now, epoch, request);
        } else {
            self.log(
                Level::Info,
                "registering, after stopping services that an earlier agent may have left running".to_owned(),
            );
            self.begin_clearing(now);
        }
        self.changed = true;
    }

    pub(super) fn register(&mut self, now: &Now, epoch: Epoch, request: Revision) {
        self.are_all_dirty = true;
        self.session = Session::Registered(Registered {
            epoch,
            request,
            create_revision: None,
            confirmed: None,
            has_created_alive: false,
            sequence: 0,
            heartbeat: None,
            next_heartbeat_at: now.monotonic_raw,
            needs_reread: false,
        });
        self.deadline = None;
        self.journal.boot_id.clone_from(&self.config.boot_id);
        self.journal.request = Some(request);
        self.journal.epoch = epoch;
        // The revision of the etcd data in which this epoch is open; the revision of earlier data no longer counts.
        self.journal.revision = self.view.revision.max(request);
        self.mark_journal_changed();
    }

    /// Returns D as proven by this process, otherwise as left by the previous process.
    pub(super) fn deadline_moment(&self) -> Option<DualClockTime> {
        self.deadline.or_else(|| self.watchdog.followed_deadline())
    }

    /// Returns the milliseconds to D on the clock that is nearer to it. 0 if D has passed, `None` if there is no D.
    pub(super) fn remaining_ms(&self, now: &Now) -> Option<Millis> {
        let deadline = self.deadline_moment()?;
        Some(
            DualClockTime::from(now)
                .remaining_ns(deadline)
                .map_or(0, |remaining_ns| remaining_ns / 1_000_000),
        )
    }

    /// Returns `true` if now < D − Ts, under a D that this process has proven and by which the watchdog is petted
    /// (FENCING 6).
    pub(super) fn is_before_margin(&self, now: &Now) -> bool {
        let in_time = self.deadline.is_some_and(|deadline| {
            DualClockTime::from(now).remaining_ns(deadline).is_some_and(|remaining_ns| {
                remaining_ns / 1_000_000 > self.effective_timings().stop_margin_ms
            })
        });
        in_time && !self.is_unpetted(now)
    }

    /// Returns `true` if the process received a request to exit.
    pub(super) fn is_ending(&self) -> bool {
        match self.shutdown {
            None => false,
            Some(Shutdown::Restart | Shutdown::Machine(_)) => true,
        }
    }
}
