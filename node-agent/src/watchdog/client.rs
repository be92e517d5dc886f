//! The agent's side of the connection to the watchdog daemon: requests with acknowledgments, and unrequested events.
//!
//! # Guarantees
//! - Requests reach the daemon in the order in which they are made; each is answered once, or fails.
//! - The loss of the daemon is a separate event, after which every request fails with [`ClientError::Lost`].
//!
//! # After the loss of the daemon
//! No request is acknowledged, so no service may be started. An armed device continues by its last deadline. After
//! reconnecting, the agent arms with the last proven deadline. On an empty node, it arms without a deadline, and then
//! releases the device. This is necessary because the new daemon may have no record of the running device.

use super::dual_clock_time::DualClockTime;
use super::protocol::{
    Arm, DecodeError, MESSAGE_BYTES, Notice, Outcome, Refusal, Reply, Request, Status, decode_reply,
    encode_request,
};
use super::seqpacket;
use nix::errno::Errno;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;
use thiserror::Error;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

/// Time limit of an answer. The daemon answers within a millisecond unless it is stopped or starved.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of requests that wait to be sent.
const REQUEST_QUEUE_CAPACITY: usize = 16;

/// Maximum number of events that wait to be read.
const EVENT_QUEUE_CAPACITY: usize = 64;

/// The error of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ClientError {
    /// No daemon listens on the socket.
    #[error("ha-watchdogd does not respond at its socket ({0}): run systemctl status ha-watchdogd")]
    Unreachable(Errno),
    /// The daemon refused the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No answer arrived in time. The request may have been executed, or may be executed later.
    #[error("ha-watchdogd did not respond within {} s", ANSWER_TIMEOUT.as_secs())]
    Unanswered,
    /// The connection is lost.
    #[error("lost the connection to ha-watchdogd")]
    Lost,
    /// The received data is not a valid message.
    #[error("ha-watchdogd sent an invalid response: {0}")]
    Protocol(DecodeError),
}

/// An event that the daemon reports without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The deadline has passed: the daemon stops petting, and the machine is about to be reset.
    Expired(Status),
    /// The device refused a pet; the daemon retries.
    DeviceFailed {
        /// The error number from the kernel.
        errno: u32,
        /// The daemon's status.
        status: Status,
    },
    /// The timeout of the device counts as fixed from now on: W must be computed again and committed.
    NotSliding(Status),
    /// The daemon has closed the connection. This is the last event of a connection.
    Lost,
}

/// A connection to the daemon, shared by its clones. It ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Client {
    requests: mpsc::Sender<Pending>,
}

/// A request in progress, and the channel for its answer.
#[derive(Debug)]
struct Pending {
    request: Request,
    answer: oneshot::Sender<Result<Reply, ClientError>>,
}

impl Client {
    /// Connects, and returns once the daemon has confirmed that it serves this process. Returns the daemon's status and
    /// the stream of its events.
    ///
    /// # Errors
    /// [`Refusal::AnotherPeer`] and [`Refusal::PreviousPeerAlive`] are returned until the process that they name has
    /// ended; retry later.
    pub async fn connect(socket: &Path) -> Result<(Self, Status, mpsc::Receiver<Event>), ClientError> {
        let socket = seqpacket::connect_nonblocking(socket).map_err(ClientError::Unreachable)?;
        // The stream is used only for its readiness; messages are sent through `seqpacket`.
        let socket =
            UnixStream::from_std(socket.into()).map_err(|_| ClientError::Unreachable(Errno::EMFILE))?;
        let greeting = tokio::time::timeout(ANSWER_TIMEOUT, receive(&socket));
        let reply = greeting.await.map_err(|_| ClientError::Unanswered)??;
        if let Outcome::Refused(refusal) = reply.outcome {
            return Err(refusal.into());
        }
        let (requests, incoming) = mpsc::channel(REQUEST_QUEUE_CAPACITY);
        let (events, received_events) = mpsc::channel(EVENT_QUEUE_CAPACITY);
        let connection = Connection { socket, events, next_number: 1, waiting: VecDeque::new() };
        tokio::spawn(connection.run(incoming));
        Ok((Self { requests }, reply.status, received_events))
    }

    /// Opens the device and starts petting, or changes the timing of an armed device.
    ///
    /// After the acknowledgment the device runs: by the given deadline, or without one on an empty node.
    pub async fn arm(&self, arm: Arm) -> Result<Status, ClientError> {
        self.send_request(Request::Arm(arm)).await
    }

