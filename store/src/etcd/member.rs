//! One etcd member: its channel, the check of its version, and its token.

use super::Inner;
use super::credentials::LoadedCredentials;
use super::failure::Failure;
use crate::etcd_version::check_version;
use etcd_client::{Client, ConnectOptions, StatusResponse};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Interval of pings. etcd closes a connection with pings more often than every 5 s, or with pings while no request is
/// open.
const PING_INTERVAL: Duration = Duration::from_secs(6);
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// Age up to which a token counts as new, so that simultaneous requests with an expired token authenticate once.
const MIN_TOKEN_AGE: Duration = Duration::from_secs(1);

pub(super) struct Member {
    pub(super) endpoint: String,
    connection: Mutex<Connection>,
}

#[derive(Default)]
struct Connection {
    client: Option<Client>,
    /// Generation of the certificates; 0 means none yet.
    generation: u64,
    /// `true` if the version of this connection's member was checked and accepted.
    is_version_checked: bool,
    authenticated_at: Option<Instant>,
}

impl Member {
    pub(super) fn new(endpoint: String) -> Member {
        Member { endpoint, connection: Mutex::new(Connection::default()) }
    }

    /// Creates the channel if there is none, without waiting for a connection.
    pub(super) async fn prepare(&self, inner: &Inner) -> Result<(), Failure> {
        self.channel(&mut *self.connection.lock().await, inner).await.map(|_| ())
    }

    /// Returns an authenticated client of this member, after a check of its version.
    pub(super) async fn client(&self, inner: &Inner) -> Result<Client, Failure> {
        let mut connection = self.connection.lock().await;
        let mut client = self.channel(&mut connection, inner).await?;
        if connection.authenticated_at.is_none() {
            authenticate(&mut client, inner).await?;
            connection.authenticated_at = Some(Instant::now());
        }
        if !connection.is_version_checked {
            match self
                .fetch_version(&mut client, inner)
                .await
                .and_then(|version| check_version(&self.endpoint, &version).map_err(Failure::Unsupported))
            {
                Err(Failure::Unsupported(sentence)) if inner.allow_old_store => {
                    tracing::warn!(problem = sentence, "using an unsupported etcd version");
                }
                checked => checked?,
            }
            connection.is_version_checked = true;
        }
        Ok(client)
    }

    /// Returns the status that the member reports, without a check of its version.
    pub(super) async fn status(&self, inner: &Inner) -> Result<StatusResponse, Failure> {
        let mut client = {
            let mut connection = self.connection.lock().await;
            let mut client = self.channel(&mut connection, inner).await?;
            if connection.authenticated_at.is_none() {
                authenticate(&mut client, inner).await?;
                connection.authenticated_at = Some(Instant::now());
            }
            client
        };
        client.status().await.map_err(|error| Failure::of(&error))
    }

    /// Requests a new token, with the password that is currently in the file.
    pub(super) async fn authenticate_again(&self, inner: &Inner) -> Result<Client, Failure> {
        let mut connection = self.connection.lock().await;
        let mut client = self.channel(&mut connection, inner).await?;
        if connection.authenticated_at.is_none_or(|at| at.elapsed() > MIN_TOKEN_AGE) {
            connection.authenticated_at = None;
            authenticate(&mut client, inner).await?;
            connection.authenticated_at = Some(Instant::now());
        }
        Ok(client)
    }

    /// Records the loss of the connection, because the member may have another version after a restart.
    pub(super) fn on_connection_lost(&self) {
        // If the lock is held, its holder is about to check the version anyway.
        if let Ok(mut connection) = self.connection.try_lock() {
            connection.is_version_checked = false;
        }
    }

