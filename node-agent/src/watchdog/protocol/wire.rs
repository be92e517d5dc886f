//! The encoding of the messages: little-endian, one fixed size, no allocation.

use super::{
    Arm, DeviceFacts, DeviceKind, DualClockTime, LargestTimeouts, Name, Notice, Outcome, Privileges, Purpose,
    Refusal, Reply, Request, SavedState, State, Status, Timing, VERSION,
};
use thiserror::Error;

/// Size of every message, bytes.
pub const MESSAGE_BYTES: usize = 256;

/// The first bytes of each message.
const MAGIC: u32 = u32::from_le_bytes(*b"HAWD");

/// The version of the saved record, independent of the messages' [`VERSION`]. A daemon of another release must read the
/// record of its predecessor, otherwise the machine is reset. A new field at the end needs no new version, because
/// earlier releases leave zeros there. Any other change needs a new version, and the reader then accepts both versions.
const RECORD_VERSION: u16 = 1;

/// Offset of the checksum in a saved record.
const CHECKSUM_AT: usize = MESSAGE_BYTES - 8;

/// The error for bytes that are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes are of another version of the protocol.
    #[error("peer uses version {0} of the watchdog protocol; this program uses version {VERSION}")]
    Version(u16),
    /// The bytes do not belong to this protocol.
    #[error("malformed message of the watchdog protocol")]
    Malformed,
}

/// Encodes a request. The reply repeats its number.
pub fn encode_request(number: u64, request: &Request) -> [u8; MESSAGE_BYTES] {
    let mut out = Writer::new();
    let (tag, arm, deadline) = match request {
        Request::Arm(arm) => match arm.purpose {
            Purpose::Guard => (1, Some(arm), None),
            // An earlier daemon, which would reset the machine itself, refuses this request.
            Purpose::Test => (6, Some(arm), None),
        },
        Request::Deadline(deadline) => (2, None, Some(deadline)),
        Request::PetWithoutDeadline => (3, None, None),
        Request::Release => (4, None, None),
        Request::Query => (5, None, None),
    };
    out.header(tag, number);
    if let Some(arm) = arm {
        out.u32(arm.timeout_seconds);
        out.limits(arm.largest);
        out.u32(arm.heartbeat_valid_ms);
        out.option(arm.deadline, Writer::moment);
    }
    if let Some(deadline) = deadline {
        out.moment(*deadline);
    }
    out.bytes
}

/// Decodes a request, and returns it with its number. Fails for another protocol version or a malformed message.
pub fn decode_request(bytes: &[u8]) -> Result<(u64, Request), DecodeError> {
    let mut input = Reader::new(bytes)?;
    let (tag, number) = input.header()?;
    let request = match tag {
        1 | 6 => Request::Arm(Arm {
            timeout_seconds: input.u32()?,
            largest: input.limits()?,
            heartbeat_valid_ms: input.u32()?,
            deadline: input.option(Reader::moment)?,
            purpose: if tag == 6 { Purpose::Test } else { Purpose::Guard },
        }),
        2 => Request::Deadline(input.moment()?),
        3 => Request::PetWithoutDeadline,
        4 => Request::Release,
        5 => Request::Query,
        _ => return Err(DecodeError::Malformed),
    };
    Ok((number, request))
}

/// Encodes a reply.
pub fn encode_reply(reply: &Reply) -> [u8; MESSAGE_BYTES] {
    let mut out = Writer::new();
    out.header(100, reply.answers);
    out.outcome(reply.outcome);
    out.state(reply.status.state);
    out.option(reply.status.device, Writer::device);
    out.option(reply.status.last_pet, Writer::moment);
    out.option(reply.status.smallest_margin_ms, Writer::u32);
    out.bool(reply.status.privileges.real_time);
    out.bool(reply.status.privileges.memory_locked);
    // New fields are added at the end: a peer of an earlier release leaves zeros there, which read as *not known*.
    out.option(reply.status.worst_lateness_ms, Writer::u32);
    out.option(reply.status.time_left_seconds, Writer::u32);
    out.option(reply.status.pretimeout_seconds, Writer::u32);
    out.bool(reply.status.refuses_pets);
    out.bytes
}

