//! The core's view of the watchdog, and the decisions when to arm, pet, stay and release (FENCING, section 4).

use super::effect::{Effect, Level, WatchdogRequestId};
use super::input::WatchdogEvent;
use super::journal::{TestedWatchdog, WatchdogTrial};
use super::pets::{PETS_QUERY_DELAY_MS, PetStatus, REFUSES_PETS};
use super::{AgentCore, Session};
use crate::watchdog::DualClockTime;
use crate::watchdog::protocol::{Arm, DeviceFacts, DeviceKind, Notice, Refusal, Request, State, Status};
use ha_api_types::reason::Reason;
use ha_api_types::record::{WatchdogKind, WatchdogReport};
use ha_api_types::time::{Millis, MonotonicTime, Now};

/// Problem reported for a watchdog that did not reset the machine in a test.
const TEST_FAILED: &str =
    "the watchdog did not reset this machine in a test: check the kernel log, and try another driver";
/// Delay before a refused request is sent again.
const RETRY_DELAY_MS: Millis = 5_000;
/// Time for which the daemon may be disconnected, while the device does not run, before the node counts as a node
/// without a watchdog.
const DISCONNECT_TOLERANCE_MS: Millis = 10_000;
/// Longest interval between two pets. When the loss of the daemon is detected, the last pet may be that old.
const PET_PERIOD_MS: Millis = 250;

/// Returns how long the daemon may be disconnected while the device runs. The rest of the timeout must suffice to stop
/// every service before the unpetted device resets the machine. A service manager restarts the daemon earlier than
/// that.
fn disconnect_tolerance_ms(timeout_ms: Millis, stop_margin_ms: Millis) -> Millis {
    timeout_ms.saturating_sub(stop_margin_ms + PET_PERIOD_MS).max(timeout_ms / 2)
}

/// State of the daemon, its device, and the request in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Watchdog {
    is_connected: bool,
    pub(super) status: Status,
    device: String,
    pub(super) facts: Option<DeviceFacts>,
    /// The reason why the device cannot be armed; empty while it can be armed, or before the first attempt.
    pub(super) problem: String,
    pub(super) problem_reason: Option<Reason>,
    /// A test on this machine in which the driver did not reset the machine.
    pub(super) failed_trial: Option<WatchdogTrial>,
    /// The driver that has passed a test on this machine.
    pub(super) passed_test: Option<TestedWatchdog>,
    pending_request: Option<(WatchdogRequestId, Request)>,
    /// The deadline that the daemon has acknowledged since armed: true was committed.
    pub(super) acknowledged: Option<DualClockTime>,
    /// Timeout in seconds and Th in milliseconds with which the device was armed.
    armed_with: Option<(u32, u32)>,
    retry_at: Option<MonotonicTime>,
    /// Time before which a running device is not armed again; deadlines continue in the meantime.
    pub(super) rearm_at: Option<MonotonicTime>,
    pub(super) pets: PetStatus,
    disconnected_since: Option<MonotonicTime>,
    /// Time for which the daemon may be disconnected before the node acts, milliseconds.
    disconnect_tolerance_ms: Millis,
    has_warned_of_simulation: bool,
    /// `true` if this process opened the device only to identify it.
    opened_to_identify: bool,
    /// A deadline that reached the daemon too late. The agent does not send this deadline again; it sends the next
    /// deadline.
    rejected_deadline: Option<DualClockTime>,
}

impl Watchdog {
    /// Returns `true` if, according to this process, the device is running, under a deadline or staying.
    pub(super) fn is_running(&self) -> bool {
        match self.status.state {
            State::Released => false,
            State::Armed { .. } | State::Staying | State::Expired { .. } => true,
        }
    }

    /// Returns `true` if the daemon is connected and the device is running: the value of *armed* in a heartbeat.
    pub(super) fn is_armed(&self) -> bool {
        self.is_connected && self.is_running()
    }

