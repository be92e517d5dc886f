//! Serving HTTP: plain on loopback only, anything else with TLS and client certificates; polite at the end.

pub mod admin;
mod opening;

use crate::shutdown::Shutdown;
use crate::tls::{ClientIdentity, ReloadingTls, TlsError, TlsFiles};
use axum::Router;
use axum::extract::ConnectInfo;
use axum::extract::Request;
use futures::{Stream, StreamExt};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use opening::Version;
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

/// Where and how to serve.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The address to listen on; port 0 takes a free one.
    pub address: SocketAddr,
    /// TLS with client certificates; required beyond loopback.
    pub tls: Option<TlsFiles>,
    /// Connections at once; further ones wait in the kernel's queue.
    pub connections: usize,
    /// How long a client may take for its TLS handshake, and for the head of a request.
    pub header_read_timeout: Duration,
    /// How long answers under way may take once the end was requested.
    pub grace: Duration,
}

impl ServeOptions {
    /// The usual limits for an address.
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

/// Why serving could not begin.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Plain HTTP for other machines is never served.
    #[error(
        "{address} is reachable from other machines, so it is served only with TLS and client certificates: \
         give a certificate, a key and a client CA, or listen on 127.0.0.1"
    )]
    NotLoopback {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[from] TlsError),
}

/// A bound listener, not yet serving: the address is known and taken.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<ReloadingTls>>,
    options: ServeOptions,
}

/// Listens.
///
/// # Errors
/// An address beyond loopback without TLS is refused before anything is bound.
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
    /// The address that is listened on, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the end is requested, then finishes.
    ///
    /// Every request carries [`ClientIdentity`], [`ConnectInfo<SocketAddr>`] and [`Shutdown`] in its extensions. At
    /// the end no connection is accepted any more, answers under way get the grace, then they are cut; a long watch
    /// ends itself by [`until_shutdown`]. A forced shutdown cuts at once.
    pub async fn serve(self, router: Router, shutdown: Shutdown) {
        let slots = Arc::new(Semaphore::new(self.options.connections));
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = shutdown.requested() => break,
                Some(_) = connections.join_next() => continue,
                accepted = accept(&self.listener, &slots) => accepted,
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
                tracing::warn!(address = %self.address, "connections that did not end in time are cut");
            }
            () = shutdown.forced() => {}
        }
        connections.shutdown().await;
    }
}

/// Ends a long answer (a watch) when the end of the process is requested, so that clients reconnect elsewhere.
pub fn until_shutdown<S: Stream>(stream: S, shutdown: Shutdown) -> impl Stream<Item = S::Item> {
    stream.take_until(async move { shutdown.requested().await })
}

type Slot = tokio::sync::OwnedSemaphorePermit;

/// The next connection, once there is room for it.
async fn accept(listener: &TcpListener, slots: &Arc<Semaphore>) -> Option<(TcpStream, SocketAddr, Slot)> {
    // The semaphore is never closed.
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer, slot)),
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            // Out of descriptors or memory: others must end first, so trying at once would only burn time.
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
        // Small answers should not wait for more to come; a failure costs only time.
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
            Err(error) => tracing::warn!(peer = %self.peer, error, "client certificate is refused"),
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
            opened = timeout(header_read_timeout, opening::read(stream)) => opened,
            () = shutdown.requested() => return,
        };
        let (version, stream) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => return tracing::debug!(%peer, %error, "connection ended before a request"),
            Err(_) => return tracing::debug!(%peer, "connection without a request is given up"),
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