/// Decodes a reply. Fails for another protocol version or a malformed message.
pub fn decode_reply(bytes: &[u8]) -> Result<Reply, DecodeError> {
    let mut input = Reader::new(bytes)?;
    let (100, answers) = input.header()? else { return Err(DecodeError::Malformed) };
    Ok(Reply {
        answers,
        outcome: input.outcome()?,
        status: Status {
            state: input.state()?,
            device: input.option(Reader::device)?,
            last_pet: input.option(Reader::moment)?,
            smallest_margin_ms: input.option(Reader::u32)?,
            privileges: Privileges { real_time: input.bool()?, memory_locked: input.bool()? },
            worst_lateness_ms: input.option(Reader::u32)?,
            time_left_seconds: input.option(Reader::u32)?,
            pretimeout_seconds: input.option(Reader::u32)?,
            refuses_pets: input.bool()?,
        },
    })
}

/// Encodes the saved state with a checksum, so that a daemon that died during the write leaves no valid record.
pub fn encode_saved(saved: &SavedState) -> [u8; MESSAGE_BYTES] {
    let mut out = Writer::new();
    out.header_of(RECORD_VERSION, 200, 0);
    out.state(saved.state);
    out.option(saved.device, Writer::device);
    out.option(saved.timing, |out, timing| {
        out.u32(timing.timeout_seconds);
        out.limits(timing.largest);
        out.u32(timing.heartbeat_valid_ms);
    });
    // New fields are added at the end: a daemon of an earlier release leaves zeros there, and ignores them when
    // reading.
    out.bool(saved.refuses_pets);
    out.bool(saved.timing.is_some_and(|timing| timing.purpose == Purpose::Test));
    let checksum = checksum(&out.bytes);
    out.at = CHECKSUM_AT;
    out.u64(checksum);
    out.bytes
}

/// Decodes a saved record of this release or of the previous one.
pub fn decode_saved(bytes: &[u8]) -> Result<SavedState, DecodeError> {
    let mut input = Reader::new(bytes)?;
    let (200, _) = input.header_of(RECORD_VERSION - 1..=RECORD_VERSION)? else {
        return Err(DecodeError::Malformed);
    };
    let mut saved = SavedState {
        state: input.state()?,
        device: input.option(Reader::device)?,
        timing: input.option(|input| {
            Ok(Timing {
                timeout_seconds: input.u32()?,
                largest: input.limits()?,
                heartbeat_valid_ms: input.u32()?,
                purpose: Purpose::Guard,
            })
        })?,
        refuses_pets: input.bool()?,
    };
    if let (Some(timing), true) = (&mut saved.timing, input.bool()?) {
        timing.purpose = Purpose::Test;
    }
    input.at = CHECKSUM_AT;
    if input.u64()? == checksum(bytes) { Ok(saved) } else { Err(DecodeError::Malformed) }
}

/// Returns the FNV-1a hash of all bytes before the checksum.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .take(CHECKSUM_AT)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Writes values in sequence. A value that does not fit is a mistake that the round-trip tests find.
struct Writer {
    bytes: [u8; MESSAGE_BYTES],
    at: usize,
}

impl Writer {
    fn new() -> Self {
        Self { bytes: [0; MESSAGE_BYTES], at: 0 }
    }

    fn put(&mut self, from: &[u8]) {
        for (target, byte) in self.bytes.iter_mut().skip(self.at).zip(from) {
            *target = *byte;
        }
        self.at += from.len();
    }

    fn u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    fn bool(&mut self, value: bool) {
        self.put(&[u8::from(value)]);
    }

