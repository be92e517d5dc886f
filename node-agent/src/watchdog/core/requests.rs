//! The effect of each request on the state, from the message to its answer.

use super::{
    Arm, Core, DeviceFacts, DualClockTime, Effect, NANOSECONDS_PER_MILLISECOND, Outcome, PendingOperation,
    PetStatus, Purpose, Refusal, Request, State, Timing, Undo,
};

impl Core {
    pub(super) fn handle_message(&mut self, now: DualClockTime, number: u64, request: Request) {
        if number != self.next_number || number == 0 {
            self.reply(number, Outcome::Refused(Refusal::OutOfOrder { expected: self.next_number }));
            self.effects.push_back(Effect::Disconnect);
            return;
        }
        self.next_number += 1;
        if !matches!(self.pending, PendingOperation::Nothing) {
            return self.refuse(number, Refusal::BadMessage);
        }
        match request {
            Request::Arm(arm) => self.arm(now, number, arm),
            Request::Deadline(deadline) => self.set_deadline(now, number, deadline),
            Request::PetWithoutDeadline => self.stay(now, number),
            Request::Release => self.release(now, number),
            Request::Query => self.reply(number, Outcome::Done),
        }
    }

    fn refuse(&mut self, number: u64, refusal: Refusal) {
        self.reply(number, Outcome::Refused(refusal));
    }

    fn arm(&mut self, now: DualClockTime, number: u64, arm: Arm) {
        if let Some(deadline) = arm.deadline {
            if let Some(refusal) = check_deadline_distance(now, deadline, arm.heartbeat_valid_ms) {
                return self.refuse(number, refusal);
            }
            if !self.can_pet_before(now, deadline) {
                self.apply_earlier_deadline(deadline);
                return self.refuse(number, Refusal::DeadlinePassed);
            }
        }
        match self.device {
            None => {
                self.smallest_margin_ms = None;
                self.worst_lateness_ms = None;
                self.pending = PendingOperation::Open { number, arm, is_reopening: false };
                self.effects.push_back(Effect::Open { timeout_seconds: arm.timeout_seconds });
            }
            Some(device) => self.rearm(now, number, arm, device),
        }
    }

    /// Changes an open device: the new timing, and possibly a new deadline, become active with one pet, or not at all.
    fn rearm(&mut self, now: DualClockTime, number: u64, arm: Arm, device: DeviceFacts) {
        let (smallest_seconds, largest_seconds) =
            (device.smallest_timeout_seconds, device.largest_timeout_seconds);
        if arm.timeout_seconds < smallest_seconds || arm.timeout_seconds > largest_seconds {
            return self.refuse(number, Refusal::TimeoutNotApplied { smallest_seconds, largest_seconds });
        }
        if let Some(refusal) = check_timeout_allowed(&device, arm.timeout_seconds, &arm) {
            return self.refuse(number, refusal);
        }
        let undo = Undo::Restore { timing: self.timing, state: self.state, arm };
        self.timing = Some(timing_of(&arm, arm.timeout_seconds));
        self.state = state_of(&arm);
        self.save();
        self.pet(now, true);
        self.pending = PendingOperation::Pet { number, outcome: Outcome::Done, undo };
    }

    pub(super) fn handle_open_result(&mut self, now: DualClockTime, result: Result<DeviceFacts, Refusal>) {
        let (number, arm, is_reopening) =
            match std::mem::replace(&mut self.pending, PendingOperation::Nothing) {
                PendingOperation::Open { number, arm, is_reopening } => (number, arm, is_reopening),
                pending @ (PendingOperation::Nothing
                | PendingOperation::Pet { .. }
                | PendingOperation::Close { .. }) => {
                    self.pending = pending;
                    return;
                }
            };
        let device = match result {
            Ok(device) => device,
            Err(refusal) => return self.refuse(number, refusal),
        };
        if is_reopening {
            return self.on_reopened(now, number, &arm, device);
        }
        self.device = Some(device);
        self.timing = Some(timing_of(&arm, device.timeout_seconds));
        if let Some(refusal) = check_timeout_allowed(&device, device.timeout_seconds, &arm) {
            return self.close(number, Outcome::Refused(refusal));
        }
        // Opening takes time, so the deadline may have passed. This must not reset an idle machine.
        if arm.deadline.is_some_and(|deadline| !self.can_pet_before(now, deadline)) {
            return self.close(number, Outcome::Refused(Refusal::DeadlinePassed));
        }
        self.state = state_of(&arm);
        self.save();
        self.pet(now, true);
        self.pending = PendingOperation::Pet { number, outcome: Outcome::Done, undo: Undo::Close };
    }

    /// Opens a device that refuses pets again. A driver that was bound again provides another device under the same
    /// name. The old open device does not work again.
    fn reopen(&mut self, number: u64, arm: Arm) {
        self.pending = PendingOperation::Open { number, arm, is_reopening: true };
        self.effects.push_back(Effect::Open { timeout_seconds: arm.timeout_seconds });
    }

