//! The transport of requests: each request goes to the first controller that can answer it.

use super::Representation;
use super::error::{ApiError, read_status};
use crate::config::{Connection, ServerAddress};
use crate::failure::Failure;
use crate::terminal::Terminal;
use reqwest::{Certificate, ClientBuilder, Identity, Method, Response, Url};
use serde_json::Value;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for a connection, so that an unreachable controller does not use up the time of the other controllers.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Largest accepted answer, in bytes.
const MAX_RESPONSE_BYTES: usize = 256 * 1024 * 1024;

/// A client of all controllers of one cluster.
///
/// # Guarantees
/// A change is sent to a second controller only if the first one has certainly not accepted it. Reads may go to any
/// controller.
pub(crate) struct Client {
    servers: Vec<Server>,
    connection: Connection,
    /// Index of the controller that answered last.
    current: AtomicUsize,
    terminal: Arc<Terminal>,
    /// Manager of the fields that this client changes.
    field_manager: &'static str,
}

/// A controller, and the client for its address.
struct Server {
    address: ServerAddress,
    /// Base of the URLs of requests. That of a Unix socket has a host without meaning.
    base: Url,
    http: reqwest::Client,
}

/// A request to the API.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: Method,
    path: Vec<String>,
    query: Vec<(String, String)>,
    representation: Representation,
    body: Option<(&'static str, Vec<u8>)>,
    read_only: bool,
    /// Minimum time limit for the answer of each controller.
    min_timeout: Duration,
}

impl Call {
    /// Creates a request without a body. Path segments are encoded, so a name cannot change the path.
    pub(crate) fn new(method: Method, path: Vec<String>) -> Call {
        let read_only = method == Method::GET;
        let min_timeout = Duration::ZERO;
        Call {
            method,
            path,
            query: Vec::new(),
            representation: Representation::Objects,
            body: None,
            read_only,
            min_timeout,
        }
    }

    pub(crate) fn query(mut self, name: &str, value: &str) -> Call {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the representation in which the server sends objects.
    pub(crate) fn representation(mut self, representation: Representation) -> Call {
        self.representation = representation;
        self
    }

    pub(crate) fn body(mut self, content_type: &'static str, body: &Value) -> Call {
        self.body = Some((content_type, body.to_string().into_bytes()));
        self
    }

    /// Sets the minimum time limit for the answer of each controller, for a request whose handling takes a long time.
    pub(crate) fn min_timeout(mut self, min_timeout: Duration) -> Call {
        self.min_timeout = min_timeout;
        self
    }

    /// Marks a request other than GET as a request without effect, so that the client may send it twice.
    pub(crate) fn read_only(mut self) -> Call {
        self.read_only = true;
        self
    }

    /// Returns the request for messages: `GET /apis/…`.
    pub(crate) fn describe(&self) -> String {
        format!("{} /{}", self.method, self.path.join("/"))
    }

    fn url(&self, server: &Url) -> Url {
        let mut url = server.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(&self.path);
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        url
    }
}

/// The part of an answer that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseMode {
    /// The whole answer, within the request's timeout.
    Whole,
    /// The beginning of a stream, which then has no time limit.
    Stream,
}

struct SuccessfulResponse {
    server: String,
    body: Vec<u8>,
    warnings: Vec<String>,
}

/// The outcome of a request to one controller.
enum Attempt {
    Answered(Response),
    /// The request certainly did not reach the controller.
    NotDelivered(String),
    /// The request was sent, and no answer arrived.
    ResponseLost(String),
}

impl Client {
    /// Creates a client for a connection, without sending a request.
    ///
    /// # Errors
    /// Fails if a certificate or key cannot be read.
    pub(crate) fn new(connection: Connection, terminal: Arc<Terminal>) -> Result<Client, Failure> {
        // The call fails only if another provider is already installed, which is sufficient.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tcp_http_client = tcp_client(&connection)?;
        let mut servers = Vec::new();
        for address in &connection.servers {
            let (base, http) = match address {
                ServerAddress::Url(url) if url.scheme() == "http" && connection.token.is_some() => {
                    return Err(Failure::usage(format!("server {url}: a token is not sent without TLS"))
                        .help("specify https://HOST:PORT"));
                }
                ServerAddress::Url(url) => (url.clone(), tcp_http_client.clone()),
                ServerAddress::Unix(path) => {
                    let http = builder(&connection).unix_socket(path.clone()).tls_certs_only([]).build();
                    let set_up_failure = |error| {
                        Failure::usage(format!("cannot set up the connection: {}", root_cause(&error)))
                    };
                    let base =
                        Url::parse("http://localhost").map_err(|error| Failure::usage(error.to_string()))?;
                    (base, http.map_err(set_up_failure)?)
                }
            };
            servers.push(Server { address: address.clone(), base, http });
        }
        Ok(Client { servers, connection, current: AtomicUsize::new(0), terminal, field_manager: "hactl" })
    }

