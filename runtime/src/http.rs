//! HTTP server: on a Unix socket, on loopback without TLS, or with TLS and client certificates; with a graceful shutdown.

pub mod admin;
mod connections;
mod http_version;
mod unix_socket;

use crate::problems::Problems;
use crate::shutdown::Shutdown;
use crate::tls::{ClientIdentity, ReloadingTls, TlsError, TlsFiles};
use axum::Router;
use axum::extract::Request;
pub use connections::{ConnectionHandle, ConnectionLimits, TooManyConnections};
use connections::{Connections, OpenConnection};
use futures::{Stream, StreamExt};
use http_version::Version;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use std::fmt;
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tower::ServiceExt;

/// Interval of the checks for changed TLS files. A revoked certificate loses its open connections after this time.
const TLS_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum size of the head of an HTTP/1 request, in bytes.
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// Maximum size of the header fields of an HTTP/2 request, in bytes.
const MAX_HEADER_LIST_BYTES: u32 = 64 * 1024;
/// Maximum number of concurrent requests on an HTTP/2 connection.
const MAX_STREAMS: u32 = 250;
/// Maximum number of streams that a client has reset and that are not yet released, before the connection is closed.
const MAX_RESET_STREAMS: usize = 100;

/// Place at which a server listens.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// A TCP port.
    Tcp {
        /// Address to listen on; port 0 selects a free port.
        address: SocketAddr,
        /// Files for TLS with client certificates; required except on loopback.
        tls: Option<TlsFiles>,
    },
    /// A Unix socket, which only this user and root can open.
    Unix(PathBuf),
}

/// Endpoint and limits of a server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Place at which the server listens.
    pub endpoint: Endpoint,
    /// Limits of the open connections.
    pub limits: ConnectionLimits,
    /// Time limit for a client's TLS handshake.
    pub handshake_timeout: Duration,
    /// Time limit for the head of a request, also of the next request on a connection.
    pub header_read_timeout: Duration,
    /// Time limit for answers in progress after a shutdown was requested.
    pub grace: Duration,
}

impl ServeOptions {
    /// Returns options for a TCP port with the default limits.
    pub fn new(address: SocketAddr, tls: Option<TlsFiles>) -> ServeOptions {
        ServeOptions::at(Endpoint::Tcp { address, tls })
    }

    /// Returns options for a Unix socket with the default limits.
    pub fn unix(path: &Path) -> ServeOptions {
        ServeOptions::at(Endpoint::Unix(path.to_owned()))
    }

    fn at(endpoint: Endpoint) -> ServeOptions {
        ServeOptions {
            endpoint,
            limits: ConnectionLimits::default(),
            handshake_timeout: Duration::from_secs(5),
            header_read_timeout: Duration::from_secs(15),
            grace: Duration::from_secs(5),
        }
    }
}

/// Reason why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// HTTP without TLS is only served on loopback.
    #[error(
        "{address} is reachable from other machines and requires TLS and client certificates: set a certificate, a key and a client CA, or listen on 127.0.0.1"
    )]
    NotLoopback {
        /// Requested address.
        address: SocketAddr,
    },
    /// The address cannot be bound.
    #[error("cannot listen on {address}")]
    Bind {
        /// Requested address.
        address: SocketAddr,
        /// I/O error of the bind.
        source: io::Error,
    },
    /// The Unix socket cannot be bound.
    #[error("cannot listen on {}", path.display())]
    BindUnix {
        /// Requested path.
        path: PathBuf,
        /// I/O error of the bind.
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS")]
    Tls(#[from] TlsError),
}

/// Origin of a request, in the extensions of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Address of the client.
    Tcp(SocketAddr),
    /// Process on this machine.
    Process {
        /// Process id; `None` if the kernel does not report it.
        pid: Option<i32>,
    },
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp(address) => address.fmt(f),
            Peer::Process { pid: Some(pid) } => write!(f, "process {pid}"),
            Peer::Process { pid: None } => f.write_str("unknown process"),
        }
    }
}

/// A bound listener that does not serve yet.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    options: ServeOptions,
}

#[derive(Debug)]
enum Listener {
    Tcp { listener: TcpListener, address: SocketAddr, tls: Option<Arc<ReloadingTls>> },
    Unix(UnixListener),
}

/// Binds a listener.
///
/// # Errors
/// Fails if the address is not on loopback and TLS is not configured, if the TLS files are invalid, or if the bind
/// fails.
pub async fn bind(options: ServeOptions) -> Result<Server, ServeError> {
    let listener = match &options.endpoint {
        Endpoint::Tcp { address, tls } => bind_tcp(*address, tls.clone()).await?,
        Endpoint::Unix(path) => Listener::Unix(
            unix_socket::bind(path).map_err(|source| ServeError::BindUnix { path: path.clone(), source })?,
        ),
    };
    Ok(Server { listener, options })
}