    /// Returns `true` if the daemon has acknowledged a deadline since *armed* was committed: a condition of every
    /// permit.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.acknowledged.is_some() && self.follows_deadline()
    }

    /// Returns `true` if the daemon pets by a deadline, and no request in progress ends this: a condition of every
    /// start.
    pub(super) fn follows_deadline(&self) -> bool {
        let request_ends_at = match self.pending_request {
            Some((_, Request::PetWithoutDeadline | Request::Release)) => true,
            Some((_, Request::Arm(arm))) => arm.deadline.is_none(),
            Some((_, Request::Deadline(_) | Request::Query)) | None => false,
        };
        self.is_connected && !request_ends_at && matches!(self.status.state, State::Armed { .. })
    }

    /// Returns `true` if no deadline after `bound` is active or is being sent to the daemon.
    pub(super) fn has_no_deadline_after(&self, bound: DualClockTime) -> bool {
        let in_force = match self.status.state {
            State::Armed { deadline } | State::Expired { deadline } => Some(deadline),
            State::Released | State::Staying => None,
        };
        let requested = match self.pending_request {
            Some((_, Request::Deadline(deadline))) => Some(deadline),
            Some((_, Request::Arm(arm))) => arm.deadline,
            Some((_, Request::PetWithoutDeadline | Request::Release | Request::Query)) | None => None,
        };
        !in_force.into_iter().chain(requested).any(|deadline| bound.is_earlier_on_a_clock(deadline))
    }

    /// Returns `true` if *armed: true* may be, or stay, committed: the device follows a deadline, or it did when
    /// *armed* was committed.
    pub(super) fn may_report_armed(&self, committed_armed: bool) -> bool {
        if committed_armed { self.is_running() } else { self.follows_deadline() }
    }

    /// Returns `true` if this process opened the device without a deadline, only to identify it.
    pub(super) fn was_opened_to_identify(&self) -> bool {
        self.opened_to_identify
    }

    /// Returns the daemon's last status.
    pub(super) fn daemon_status(&self) -> Status {
        self.status
    }

    /// Returns `true` if the daemon is not connected.
    pub(super) fn is_disconnected(&self) -> bool {
        !self.is_connected
    }

    /// Returns `true` if the daemon has been disconnected for so long that it counts as ended.
    pub(super) fn is_assumed_ended(&self, now: &Now) -> bool {
        self.assumed_end_time().is_some_and(|at| now.monotonic_raw >= at)
    }

    /// Returns the time at which the disconnected daemon counts as ended. The time may be in the past.
    fn assumed_end_time(&self) -> Option<MonotonicTime> {
        let disconnect_tolerance_ms =
            if self.is_running() { self.disconnect_tolerance_ms } else { DISCONNECT_TOLERANCE_MS };
        self.disconnected_since.filter(|_| !self.is_connected).map(|since| since + disconnect_tolerance_ms)
    }

    /// Returns `true` if the daemon pets without a deadline.
    pub(super) fn is_staying(&self) -> bool {
        self.is_connected && self.status.state == State::Staying
    }

    /// Returns the deadline that the daemon follows; after a start, the deadline set by the previous agent process.
    pub(super) fn followed_deadline(&self) -> Option<DualClockTime> {
        match self.status.state {
            State::Armed { deadline } | State::Expired { deadline } => Some(deadline),
            State::Released | State::Staying => None,
        }
    }

    /// Discards earlier acknowledgments because *armed: true* was committed just now.
    pub(super) fn on_armed_committed(&mut self) {
        self.acknowledged = None;
    }

    /// Returns the watchdog part of the node's report. If the configured timeout is longer than the active one, the
    /// report contains the configured timeout, because W must cover both.
    pub(super) fn report(&self, desired_timeout_ms: Millis) -> WatchdogReport {
        let Some(facts) = self.facts else {
            let (problem, reason) = (self.problem.clone(), self.problem_reason);
            return WatchdogReport { problem, reason, ..WatchdogReport::default() };
        };
        let timeout_ms = u64::from(facts.timeout_seconds) * 1000;
        let identity = facts.identity.as_str();
        let last_test = self
            .passed_test
            .as_ref()
            .filter(|proven| proven.identity == identity)
            .map(|proven| proven.test.clone());
        let has_failed = self.failed_trial.as_ref().is_some_and(|trial| trial.identity == identity);
        WatchdogReport {
            kind: match facts.kind {
                DeviceKind::Kernel => WatchdogKind::Kernel,
                DeviceKind::Simulated => WatchdogKind::Simulated,
            },
            identity: identity.to_owned(),
            device: match facts.location.as_str() {
                "" => self.device.clone(),
                location => location.to_owned(),
            },
            timeout_ms: if self.is_running() { timeout_ms.max(desired_timeout_ms) } else { timeout_ms },
            sliding: facts.sliding,
            descriptor_retained: facts.descriptor_retained,
            tested: last_test.as_ref().is_some_and(|test| test.timeout_ms == desired_timeout_ms),
            last_test,
            problem: match (self.accepts_pets(), has_failed) {
                (false, _) => REFUSES_PETS.to_owned(),
                (true, true) => TEST_FAILED.to_owned(),
                (true, false) => self.problem.clone(),
            },
            reason: if has_failed || !self.accepts_pets() {
                Some(Reason::WatchdogFailed)
            } else {
                self.problem_reason
            },
        }
    }

    fn clear_problem(&mut self) {
        self.problem.clear();
        self.problem_reason = None;
    }

    pub(super) fn due_at(&self, last: MonotonicTime) -> Option<MonotonicTime> {
        let assumed_end_time =
            self.assumed_end_time().filter(|_| self.problem_reason != Some(Reason::WatchdogMissing));
        let recovered_at = self.recovered_at().filter(|at| *at > last);
        [self.retry_at, assumed_end_time, recovered_at].into_iter().flatten().min()
    }
}