    pub(crate) fn with_field_manager(self, field_manager: &'static str) -> Client {
        Client { field_manager, ..self }
    }

    pub(super) fn field_manager(&self) -> &'static str {
        self.field_manager
    }

    /// Returns the terminal, for progress during waits.
    pub(crate) fn terminal(&self) -> &Terminal {
        &self.terminal
    }

    /// Sends a request and parses the answer as JSON.
    pub(crate) async fn call(&self, call: &Call) -> Result<Value, ApiError> {
        let SuccessfulResponse { server, body, warnings } = self.receive(call).await?;
        for text in &warnings {
            self.terminal.warn(text);
        }
        serde_json::from_slice(&body)
            .map_err(|error| ApiError::Malformed { server, message: error.to_string() })
    }

    /// Sends a request, and returns the answer as text, with its warnings.
    pub(crate) async fn text(&self, call: &Call) -> Result<(String, Vec<String>), ApiError> {
        let received = self.receive(call).await?;
        Ok((String::from_utf8_lossy(&received.body).into_owned(), received.warnings))
    }

    async fn receive(&self, call: &Call) -> Result<SuccessfulResponse, ApiError> {
        let (server, mut response) = self.send(call, ResponseMode::Whole).await?;
        let code = response.status();
        let headers = response.headers().get_all("warning");
        let warnings: Vec<String> =
            headers.iter().filter_map(|header| header.to_str().ok().and_then(warning_text)).collect();
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() <= MAX_RESPONSE_BYTES => {
                    body.extend_from_slice(&chunk);
                }
                Ok(Some(_)) => {
                    let message = format!("the response exceeds {MAX_RESPONSE_BYTES} bytes");
                    return Err(ApiError::Malformed { server, message });
                }
                Ok(None) => break,
                Err(error) => {
                    let message = root_cause(&error);
                    return Err(if call.read_only {
                        ApiError::Unreachable { attempts: vec![(server, message)] }
                    } else {
                        ApiError::OutcomeUnknown { server, message }
                    });
                }
            }
        }
        if !code.is_success() {
            // The warnings of a refused request help to correct it.
            for text in &warnings {
                self.terminal.warn(text);
            }
            return Err(ApiError::Status(read_status(code.as_u16(), &body)));
        }
        Ok(SuccessfulResponse { server, body, warnings })
    }

    /// Sends a request whose answer is a stream. Only the beginning of the answer has a time limit.
    pub(super) async fn stream(&self, call: &Call) -> Result<Response, ApiError> {
        let (_, response) = self.send(call, ResponseMode::Stream).await?;
        let code = response.status();
        if code.is_success() {
            return Ok(response);
        }
        let body = response.bytes().await.unwrap_or_default();
        Err(ApiError::Status(read_status(code.as_u16(), &body)))
    }

    async fn send(&self, call: &Call, mode: ResponseMode) -> Result<(String, Response), ApiError> {
        let servers = &self.servers;
        let started = Instant::now();
        let first_index = self.current.load(Ordering::Relaxed);
        let mut attempts = Vec::new();
        let mut not_ready = None;
        for step in 0..servers.len() {
            let index = (first_index + step) % servers.len();
            let server = servers[index].address.to_string();
            let remaining_servers = u32::try_from(servers.len() - step).unwrap_or(1);
            let attempt_timeout =
                self.connection.request_timeout.saturating_sub(started.elapsed()) / remaining_servers;
            let attempt_timeout = attempt_timeout.max(call.min_timeout);
            match self.attempt(call, &servers[index], attempt_timeout, mode).await {
                // The controller is not ready or cannot reach etcd, and has not processed the request: try the next
                // controller.
                Attempt::Answered(response)
                    if response.status().as_u16() == 503 && step + 1 < servers.len() =>
                {
                    attempts.push((server.clone(), "not ready".to_owned()));
                    not_ready.get_or_insert((server, response));
                }
                Attempt::Answered(response) => {
                    self.current.store(index, Ordering::Relaxed);
                    return Ok((server, response));
                }
                Attempt::ResponseLost(message) if !call.read_only => {
                    return Err(ApiError::OutcomeUnknown { server, message });
                }
                Attempt::ResponseLost(message) | Attempt::NotDelivered(message) => {
                    attempts.push((server, message));
                }
            }
        }
        // An answer, even "not ready", is more useful to the user than a failed connection.
        not_ready.ok_or(ApiError::Unreachable { attempts })
    }

    async fn attempt(&self, call: &Call, server: &Server, timeout: Duration, mode: ResponseMode) -> Attempt {
        let url = call.url(&server.base);
        let mut request = server
            .http
            .request(call.method.clone(), url.clone())
            .header("accept", call.representation.media_type());
        if let Some(token) = &self.connection.token {
            request = request.bearer_auth(token);
        }
        if let Some((content_type, body)) = &call.body {
            request = request.header("content-type", *content_type).body(body.clone());
        }
        if mode == ResponseMode::Whole {
            request = request.timeout(timeout);
        }
        let started = Instant::now();
        let Ok(response_result) = tokio::time::timeout(timeout, request.send()).await else {
            return Attempt::ResponseLost("request timed out".to_owned());
        };
        let elapsed_ms = started.elapsed().as_millis();
        match response_result {
            Ok(response) => {
                self.terminal.debug(&format!(
                    "{} {url}: {} in {elapsed_ms} ms",
                    call.method,
                    response.status()
                ));
                Attempt::Answered(response)
            }
            Err(error) => {
                let message =
                    if error.is_timeout() { "request timed out".to_owned() } else { root_cause(&error) };
                let hint = match &server.address {
                    ServerAddress::Url(url) => {
                        protocol_hint(url.scheme(), self.connection.identity.is_some(), &message)
                    }
                    ServerAddress::Unix(_) => socket_hint(&message),
                };
                let message = format!("{message}{hint}");
                self.terminal.debug(&format!("{} {url}: {message} after {elapsed_ms} ms", call.method));
                if error.is_connect() || error.is_builder() {
                    Attempt::NotDelivered(message)
                } else {
                    Attempt::ResponseLost(message)
                }
            }
        }
    }
}

