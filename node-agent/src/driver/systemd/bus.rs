//! The connection to the service manager. It is opened when needed, and opened again after a failure. The manager's
//! signals are distributed to all subscribers.
//!
//! The connection uses the system bus. systemctl uses systemd's private socket. zbus cannot, because the sender in
//! messages on that socket has no valid name.

use futures::StreamExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, broadcast};
use zbus::connection::Builder;
use zbus::message::Type;
use zbus::{Connection, MatchRule, Message, MessageStream};

/// Bus name of the manager.
pub(super) const DESTINATION: &str = "org.freedesktop.systemd1";
/// Object path of the manager.
pub(super) const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
/// Interface of the manager.
pub(super) const MANAGER: &str = "org.freedesktop.systemd1.Manager";
/// Interface for the properties of all objects.
pub(super) const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// Time limit for an answer of the manager, which answers no calls while it reloads its units.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for a connection: a bus that is stopping still accepts connections, but does not answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of signals that a subscriber has not read; a slower subscriber must query the state.
const SIGNAL_BACKLOG: usize = 1024;

/// Message of the manager.
#[derive(Clone, Debug)]
pub(super) enum Signal {
    /// A job was created for a unit.
    JobNew { unit: String },
    /// A job ended.
    JobRemoved { id: u32, unit: String, result: String },
    /// Properties of the object at this path changed.
    Changed { path: String },
    /// A call with this serial number was answered. All signals that the manager sent before its answer have been
    /// distributed.
    Answered { serial: u32 },
}

/// Reason for a failed call of the manager.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum BusError {
    /// The connection cannot be opened, or was lost.
    #[error("cannot reach systemd: {0}")]
    Unreachable(String),
    /// The manager returned an error.
    #[error("systemd rejected the request: {message}")]
    Refused { name: String, message: String },
}

impl BusError {
    /// Returns `true` if the manager returned an error whose name ends in this part.
    pub(super) fn has_name(&self, error: &str) -> bool {
        match self {
            BusError::Refused { name, .. } => name.rsplit('.').next() == Some(error),
            BusError::Unreachable(_) => false,
        }
    }
}

impl From<zbus::Error> for BusError {
    fn from(error: zbus::Error) -> BusError {
        let zbus::Error::MethodError(name, message, _) = error else {
            return BusError::Unreachable(error.to_string());
        };
        BusError::Refused {
            message: message.unwrap_or_else(|| name.to_string()).trim_end_matches('.').to_owned(),
            name: name.to_string(),
        }
    }
}

/// The connection to the manager, opened when needed.
#[derive(Debug)]
pub(super) struct Bus {
    socket: PathBuf,
    session: Mutex<Option<Session>>,
}

/// A connection that was open when [`Bus`] returned it.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) connection: Connection,
    signals: broadcast::Sender<Signal>,
}

impl Session {
    /// Returns a receiver of the manager's signals from now on.
    pub(super) fn signals(&self) -> broadcast::Receiver<Signal> {
        self.signals.subscribe()
    }
}

impl Bus {
    /// Returns a connection over this socket of the system bus, not yet opened.
    pub(super) fn new(socket: PathBuf) -> Bus {
        Bus { socket, session: Mutex::new(None) }
    }

    /// Returns an open connection.
    pub(super) async fn session(&self) -> Result<Session, BusError> {
        let mut current_session = self.session.lock().await;
        if let Some(session) = current_session.as_ref().filter(|session| !session.connection.is_closed()) {
            return Ok(session.clone());
        }
        *current_session = None;
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect(&self.socket)).await;
        let session = connected.unwrap_or_else(|_| {
            let cause =
                format!("{} did not respond within {} s", self.socket.display(), CONNECT_TIMEOUT.as_secs());
            Err(BusError::Unreachable(cause))
        })?;
        *current_session = Some(session.clone());
        Ok(session)
    }
}

async fn connect(socket: &Path) -> Result<Session, BusError> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| BusError::Unreachable(format!("{}: {error}", socket.display())))?;
    let connection = Builder::unix_stream(stream).method_timeout(ANSWER_TIMEOUT).build().await?;
    let (signals, _) = broadcast::channel(SIGNAL_BACKLOG);
    // The task is spawned before the subscription to signals, because an unread stream blocks all messages of the
    // connection.
    tokio::spawn(distribute_signals(MessageStream::from(&connection), signals.clone()));
    let bus = zbus::fdo::DBusProxy::new(&connection).await?;
    for rule in rules()? {
        bus.add_match_rule(rule).await.map_err(zbus::Error::from)?;
    }
    connection.call_method(Some(DESTINATION), MANAGER_PATH, Some(MANAGER), "Subscribe", &()).await?;
    Ok(Session { connection, signals })
}

fn rules() -> Result<[MatchRule<'static>; 2], BusError> {
    let systemd_signals = || MatchRule::builder().msg_type(Type::Signal).sender(DESTINATION);
    Ok([
        systemd_signals()?.interface(MANAGER)?.path(MANAGER_PATH)?.build(),
        systemd_signals()?.interface(PROPERTIES)?.path_namespace("/org/freedesktop/systemd1/unit")?.build(),
    ])
}

/// Distributes signals until the connection ends.
async fn distribute_signals(mut messages: MessageStream, signals: broadcast::Sender<Signal>) {
    while let Some(message) = messages.next().await {
        if let Some(signal) = message.ok().as_ref().and_then(signal) {
            // Sending fails if there is no subscriber.
            let _ = signals.send(signal);
        }
    }
}

fn signal(message: &Message) -> Option<Signal> {
    let header = message.header();
    match header.message_type() {
        Type::Signal => {}
        Type::MethodReturn => return Some(Signal::Answered { serial: header.reply_serial()?.get() }),
        Type::MethodCall | Type::Error => return None,
    }
    let body = message.body();
    match (header.interface()?.as_str(), header.member()?.as_str()) {
        (MANAGER, "JobNew") => {
            let (_, _, unit): (u32, zbus::zvariant::ObjectPath<'_>, String) = body.deserialize().ok()?;
            Some(Signal::JobNew { unit })
        }
        (MANAGER, "JobRemoved") => {
            let (id, _, unit, result): (u32, zbus::zvariant::ObjectPath<'_>, String, String) =
                body.deserialize().ok()?;
            Some(Signal::JobRemoved { id, unit, result })
        }
        (PROPERTIES, "PropertiesChanged") => {
            Some(Signal::Changed { path: header.path()?.as_str().to_owned() })
        }
        _ => None,
    }
}