async fn bind_tcp(address: SocketAddr, tls: Option<TlsFiles>) -> Result<Listener, ServeError> {
    if tls.is_none() && !address.ip().is_loopback() {
        return Err(ServeError::NotLoopback { address });
    }
    let tls = tls.map(ReloadingTls::new).transpose()?.map(Arc::new);
    let listener = TcpListener::bind(address).await.map_err(|source| ServeError::Bind { address, source })?;
    let address = listener.local_addr().map_err(|source| ServeError::Bind { address, source })?;
    Ok(Listener::Tcp { listener, address, tls })
}

impl Server {
    /// Returns the bound address, with the actual port; `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.listener {
            Listener::Tcp { address, .. } => Some(*address),
            Listener::Unix(_) => None,
        }
    }

    /// Serves until a shutdown is requested, then completes the answers in progress.
    ///
    /// Every request has [`ClientIdentity`], [`Peer`], [`ConnectionHandle`] and [`Shutdown`] in its extensions. After the request for a
    /// shutdown, no new connection is accepted, and connections are closed after the grace period. Long answers such
    /// as watches must end themselves by [`until_shutdown`]. A forced shutdown closes all connections immediately.
    ///
    /// A connection is closed as soon as the client's certificate is revoked or expires, or its authority is removed.
    pub async fn serve(self, router: Router, shutdown: Shutdown) {
        let open_connections = Arc::new(Connections::new(self.options.limits.clone()));
        let graceful = GracefulShutdown::new();
        let exhausted = Problems::default();
        let mut connections = JoinSet::new();
        let mut tls_check = interval(TLS_CHECK_INTERVAL);
        tls_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let accepted = tokio::select! {
                biased;
                () = shutdown.wait_for_request() => break,
                Some(_) = connections.join_next() => continue,
                _ = tls_check.tick() => {
                    self.listener.reload_tls();
                    continue;
                }
                accepted = accept(&self.listener, &exhausted) => accepted,
            };
            let Some(accepted) = accepted else { continue };
            let open = open_connections.add(accepted.address());
            let connection = Connection {
                handshake_timeout: self.options.handshake_timeout,
                header_read_timeout: self.options.header_read_timeout,
                handle: open.handle(),
                router: router.clone(),
                watcher: graceful.watcher(),
                shutdown: shutdown.clone(),
            };
            connections.spawn(run_until_displaced(connection, accepted, open));
        }
        drop(self.listener);
        tokio::select! {
            () = graceful.shutdown() => {}
            () = tokio::time::sleep(self.options.grace) => {
                tracing::info!(endpoint = ?self.options.endpoint, "closing connections that did not end in time");
            }
            () = shutdown.wait_for_force() => {}
        }
        connections.shutdown().await;
        if let Endpoint::Unix(path) = &self.options.endpoint {
            unix_socket::remove(path);
        }
    }
}

impl Listener {
    /// Reads changed TLS files, so that open connections end whose certificate is no longer valid.
    fn reload_tls(&self) {
        match self {
            Listener::Tcp { tls: Some(tls), .. } => drop(tls.settings()),
            Listener::Tcp { tls: None, .. } | Listener::Unix(_) => {}
        }
    }

    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listener::Tcp { listener, tls, .. } => {
                let (stream, address) = listener.accept().await?;
                Ok(Accepted::Tcp { stream, address, tls: tls.clone() })
            }
            Listener::Unix(listener) => Ok(Accepted::Unix(listener.accept().await?.0)),
        }
    }
}

/// Ends a long answer, such as a watch, when a shutdown is requested, so that the client can connect to another server.
pub fn until_shutdown<S: Stream>(stream: S, shutdown: Shutdown) -> impl Stream<Item = S::Item> {
    stream.take_until(async move { shutdown.wait_for_request().await })
}

/// Handles a connection until it ends, or until it must be closed in favor of newer ones.
async fn run_until_displaced(connection: Connection, accepted: Accepted, open: OpenConnection) {
    tokio::select! {
        () = connection.run(accepted) => {}
        () = open.displaced() => tracing::debug!("closing the connection of an unknown client: too many are open"),
    }
}