/// Returns the settings that all connections share.
fn builder(connection: &Connection) -> ClientBuilder {
    reqwest::Client::builder()
        .user_agent(concat!("hactl/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT.min(connection.request_timeout))
        .tcp_keepalive(Duration::from_secs(15))
}

/// Returns the client for controllers with a URL, with the certificates of the connection.
fn tcp_client(connection: &Connection) -> Result<reqwest::Client, Failure> {
    let mut builder = builder(connection);
    if let Some(path) = &connection.certificate_authority {
        let certificates = Certificate::from_pem_bundle(&read_file(path, "certificate authority")?)
            .ok()
            .filter(|certificates| !certificates.is_empty())
            .ok_or_else(|| Failure::usage(format!("{}: no PEM certificate found", path.display())))?;
        builder = builder.tls_certs_only(certificates);
    }
    if let Some((certificate, key)) = &connection.identity {
        let mut pem = read_file(certificate, "client certificate")?;
        pem.push(b'\n');
        pem.extend(read_file(key, "client key")?);
        let identity = Identity::from_pem(&pem).map_err(|error| {
            Failure::usage(format!("{} and {}: {}", certificate.display(), key.display(), root_cause(&error)))
                .help("use PEM files, and the key that belongs to the certificate")
        })?;
        builder = builder.identity(identity);
    }
    builder.build().map_err(|error| {
        let files = match &connection.identity {
            Some((certificate, key)) => format!("{} and {}: ", certificate.display(), key.display()),
            None => String::new(),
        };
        Failure::usage(format!("{files}cannot set up the connection: {}", root_cause(&error)))
    })
}

/// Returns a hint on the usual cause of a failed connection.
fn protocol_hint(scheme: &str, has_identity: bool, message: &str) -> &'static str {
    let message_contains_any = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    match scheme {
        "http" if message_contains_any(&["invalid HTTP version", "HTTP/0.9"]) => {
            " (does the server require https://?)"
        }
        "https" if message_contains_any(&["InvalidContentType"]) => " (does the server require http://?)",
        "https"
            if !has_identity
                && message_contains_any(&[
                    "connection closed",
                    "CertificateRequired",
                    "peer closed",
                    "reset",
                ]) =>
        {
            " (does the server require a client certificate? Add --client-certificate and --client-key)"
        }
        _ => "",
    }
}

/// Returns a hint on the usual cause of a failed connection to a Unix socket.
fn socket_hint(message: &str) -> &'static str {
    if message.contains("Permission denied") {
        " (run hactl as root, or add a context with a certificate or a token: hactl config set-context)"
    } else {
        " (does a controller run on this machine? Otherwise, add --server URL or a context: hactl config set-context)"
    }
}

/// Returns the last cause of an error, because reqwest's outer errors only repeat the URL.
pub(crate) fn root_cause(error: &dyn Error) -> String {
    let mut root_cause = error;
    while let Some(source) = root_cause.source() {
        root_cause = source;
    }
    root_cause.to_string()
}

/// Returns the text of a `Warning` header: `299 - "text"`.
fn warning_text(header: &str) -> Option<String> {
    let start = header.find('"')? + 1;
    let end_quote = header.rfind('"').filter(|end_quote| *end_quote > start)?;
    Some(header[start..end_quote].replace("\\\"", "\"").replace("\\\\", "\\"))
}

fn read_file(path: &Path, file_kind: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure::usage(format!("cannot read {file_kind} {}: {error}", path.display())))
}