    /// Sets the deadline after a committed heartbeat. After the acknowledgment the device follows this deadline.
    pub async fn deadline(&self, deadline: DualClockTime) -> Result<Status, ClientError> {
        self.send_request(Request::Deadline(deadline)).await
    }

    /// Permits the daemon to pet without a deadline, because the node is empty.
    pub async fn stay(&self) -> Result<Status, ClientError> {
        self.send_request(Request::PetWithoutDeadline).await
    }

    /// Stops the device, after a heartbeat with `armed: false` was committed.
    pub async fn release(&self) -> Result<Status, ClientError> {
        self.send_request(Request::Release).await
    }

    /// Returns the daemon's status.
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.send_request(Request::Query).await
    }

    /// Sends any request; see [`Request`].
    pub async fn send_request(&self, request: Request) -> Result<Status, ClientError> {
        let (answer, answer_receiver) = oneshot::channel();
        let exchange = async {
            self.requests.send(Pending { request, answer }).await.map_err(|_| ClientError::Lost)?;
            answer_receiver.await.map_err(|_| ClientError::Lost)?
        };
        let reply =
            tokio::time::timeout(ANSWER_TIMEOUT, exchange).await.map_err(|_| ClientError::Unanswered)??;
        match reply.outcome {
            Outcome::Done | Outcome::Notice(_) => Ok(reply.status),
            Outcome::Refused(refusal) => Err(refusal.into()),
        }
    }
}

/// The task that owns the socket.
struct Connection {
    socket: UnixStream,
    events: mpsc::Sender<Event>,
    next_number: u64,
    waiting: VecDeque<(u64, oneshot::Sender<Result<Reply, ClientError>>)>,
}

impl Connection {
    async fn run(mut self, mut requests: mpsc::Receiver<Pending>) {
        let reason = loop {
            tokio::select! {
                pending = requests.recv() => match pending {
                    None => return,
                    Some(pending) => if let Err(error) = self.send(pending) {
                        break error;
                    }
                },
                reply = receive(&self.socket) => match reply.and_then(|reply| self.take(reply)) {
                    Ok(()) => {}
                    Err(error) => break error,
                },
            }
        };
        // Later requests fail, because the receiving end is dropped before the event is sent.
        drop(requests);
        tracing::warn!(%reason, "lost the connection to ha-watchdogd");
        for (_, answer) in self.waiting {
            // Sending fails if the requester no longer waits.
            let _ = answer.send(Err(reason));
        }
        let _ = self.events.send(Event::Lost).await;
    }

    /// Sends a request. A daemon that does not accept hundreds of messages counts as lost.
    fn send(&mut self, pending: Pending) -> Result<(), ClientError> {
        let number = self.next_number;
        self.next_number += 1;
        self.waiting.push_back((number, pending.answer));
        let message = encode_request(number, &pending.request);
        seqpacket::send_now(&self.socket, &message).map_err(|_| ClientError::Lost)
    }

    fn take(&mut self, reply: Reply) -> Result<(), ClientError> {
        let status = reply.status;
        if reply.answers != 0 {
            if let Some(index) = self.waiting.iter().position(|(number, _)| *number == reply.answers)
                && let Some((_, answer)) = self.waiting.remove(index)
            {
                let _ = answer.send(Ok(reply));
            }
            return Ok(());
        }
        let event = match reply.outcome {
            Outcome::Refused(refusal) => return Err(refusal.into()),
            Outcome::Done | Outcome::Notice(Notice::Welcome) => return Ok(()),
            Outcome::Notice(Notice::Expired) => Event::Expired(status),
            Outcome::Notice(Notice::DeviceFailed { errno }) => Event::DeviceFailed { errno, status },
            Outcome::Notice(Notice::NotSliding) => Event::NotSliding(status),
        };
        // An agent that does not read events still gets the status with each answer.
        let _ = self.events.try_send(event);
        Ok(())
    }
}

/// Returns the next reply.
async fn receive(socket: &UnixStream) -> Result<Reply, ClientError> {
    loop {
        socket.readable().await.map_err(|_| ClientError::Lost)?;
        let mut bytes = [0; MESSAGE_BYTES];
        let received = socket.try_io(Interest::READABLE, || Ok(seqpacket::receive_now(socket, &mut bytes)?));
        match received {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Ok(0) | Err(_) => return Err(ClientError::Lost),
            Ok(length) => {
                return decode_reply(bytes.get(..length).unwrap_or_default()).map_err(ClientError::Protocol);
            }
        }
    }
}
