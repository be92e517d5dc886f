//! The daemon's only loop: it waits, takes messages, and pets.
//!
//! While a device is armed, the loop does not allocate, log or block. Messages have one size, the core's queue has its
//! capacity from the start, and sockets are non-blocking. A simulated watchdog that does not answer blocks the loop for
//! at most 0.1 s. Opening and closing the device may take longer, but no device is armed then.

use super::super::core::{Core, Effect, Input};
use super::super::device::{Device, DeviceLocation};
use super::super::protocol::{
    DecodeError, MESSAGE_BYTES, Outcome, Refusal, Reply, State, VERSION, decode_request, encode_reply,
};
use super::super::{clock, seqpacket, system_calls, system_conf};
use super::DEVICE_DESCRIPTOR_NAME;
use super::record::StateRecord;
use super::service_manager::ServiceManager;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll, ppoll};
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::time::TimeSpec;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// Maximum number of messages that are handled between two checks for a due pet.
const MESSAGES_AT_ONCE: usize = 16;

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

pub(super) struct EventLoop {
    core: Core,
    device: Option<Device>,
    location: DeviceLocation,
    listener: UnixListener,
    signals: SignalFd,
    allowed_uid: Option<u32>,
    record: StateRecord,
    manager: ServiceManager,
    connection: Option<UnixStream>,
    /// The process that is served now or was served last.
    peer: Option<Peer>,
}

impl EventLoop {
    #[allow(clippy::too_many_arguments, reason = "the parts of the daemon, each used once")]
    pub(super) fn new(
        core: Core,
        device: Option<Device>,
        location: DeviceLocation,
        listener: UnixListener,
        signals: SignalFd,
        allowed_uid: Option<u32>,
        record: StateRecord,
        manager: ServiceManager,
    ) -> Self {
        Self {
            core,
            device,
            location,
            listener,
            signals,
            allowed_uid,
            record,
            manager,
            connection: None,
            peer: None,
        }
    }

    /// Runs until a request to exit; returns the final state.
    pub(super) fn run(mut self) -> Result<State, Errno> {
        self.run_effects();
        loop {
            if let Some(ended) = self.handle_next_event()? {
                return Ok(ended);
            }
        }
    }

    /// Waits for the next event and handles it. Returns the final state after a request to exit.
    fn handle_next_event(&mut self) -> Result<Option<State>, Errno> {
        self.wait()?;
        if self.signals.read_signal()?.is_some() {
            self.input(Input::ShutDown);
            return Ok(Some(self.core.status().state));
        }
        self.take_messages();
        self.accept();
        self.input(Input::Tick);
        Ok(None)
    }

