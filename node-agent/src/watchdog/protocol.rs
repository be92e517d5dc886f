//! The protocol between agent and watchdog daemon: numbered, versioned messages of one fixed size.
//!
//! Transport: a `SOCK_SEQPACKET` Unix socket. The daemon sends first: it greets with [`Notice::Welcome`], or it refuses
//! the peer with a reason and closes. After that every [`Request`] gets exactly one [`Reply`], in order. A [`Reply`]
//! that answers number 0 is an unrequested notice.
//!
//! # Guarantees
//! - A request that is acknowledged with [`Outcome::Done`] has already changed the device. After a deadline, the device
//!   runs with a timeout that this deadline allows.
//! - An armed device outlives the connection: the daemon keeps petting until the last deadline, and no longer.
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

use super::dual_clock_time::DualClockTime;
use ha_api_types::record::{WatchdogKind, WatchdogReport};
use ha_api_types::timing::{Timings, WatchdogBounds};

/// The version of the messages; both sides must use the same one.
pub const VERSION: u16 = 1;

/// The daemon's default socket.
pub const DEFAULT_SOCKET: &str = "/run/hactl/watchdog.sock";

/// A request from the agent to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Open the device, set its timeout and start petting; on an armed device, change its timing.
    Arm(Arm),
    /// Pet until this moment and no longer, because a heartbeat committed. This deadline replaces every earlier one.
    ///
    /// Only a deadline that a commit has proven is legal (FENCING 3). A deadline that arrives after the previous one
    /// has passed is valid if it is still in the future. Each deadline depends on its own commit, and every observer
    /// counts from that commit or later.
    Deadline(DualClockTime),
    /// Pet without a deadline, because the node is empty (no exclusive service, worker or permit is outstanding).
    PetWithoutDeadline,
    /// Stop the device, because a heartbeat with `armed: false` committed.
    Release,
    /// Report the status, without any effect on the device.
    Query,
}

/// The parameters of arming: the device's timeout, and the limits of the agent's timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// The timeout to request from the device (Tw), seconds.
    pub timeout_seconds: u32,
    /// The largest timeout, as read back, that the agent's W allows.
    pub largest: LargestTimeouts,
    /// Validity of a committed heartbeat (Th), milliseconds: no deadline can be further away.
    pub heartbeat_valid_ms: u32,
    /// The deadline proven last. `None` states that the node is empty, as [`Request::PetWithoutDeadline`] does: no
    /// service may start before a first deadline has been sent and acknowledged.
    pub deadline: Option<DualClockTime>,
    /// Whether the device guards services or is tested.
    pub purpose: Purpose,
}

/// The purpose of arming a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To reset the machine if its agent fails. The daemon resets the machine itself if the device does not.
    Guard,
    /// To find out whether the device resets the machine. The daemon never does, because the test would then pass for a
    /// device that does nothing. No service runs.
    Test,
}

impl Arm {
    /// Returns the parameters for these timings. The device must accept the configured timeout, so that the W that an
    /// operator computes from the configuration is the active W.
    pub fn of_timings(timings: &Timings, deadline: Option<DualClockTime>) -> Self {
        let milliseconds_u32 = |ms: u64| u32::try_from(ms).unwrap_or(u32::MAX);
        let timeout_seconds = milliseconds_u32(timings.watchdog_timeout_ms.div_ceil(1000));
        Self {
            timeout_seconds,
            largest: LargestTimeouts {
                sliding_retained_seconds: timeout_seconds,
                fixed_retained_seconds: timeout_seconds,
                not_retained_seconds: timeout_seconds,
            },
            heartbeat_valid_ms: milliseconds_u32(timings.heartbeat_valid_ms),
            deadline,
            purpose: Purpose::Guard,
        }
    }
}

/// The largest timeouts that satisfy the inequality of FENCING 4, one per kind of device, in whole seconds; 0 excludes
/// that kind of device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargestTimeouts {
    /// Limit for sliding timeouts with a retained descriptor.
    pub sliding_retained_seconds: u32,
    /// Limit for a fixed timeout with a retained descriptor.
    pub fixed_retained_seconds: u32,
    /// Limit for a descriptor that is not retained when the daemon ends.
    pub not_retained_seconds: u32,
}

impl LargestTimeouts {
    /// Returns the limit for a device with these properties, seconds.
    pub const fn of(self, sliding: bool, retained: bool) -> u32 {
        match (retained, sliding) {
            (true, true) => self.sliding_retained_seconds,
            (true, false) => self.fixed_retained_seconds,
            (false, true | false) => self.not_retained_seconds,
        }
    }
}

/// A message from the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The number of the request that this answers; 0 for a notice.
    pub answers: u64,
    /// The outcome of the request, or the notice.
    pub outcome: Outcome,
    /// The daemon's status after the request.
    pub status: Status,
}

/// The outcome of a request, or a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request was executed, and is already active on the device.
    Done,
    /// The request was not executed. Nothing has changed unless the refusal states otherwise.
    Refused(Refusal),
    /// An unrequested notice.
    Notice(Notice),
}

/// A notice that the daemon sends without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The daemon serves the connection.
    Welcome,
    /// The deadline has passed: the daemon stops petting, and the machine is about to be reset.
    Expired,
    /// The device refused a pet; the daemon retries until the deadline.
    DeviceFailed {
        /// The error number from the kernel.
        errno: u32,
    },
    /// The device accepted a longer timeout than requested: it counts as fixed from now on.
    NotSliding,
}