    /// Replaces the device that refuses pets with the newly opened device. Until the new device has accepted pets for a
    /// whole timeout, it counts as failed. It is not closed, so that the deadline stays active.
    fn on_reopened(&mut self, now: DualClockTime, number: u64, arm: &Arm, device: DeviceFacts) {
        self.device = Some(device);
        self.fires_at = None;
        self.save();
        if let Some(refusal) = check_timeout_allowed(&device, device.timeout_seconds, arm) {
            return self.refuse(number, refusal);
        }
        if arm.deadline.is_some_and(|deadline| !self.can_pet_before(now, deadline)) {
            return self.refuse(number, Refusal::DeadlinePassed);
        }
        self.timing = Some(timing_of(arm, device.timeout_seconds));
        self.state = state_of(arm);
        self.save();
        self.pet(now, true);
        self.pending = PendingOperation::Pet { number, outcome: Outcome::Done, undo: Undo::Reopened };
    }

    fn set_deadline(&mut self, now: DualClockTime, number: u64, deadline: DualClockTime) {
        let (Some(_), Some(timing)) = (self.device, self.timing) else {
            return self.refuse(number, Refusal::NotArmed);
        };
        if self.state == State::Released {
            return self.refuse(number, Refusal::NotArmed);
        }
        if let Some(refusal) = check_deadline_distance(now, deadline, timing.heartbeat_valid_ms) {
            return self.refuse(number, refusal);
        }
        if !self.can_pet_before(now, deadline) {
            self.apply_earlier_deadline(deadline);
            return self.refuse(number, Refusal::DeadlinePassed);
        }
        // A renewal guards services, also if an agent that has restarted continues after a test.
        self.timing = Some(Timing { purpose: Purpose::Guard, ..timing });
        self.state = State::Armed { deadline };
        self.save();
        self.pet(now, false);
        self.pending = PendingOperation::Pet { number, outcome: Outcome::Done, undo: Undo::Nothing };
    }

    /// Replaces the active deadline with an earlier one, even if the request that carried it fails: observers may
    /// already use that deadline.
    fn apply_earlier_deadline(&mut self, deadline: DualClockTime) {
        if let State::Armed { deadline: active_deadline } = self.state
            && deadline.is_earlier_on_a_clock(active_deadline)
        {
            self.state = State::Armed { deadline };
            self.save();
        }
    }

    fn stay(&mut self, now: DualClockTime, number: u64) {
        if self.device.is_none() || self.state == State::Released {
            return self.refuse(number, Refusal::NotArmed);
        }
        self.state = State::Staying;
        self.pet_due_at = now;
        self.save();
        self.reply(number, Outcome::Done);
    }

    fn release(&mut self, now: DualClockTime, number: u64) {
        if self.device.is_none() {
            return self.reply(number, Outcome::Done);
        }
        self.pet_due_at = now;
        self.close(number, Outcome::Done);
    }

    /// Ends the protection and answers with `outcome` once the device is closed. A device that cannot be stopped is
    /// kept and petted without a deadline.
    pub(super) fn close(&mut self, number: u64, outcome: Outcome) {
        let Some(device) = self.device else { return self.reply(number, outcome) };
        self.state = State::Released;
        self.save();
        if device.nowayout {
            return self.reply(number, outcome);
        }
        // A full period first: other holders of the descriptor (the service manager) need time to close it.
        let timeout_seconds = self.full_timeout_seconds(&device);
        self.requested_seconds = None;
        self.effects.push_back(Effect::Pet { timeout_seconds: Some(timeout_seconds) });
        self.effects.push_back(Effect::Close);
        self.pending = PendingOperation::Close { number, outcome };
    }

    pub(super) fn handle_close_result(&mut self, result: Result<(), u32>) {
        let (number, outcome) = match std::mem::replace(&mut self.pending, PendingOperation::Nothing) {
            PendingOperation::Close { number, outcome } => (number, outcome),
            pending @ (PendingOperation::Nothing
            | PendingOperation::Open { .. }
            | PendingOperation::Pet { .. }) => {
                self.pending = pending;
                return;
            }
        };
        self.device = None;
        self.timing = None;
        // The device no longer protects a service.
        self.pets = PetStatus::Accepted;
        self.fires_at = None;
        self.last_pet = None;
        self.save();
        match result {
            Ok(()) => self.reply(number, outcome),
            Err(errno) => self.refuse(number, Refusal::DeviceFailed { errno }),
        }
    }

