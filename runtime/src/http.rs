//! HTTP server: without TLS only on loopback, otherwise with TLS and client certificates; with a graceful shutdown.

pub mod admin;
mod http_version;

use crate::problems::Problems;
use crate::shutdown::Shutdown;
use crate::tls::{ClientIdentity, ReloadingTls, TlsError, TlsFiles};
use axum::Router;
use axum::extract::ConnectInfo;
use axum::extract::Request;
use futures::{Stream, StreamExt};
use http_version::Version;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::ServiceExt;

/// Address, TLS and limits of a server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Address to listen on; port 0 selects a free port.
    pub address: SocketAddr,
    /// Files for TLS with client certificates; required except on loopback.
    pub tls: Option<TlsFiles>,
    /// Maximum number of connections; further connections wait in the kernel's queue.
    pub connections: usize,
    /// Time limit for a client's TLS handshake, and for the head of a request.
    pub header_read_timeout: Duration,
    /// Time limit for answers in progress after a shutdown was requested.
    pub grace: Duration,
}

impl ServeOptions {
    /// Returns options with the default limits.
    pub fn new(address: SocketAddr, tls: Option<TlsFiles>) -> ServeOptions {
        ServeOptions {
            address,
            tls,
            connections: 1024,
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
    /// TLS cannot be set up.
    #[error("cannot set up TLS")]
    Tls(#[from] TlsError),
}

/// A bound listener that does not serve yet; its address is known.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<ReloadingTls>>,
    options: ServeOptions,
}

/// Binds a listener.
///
/// # Errors
/// Fails if the address is not on loopback and TLS is not configured, if the TLS files are invalid, or if the bind
/// fails.
pub async fn bind(options: ServeOptions) -> Result<Server, ServeError> {
    let address = options.address;
    if options.tls.is_none() && !address.ip().is_loopback() {
        return Err(ServeError::NotLoopback { address });
    }
    let tls = options.tls.clone().map(ReloadingTls::new).transpose()?.map(Arc::new);
    let listener = TcpListener::bind(address).await.map_err(|source| ServeError::Bind { address, source })?;
    let address = listener.local_addr().map_err(|source| ServeError::Bind { address, source })?;
    Ok(Server { listener, address, tls, options })
}

impl Server {
    /// Returns the bound address, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until a shutdown is requested, then completes the answers in progress.
    ///
    /// Every request has [`ClientIdentity`], [`ConnectInfo<SocketAddr>`] and [`Shutdown`] in its extensions. After the
    /// request for a shutdown, no new connection is accepted, and connections are closed after the grace period. Long
    /// answers such as watches must end themselves by [`until_shutdown`]. A forced shutdown closes all connections
    /// immediately.
    pub async fn serve(self, router: Router, shutdown: Shutdown) {
        let slots = Arc::new(Semaphore::new(self.options.connections));
        let graceful = GracefulShutdown::new();
        let exhausted = Problems::default();
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = shutdown.requested() => break,
                Some(_) = connections.join_next() => continue,
                accepted = accept(&self.listener, &slots, &exhausted) => accepted,
            };
            let Some((stream, peer, slot)) = accepted else { continue };
            let connection = Connection {
                peer,
                tls: self.tls.clone(),
                header_read_timeout: self.options.header_read_timeout,
                router: router.clone(),
                watcher: graceful.watcher(),
                shutdown: shutdown.clone(),
            };
            connections.spawn(async move {
                connection.run(stream).await;
                drop(slot);
            });
        }
        drop(self.listener);
        tokio::select! {
            () = graceful.shutdown() => {}
            () = tokio::time::sleep(self.options.grace) => {
                tracing::info!(address = %self.address, "closing connections that did not end in time");
            }
            () = shutdown.forced() => {}
        }
        connections.shutdown().await;
    }
}

/// Ends a long answer, such as a watch, when a shutdown is requested, so that the client can connect to another server.
pub fn until_shutdown<S: Stream>(stream: S, shutdown: Shutdown) -> impl Stream<Item = S::Item> {
    stream.take_until(async move { shutdown.requested().await })
}

type Slot = tokio::sync::OwnedSemaphorePermit;

/// Accepts the next connection, once the number of connections permits it.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    exhausted: &Problems<()>,
) -> Option<(TcpStream, SocketAddr, Slot)> {
    // The semaphore is never closed.
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => {
            if exhausted.record(&(), None) {
                tracing::info!("accepting connections again");
            }
            Some((stream, peer, slot))
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

/// One accepted connection.
struct Connection {
    peer: SocketAddr,
    tls: Option<Arc<ReloadingTls>>,
    header_read_timeout: Duration,
    router: Router,
    watcher: Watcher,
    shutdown: Shutdown,
}

impl Connection {
    async fn run(self, stream: TcpStream) {
        // Without this option, small answers wait for more data. A failure only costs time.
        let _ = stream.set_nodelay(true);
        let Some(tls) = self.tls.clone() else { return self.serve(stream, ClientIdentity::Loopback).await };
        let handshake = tokio_rustls::TlsAcceptor::from(tls.config()).accept(stream);
        let stream = match timeout(self.header_read_timeout, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(peer = %self.peer, %error, "TLS handshake failed"),
            Err(_) => return tracing::debug!(peer = %self.peer, "TLS handshake took too long"),
        };
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let identity = certificate
            .ok_or_else(|| "no client certificate".to_owned())
            .and_then(ClientIdentity::of_certificate);
        match identity {
            Ok(identity) => self.serve(stream, identity).await,
            Err(error) => tracing::warn!(peer = %self.peer, error, "rejected a client certificate"),
        }
    }

    async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        identity: ClientIdentity,
    ) {
        let Connection { peer, tls: _, header_read_timeout, router, watcher, shutdown } = self;
        let ending = shutdown.clone();
        let service = router.map_request(move |request: Request<Incoming>| {
            let mut request = request.map(axum::body::Body::new);
            let extensions = request.extensions_mut();
            extensions.insert(identity.clone());
            extensions.insert(ConnectInfo(peer));
            extensions.insert(ending.clone());
            request
        });
        let opened = tokio::select! {
            opened = timeout(header_read_timeout, http_version::read(stream)) => opened,
            () = shutdown.requested() => return,
        };
        let (version, stream) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => return tracing::debug!(%peer, %error, "connection ended before a request"),
            Err(_) => return tracing::debug!(%peer, "closing a connection without a request"),
        };
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(header_read_timeout);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(20));
        let builder = match version {
            Version::One => builder.http1_only(),
            Version::Two => builder.http2_only(),
        };
        let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        if let Err(error) = watcher.watch(served.into_owned()).await {
            tracing::debug!(%peer, error, "connection ended");
        }
    }
}
