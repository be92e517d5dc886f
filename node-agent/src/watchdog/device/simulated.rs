//! The daemon's side of a simulated watchdog: a process outside the node's tree that acts as the device.
//!
//! The timer of the device is independent of the connection: a lost connection neither stops nor restarts it, so the descriptor
//! counts as retained.

use super::super::protocol::{DeviceFacts, DeviceKind, Name, Refusal};
use super::super::seqpacket;
use super::super::simulated::wire::{self, Answer, MESSAGE_BYTES, Operation};
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Time limit of an answer, milliseconds. A missing answer is a failed pet.
const ANSWER_TIMEOUT_MS: i64 = 100;

/// The largest timeout that a simulated watchdog accepts, seconds.
const LARGEST_TIMEOUT_SECONDS: u32 = 65_535;

/// A connection to a simulated watchdog.
#[derive(Debug)]
pub(crate) struct SimulatedDevice {
    socket: OwnedFd,
    location: Name,
    number: u32,
    timeout_seconds: u32,
}

impl SimulatedDevice {
    /// Connects and starts the timer.
    pub(super) fn open(socket: &Path, timeout_seconds: u32) -> Result<(Self, DeviceFacts), Refusal> {
        let mut device = Self::connect(socket).map_err(|errno| refusal_of(errno, socket))?;
        device.run_operation(Operation::Start).map_err(|errno| refusal_of(errno, socket))?;
        device.pet(Some(timeout_seconds)).map_err(|errno| Refusal::DeviceFailed { errno })?;
        let facts = device.facts();
        Ok((device, facts))
    }

    /// Takes over a simulated watchdog with a running timer, without changing the timer; `None` if the timer does not
    /// run.
    pub(crate) fn inherit(socket: &Path) -> Option<(Self, DeviceFacts)> {
        let mut device = Self::connect(socket).ok()?;
        device.run_operation(Operation::TimeLeft).ok().filter(|remaining_ms| *remaining_ms > 0)?;
        device.timeout_seconds = device.run_operation(Operation::GetTimeout).ok()?;
        let facts = device.facts();
        Some((device, facts))
    }

    fn connect(path: &Path) -> Result<Self, Errno> {
        let location = Name::tail(path.as_os_str().as_encoded_bytes());
        let socket = seqpacket::connect(path)?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::milliseconds(ANSWER_TIMEOUT_MS))?;
        setsockopt(&socket, sockopt::SendTimeout, &TimeVal::milliseconds(ANSWER_TIMEOUT_MS))?;
        Ok(Self { socket, location, number: 0, timeout_seconds: 0 })
    }

    fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            kind: DeviceKind::Simulated,
            identity: Name::new(b"ha-watchdog-standin"),
            location: self.location,
            timeout_seconds: self.timeout_seconds,
            smallest_timeout_seconds: 1,
            largest_timeout_seconds: LARGEST_TIMEOUT_SECONDS,
            sliding: true,
            descriptor_retained: true,
            nowayout: false,
        }
    }

    pub(super) fn pet(&mut self, timeout_seconds: Option<u32>) -> Result<u32, u32> {
        let operation = timeout_seconds.map_or(Operation::KeepAlive, Operation::SetTimeout);
        self.timeout_seconds =
            self.run_operation(operation).map_err(|errno| (errno as i32).unsigned_abs())?;
        Ok(self.timeout_seconds)
    }

    pub(super) fn close(&mut self) -> Result<(), u32> {
        self.run_operation(Operation::MagicClose).map(drop).map_err(|errno| (errno as i32).unsigned_abs())
    }

    /// Orders the simulated watchdog to kill the node now. The machine that hosts the sandbox is never reset.
    pub(super) fn expire(&mut self) {
        // The simulated watchdog ends with the node, so there may be no answer.
        let _ = self.run_operation(Operation::Expire);
    }

    /// Sends an operation and waits for its answer. Late answers to earlier operations are skipped.
    fn run_operation(&mut self, operation: Operation) -> Result<u32, Errno> {
        self.number = self.number.wrapping_add(1).max(1);
        seqpacket::send(&self.socket, &wire::encode(self.number, operation))?;
        loop {
            let mut bytes = [0; MESSAGE_BYTES];
            let length = seqpacket::receive(&self.socket, &mut bytes)?;
            match bytes.get(..length).and_then(wire::decode_answer) {
                None => return Err(Errno::EPROTO),
                Some((number, Answer::Failed(errno))) if number == self.number || number == 0 => {
                    return Err(Errno::from_raw(i32::try_from(errno).unwrap_or(0)));
                }
                Some((number, Answer::Value(value))) if number == self.number => return Ok(value),
                Some((_, Answer::Failed(_) | Answer::Value(_))) => {}
            }
        }
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the kernel has more errors than this list")]
fn refusal_of(errno: Errno, socket: &Path) -> Refusal {
    let number = (errno as i32).unsigned_abs();
    match errno {
        Errno::EBUSY => Refusal::DeviceBusy { pid: 0, name: Name::new(b"ha-watchdogd") },
        Errno::ENOENT | Errno::ECONNREFUSED => {
            Refusal::NoDevice { errno: number, location: Name::tail(socket.as_os_str().as_encoded_bytes()) }
        }
        _ => Refusal::DeviceFailed { errno: number },
    }
}