impl AgentCore {
    pub(super) fn handle_watchdog_event(&mut self, now: &Now, event: WatchdogEvent) {
        match event {
            WatchdogEvent::Connected { status, device } => {
                self.watchdog.is_connected = true;
                self.watchdog.device = device;
                self.watchdog.pending_request = None;
                self.watchdog.acknowledged = None;
                self.watchdog.armed_with = None;
                self.watchdog.retry_at = None;
                self.watchdog.rearm_at = None;
                self.watchdog.disconnected_since = None;
                self.watchdog.clear_problem();
                self.apply_status(status);
            }
            WatchdogEvent::Answered { id, refusal, status } => {
                let Some((asked, request)) = self.watchdog.pending_request else { return };
                if asked != id {
                    return;
                }
                self.watchdog.pending_request = None;
                self.apply_status(status);
                match refusal {
                    None => self.on_watchdog_accepted(now, request),
                    Some(refusal) => self.on_watchdog_refused(now, request, refusal),
                }
            }
            WatchdogEvent::Notice { notice, status } => {
                self.apply_status(status);
                match notice {
                    Notice::Welcome => {}
                    Notice::Expired => {
                        self.log(
                            Level::Error,
                            "watchdog deadline passed: the watchdog is about to reset this machine"
                                .to_owned(),
                        );
                    }
                    Notice::DeviceFailed { errno } => self.on_pets_refused(Some(errno)),
                    Notice::NotSliding => {
                        self.log(
                            Level::Warning,
                            "the watchdog device rounds its timeout up, so its timeout is now treated as fixed"
                                .to_owned(),
                        );
                    }
                }
            }
            WatchdogEvent::Disconnected { message } => {
                if self.watchdog.is_connected || self.watchdog.disconnected_since.is_none() {
                    self.watchdog.disconnected_since = Some(now.monotonic_raw);
                    let timeout_ms =
                        self.watchdog.facts.map_or(0, |facts| u64::from(facts.timeout_seconds) * 1000);
                    self.watchdog.disconnect_tolerance_ms =
                        disconnect_tolerance_ms(timeout_ms, self.effective_timings().stop_margin_ms);
                    self.log(Level::Warning, format!("cannot use ha-watchdogd: {message}"));
                }
                // An armed device stays armed, so the last status is kept.
                self.watchdog.is_connected = false;
                self.watchdog.pending_request = None;
                self.watchdog.acknowledged = None;
            }
        }
    }

