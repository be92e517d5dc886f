//! The watchdog daemon as a pure state machine: it decides on each pet and its timeout.
//!
//! # Why a late deadline still counts
//! A deadline D depends on one committed heartbeat: D = s + Th, where s was read before the commit. An observer that
//! waits for this node counts W from that commit or later. Petting until D is therefore safe in every case, even if an
//! earlier deadline has passed in the meantime. [`State::Expired`] ends when a *later proven* deadline arrives that is
//! still in the future. Otherwise, only an empty node or a release ends this state. A heartbeat with an unknown outcome
//! never reaches the daemon, because it gives the agent no deadline to send. Conversely, a deadline earlier than the
//! active one (Th was lowered) counts immediately.
//!
//! # Guarantees
//! - The core requests a pet only while now ≤ D on both clocks. Exceptions: the node is empty, so that there is no D,
//!   or the device cannot be stopped (`nowayout`) and nothing is armed.
//! - With sliding timeouts, a requested timeout never extends past D. The core requests none with less time left than
//!   the driver's smallest timeout.
//! - The answer *Done* to a deadline follows a pet under that deadline.
//!
//! # Assumptions
//! - The shell runs effects in order. It passes the result of [`Effect::Open`], [`Effect::Pet`] and [`Effect::Close`]
//!   before it passes another message or tick.

#![warn(clippy::disallowed_types)]

mod requests;

use super::dual_clock_time::DualClockTime;
use super::protocol::{
    Arm, DeviceFacts, Notice, Outcome, Privileges, Purpose, Refusal, Reply, Request, SavedState, State,
    Status, Timing,
};
use std::collections::VecDeque;

/// Interval between pets, milliseconds; FENCING 4 requires 250 or less.
pub const PET_INTERVAL_MS: u64 = 200;

/// Interval at which a failed reset is tried again, milliseconds.
const RESET_RETRY_INTERVAL_MS: u64 = 1000;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

const NANOSECONDS_PER_MILLISECOND: u64 = 1_000_000;

/// Capacity of the effect queue. No input causes more effects, so the queue does not grow.
const EFFECT_QUEUE_CAPACITY: usize = 16;

/// Inputs of the daemon's core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The daemon serves a verified peer from now on; its requests are numbered from 1.
    Connected,
    /// The peer has disconnected. A device that the peer armed stays armed until its last deadline.
    Disconnected,
    /// The peer sent a request.
    Message {
        /// The peer's number of the request.
        number: u64,
        /// The decoded request.
        request: Request,
    },
    /// The result of [`Effect::Open`].
    Opened(Result<DeviceFacts, Refusal>),
    /// The result of [`Effect::Pet`]: the timeout read back, seconds, or the error number.
    Petted(Result<u32, u32>),
    /// The result of [`Effect::Close`]: an error number if it failed.
    Closed(Result<(), u32>),
    /// Time has passed.
    Tick,
    /// The daemon received a request to exit.
    ShutDown,
}

/// Effects that the daemon's core requests from its shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Open the device, set this timeout, read it back, and determine the driver's abilities.
    Open {
        /// The requested timeout, seconds.
        timeout_seconds: u32,
    },
    /// Pet the device: set this timeout (which pets), or only pet.
    Pet {
        /// The timeout to set, seconds; `None` leaves it unchanged.
        timeout_seconds: Option<u32>,
    },
    /// Stop the device and close it.
    Close,
    /// Keep this state for the next daemon.
    Save(SavedState),
    /// Answer the peer.
    Reply(Reply),
    /// Close the connection.
    Disconnect,
    /// Reset the machine now without the device: it refuses pets, so its countdown may also have stopped, or the
    /// countdown has ended without a reset.
    Reset,
}

/// The request whose effect is in progress.
#[derive(Clone, Copy, Debug)]
enum PendingOperation {
    Nothing,
    /// `is_reopening`: this opening replaces a device that refuses pets.
    Open {
        number: u64,
        arm: Arm,
        is_reopening: bool,
    },
    Pet {
        number: u64,
        outcome: Outcome,
        undo: Undo,
    },
    Close {
        number: u64,
        outcome: Outcome,
    },
}

