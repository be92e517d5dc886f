//! The watchdog daemon as a pure state machine: when to pet, and with how much time.
//!
//! # Why a late deadline still counts
//! A deadline D rests on one committed heartbeat: D = s + Th, where s was read before the commit. Whoever
//! waits for this node counts W from that commit or later, so petting until D is safe whatever came before,
//! also if an earlier deadline has passed meanwhile. [`State::Expired`] therefore ends when a *later proven*
//! deadline arrives that still lies in the future; nothing else but an empty node or a release ends it, and
//! an attempt whose outcome is unknown never reaches the daemon, because the agent has no deadline to send.
//! The converse holds too: a deadline earlier than the one in force (Th was lowered) counts at once.
//!
//! # Guarantees
//! - A pet is asked for only while now ≤ D on both clocks, or without any D while the node is empty, or,
//!   where the device cannot be stopped (`nowayout`), while nothing is armed.
//! - With sliding timeouts the time asked for never reaches beyond D, and none is asked for with less left
//!   than the driver's smallest timeout.
//! - *Done* for a deadline is said after a pet under that deadline.
//!
//! # Assumptions
//! - The shell runs effects in order and hands in the result of [`Effect::Open`], [`Effect::Pet`] and
//!   [`Effect::Close`] before it hands in another message or tick.

mod requests;

use super::moment::Moment;
use super::protocol::{
    Arm, DeviceFacts, Notice, Outcome, Privileges, Refusal, Reply, Request, Saved, State, Status, Timing,
};
use std::collections::VecDeque;

/// How often the device is petted, in milliseconds; `FENCING.md` 4 asks for every 250 or faster.
pub const PET_INTERVAL_MS: u64 = 200;

/// How often a reset that has not happened is tried again, in milliseconds.
const RESET_RETRY_MS: u64 = 1000;

/// Nanoseconds in a second.
const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// Nanoseconds in a millisecond.
const NANOSECONDS_PER_MILLISECOND: u64 = 1_000_000;

/// Room for effects: no input asks for more at once, so the queue never grows.
const EFFECTS: usize = 16;

/// Everything that can happen to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A verified peer is served from now on; its requests are numbered from 1.
    Connected,
    /// The peer is gone. What it armed stays until its last deadline.
    Disconnected,
    /// The peer asks for something.
    Message {
        /// The number the peer gave it.
        number: u64,
        /// What it asks for.
        request: Request,
    },
    /// The result of [`Effect::Open`].
    Opened(Result<DeviceFacts, Refusal>),
    /// The result of [`Effect::Pet`]: the timeout read back in seconds, or the error number.
    Petted(Result<u32, u32>),
    /// The result of [`Effect::Close`]: an error number if it failed.
    Closed(Result<(), u32>),
    /// Time has passed.
    Tick,
    /// The daemon is told to end.
    ShutDown,
}

/// Everything the daemon can ask of its shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Open the device, set this timeout, read it back and find out what the driver can do.
    Open {
        /// The timeout to ask for, in seconds.
        timeout_seconds: u32,
    },
    /// Pet the device: set this timeout (which pets), or only pet.
    Pet {
        /// The timeout to set, in seconds; `None`: leave it as it is.
        timeout_seconds: Option<u32>,
    },
    /// Stop the device and close it.
    Close,
    /// Keep this for the next daemon.
    Save(Saved),
    /// Answer the peer.
    Reply(Reply),
    /// Close the connection.
    Disconnect,
    /// Reset the machine now, without the device: it refuses pets, so perhaps it does not count either.
    Reset,
}

/// The request whose effect is under way.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Nothing,
    /// `again`: in the place of a device that refuses pets.
    Open {
        number: u64,
        arm: Arm,
        again: bool,
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

/// What to do if the pet that completes a request fails.
#[derive(Clone, Copy, Debug)]
enum Undo {
    Nothing,
    Restore {
        timing: Option<Timing>,
        state: State,
        arm: Arm,
    },
    Close,
    /// The pet under the timing before, after a change was refused.
    Again {
        arm: Arm,
    },
    /// The device was opened again: there is nothing to go back to.
    Reopened,
}

/// Whether the device takes pets (FENCING R4.17 to R4.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pets {
    Taken,
    /// It has refused one.
    Refused,
    /// It was armed again after it had refused one, and has taken every pet since.
    Returning {
        since: Moment,
    },
}

/// The daemon's state.
#[derive(Debug)]
pub struct Core {
    state: State,
    device: Option<DeviceFacts>,
    timing: Option<Timing>,
    connected: bool,
    next_number: u64,
    pending: Pending,
    asked_seconds: Option<u32>,
    last_pet: Option<Moment>,
    pet_due: Moment,
    fires_at: Option<Moment>,
    smallest_margin_ms: Option<u32>,
    worst_lateness_ms: Option<u32>,
    pets: Pets,
    privileges: Privileges,
    effects: VecDeque<Effect>,
}