    fn apply_status(&mut self, status: Status) {
        self.watchdog.status = status;
        if status.refuses_pets && self.watchdog.accepts_pets() {
            self.on_pets_refused(None);
        }
        if let Some(facts) = status.device {
            self.watchdog.facts = Some(facts);
            if facts.kind == DeviceKind::Simulated && !self.watchdog.has_warned_of_simulation {
                self.watchdog.has_warned_of_simulation = true;
                self.log(
                    Level::Error,
                    "watchdog is simulated (sandboxes and tests only) and does not reset a real machine; the leader accepts such a watchdog only with Cluster.spec.fencing.allowSimulatedWatchdog".to_owned(),
                );
            }
        }
    }

    fn on_watchdog_accepted(&mut self, now: &Now, request: Request) {
        match request {
            Request::Arm(arm) => {
                self.watchdog.clear_problem();
                self.watchdog.rearm_at = None;
                if self.watchdog.pets == PetStatus::Refused {
                    self.watchdog.pets = PetStatus::Recovering { since: now.monotonic_raw };
                }
                self.watchdog.armed_with = Some((arm.timeout_seconds, arm.heartbeat_valid_ms));
                self.watchdog.opened_to_identify = arm.deadline.is_none();
                if self.node_report().is_some_and(|report| report.armed) {
                    self.watchdog.acknowledged = arm.deadline.or(self.watchdog.acknowledged);
                }
            }
            Request::Deadline(deadline) => {
                self.end_pet_refusal(now);
                if !self.must_rearm() {
                    self.watchdog.clear_problem();
                }
                if self.node_report().is_some_and(|report| report.armed) {
                    self.watchdog.acknowledged = Some(deadline);
                }
            }
            Request::PetWithoutDeadline => {
                let consequence = if self.watchdog.accepts_pets() {
                    "ha-watchdogd renews the watchdog without a deadline and will not reset the node"
                } else {
                    "the watchdog rejects renewals and may reset the node if its countdown continues"
                };
                let message = format!("no exclusive service remains on this node: {consequence}");
                self.log(Level::Warning, message);
            }
            Request::Release => {
                self.watchdog.armed_with = None;
                self.watchdog.opened_to_identify = false;
            }
            Request::Query => {
                self.end_pet_refusal(now);
                if !self.watchdog.accepts_pets() {
                    self.watchdog.retry_at = Some(now.monotonic_raw + PETS_QUERY_DELAY_MS);
                }
            }
        }
    }

    fn on_watchdog_refused(&mut self, now: &Now, request: Request, refusal: Refusal) {
        let text = refusal.to_string();
        self.watchdog.retry_at = Some(now.monotonic_raw + RETRY_DELAY_MS);
        match request {
            Request::Arm(arm) => {
                let deadline_has_passed =
                    arm.deadline.is_some_and(|deadline| Some(deadline) != self.deadline_moment());
                if deadline_has_passed && !self.watchdog_test.is_under_way() {
                    // A newer heartbeat has set another deadline: arm again immediately, with that deadline.
                    self.watchdog.retry_at = None;
                    return;
                }
                if self.watchdog.is_running() {
                    // The device still runs, so deadlines must continue: only arming is delayed.
                    self.watchdog.retry_at = None;
                    self.watchdog.rearm_at = Some(now.monotonic_raw + RETRY_DELAY_MS);
                    if !self.watchdog.accepts_pets() {
                        return;
                    }
                }
                if self.watchdog.problem != text {
                    self.log(Level::Error, format!("cannot arm the watchdog: {text}"));
                }
                self.watchdog.problem = text;
                self.watchdog.problem_reason = Some(refusal.reason());
            }
            Request::Deadline(deadline) => {
                self.watchdog.rejected_deadline = Some(deadline);
                // No retry: the next deadline replaces the rejected one.
                self.watchdog.retry_at = None;
                if let Refusal::DeviceFailed { errno } = refusal {
                    return self.on_pets_refused(Some(errno));
                }
                self.log(Level::Warning, format!("ha-watchdogd rejected a deadline: {text}"));
            }
            Request::PetWithoutDeadline | Request::Release | Request::Query => {
                self.log(Level::Warning, format!("ha-watchdogd rejected a request: {text}"));
            }
        }
    }