/// The daemon's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The current state.
    pub state: State,
    /// The device, while it is open.
    pub device: Option<DeviceFacts>,
    /// Time of the last successful pet.
    pub last_pet: Option<DualClockTime>,
    /// The least time left on the device at any pet since arming, milliseconds.
    pub smallest_margin_ms: Option<u32>,
    /// The privileges that the daemon has.
    pub privileges: Privileges,
    /// The longest delay of a pet since arming, milliseconds: how late the loop was woken.
    pub worst_lateness_ms: Option<u32>,
    /// Seconds until the reset as the driver reports them; `None` if it does not report them.
    pub time_left_seconds: Option<u32>,
    /// The active pretimeout, seconds; it should be 0. `None` if the driver has none.
    pub pretimeout_seconds: Option<u32>,
    /// `true` if the device has refused a pet, and has not accepted pets for a whole timeout since it was armed again.
    /// The daemon then resets the machine itself when the deadline passes.
    pub refuses_pets: bool,
}

/// The daemon's privileges. The daemon works without them, but less reliably on a starved machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// `true` if the daemon runs with real-time priority.
    pub real_time: bool,
    /// `true` if the daemon's memory is locked.
    pub memory_locked: bool,
}

/// The state of the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// No service is guarded. The device is closed or, if it can no longer be stopped (`nowayout`), petted without a
    /// deadline.
    #[default]
    Released,
    /// The daemon pets until the deadline.
    Armed {
        /// D, the deadline of the newest accepted request. A refused request can only make it earlier.
        deadline: DualClockTime,
    },
    /// The daemon pets without a deadline, because the node is empty.
    Staying,
    /// The deadline has passed: the daemon does not pet, and the reset is near. A later proven deadline or an empty
    /// node still ends this state, if the device leaves time for that.
    Expired {
        /// The deadline that passed.
        deadline: DualClockTime,
    },
}

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A watchdog device of the kernel.
    Kernel,
    /// The simulated watchdog, for the sandbox and tests.
    Simulated,
}

/// The facts about an open device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// The kind of the device.
    pub kind: DeviceKind,
    /// The driver's identity, padded with zeros.
    pub identity: Name,
    /// The device's path, or the end of a longer one.
    pub location: Name,
    /// The timeout as read back when it was last set in full (Tw), seconds.
    pub timeout_seconds: u32,
    /// The smallest timeout that the driver accepts, seconds.
    pub smallest_timeout_seconds: u32,
    /// The largest timeout that the driver accepts, seconds.
    pub largest_timeout_seconds: u32,
    /// `true` if setting a timeout also pets, and the device accepts the timeout unchanged. The timeout can then follow
    /// the deadline. Otherwise the timeout is fixed.
    pub sliding: bool,
    /// `true` if the service manager keeps the descriptor after the daemon's end. The daemon's death then does not
    /// extend the timeout by another period.
    pub descriptor_retained: bool,
    /// `true` if the device cannot be stopped once started.
    pub nowayout: bool,
}

impl DeviceFacts {
    /// Returns the device's part of the node report.
    pub fn report(&self) -> WatchdogReport {
        WatchdogReport {
            kind: match self.kind {
                DeviceKind::Kernel => WatchdogKind::Kernel,
                DeviceKind::Simulated => WatchdogKind::Simulated,
            },
            identity: self.identity.as_str().to_owned(),
            device: self.location.as_str().to_owned(),
            timeout_ms: u64::from(self.timeout_seconds) * 1000,
            sliding: self.sliding,
            descriptor_retained: self.descriptor_retained,
            ..WatchdogReport::default()
        }
    }

    /// Returns the properties from which W is computed.
    pub fn bounds(&self) -> WatchdogBounds {
        WatchdogBounds {
            timeout_ms: u64::from(self.timeout_seconds) * 1000,
            sliding: self.sliding,
            descriptor_retained: self.descriptor_retained,
        }
    }
}

/// A short name of fixed size: no allocation, at most 31 bytes of UTF-8.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Name([u8; Name::BYTES]);

impl Name {
    /// Size of a name, bytes; the last byte is always 0.
    pub const BYTES: usize = 32;

    /// Creates a name from the bytes up to the first zero, truncated if necessary.
    pub fn new(bytes: &[u8]) -> Self {
        let mut name = [0; Self::BYTES];
        for (target, source) in
            name.iter_mut().take(Self::BYTES - 1).zip(bytes.iter().take_while(|byte| **byte != 0))
        {
            *target = *source;
        }
        Self(name)
    }

    /// Creates a name from the end of `bytes` if they are too long, because the end of a path is its most specific
    /// part.
    pub fn tail(bytes: &[u8]) -> Self {
        Self::new(bytes.get(bytes.len().saturating_sub(Self::BYTES - 1)..).unwrap_or_default())
    }

    /// Returns the text, without an incomplete character at its end.
    pub fn as_str(&self) -> &str {
        let text_bytes = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        match str::from_utf8(text_bytes) {
            Ok(text) => text,
            Err(error) => text_bytes
                .get(..error.valid_up_to())
                .map_or("", |valid_bytes| str::from_utf8(valid_bytes).unwrap_or_default()),
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

/// The active timing, as the agent set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The timeout of a full pet (Tw), seconds.
    pub timeout_seconds: u32,
    /// The limits of the agent's W.
    pub largest: LargestTimeouts,
    /// Th, milliseconds.
    pub heartbeat_valid_ms: u32,
    /// Whether the device guards services or is tested.
    pub purpose: Purpose,
}

/// The state that the daemon stores outside its process, with the retained descriptor. The next daemon continues from
/// this state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedState {
    /// State of the watchdog as the daemon reports it.
    pub state: State,
    /// The device, while it is open.
    pub device: Option<DeviceFacts>,
    /// The timing, once armed.
    pub timing: Option<Timing>,
    /// `true` if the device has refused a pet, as in [`Status::refuses_pets`].
    pub refuses_pets: bool,
}