/// Accepts the next connection.
async fn accept(listener: &Listener, exhausted: &Problems<()>) -> Option<Accepted> {
    match listener.accept().await {
        Ok(accepted) => {
            if exhausted.record(&(), None) {
                tracing::info!("resumed accepting connections");
            }
            Some(accepted)
        }
        Err(error) => {
            if exhausted.record(&(), Some(error.to_string())) {
                tracing::warn!(%error, "cannot accept connections, retrying");
            }
            // Descriptors or memory are exhausted. An immediate retry would only waste CPU time until other
            // connections end.
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

/// An accepted connection whose client is not known yet.
enum Accepted {
    Tcp { stream: TcpStream, address: SocketAddr, tls: Option<Arc<ReloadingTls>> },
    Unix(UnixStream),
}

impl Accepted {
    fn address(&self) -> Option<IpAddr> {
        match self {
            Accepted::Tcp { address, .. } => Some(address.ip()),
            Accepted::Unix(_) => None,
        }
    }
}

/// The handling of one connection.
struct Connection {
    handshake_timeout: Duration,
    header_read_timeout: Duration,
    handle: ConnectionHandle,
    router: Router,
    watcher: Watcher,
    shutdown: Shutdown,
}

impl Connection {
    async fn run(self, accepted: Accepted) {
        match accepted {
            Accepted::Unix(stream) => match stream.peer_cred() {
                Ok(credentials) => {
                    let identity = ClientIdentity::LocalUser { uid: credentials.uid() };
                    self.serve(stream, Peer::Process { pid: credentials.pid() }, identity, pending()).await;
                }
                Err(error) => tracing::warn!(%error, "rejected a local client without credentials"),
            },
            Accepted::Tcp { stream, address, tls } => {
                // Without this option, small answers wait for more data. A failure only costs time.
                let _ = stream.set_nodelay(true);
                match tls {
                    Some(tls) => self.run_tls(stream, address, &tls).await,
                    None => {
                        self.serve(stream, Peer::Tcp(address), ClientIdentity::Loopback, pending()).await;
                    }
                }
            }
        }
    }

    async fn run_tls(self, stream: TcpStream, peer: SocketAddr, tls: &ReloadingTls) {
        let handshake = tokio_rustls::TlsAcceptor::from(tls.settings().config()).accept(stream);
        let stream = match timeout(self.handshake_timeout, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => return tracing::debug!(%peer, "TLS handshake took too long"),
        };
        let certificates: Vec<_> = stream
            .get_ref()
            .1
            .peer_certificates()
            .unwrap_or_default()
            .iter()
            .map(|each| each.clone().into_owned())
            .collect();
        let identity = match certificates.first().map(ClientIdentity::of_certificate) {
            Some(Ok(identity)) => identity,
            Some(Err(error)) => return tracing::warn!(%peer, error, "rejected a client certificate"),
            // The handshake refuses such a client, unless the files make certificates optional.
            None => ClientIdentity::Anonymous,
        };
        if let ClientIdentity::Certificate { name, groups } = &identity {
            // Beyond the limits, the client remains unknown, and the check of each request repeats this.
            let _ = self.handle.identify(name, groups);
        }
        let user = identity.clone();
        let invalidated = async {
            let error = tls.invalidated(&certificates).await;
            tracing::info!(%peer, client = ?user, %error, "closing a connection: the client certificate is no longer valid");
        };
        self.serve(stream, Peer::Tcp(peer), identity, invalidated).await;
    }

    /// Serves requests until the connection ends or `ended` is complete.
    async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Peer,
        identity: ClientIdentity,
        ended: impl Future<Output = ()>,
    ) {
        let Connection { header_read_timeout, handle, router, watcher, shutdown, .. } = self;
        let ending = shutdown.clone();
        let service = router.map_request(move |request: Request<Incoming>| {
            let mut request = request.map(axum::body::Body::new);
            let extensions = request.extensions_mut();
            extensions.insert(identity.clone());
            extensions.insert(peer);
            extensions.insert(handle.clone());
            extensions.insert(ending.clone());
            request
        });
        let opened = tokio::select! {
            opened = timeout(header_read_timeout, http_version::read(stream)) => opened,
            () = shutdown.wait_for_request() => return,
        };
        let (version, stream) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => return tracing::debug!(%peer, %error, "connection ended before a request"),
            Err(_) => return tracing::debug!(%peer, "closing a connection without a request"),
        };
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(header_read_timeout)
            .max_buf_size(MAX_HEADER_BYTES);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_header_list_size(MAX_HEADER_LIST_BYTES)
            .max_concurrent_streams(MAX_STREAMS)
            .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
            .max_local_error_reset_streams(Some(MAX_RESET_STREAMS))
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(20));
        let builder = match version {
            Version::One => builder.http1_only(),
            Version::Two => builder.http2_only(),
        };
        let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        tokio::select! {
            served = watcher.watch(served.into_owned()) => {
                if let Err(error) = served {
                    tracing::debug!(%peer, error, "connection ended");
                }
            }
            () = ended => {}
        }
    }
}