impl Core {
    /// A daemon that holds nothing. Its privileges are only shown in its status.
    pub fn new(privileges: Privileges) -> Self {
        Self {
            state: State::Released,
            device: None,
            timing: None,
            connected: false,
            next_number: 1,
            pending: Pending::Nothing,
            asked_seconds: None,
            last_pet: None,
            pet_due: Moment::default(),
            fires_at: None,
            smallest_margin_ms: None,
            worst_lateness_ms: None,
            pets: Pets::Taken,
            privileges,
            effects: VecDeque::with_capacity(EFFECTS),
        }
    }

    /// Goes on where an earlier daemon ended that left an open device behind. Without a legible record of
    /// what it was doing nothing is petted until the agent speaks: an unknown deadline counts as passed.
    pub fn resume(&mut self, now: Moment, device: DeviceFacts, saved: Option<Saved>) {
        self.pet_due = now;
        self.device = Some(device);
        let Some(saved) = saved else {
            self.state = State::Expired { deadline: Moment::default() };
            return;
        };
        self.state = saved.state;
        self.timing = saved.timing;
        if saved.takes_no_pets {
            self.pets = Pets::Refused;
        }
        if saved.device.is_some() {
            self.device = saved.device;
        }
        if self.state == State::Released && !self.cannot_be_stopped() {
            // The earlier daemon died between deciding to release and closing.
            self.close(0, Outcome::Done);
        }
    }