    fn option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            put(self, value);
        }
    }

    fn header(&mut self, tag: u16, number: u64) {
        self.header_of(VERSION, tag, number);
    }

    fn header_of(&mut self, version: u16, tag: u16, number: u64) {
        self.u32(MAGIC);
        self.u16(version);
        self.u16(tag);
        self.u64(number);
    }

    fn moment(&mut self, moment: DualClockTime) {
        self.u64(moment.monotonic_raw_ns);
        self.u64(moment.boottime_ns);
    }

    fn limits(&mut self, limits: LargestTimeouts) {
        self.u32(limits.sliding_retained_seconds);
        self.u32(limits.fixed_retained_seconds);
        self.u32(limits.not_retained_seconds);
    }

    fn state(&mut self, state: State) {
        let (tag, deadline) = match state {
            State::Released => (0, None),
            State::Armed { deadline } => (1, Some(deadline)),
            State::Staying => (2, None),
            State::Expired { deadline } => (3, Some(deadline)),
        };
        self.put(&[tag]);
        if let Some(deadline) = deadline {
            self.moment(deadline);
        }
    }

    fn device(&mut self, device: DeviceFacts) {
        self.bool(device.kind == DeviceKind::Simulated);
        self.put(&device.identity.0);
        self.put(&device.location.0);
        self.u32(device.timeout_seconds);
        self.u32(device.smallest_timeout_seconds);
        self.u32(device.largest_timeout_seconds);
        self.bool(device.sliding);
        self.bool(device.descriptor_retained);
        self.bool(device.nowayout);
    }

    fn outcome(&mut self, outcome: Outcome) {
        let no_name = Name::default();
        let (tag, long_value, short_value, name) = match outcome {
            Outcome::Done => (0, 0, 0, no_name),
            Outcome::Notice(Notice::Welcome) => (1, 0, 0, no_name),
            Outcome::Notice(Notice::Expired) => (2, 0, 0, no_name),
            Outcome::Notice(Notice::DeviceFailed { errno }) => (3, errno.into(), 0, no_name),
            Outcome::Notice(Notice::NotSliding) => (4, 0, 0, no_name),
            Outcome::Refused(refusal) => match refusal {
                Refusal::Version { daemon } => (20, daemon.into(), 0, no_name),
                Refusal::BadMessage => (21, 0, 0, no_name),
                Refusal::OutOfOrder { expected } => (22, expected, 0, no_name),
                Refusal::NotPermitted { uid } => (23, uid.into(), 0, no_name),
                Refusal::AnotherPeer { pid } => (24, pid.into(), 0, no_name),
                Refusal::PreviousPeerAlive { pid } => (25, pid.into(), 0, no_name),
                Refusal::NotArmed => (26, 0, 0, no_name),
                Refusal::DeadlinePassed => (27, 0, 0, no_name),
                Refusal::DeadlineTooFar { ahead_ms, heartbeat_valid_ms } => {
                    (28, ahead_ms.into(), heartbeat_valid_ms, no_name)
                }
                Refusal::NoDevice { errno, location } => (29, errno.into(), 0, location),
                Refusal::DeviceBusy { pid, name } => (30, pid.into(), 0, name),
                Refusal::StopsWhenClosed => (31, 0, 0, no_name),
                Refusal::TimeoutTooLong { read_back_seconds, largest_seconds } => {
                    (32, read_back_seconds.into(), largest_seconds, no_name)
                }
                Refusal::TimeoutNotApplied { smallest_seconds, largest_seconds } => {
                    (33, smallest_seconds.into(), largest_seconds, no_name)
                }
                Refusal::DeviceFailed { errno } => (34, errno.into(), 0, no_name),
                Refusal::SharedWithManager { runtime, reboot } => {
                    (35, runtime.into(), u32::from(reboot), no_name)
                }
            },
        };
        self.u16(tag);
        self.u64(long_value);
        self.u32(short_value);
        self.put(&name.0);
    }
}