    /// Handles the result of the pet that completes a request.
    pub(super) fn handle_requested_pet_result(
        &mut self,
        now: DualClockTime,
        number: u64,
        outcome: Outcome,
        undo: Undo,
        requested: Option<u32>,
        result: Result<u32, u32>,
    ) {
        let refusal = match result {
            Ok(applied_seconds) => {
                // For a deadline, the device accepted the pet, possibly with a longer timeout, which causes a notice
                // and not a refusal.
                match undo {
                    Undo::Nothing | Undo::KeepPrevious { .. } => {
                        self.check_sliding(requested, applied_seconds);
                        None
                    }
                    Undo::Restore { .. } | Undo::Close | Undo::Reopened => {
                        self.check_timeout_applied(requested, applied_seconds)
                    }
                }
            }
            Err(errno) => Some(Refusal::DeviceFailed { errno }),
        };
        let Some(refusal) = refusal else {
            if let (Undo::Restore { .. }, Ok(applied_seconds)) = (undo, result) {
                self.handle_timeout_change(applied_seconds);
            }
            match undo {
                // The device was armed again and petted.
                Undo::Restore { .. } | Undo::Reopened if self.pets == PetStatus::Refused => {
                    self.pets = PetStatus::Recovering { since: now };
                }
                Undo::Restore { .. }
                | Undo::KeepPrevious { .. }
                | Undo::Reopened
                | Undo::Nothing
                | Undo::Close => {}
            }
            return self.reply(number, outcome);
        };
        match undo {
            Undo::Nothing | Undo::Reopened => {
                if result.is_err() {
                    self.record_refused_pet();
                }
                self.refuse(number, refusal);
            }
            Undo::KeepPrevious { arm } => {
                self.record_refused_pet();
                self.reopen(number, arm);
            }
            Undo::Close => self.close(number, Outcome::Refused(refusal)),
            Undo::Restore { timing, state, arm } => {
                let refused_state = std::mem::replace(&mut self.state, state);
                self.timing = timing;
                self.save();
                if let State::Armed { deadline } = refused_state {
                    self.apply_earlier_deadline(deadline);
                }
                if result.is_err() && self.pets == PetStatus::Refused {
                    self.reopen(number, arm);
                } else if self.pet(now, true) {
                    // The device may have refused only the new timeout.
                    let undo = if result.is_err() { Undo::KeepPrevious { arm } } else { Undo::Nothing };
                    self.pending = PendingOperation::Pet { number, outcome: Outcome::Refused(refusal), undo };
                } else {
                    self.refuse(number, refusal);
                }
            }
        }
    }

    /// Records a new full timeout. The timeout requested from a sliding device may be shorter because of the deadline.
    /// A fixed device reports the timeout that it accepted.
    fn handle_timeout_change(&mut self, applied_seconds: u32) {
        if let (Some(device), Some(timing)) = (&mut self.device, &mut self.timing) {
            if !device.sliding {
                timing.timeout_seconds = applied_seconds;
            }
            device.timeout_seconds = timing.timeout_seconds;
            self.save();
        }
    }

    /// Returns a refusal if the device took a longer timeout than requested while it was being armed.
    fn check_timeout_applied(&self, requested: Option<u32>, applied_seconds: u32) -> Option<Refusal> {
        let (device, timing) = (self.device?, self.timing?);
        let largest_seconds = timing.largest.of(device.sliding, device.descriptor_retained);
        requested
            .filter(|requested| {
                applied_seconds > *requested && (device.sliding || applied_seconds > largest_seconds)
            })
            .map(|_| Refusal::TimeoutTooLong { read_back_seconds: applied_seconds, largest_seconds })
    }

    /// Prepares the daemon's exit: stops the device of an empty node. Under an active deadline, the device is left
    /// unchanged: the next daemon continues, or the machine is reset after the deadline.
    pub(super) fn shut_down(&mut self) {
        match self.state {
            State::Released | State::Staying => self.close(0, Outcome::Done),
            State::Armed { .. } | State::Expired { .. } => {}
        }
    }
}

fn timing_of(arm: &Arm, timeout_seconds: u32) -> Timing {
    Timing {
        timeout_seconds,
        largest: arm.largest,
        heartbeat_valid_ms: arm.heartbeat_valid_ms,
        purpose: arm.purpose,
    }
}

fn state_of(arm: &Arm) -> State {
    match arm.deadline {
        Some(deadline) => State::Armed { deadline },
        None => State::Staying,
    }
}

/// Returns a refusal if the deadline is more than Th ahead. A heartbeat proves at most Th from a moment in the past.
fn check_deadline_distance(
    now: DualClockTime,
    deadline: DualClockTime,
    heartbeat_valid_ms: u32,
) -> Option<Refusal> {
    let ahead_ns = now.longest_ns(deadline);
    (ahead_ns > u64::from(heartbeat_valid_ms) * NANOSECONDS_PER_MILLISECOND).then(|| {
        Refusal::DeadlineTooFar {
            ahead_ms: u32::try_from(ahead_ns / NANOSECONDS_PER_MILLISECOND).unwrap_or(u32::MAX),
            heartbeat_valid_ms,
        }
    })
}

/// Returns a refusal if the timeout breaks the inequality of FENCING 4, which the agent computed for each kind of
/// device.
fn check_timeout_allowed(device: &DeviceFacts, timeout_seconds: u32, arm: &Arm) -> Option<Refusal> {
    let largest_seconds = arm.largest.of(device.sliding, device.descriptor_retained);
    (timeout_seconds > largest_seconds)
        .then_some(Refusal::TimeoutTooLong { read_back_seconds: timeout_seconds, largest_seconds })
}
