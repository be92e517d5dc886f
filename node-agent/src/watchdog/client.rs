//! The agent's side of the watchdog daemon: requests with acknowledgements, and what happens unasked.
//!
//! # Guarantees
//! - Requests reach the daemon in the order in which they are made; each is answered once, or fails.
//! - The loss of the daemon is an event of its own, after which every request fails with [`ClientError::Lost`].
//!
//! # What a lost daemon means
//! Nothing is acknowledged any more, so nothing may be started. A device that was armed goes on by the last
//! deadline. After connecting again: arm, with the deadline proven last (or, on an empty node, without one and
//! release), for the new daemon may know nothing of the device that the old one left running.

use super::moment::Moment;
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

/// How long an answer may take before the request counts as unanswered. The daemon answers within a
/// millisecond; it is silent only when it is stopped or starved.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Requests that may wait to be sent.
const QUEUE: usize = 16;

/// Events that may wait to be read.
const EVENTS: usize = 64;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error(
        "ha-watchdogd does not answer at its socket ({0}): is it running (systemctl status ha-watchdogd)?"
    )]
    Unreachable(Errno),
    /// The daemon refuses, and says why.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No answer in time; whether the request was or will be done is unknown.
    #[error("ha-watchdogd did not answer within {} s", ANSWER_WITHIN.as_secs())]
    Unanswered,
    /// The connection is gone.
    #[error("the connection to ha-watchdogd is lost")]
    Lost,
    /// What came is no message.
    #[error("ha-watchdogd sent what is no answer: {0}")]
    Protocol(DecodeError),
}

/// What happens without being asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The deadline passed: no more pets, the machine is about to be reset.
    Expired(Status),
    /// The device did not take a pet; the daemon goes on trying.
    DeviceFailed {
        /// The error number the kernel gave.
        errno: u32,
        /// How things stand.
        status: Status,
    },
    /// The device counts as fixed from now on: W must be computed anew and committed.
    NotSliding(Status),
    /// The daemon is gone. The last event of a connection.
    Lost,
}

/// A connection to the daemon; clones share it. It ends when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Client {
    requests: mpsc::Sender<Pending>,
}

/// A request on its way, and where its answer goes.
#[derive(Debug)]
struct Pending {
    request: Request,
    answer: oneshot::Sender<Result<Reply, ClientError>>,
}

impl Client {
    /// Connects; returns when the daemon has said that it serves this process, with how things stand and
    /// the events to come.
    ///
    /// # Errors
    /// [`Refusal::AnotherPeer`] and [`Refusal::PreviousPeerAlive`] end when the process named there does:
    /// try again.
    pub async fn connect(socket: &Path) -> Result<(Self, Status, mpsc::Receiver<Event>), ClientError> {
        let socket = seqpacket::connect_nonblocking(socket).map_err(ClientError::Unreachable)?;
        // Only its readiness is used as a stream's; messages go through `seqpacket`.
        let socket =
            UnixStream::from_std(socket.into()).map_err(|_| ClientError::Unreachable(Errno::EMFILE))?;
        let greeting = tokio::time::timeout(ANSWER_WITHIN, receive(&socket));
        let reply = greeting.await.map_err(|_| ClientError::Unanswered)??;
        if let Outcome::Refused(refusal) = reply.outcome {
            return Err(refusal.into());
        }
        let (requests, incoming) = mpsc::channel(QUEUE);
        let (events, happened) = mpsc::channel(EVENTS);
        let connection = Connection { socket, events, next_number: 1, waiting: VecDeque::new() };
        tokio::spawn(connection.run(incoming));
        Ok((Self { requests }, reply.status, happened))
    }

    /// Opens the device and starts petting, or changes the timing of an armed one.
    ///
    /// Acknowledged, the device runs: by the deadline given, or without one on an empty node.
    pub async fn arm(&self, arm: Arm) -> Result<Status, ClientError> {
        self.ask(Request::Arm(arm)).await
    }

    /// A heartbeat committed: pet until `deadline` only. Acknowledged, the device follows this deadline.
    pub async fn deadline(&self, deadline: Moment) -> Result<Status, ClientError> {
        self.ask(Request::Deadline(deadline)).await
    }

    /// The node is empty: pet without a deadline.
    pub async fn stay(&self) -> Result<Status, ClientError> {
        self.ask(Request::Stay).await
    }

    /// A heartbeat with `armed: false` committed: stop the device.
    pub async fn release(&self) -> Result<Status, ClientError> {
        self.ask(Request::Release).await
    }

    /// How things stand.
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.ask(Request::Query).await
    }

    /// Makes any request; see [`Request`].
    pub async fn ask(&self, request: Request) -> Result<Status, ClientError> {
        let (answer, answered) = oneshot::channel();
        let exchange = async {
            self.requests.send(Pending { request, answer }).await.map_err(|_| ClientError::Lost)?;
            answered.await.map_err(|_| ClientError::Lost)?
        };
        let reply =
            tokio::time::timeout(ANSWER_WITHIN, exchange).await.map_err(|_| ClientError::Unanswered)??;
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
        // Requests made from here on fail: the receiving end is gone before the event is seen.
        drop(requests);
        tracing::warn!(%reason, "the connection to ha-watchdogd has ended");
        for (_, answer) in self.waiting {
            // Who asked may have given up.
            let _ = answer.send(Err(reason));
        }
        let _ = self.events.send(Event::Lost).await;
    }

    /// A daemon that does not take what it is sent, for hundreds of messages, is as good as lost.
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
            if let Some(at) = self.waiting.iter().position(|(number, _)| *number == reply.answers)
                && let Some((_, answer)) = self.waiting.remove(at)
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
        // An agent that reads no events any more still gets the status with each answer.
        let _ = self.events.try_send(event);
        Ok(())
    }
}

/// The next reply.
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