/// Reads values in sequence.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.len() == MESSAGE_BYTES { Ok(Self { bytes, at: 0 }) } else { Err(DecodeError::Malformed) }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let part = self.bytes.get(self.at..self.at + N).ok_or(DecodeError::Malformed)?;
        self.at += N;
        part.try_into().map_err(|_| DecodeError::Malformed)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_le_bytes)
    }

    fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Malformed),
        }
    }

    fn option<T>(
        &mut self,
        take: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.bool()? { take(self).map(Some) } else { Ok(None) }
    }

    fn header(&mut self) -> Result<(u16, u64), DecodeError> {
        self.header_of(VERSION..=VERSION)
    }

    fn header_of(&mut self, versions: std::ops::RangeInclusive<u16>) -> Result<(u16, u64), DecodeError> {
        if self.u32()? != MAGIC {
            return Err(DecodeError::Malformed);
        }
        let version = self.u16()?;
        if !versions.contains(&version) {
            return Err(DecodeError::Version(version));
        }
        Ok((self.u16()?, self.u64()?))
    }

    fn moment(&mut self) -> Result<DualClockTime, DecodeError> {
        Ok(DualClockTime { monotonic_raw_ns: self.u64()?, boottime_ns: self.u64()? })
    }

    fn limits(&mut self) -> Result<LargestTimeouts, DecodeError> {
        Ok(LargestTimeouts {
            sliding_retained_seconds: self.u32()?,
            fixed_retained_seconds: self.u32()?,
            not_retained_seconds: self.u32()?,
        })
    }

    fn state(&mut self) -> Result<State, DecodeError> {
        match self.u8()? {
            0 => Ok(State::Released),
            1 => Ok(State::Armed { deadline: self.moment()? }),
            2 => Ok(State::Staying),
            3 => Ok(State::Expired { deadline: self.moment()? }),
            _ => Err(DecodeError::Malformed),
        }
    }

    fn name(&mut self) -> Result<Name, DecodeError> {
        self.take::<{ Name::BYTES }>().map(|bytes| Name::new(&bytes))
    }

    fn device(&mut self) -> Result<DeviceFacts, DecodeError> {
        Ok(DeviceFacts {
            kind: if self.bool()? { DeviceKind::Simulated } else { DeviceKind::Kernel },
            identity: self.name()?,
            location: self.name()?,
            timeout_seconds: self.u32()?,
            smallest_timeout_seconds: self.u32()?,
            largest_timeout_seconds: self.u32()?,
            sliding: self.bool()?,
            descriptor_retained: self.bool()?,
            nowayout: self.bool()?,
        })
    }

    fn outcome(&mut self) -> Result<Outcome, DecodeError> {
        let (tag, long_value, short_value, name) = (self.u16()?, self.u64()?, self.u32()?, self.name()?);
        let long_value_as_u32 = || u32::try_from(long_value).map_err(|_| DecodeError::Malformed);
        let refusal = match tag {
            0 => return Ok(Outcome::Done),
            1 => return Ok(Outcome::Notice(Notice::Welcome)),
            2 => return Ok(Outcome::Notice(Notice::Expired)),
            3 => return Ok(Outcome::Notice(Notice::DeviceFailed { errno: long_value_as_u32()? })),
            4 => return Ok(Outcome::Notice(Notice::NotSliding)),
            20 => Refusal::Version { daemon: u16::try_from(long_value).map_err(|_| DecodeError::Malformed)? },
            21 => Refusal::BadMessage,
            22 => Refusal::OutOfOrder { expected: long_value },
            23 => Refusal::NotPermitted { uid: long_value_as_u32()? },
            24 => Refusal::AnotherPeer { pid: long_value_as_u32()? },
            25 => Refusal::PreviousPeerAlive { pid: long_value_as_u32()? },
            26 => Refusal::NotArmed,
            27 => Refusal::DeadlinePassed,
            28 => Refusal::DeadlineTooFar { ahead_ms: long_value_as_u32()?, heartbeat_valid_ms: short_value },
            29 => Refusal::NoDevice { errno: long_value_as_u32()?, location: name },
            30 => Refusal::DeviceBusy { pid: long_value_as_u32()?, name },
            31 => Refusal::StopsWhenClosed,
            32 => Refusal::TimeoutTooLong {
                read_back_seconds: long_value_as_u32()?,
                largest_seconds: short_value,
            },
            33 => Refusal::TimeoutNotApplied {
                smallest_seconds: long_value_as_u32()?,
                largest_seconds: short_value,
            },
            34 => Refusal::DeviceFailed { errno: long_value_as_u32()? },
            35 => Refusal::SharedWithManager { runtime: long_value != 0, reboot: short_value != 0 },
            _ => return Err(DecodeError::Malformed),
        };
        Ok(Outcome::Refused(refusal))
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
