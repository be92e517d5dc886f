//! What agent and watchdog daemon say to each other: numbered, versioned messages of one fixed size.
//!
//! Transport: a `SOCK_SEQPACKET` Unix socket. The daemon speaks first: it greets with [`Notice::Welcome`] or
//! says why it does not serve this peer, and closes. After that every [`Request`] gets exactly one [`Reply`],
//! in order; a [`Reply`] that answers number 0 is a notice that nobody asked for.
//!
//! # Guarantees
//! - A request that was acknowledged with [`Outcome::Done`] holds, and its effect on the device has already
//!   happened: after a deadline the device runs with a timeout that this deadline allows.
//! - What was armed outlives the connection: the daemon goes on petting until the last deadline, no longer.
//!
//! # Assumptions
//! - Requests are numbered 1, 2, 3 … on each connection; a gap or a repetition ends the connection.

mod refusal;
mod wire;

pub use refusal::{Refusal, fix_for};
pub use wire::{
    DecodeError, MESSAGE_BYTES, decode_reply, decode_request, decode_saved, encode_reply, encode_request,
    encode_saved,
};

use super::moment::Moment;
use ha_api_types::record::{WatchdogKind, WatchdogReport};
use ha_api_types::timing::{Timings, WatchdogBounds};

/// The version of the messages; both sides must speak the same one.
pub const VERSION: u16 = 1;

/// Where the daemon listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/hactl/watchdog.sock";

/// What the agent asks of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Open the device, set its timeout and start petting; on an armed device, change its timing.
    Arm(Arm),
    /// A heartbeat committed: pet until this moment and not longer, whatever was said before.
    ///
    /// Legal only with a deadline that a commit has proven (`FENCING.md` 3). One that comes after the last
    /// deadline has passed is good as long as it lies in the future itself: each deadline stands on its own
    /// commit, and every observer counts from that commit or later.
    Deadline(Moment),
    /// The node is empty (no exclusive service, worker or permit outstanding): pet without a deadline.
    Stay,
    /// A heartbeat with `armed: false` committed: stop the device.
    Release,
    /// Say how things stand; changes nothing.
    Query,
}

/// How to arm: what to ask of the device and what the agent's timing can bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// The timeout to ask of the device (Tw), in seconds.
    pub timeout_seconds: u32,
    /// The largest timeout, as read back, that the agent's W bears.
    pub largest: LargestTimeouts,
    /// How long a committed heartbeat is good for (Th), in milliseconds: no deadline can be further away.
    pub heartbeat_valid_ms: u32,
    /// The deadline proven last. `None` claims that the node is empty, like [`Request::Stay`]: a first
    /// deadline must follow, and be acknowledged, before anything may start.
    pub deadline: Option<Moment>,
}

impl Arm {
    /// Arms with these timings: the device must take the timeout as configured, so that the W that an
    /// operator computes from the configuration is the W in force.
    pub fn of_timings(timings: &Timings, deadline: Option<Moment>) -> Self {
        let whole = |ms: u64| u32::try_from(ms).unwrap_or(u32::MAX);
        let timeout_seconds = whole(timings.watchdog_timeout_ms.div_ceil(1000));
        Self {
            timeout_seconds,
            largest: LargestTimeouts {
                sliding_retained_seconds: timeout_seconds,
                fixed_retained_seconds: timeout_seconds,
                not_retained_seconds: timeout_seconds,
            },
            heartbeat_valid_ms: whole(timings.heartbeat_valid_ms),
            deadline,
        }
    }
}

/// The largest timeouts that keep the inequality of `FENCING.md` 4 true, one per kind of device, in whole
/// seconds; 0 means that this kind cannot be borne at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargestTimeouts {
    /// For sliding timeouts with a retained descriptor.
    pub sliding_retained_seconds: u32,
    /// For a fixed timeout with a retained descriptor.
    pub fixed_retained_seconds: u32,
    /// For a descriptor that nobody keeps when the daemon dies.
    pub not_retained_seconds: u32,
}

impl LargestTimeouts {
    /// The limit that holds for a device of these properties, in seconds.
    pub const fn of(self, sliding: bool, retained: bool) -> u32 {
        match (retained, sliding) {
            (true, true) => self.sliding_retained_seconds,
            (true, false) => self.fixed_retained_seconds,
            (false, true | false) => self.not_retained_seconds,
        }
    }
}

/// What the daemon says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The number of the request that this answers; 0 for a notice.
    pub answers: u64,
    /// How it went, or what happened.
    pub outcome: Outcome,
    /// How things stand after it.
    pub status: Status,
}

/// How a request went, or what a notice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done as asked; the device already follows it.
    Done,
    /// Not done, and nothing has changed unless the refusal says otherwise.
    Refused(Refusal),
    /// Nobody asked: this happened.
    Notice(Notice),
}

/// What the daemon tells without being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The connection is served.
    Welcome,
    /// The deadline passed: no more pets, the machine is about to be reset.
    Expired,
    /// The device did not take a pet (an errno); the daemon goes on trying while it may.
    DeviceFailed {
        /// The error number the kernel gave.
        errno: u32,
    },
    /// The device was found to give more time than it was asked for: it counts as fixed from now on.
    NotSliding,
}