    /// How things stand.
    pub fn status(&self) -> Status {
        Status {
            state: self.state,
            device: self.device,
            last_pet: self.last_pet,
            smallest_margin_ms: self.smallest_margin_ms,
            privileges: self.privileges,
            worst_lateness_ms: self.worst_lateness_ms,
            // The device says these itself.
            time_left_seconds: None,
            pretimeout_seconds: None,
            takes_no_pets: !self.takes_pets(),
        }
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to call with [`Input::Tick`] again, in nanoseconds of `CLOCK_MONOTONIC_RAW`, and why.
    pub fn deadline(&self) -> Option<(u64, &'static str)> {
        self.device?;
        match self.state {
            State::Released | State::Staying => Some((self.pet_due.monotonic_raw_ns, "pet")),
            State::Armed { deadline } => {
                let passed_ns = deadline.monotonic_raw_ns.saturating_add(1);
                if self.pet_due.monotonic_raw_ns < passed_ns && self.pet_fits(self.pet_due, deadline) {
                    Some((self.pet_due.monotonic_raw_ns, "pet"))
                } else {
                    Some((passed_ns, "deadline"))
                }
            }
            State::Expired { .. } if self.takes_pets() => None,
            State::Expired { .. } => Some((self.pet_due.monotonic_raw_ns, "reset")),
        }
    }

    /// Whether the device is known to refuse no pets.
    fn takes_pets(&self) -> bool {
        self.pets == Pets::Taken
    }

    /// Takes in what has happened.
    pub fn handle(&mut self, now: Moment, input: Input) {
        match input {
            Input::Connected => {
                self.connected = true;
                self.next_number = 1;
                self.reply(0, Outcome::Notice(Notice::Welcome));
            }
            Input::Disconnected => {
                self.connected = false;
                self.forget_number();
            }
            Input::Message { number, request } => self.message(now, number, request),
            Input::Opened(result) => self.opened(now, result),
            Input::Petted(result) => self.petted(now, result),
            Input::Closed(result) => self.closed(result),
            Input::Tick => self.tick(now),
            Input::ShutDown => self.shut_down(),
        }
    }

    fn tick(&mut self, now: Moment) {
        if self.device.is_none() || !matches!(self.pending, Pending::Nothing) {
            return;
        }
        if let State::Armed { deadline } = self.state
            && now.left_ns(deadline).is_none()
        {
            self.state = State::Expired { deadline };
            self.save();
            self.reply(0, Outcome::Notice(Notice::Expired));
            self.reset_if_unguarded(now);
            return;
        }
        if now.monotonic_raw_ns >= self.pet_due.monotonic_raw_ns
            && matches!(self.state, State::Expired { .. })
        {
            self.reset_if_unguarded(now);
            return;
        }
        if now.monotonic_raw_ns >= self.pet_due.monotonic_raw_ns {
            let late_ms =
                (now.monotonic_raw_ns - self.pet_due.monotonic_raw_ns) / NANOSECONDS_PER_MILLISECOND;
            let late_ms = u32::try_from(late_ms).unwrap_or(u32::MAX);
            self.worst_lateness_ms = Some(self.worst_lateness_ms.map_or(late_ms, |seen| seen.max(late_ms)));
            // A pet that does not fit any more must not leave the loop with a moment that is past.
            self.pet_due = now.plus_ms(PET_INTERVAL_MS);
            self.pet(now, false);
        }
    }

    /// The deadline has passed: a device that refuses pets may not reset the machine, so the daemon does. Should that fail,
    /// it is tried again.
    fn reset_if_unguarded(&mut self, now: Moment) {
        if !self.takes_pets() {
            self.pet_due = now.plus_ms(RESET_RETRY_MS);
            self.effects.push_back(Effect::Reset);
        }
    }

    /// Asks for a pet if one is allowed now. `set` sets the timeout also where it is fixed.
    fn pet(&mut self, now: Moment, set: bool) -> bool {
        let Some(device) = self.device else { return false };
        let full = self.full_timeout_seconds(&device);
        let timeout_seconds = match self.state {
            State::Released | State::Staying => full,
            State::Armed { deadline } if self.pet_fits(now, deadline) => {
                let left = now.left_ns(deadline).unwrap_or(0) / NANOSECONDS_PER_SECOND;
                if device.sliding { full.min(u32::try_from(left).unwrap_or(u32::MAX)) } else { full }
            }
            State::Armed { .. } | State::Expired { .. } => return false,
        };
        self.asked_seconds = (device.sliding || set).then_some(timeout_seconds);
        self.pet_due = now.plus_ms(PET_INTERVAL_MS);
        self.effects.push_back(Effect::Pet { timeout_seconds: self.asked_seconds });
        true
    }

    /// Whether a pet under this deadline is allowed at this moment.
    fn pet_fits(&self, now: Moment, deadline: Moment) -> bool {
        let smallest_seconds = self
            .device
            .map_or(1, |device| if device.sliding { device.smallest_timeout_seconds.max(1) } else { 0 });
        now.left_ns(deadline).is_some_and(|left| left >= u64::from(smallest_seconds) * NANOSECONDS_PER_SECOND)
    }

    fn full_timeout_seconds(&self, device: &DeviceFacts) -> u32 {
        self.timing.map_or(device.timeout_seconds, |timing| timing.timeout_seconds)
    }

    fn cannot_be_stopped(&self) -> bool {
        self.device.is_some_and(|device| device.nowayout)
    }

    /// Books a pet that the device has taken or refused.
    fn petted(&mut self, now: Moment, result: Result<u32, u32>) {
        let asked = self.asked_seconds.take();
        if let Ok(read_back) = result {
            if let Some(fires_at) = self.fires_at {
                let margin_ms = now.left_ns(fires_at).unwrap_or(0) / NANOSECONDS_PER_MILLISECOND;
                let margin_ms = u32::try_from(margin_ms).unwrap_or(u32::MAX);
                self.smallest_margin_ms =
                    Some(self.smallest_margin_ms.map_or(margin_ms, |seen| seen.min(margin_ms)));
            }
            self.fires_at = Some(now.plus_ms(u64::from(read_back) * 1000));
            self.last_pet = Some(now);
            self.pet_was_taken(now);
        }
        match (std::mem::replace(&mut self.pending, Pending::Nothing), result) {
            (Pending::Nothing, Ok(read_back)) => self.check_sliding(asked, read_back),
            (Pending::Nothing, Err(errno)) => {
                if self.pet_was_refused() {
                    self.reply(0, Outcome::Notice(Notice::DeviceFailed { errno }));
                }
            }
            (Pending::Pet { number, outcome, undo }, result) => {
                self.petted_for_request(now, number, outcome, undo, asked, result);
            }
            // The pet before closing is a courtesy; an opening in progress pets nothing.
            (pending @ (Pending::Open { .. } | Pending::Close { .. }), Ok(_) | Err(_)) => {
                self.pending = pending;
            }
        }
    }

    /// Pets that succeed for a whole timeout after the device was armed again make good an earlier refusal.
    fn pet_was_taken(&mut self, now: Moment) {
        let Pets::Returning { since } = self.pets else { return };
        let seconds = self.device.map_or(0, |device| self.full_timeout_seconds(&device));
        if since.plus_ms(u64::from(seconds) * 1000).left_ns(now).is_some() {
            self.pets = Pets::Taken;
            self.save();
        }
    }

    /// Notes that the device has refused a pet; whether that is news.
    fn pet_was_refused(&mut self) -> bool {
        let is_news = self.pets != Pets::Refused;
        if is_news {
            self.pets = Pets::Refused;
            self.save();
        }
        is_news
    }

    /// A driver that gives more than it was asked for does not slide, whatever it seemed when it was opened.
    fn check_sliding(&mut self, asked: Option<u32>, read_back: u32) {
        if let (Some(device), Some(asked)) = (&mut self.device, asked)
            && device.sliding
            && read_back > asked
        {
            device.sliding = false;
            self.save();
            self.reply(0, Outcome::Notice(Notice::NotSliding));
        }
    }

    fn save(&mut self) {
        self.effects.push_back(Effect::Save(Saved {
            state: self.state,
            device: self.device,
            timing: self.timing,
            takes_no_pets: !self.takes_pets(),
        }));
    }

    /// Answers if there is still somebody to answer to.
    fn reply(&mut self, answers: u64, outcome: Outcome) {
        let nobody_asked = answers == 0 && !matches!(outcome, Outcome::Notice(_));
        if self.connected && !nobody_asked {
            self.effects.push_back(Effect::Reply(Reply { answers, outcome, status: self.status() }));
        }
    }

    fn forget_number(&mut self) {
        match &mut self.pending {
            Pending::Nothing => {}
            Pending::Open { number, .. } | Pending::Pet { number, .. } | Pending::Close { number, .. } => {
                *number = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests;