    /// Sends the request that is due to the daemon, one request at a time.
    pub(super) fn advance_watchdog(&mut self, now: &Now) {
        if self.watchdog.is_assumed_ended(now)
            && self.watchdog.problem_reason != Some(Reason::WatchdogMissing)
        {
            "cannot reach ha-watchdogd: start it, or set its socket with --watchdog-socket"
                .clone_into(&mut self.watchdog.problem);
            self.watchdog.problem_reason = Some(Reason::WatchdogMissing);
            self.changed = true;
        }
        if !self.watchdog.is_connected {
            return;
        }
        if self.watchdog.pending_request.is_some() {
            return;
        }
        if let Some(retry_at) = self.watchdog.retry_at {
            if now.monotonic_raw < retry_at {
                return;
            }
            self.watchdog.retry_at = None;
        }
        if let Some(request) = self.watchdog_request(now) {
            let id = WatchdogRequestId(self.next_id());
            self.watchdog.pending_request = Some((id, request));
            self.effects.push_back(Effect::Watchdog { id, request });
        }
    }

    fn watchdog_request(&self, now: &Now) -> Option<Request> {
        let state = self.watchdog.status.state;
        let arm = |deadline| Some(Request::Arm(Arm::of_timings(&self.arming_timings(), deadline)));
        if matches!(self.session, Session::Ended) {
            return None;
        }
        if self.watchdog_test.is_under_way() {
            return self.test_request(now);
        }
        // FENCING 4: the device is released only once armed: false is committed, or if the agent has never committed a
        // report.
        let idle = !self.may_be_committed_armed() && !self.needs_watchdog();
        if idle {
            // A device that was already running belongs to services that may still run here.
            if self.watchdog.is_running() && self.may_release_inherited() {
                if self.watchdog.accepts_pets() || self.is_ending() || self.is_disarmed() {
                    return Some(Request::Release);
                }
                return self.recovery_request(now);
            }
        }
        // The node is empty, after the deadline's margin or before registering, so no remaining service requires a
        // reset.
        if self.watchdog.is_running() && self.may_pet_without_deadline(now) {
            return (!self.watchdog.is_staying()).then_some(Request::PetWithoutDeadline);
        }
        if idle {
            // The agent opens the device to identify it, once, and again after arming failed. It releases the device
            // immediately.
            let unknown = self.watchdog.facts.is_none()
                || !self.watchdog.problem.is_empty()
                || (!self.watchdog.accepts_pets() && !self.is_disarmed() && !self.is_ending());
            return (unknown && state == State::Released && self.may_identify_device())
                .then(|| arm(None))
                .flatten();
        }
        let deadline = self
            .proven_deadline(now)
            .filter(|deadline| Some(*deadline) != self.watchdog.rejected_deadline)?;
        match state {
            State::Released => arm(Some(deadline)),
            State::Armed { .. } | State::Staying | State::Expired { .. }
                if (self.must_rearm() || self.watchdog.pets == PetStatus::Refused) && self.may_rearm(now) =>
            {
                arm(Some(deadline))
            }
            State::Armed { deadline: in_force }
                if in_force == deadline
                    && (self.watchdog.acknowledged.is_some()
                        || !self.node_report().is_some_and(|report| report.armed)) =>
            {
                None
            }
            State::Armed { .. } | State::Staying | State::Expired { .. } => Some(Request::Deadline(deadline)),
        }
    }

    /// Returns `true` if the timeout or Th of the running device differs from the active timings, and may be changed
    /// now. A longer timeout is allowed only once the report that names it is committed.
    fn must_rearm(&self) -> bool {
        let timings = self.arming_timings();
        let Request::Arm(requested) = Request::Arm(Arm::of_timings(&timings, None)) else { return false };
        let differs =
            self.watchdog.armed_with != Some((requested.timeout_seconds, requested.heartbeat_valid_ms));
        let longer =
            self.watchdog.facts.is_some_and(|facts| requested.timeout_seconds > facts.timeout_seconds);
        let covered = self
            .node_report()
            .is_some_and(|report| report.watchdog.timeout_ms >= u64::from(requested.timeout_seconds) * 1000);
        differs && (!longer || covered)
    }
}