/// How things stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// What the daemon does at the moment.
    pub state: State,
    /// The device, while it is held open.
    pub device: Option<DeviceFacts>,
    /// When the device was last petted with success.
    pub last_pet: Option<Moment>,
    /// The least time that was left on the device when it was petted, since it was armed, in milliseconds.
    pub smallest_margin_ms: Option<u32>,
    /// What the daemon was permitted.
    pub privileges: Privileges,
    /// By how much the latest pet since it was armed came too late, in milliseconds: how late the loop was woken.
    pub worst_lateness_ms: Option<u32>,
    /// Seconds until the reset as the driver itself says; `None` where it does not.
    pub time_left_seconds: Option<u32>,
    /// The pretimeout in force, in seconds; it should be 0. `None` where the driver has none.
    pub pretimeout_seconds: Option<u32>,
    /// The device has refused a pet, and has not taken pets for a whole timeout since it was armed again. The daemon resets
    /// the machine itself when the deadline passes.
    pub takes_no_pets: bool,
}

/// What the system permitted the daemon; it works without, but less surely on a starved machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// It runs with real-time priority.
    pub real_time: bool,
    /// Its memory is locked.
    pub memory_locked: bool,
}

/// What the daemon does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing is guarded. The device is closed, or, where it cannot be stopped any more (`nowayout`), it
    /// is petted without a deadline.
    #[default]
    Released,
    /// Petting until the deadline.
    Armed {
        /// The deadline proven last (D).
        deadline: Moment,
    },
    /// The node is empty: petting without a deadline.
    Staying,
    /// The deadline has passed: not petting, the reset is near. A later proven deadline or an empty node
    /// still ends it, should the device leave time for that.
    Expired {
        /// The deadline that passed.
        deadline: Moment,
    },
}

/// What sort of device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A watchdog device of the kernel.
    Kernel,
    /// The stand-in process, for the sandbox and tests.
    StandIn,
}

/// What is known of an open device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// What sort it is.
    pub kind: DeviceKind,
    /// The name the driver gives itself, padded with zeros.
    pub identity: Name,
    /// Where it is: its path, or the end of a longer one.
    pub place: Name,
    /// The timeout as read back when it was last set in full (Tw), in seconds.
    pub timeout_seconds: u32,
    /// The smallest timeout the driver takes, in seconds.
    pub smallest_timeout_seconds: u32,
    /// The largest timeout the driver takes, in seconds.
    pub largest_timeout_seconds: u32,
    /// Whether setting a timeout pets as well and is taken as asked, so that the timeout can follow the
    /// deadline; else it is fixed.
    pub sliding: bool,
    /// Whether the descriptor outlives the daemon (the service manager keeps it), so that the daemon's
    /// death does not give the device another period.
    pub descriptor_retained: bool,
    /// Whether the device cannot be stopped once started.
    pub nowayout: bool,
}

impl DeviceFacts {
    /// What the agent reports of the device.
    pub fn report(&self) -> WatchdogReport {
        WatchdogReport {
            kind: match self.kind {
                DeviceKind::Kernel => WatchdogKind::Kernel,
                DeviceKind::StandIn => WatchdogKind::StandIn,
            },
            identity: self.identity.as_str().to_owned(),
            device: self.place.as_str().to_owned(),
            timeout_ms: u64::from(self.timeout_seconds) * 1000,
            sliding: self.sliding,
            descriptor_retained: self.descriptor_retained,
            ..WatchdogReport::default()
        }
    }

    /// What W is computed from.
    pub fn bounds(&self) -> WatchdogBounds {
        WatchdogBounds {
            timeout_ms: u64::from(self.timeout_seconds) * 1000,
            sliding: self.sliding,
            descriptor_retained: self.descriptor_retained,
        }
    }
}

/// A short name in a fixed place: no allocation, at most 31 bytes of UTF-8.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Name([u8; Name::BYTES]);

impl Name {
    /// The room it takes; the last byte is always 0.
    pub const BYTES: usize = 32;

    /// Takes what fits of `bytes`, up to the first zero.
    pub fn new(bytes: &[u8]) -> Self {
        let mut name = [0; Self::BYTES];
        for (to, from) in
            name.iter_mut().take(Self::BYTES - 1).zip(bytes.iter().take_while(|byte| **byte != 0))
        {
            *to = *from;
        }
        Self(name)
    }

    /// Takes the end of `bytes` if they do not fit, as the end of a path says most.
    pub fn tail(bytes: &[u8]) -> Self {
        Self::new(bytes.get(bytes.len().saturating_sub(Self::BYTES - 1)..).unwrap_or_default())
    }

    /// The text; what is not UTF-8 at its end is left out.
    pub fn as_str(&self) -> &str {
        let used = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        match str::from_utf8(used) {
            Ok(text) => text,
            Err(error) => {
                used.get(..error.valid_up_to()).map_or("", |good| str::from_utf8(good).unwrap_or_default())
            }
        }
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.as_str(), formatter)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The timing in force, as the agent gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The timeout of a full pet (Tw), in seconds.
    pub timeout_seconds: u32,
    /// The limits of the agent's W.
    pub largest: LargestTimeouts,
    /// Th, in milliseconds.
    pub heartbeat_valid_ms: u32,
}

/// What the daemon keeps outside itself next to the retained descriptor, so that the next daemon goes on
/// exactly where this one ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// The state.
    pub state: State,
    /// The device, while open.
    pub device: Option<DeviceFacts>,
    /// The timing, once armed.
    pub timing: Option<Timing>,
    /// The device has refused a pet, as in [`Status::takes_no_pets`].
    pub takes_no_pets: bool,
}