/// The way to proceed if the pet that completes a request fails.
#[derive(Clone, Copy, Debug)]
enum Undo {
    Nothing,
    Restore {
        timing: Option<Timing>,
        state: State,
        arm: Arm,
    },
    Close,
    /// The pet was made under the previous timing, after a change was refused.
    KeepPrevious {
        arm: Arm,
    },
    /// The device was opened again, so there is no earlier state to restore.
    Reopened,
}

/// The device's history of pets (FENCING R4.17 to R4.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PetStatus {
    Accepted,
    /// The device has refused a pet.
    Refused,
    /// The device was armed again after a refusal, and has taken every pet since.
    Recovering {
        since: DualClockTime,
    },
}

/// The state machine of the daemon.
#[derive(Debug)]
pub struct Core {
    state: State,
    device: Option<DeviceFacts>,
    timing: Option<Timing>,
    connected: bool,
    next_number: u64,
    pending: PendingOperation,
    requested_seconds: Option<u32>,
    last_pet: Option<DualClockTime>,
    pet_due_at: DualClockTime,
    fires_at: Option<DualClockTime>,
    smallest_margin_ms: Option<u32>,
    worst_lateness_ms: Option<u32>,
    pets: PetStatus,
    privileges: Privileges,
    effects: VecDeque<Effect>,
}

impl Core {
    /// Creates a daemon that holds no device. The privileges are only shown in its status.
    pub fn new(privileges: Privileges) -> Self {
        Self {
            state: State::Released,
            device: None,
            timing: None,
            connected: false,
            next_number: 1,
            pending: PendingOperation::Nothing,
            requested_seconds: None,
            last_pet: None,
            pet_due_at: DualClockTime::default(),
            fires_at: None,
            smallest_margin_ms: None,
            worst_lateness_ms: None,
            pets: PetStatus::Accepted,
            privileges,
            effects: VecDeque::with_capacity(EFFECT_QUEUE_CAPACITY),
        }
    }

    /// Continues with an open device that an earlier daemon left behind. Without a readable record of the earlier
    /// state, the daemon does not pet until the agent sends a request, because an unknown deadline counts as passed.
    pub fn resume(&mut self, now: DualClockTime, device: DeviceFacts, saved: Option<SavedState>) {
        self.pet_due_at = now;
        self.device = Some(device);
        let Some(saved) = saved else {
            self.state = State::Expired { deadline: DualClockTime::default() };
            return;
        };
        self.state = saved.state;
        self.timing = saved.timing;
        if saved.refuses_pets {
            self.pets = PetStatus::Refused;
        }
        if saved.device.is_some() {
            self.device = saved.device;
        }
        if self.state == State::Released {
            // The earlier daemon ended between the decision to release and the close.
            self.close(0, Outcome::Done);
        }
    }

    /// Returns the daemon's status.
    pub fn status(&self) -> Status {
        Status {
            state: self.state,
            device: self.device,
            last_pet: self.last_pet,
            smallest_margin_ms: self.smallest_margin_ms,
            privileges: self.privileges,
            worst_lateness_ms: self.worst_lateness_ms,
            // The device itself reports both values.
            time_left_seconds: None,
            pretimeout_seconds: None,
            refuses_pets: !self.accepts_pets(),
        }
    }

    /// Returns the next effect.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Returns when to call with [`Input::Tick`] again, in nanoseconds of `CLOCK_MONOTONIC_RAW`, and why.
    pub fn deadline(&self) -> Option<(u64, &'static str)> {
        self.device?;
        match self.state {
            State::Released | State::Staying => Some((self.pet_due_at.monotonic_raw_ns, "pet")),
            State::Armed { deadline } => {
                let passed_ns = deadline.monotonic_raw_ns.saturating_add(1);
                if self.pet_due_at.monotonic_raw_ns < passed_ns
                    && self.can_pet_before(self.pet_due_at, deadline)
                {
                    Some((self.pet_due_at.monotonic_raw_ns, "pet"))
                } else {
                    Some((passed_ns, "deadline"))
                }
            }
            State::Expired { .. } if self.accepts_pets() => {
                let passed_ns = self.fires_at?.monotonic_raw_ns.saturating_add(1);
                Some((passed_ns.max(self.pet_due_at.monotonic_raw_ns), "reset"))
            }
            State::Expired { .. } => Some((self.pet_due_at.monotonic_raw_ns, "reset")),
        }
    }

