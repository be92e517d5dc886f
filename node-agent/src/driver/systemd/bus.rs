//! The connection to the service manager: made when it is needed, made anew after it broke; what it says, given to whoever listens.
//!
//! It goes over the system bus. systemd's own socket, which systemctl uses, is no way for zbus: the sender that is named there has no
//! valid name.

use futures::StreamExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, broadcast};
use zbus::connection::Builder;
use zbus::message::Type;
use zbus::{Connection, MatchRule, Message, MessageStream};

/// The manager's name on the bus.
pub(super) const DESTINATION: &str = "org.freedesktop.systemd1";
/// The manager.
pub(super) const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
/// Its interface.
pub(super) const MANAGER: &str = "org.freedesktop.systemd1.Manager";
/// The interface of all objects that have properties.
pub(super) const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// How long the manager may take to answer. It answers nobody while it reads its units anew.
const ANSWER: Duration = Duration::from_secs(60);
/// How long a connection may take: a bus that is being stopped still takes some, and says nothing.
const CONNECT: Duration = Duration::from_secs(2);
/// Signals that a slow listener may be behind; one that is further behind looks for itself.
const BACKLOG: usize = 1024;

/// What the manager said of itself.
#[derive(Clone, Debug)]
pub(super) enum Signal {
    /// A job was made for a unit.
    JobNew { unit: String },
    /// A job ended.
    JobRemoved { id: u32, unit: String, result: String },
    /// Properties of the object at this path changed.
    Changed { path: String },
    /// A question of this number was answered: what was said before the answer has been given out.
    Answered { question: u32 },
}

/// Why something could not be asked of the manager.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum BusError {
    /// There is no way to it, or it broke.
    #[error("systemd cannot be reached: {0}")]
    Unreachable(String),
    /// It answered with an error.
    #[error("systemd refuses: {message}")]
    Refused {
        /// The error's name on the bus.
        name: String,
        /// Its words.
        message: String,
    },
}

impl BusError {
    /// Whether the manager refused with this error of its own.
    pub(super) fn is(&self, error: &str) -> bool {
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

/// The way to the manager.
#[derive(Debug)]
pub(super) struct Bus {
    socket: PathBuf,
    session: Mutex<Option<Session>>,
}

/// A connection that stood when it was given out.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) connection: Connection,
    signals: broadcast::Sender<Signal>,
}

impl Session {
    /// What the manager says from now on.
    pub(super) fn signals(&self) -> broadcast::Receiver<Signal> {
        self.signals.subscribe()
    }
}

impl Bus {
    /// By this socket of the system bus.
    pub(super) fn new(socket: PathBuf) -> Bus {
        Bus { socket, session: Mutex::new(None) }
    }

    /// A connection.
    pub(super) async fn session(&self) -> Result<Session, BusError> {
        let mut held = self.session.lock().await;
        if let Some(session) = held.as_ref().filter(|session| !session.connection.is_closed()) {
            return Ok(session.clone());
        }
        *held = None;
        let connected = tokio::time::timeout(CONNECT, connect(&self.socket)).await;
        let session = connected.unwrap_or_else(|_| {
            let why = format!("{} gives no answer within {} s", self.socket.display(), CONNECT.as_secs());
            Err(BusError::Unreachable(why))
        })?;
        *held = Some(session.clone());
        Ok(session)
    }
}

async fn connect(socket: &Path) -> Result<Session, BusError> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| BusError::Unreachable(format!("{}: {error}", socket.display())))?;
    let connection = Builder::unix_stream(stream).method_timeout(ANSWER).build().await?;
    let (signals, _) = broadcast::channel(BACKLOG);
    // From before the manager is asked to speak. Holding the connection's messages, it must be read without a pause.
    tokio::spawn(spread(MessageStream::from(&connection), signals.clone()));
    let bus = zbus::fdo::DBusProxy::new(&connection).await?;
    for rule in rules()? {
        bus.add_match_rule(rule).await.map_err(zbus::Error::from)?;
    }
    connection.call_method(Some(DESTINATION), MANAGER_PATH, Some(MANAGER), "Subscribe", &()).await?;
    Ok(Session { connection, signals })
}

fn rules() -> Result<[MatchRule<'static>; 2], BusError> {
    let ours = || MatchRule::builder().msg_type(Type::Signal).sender(DESTINATION);
    Ok([
        ours()?.interface(MANAGER)?.path(MANAGER_PATH)?.build(),
        ours()?.interface(PROPERTIES)?.path_namespace("/org/freedesktop/systemd1/unit")?.build(),
    ])
}

/// Gives out signals until the connection ends.
async fn spread(mut messages: MessageStream, signals: broadcast::Sender<Signal>) {
    while let Some(message) = messages.next().await {
        if let Some(signal) = message.ok().as_ref().and_then(signal) {
            // Nobody may be listening.
            let _ = signals.send(signal);
        }
    }
}

fn signal(message: &Message) -> Option<Signal> {
    let header = message.header();
    match header.message_type() {
        Type::Signal => {}
        Type::MethodReturn => return Some(Signal::Answered { question: header.reply_serial()?.get() }),
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