    fn wait(&self) -> Result<(), Errno> {
        let now_ns = clock::now().monotonic_raw_ns;
        let timeout = self
            .core
            .deadline()
            .map(|(due_ns, _)| TimeSpec::from(Duration::from_nanos(due_ns.saturating_sub(now_ns))));
        let signals = PollFd::new(self.signals.as_fd(), PollFlags::POLLIN);
        let listener = PollFd::new(self.listener.as_fd(), PollFlags::POLLIN);
        let result = match &self.connection {
            Some(connection) => {
                let connection = PollFd::new(connection.as_fd(), PollFlags::POLLIN);
                ppoll(&mut [signals, listener, connection], timeout, None)
            }
            None => ppoll(&mut [signals, listener], timeout, None),
        };
        match result {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Takes the messages that the peer has sent. Unread messages of a closed connection are dropped with it.
    fn take_messages(&mut self) {
        for _ in 0..MESSAGES_AT_ONCE {
            let Some(connection) = &self.connection else { return };
            if is_closed(connection) {
                return self.disconnect();
            }
            let mut bytes = [0; MESSAGE_BYTES];
            let length = match seqpacket::receive_now(connection, &mut bytes) {
                Err(Errno::EAGAIN | Errno::EINTR) => return,
                Ok(0) | Err(_) => return self.disconnect(),
                Ok(length) => length,
            };
            match decode_request(bytes.get(..length).unwrap_or_default()) {
                Ok((number, request)) => self.input(Input::Message { number, request }),
                Err(error) => {
                    let refusal = match error {
                        DecodeError::Version(_) => Refusal::Version { daemon: VERSION },
                        DecodeError::Malformed => Refusal::BadMessage,
                    };
                    refuse(connection, &self.core, refusal);
                    return self.disconnect();
                }
            }
        }
    }

    /// Serves a new peer if no other peer is served, and if the previous peer has ended or is the same process.
    fn accept(&mut self) {
        loop {
            let connection = match self.listener.accept() {
                Ok((connection, _)) => connection,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    // Without free descriptors or memory, the listener stays ready and must not keep a real-time loop
                    // busy.
                    std::thread::sleep(ACCEPT_PAUSE);
                    return;
                }
            };
            // A process may reconnect before its old connection is seen as closed.
            if self.connection.as_ref().is_some_and(is_closed) {
                self.disconnect();
            }
            match self.admit(&connection) {
                Ok(peer) => {
                    if self.connection.is_some() {
                        self.disconnect();
                    }
                    self.peer = Some(peer);
                    self.connection = Some(connection);
                    self.input(Input::Connected);
                }
                Err(refusal) => refuse(&connection, &self.core, refusal),
            }
        }
    }

    fn admit(&self, connection: &UnixStream) -> Result<Peer, Refusal> {
        let peer = Peer::of(connection, self.allowed_uid)?;
        match &self.peer {
            // The previous peer has ended. A child may have inherited its end of the connection.
            Some(previous) if previous.has_ended() => Ok(peer),
            Some(previous) if self.connection.is_some() => Err(Refusal::AnotherPeer { pid: previous.pid }),
            Some(previous) if previous.pid == peer.pid => Ok(peer),
            Some(previous) => Err(Refusal::PreviousPeerAlive { pid: previous.pid }),
            None => Ok(peer),
        }
    }

    fn disconnect(&mut self) {
        self.connection = None;
        self.input(Input::Disconnected);
    }

    fn input(&mut self, input: Input) {
        self.core.handle(clock::now(), input);
        self.run_effects();
    }

    fn run_effects(&mut self) {
        while let Some(effect) = self.core.poll_effect() {
            let answer = match effect {
                Effect::Open { timeout_seconds } => self.open(timeout_seconds),
                Effect::Pet { timeout_seconds } => {
                    let result = match &mut self.device {
                        Some(device) => device.pet(timeout_seconds),
                        None => Err((Errno::ENODEV as i32).unsigned_abs()),
                    };
                    Input::Petted(result)
                }
                Effect::Close => self.close(),
                Effect::Save(saved) => {
                    self.record.write(&saved);
                    continue;
                }
                Effect::Reply(reply) => {
                    self.send(&reply);
                    continue;
                }
                Effect::Disconnect => {
                    self.connection = None;
                    self.core.handle(clock::now(), Input::Disconnected);
                    continue;
                }
                Effect::Reset => {
                    if let Some(device) = &mut self.device {
                        device.reset_machine();
                    }
                    continue;
                }
            };
            self.core.handle(clock::now(), answer);
        }
    }

    fn open(&mut self, timeout_seconds: u32) -> Input {
        // No device is armed, or the armed device refuses pets, so the loop may read files. A fix by an operator is
        // then effective immediately.
        if let (DeviceLocation::Kernel(_), Some(refusal)) =
            (&self.location, system_conf::refusal(Path::new("/")))
        {
            return Input::Opened(Err(refusal));
        }
        let opened = Device::open(&self.location, timeout_seconds, self.manager.stores_descriptors());
        Input::Opened(opened.map(|(device, mut facts)| {
            if let Device::Kernel(kernel) = &device {
                if self.device.is_some() {
                    self.manager.remove(DEVICE_DESCRIPTOR_NAME);
                }
                facts.descriptor_retained = self.manager.store(DEVICE_DESCRIPTOR_NAME, kernel.descriptor());
            }
            self.device = Some(device);
            facts
        }))
    }

    fn close(&mut self) -> Input {
        self.manager.remove(DEVICE_DESCRIPTOR_NAME);
        Input::Closed(match self.device.take() {
            Some(device) => device.close(),
            None => Ok(()),
        })
    }

    /// Sends a reply. A peer that does not read its answers is no longer served.
    fn send(&mut self, reply: &Reply) {
        let Some(connection) = &self.connection else { return };
        let mut reply = *reply;
        if let Some(device) = &self.device {
            (reply.status.time_left_seconds, reply.status.pretimeout_seconds) = device.reported_times();
        }
        if seqpacket::send_now(connection, &encode_reply(&reply)).is_err() {
            self.connection = None;
            self.core.handle(clock::now(), Input::Disconnected);
        }
    }
}

/// Sends the reason to a peer that is not served. The peer may already have disconnected.
fn refuse(connection: &UnixStream, core: &Core, refusal: Refusal) {
    let reply = Reply { answers: 0, outcome: Outcome::Refused(refusal), status: core.status() };
    let _ = seqpacket::send_now(connection, &encode_reply(&reply));
}

/// The process at the other end of a connection, held by a pidfd so that a later process with the same pid is not
/// mistaken for it.
#[derive(Debug)]
struct Peer {
    pid: u32,
    process: OwnedFd,
}

impl Peer {
    /// Identifies the process at the other end, and checks that its user is root or the allowed user.
    fn of(connection: &UnixStream, allowed_uid: Option<u32>) -> Result<Self, Refusal> {
        let failed = |errno: Errno| Refusal::DeviceFailed { errno: (errno as i32).unsigned_abs() };
        let credentials = getsockopt(connection, sockopt::PeerCredentials).map_err(failed)?;
        let uid = credentials.uid();
        if uid != 0 && Some(uid) != allowed_uid {
            return Err(Refusal::NotPermitted { uid });
        }
        // Pid 0 is a process outside this pid namespace, so its death could not be detected either.
        let pid = u32::try_from(credentials.pid()).unwrap_or(0);
        if pid == 0 {
            return Err(Refusal::NotPermitted { uid });
        }
        let process = match getsockopt(connection, sockopt::PeerPidfd) {
            Ok(process) => process,
            // Linux before 6.5 has no SO_PEERPIDFD. If the pid was reused since, the peer has closed its end of the
            // connection, which is checked below.
            Err(_) => system_calls::open_process(pid).map_err(failed)?,
        };
        if is_closed(connection) {
            return Err(failed(Errno::ECONNRESET));
        }
        Ok(Self { pid, process })
    }

    fn has_ended(&self) -> bool {
        let mut descriptors = [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut descriptors, PollTimeout::ZERO), Ok(1))
    }
}

/// Returns `true` if the other end is closed.
fn is_closed(connection: &UnixStream) -> bool {
    let mut descriptors = [PollFd::new(connection.as_fd(), PollFlags::empty())];
    match poll(&mut descriptors, PollTimeout::ZERO) {
        Ok(_) => descriptors.iter().any(|descriptor| descriptor.any().unwrap_or(true)),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests;