    /// Returns `true` if the device has refused no pet, or has recovered from a refusal.
    fn accepts_pets(&self) -> bool {
        self.pets == PetStatus::Accepted
    }

    /// Applies one input to the state.
    pub fn handle(&mut self, now: DualClockTime, input: Input) {
        match input {
            Input::Connected => {
                self.connected = true;
                self.next_number = 1;
                self.reply(0, Outcome::Notice(Notice::Welcome));
            }
            Input::Disconnected => {
                self.connected = false;
                self.forget_request_number();
            }
            Input::Message { number, request } => self.handle_message(now, number, request),
            Input::Opened(result) => self.handle_open_result(now, result),
            Input::Petted(result) => self.handle_pet_result(now, result),
            Input::Closed(result) => self.handle_close_result(result),
            Input::Tick => self.tick(now),
            Input::ShutDown => self.shut_down(),
        }
    }

    fn tick(&mut self, now: DualClockTime) {
        if self.device.is_none() || !matches!(self.pending, PendingOperation::Nothing) {
            return;
        }
        if let State::Armed { deadline } = self.state
            && now.remaining_ns(deadline).is_none()
        {
            self.state = State::Expired { deadline };
            self.save();
            self.reply(0, Outcome::Notice(Notice::Expired));
            self.reset_if_unguarded(now);
            return;
        }
        if now.monotonic_raw_ns >= self.pet_due_at.monotonic_raw_ns
            && matches!(self.state, State::Expired { .. })
        {
            self.reset_if_unguarded(now);
            return;
        }
        if now.monotonic_raw_ns >= self.pet_due_at.monotonic_raw_ns {
            let late_ms =
                (now.monotonic_raw_ns - self.pet_due_at.monotonic_raw_ns) / NANOSECONDS_PER_MILLISECOND;
            let late_ms = u32::try_from(late_ms).unwrap_or(u32::MAX);
            self.worst_lateness_ms =
                Some(self.worst_lateness_ms.map_or(late_ms, |worst_ms| worst_ms.max(late_ms)));
            // If no pet is possible before the deadline, the due time must not stay in the past, because the loop would
            // then spin.
            self.pet_due_at = now.plus_ms(PET_INTERVAL_MS);
            self.pet(now, false);
        }
    }

    /// Resets the machine after the deadline if the device refuses pets, because such a device may not reset the
    /// machine, or if the device should already have reset it. A failed reset is tried again. In a test, only the device
    /// may reset the machine (R4.33).
    fn reset_if_unguarded(&mut self, now: DualClockTime) {
        let has_failed = self.fires_at.is_some_and(|fires_at| now.remaining_ns(fires_at).is_none());
        if has_failed || !self.accepts_pets() {
            self.pet_due_at = now.plus_ms(RESET_RETRY_INTERVAL_MS);
            if self.timing.is_none_or(|timing| timing.purpose == Purpose::Guard) {
                self.effects.push_back(Effect::Reset);
            }
        }
    }

    /// Requests a pet if one is allowed now. With `must_set_timeout`, the pet sets the timeout even of a fixed device.
    fn pet(&mut self, now: DualClockTime, must_set_timeout: bool) -> bool {
        let Some(device) = self.device else { return false };
        let full = self.full_timeout_seconds(&device);
        let timeout_seconds = match self.state {
            State::Released | State::Staying => full,
            State::Armed { deadline } if self.can_pet_before(now, deadline) => {
                let left_seconds = now.remaining_ns(deadline).unwrap_or(0) / NANOSECONDS_PER_SECOND;
                if device.sliding { full.min(u32::try_from(left_seconds).unwrap_or(u32::MAX)) } else { full }
            }
            State::Armed { .. } | State::Expired { .. } => return false,
        };
        self.requested_seconds = (device.sliding || must_set_timeout).then_some(timeout_seconds);
        self.pet_due_at = now.plus_ms(PET_INTERVAL_MS);
        self.effects.push_back(Effect::Pet { timeout_seconds: self.requested_seconds });
        true
    }