    async fn channel(&self, connection: &mut Connection, inner: &Inner) -> Result<Client, Failure> {
        let loaded = inner.credentials.current();
        if connection.generation != loaded.generation {
            match (self.build_client(&loaded, inner).await, &connection.client) {
                (Ok(client), _) => {
                    let generation = loaded.generation;
                    *connection = Connection {
                        client: Some(client),
                        generation,
                        is_version_checked: false,
                        authenticated_at: None,
                    };
                }
                (Err(error), Some(_)) => {
                    tracing::warn!(%error, endpoint = self.endpoint, "cannot reconnect with the changed certificates, keeping the connection");
                    connection.generation = loaded.generation;
                }
                (Err(error), None) => return Err(error),
            }
        }
        connection.client.clone().ok_or_else(|| Failure::NotSent("no channel".to_owned()))
    }

    async fn build_client(&self, loaded: &LoadedCredentials, inner: &Inner) -> Result<Client, Failure> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(inner.attempt_timeout().max(Duration::from_secs(1)))
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            .with_keep_alive_while_idle(false)
            .with_require_leader(true);
        if let (true, Some(tls)) = (self.endpoint.starts_with("https://"), &loaded.tls) {
            options = options.with_tls(tls.to_options());
        }
        // Without a user, this call neither connects nor waits.
        Client::connect([self.endpoint.as_str()], Some(options)).await.map_err(|error| {
            Failure::Configuration(format!(
                "cannot use etcd endpoint {}: {}",
                self.endpoint,
                with_causes(&error)
            ))
        })
    }

    /// Returns the member's version. With authentication on, etcd reports its status only to root, but its version to
    /// every client over plain HTTP.
    async fn fetch_version(&self, client: &mut Client, inner: &Inner) -> Result<String, Failure> {
        match client.status().await.map_err(|error| Failure::of(&error)) {
            Ok(status) => Ok(status.version().to_owned()),
            Err(Failure::Refused(refusal)) => {
                let page = self.fetch_page(inner, "/version").await;
                page.as_deref().ok().and_then(server_version).ok_or_else(|| {
                    Failure::Unsupported(format!(
                        "etcd member {} does not report its version, neither to this user ({refusal}) nor at \
                         /version of its client URL ({}): serve HTTP at this URL too, or set --allow-old-store \
                         (services may then run twice)",
                        self.endpoint,
                        page.err().unwrap_or_else(|| "no version in the answer".to_owned())
                    ))
                })
            }
            Err(failure) => Err(as_not_sent(&failure)),
        }
    }

    /// Returns a page of the HTTP server at the member's client URL.
    pub(super) async fn fetch_page(&self, inner: &Inner, path: &str) -> Result<String, String> {
        let tls = inner.credentials.current().tls;
        super::http::get(&self.endpoint, path, tls.as_deref()).await
    }
}

async fn authenticate(client: &mut Client, inner: &Inner) -> Result<(), Failure> {
    let user =
        inner.credentials.user_and_password().map_err(|error| Failure::Configuration(error.to_string()))?;
    let Some((user, password)) = user else {
        return Ok(());
    };
    match client.update_user(Some((user.clone(), password))).await {
        Ok(()) => Ok(()),
        Err(error) if error.to_string().contains("authentication is not enabled") => {
            tracing::warn!(user, "ignoring user and password: authentication is disabled in etcd");
            Ok(())
        }
        Err(error) => Err(as_not_sent(&Failure::of(&error))),
    }
}

/// Returns the version of the member itself from the page `/version`.
fn server_version(page: &str) -> Option<String> {
    let versions: BTreeMap<String, String> = serde_json::from_str(page).ok()?;
    versions.get("etcdserver").cloned()
}

/// Converts a failure of a preliminary request to a failure of the actual request, which was certainly not sent.
fn as_not_sent(failure: &Failure) -> Failure {
    match failure {
        Failure::NotSent(text)
        | Failure::Unknown(text)
        | Failure::Full(text)
        | Failure::TokenExpired(text) => Failure::NotSent(text.clone()),
        Failure::Refused(_)
        | Failure::LeaseNotFound
        | Failure::Compacted(_)
        | Failure::Unsupported(_)
        | Failure::Configuration(_) => failure.clone(),
    }
}

fn with_causes(error: &etcd_client::Error) -> String {
    let mut text = error.to_string();
    if let etcd_client::Error::TransportError(error) = error {
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
    }
    text
}