    /// Returns `true` if a pet under this deadline is allowed now.
    fn can_pet_before(&self, now: DualClockTime, deadline: DualClockTime) -> bool {
        let smallest_seconds = self
            .device
            .map_or(1, |device| if device.sliding { device.smallest_timeout_seconds.max(1) } else { 0 });
        now.remaining_ns(deadline)
            .is_some_and(|remaining_ns| remaining_ns >= u64::from(smallest_seconds) * NANOSECONDS_PER_SECOND)
    }

    fn full_timeout_seconds(&self, device: &DeviceFacts) -> u32 {
        self.timing.map_or(device.timeout_seconds, |timing| timing.timeout_seconds)
    }

    /// Records a pet that the device has taken or refused.
    fn handle_pet_result(&mut self, now: DualClockTime, result: Result<u32, u32>) {
        let requested = self.requested_seconds.take();
        if let Ok(applied_seconds) = result {
            if let Some(fires_at) = self.fires_at {
                let margin_ms = now.remaining_ns(fires_at).unwrap_or(0) / NANOSECONDS_PER_MILLISECOND;
                let margin_ms = u32::try_from(margin_ms).unwrap_or(u32::MAX);
                self.smallest_margin_ms =
                    Some(self.smallest_margin_ms.map_or(margin_ms, |smallest_ms| smallest_ms.min(margin_ms)));
            }
            self.fires_at = Some(now.plus_ms(u64::from(applied_seconds) * 1000));
            self.last_pet = Some(now);
            self.record_accepted_pet(now);
        }
        match (std::mem::replace(&mut self.pending, PendingOperation::Nothing), result) {
            (PendingOperation::Nothing, Ok(applied_seconds)) => {
                self.check_sliding(requested, applied_seconds);
            }
            (PendingOperation::Nothing, Err(errno)) => {
                if self.record_refused_pet() {
                    self.reply(0, Outcome::Notice(Notice::DeviceFailed { errno }));
                }
            }
            (PendingOperation::Pet { number, outcome, undo }, result) => {
                self.handle_requested_pet_result(now, number, outcome, undo, requested, result);
            }
            // The pet before closing has no consequences; an opening in progress causes no pet.
            (pending @ (PendingOperation::Open { .. } | PendingOperation::Close { .. }), Ok(_) | Err(_)) => {
                self.pending = pending;
            }
        }
    }

    /// Clears an earlier refusal once pets have succeeded for a whole timeout after the device was armed again.
    fn record_accepted_pet(&mut self, now: DualClockTime) {
        let PetStatus::Recovering { since } = self.pets else { return };
        let seconds = self.device.map_or(0, |device| self.full_timeout_seconds(&device));
        if since.plus_ms(u64::from(seconds) * 1000).remaining_ns(now).is_some() {
            self.pets = PetStatus::Accepted;
            self.save();
        }
    }

    /// Records that the device has refused a pet. Returns `true` if that is new.
    fn record_refused_pet(&mut self) -> bool {
        let is_first_refusal = self.pets != PetStatus::Refused;
        if is_first_refusal {
            self.pets = PetStatus::Refused;
            self.save();
        }
        is_first_refusal
    }

    /// Marks a device as fixed if it accepts a longer timeout than requested, even if it seemed sliding when it was
    /// opened.
    fn check_sliding(&mut self, requested: Option<u32>, applied_seconds: u32) {
        if let (Some(device), Some(requested)) = (&mut self.device, requested)
            && device.sliding
            && applied_seconds > requested
        {
            device.sliding = false;
            self.save();
            self.reply(0, Outcome::Notice(Notice::NotSliding));
        }
    }

    fn save(&mut self) {
        self.effects.push_back(Effect::Save(SavedState {
            state: self.state,
            device: self.device,
            timing: self.timing,
            refuses_pets: !self.accepts_pets(),
        }));
    }

    /// Answers the peer, unless the peer has disconnected.
    fn reply(&mut self, answers: u64, outcome: Outcome) {
        let is_unrequested = answers == 0 && !matches!(outcome, Outcome::Notice(_));
        if self.connected && !is_unrequested {
            self.effects.push_back(Effect::Reply(Reply { answers, outcome, status: self.status() }));
        }
    }

    fn forget_request_number(&mut self) {
        match &mut self.pending {
            PendingOperation::Nothing => {}
            PendingOperation::Open { number, .. }
            | PendingOperation::Pet { number, .. }
            | PendingOperation::Close { number, .. } => {
                *number = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests;
