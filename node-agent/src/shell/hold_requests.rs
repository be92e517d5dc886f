//! Hold requests to controllers (FENCING, section 9), sent to their API over TLS with the agent's etcd client
//! certificate.

use super::Inputs;
use crate::core::{HoldId, Input};
use ha_api_types::id::{ControllerId, NodeName};
use ha_api_types::record::{HoldAnswer, HoldRequest};
use ha_store::etcd::Config;
use reqwest::{Certificate, Client, Identity, RequestBuilder};
use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Limit of an answer's size, bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// Sends hold requests to controllers.
pub(super) struct HoldRequestSender {
    node: NodeName,
    clients: Arc<Clients>,
    inputs: Inputs,
}

impl HoldRequestSender {
    /// Creates the sender. `files` configures the connection to etcd; its CA and client certificate also serve for
    /// controllers.
    pub(super) fn new(node: NodeName, files: Config, inputs: Inputs) -> HoldRequestSender {
        let clients = Arc::new(Clients::new(files));
        HoldRequestSender { node, clients, inputs }
    }

    /// Sends a hold request to one controller. The answer, or a timeout, arrives as an input.
    pub(super) fn send_request(
        &self,
        id: HoldId,
        candidate: ControllerId,
        url: &str,
        request: &HoldRequest,
        limit: Duration,
    ) {
        let (inputs, clients) = (self.inputs.clone(), self.clients.clone());
        let url = format!("{}/apis/hactl.io/v1/nodes/{}/hold", url.trim_end_matches('/'), self.node);
        let body = serde_json::to_vec(request).unwrap_or_default();
        tokio::spawn(async move {
            let exchange = async {
                let client = clients.client().await?;
                answer_to(client.post(url).header("content-type", "application/json").body(body)).await
            };
            let answer = tokio::time::timeout(limit, exchange)
                .await
                .unwrap_or_else(|_| Err("no response in time".to_owned()));
            // Sending fails only once the loop has ended.
            let _ = inputs.send(Input::HoldAnswered { id, candidate, answer });
        });
    }
}

async fn answer_to(request_builder: RequestBuilder) -> Result<HoldAnswer, String> {
    let body = response_body(request_builder).await?;
    serde_json::from_slice(&body).map_err(|error| format!("cannot parse the response: {error}"))
}

/// Sends a request, and returns the body of a successful response.
pub(super) async fn response_body(request_builder: RequestBuilder) -> Result<Vec<u8>, String> {
    let mut response = request_builder.send().await.map_err(|error| innermost_cause(&error))?;
    let code = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| innermost_cause(&error))? {
        if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
            return Err(format!("response is longer than {MAX_RESPONSE_BYTES} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    if !code.is_success() {
        let status: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let message = status["message"].as_str().unwrap_or_default();
        return Err(format!("unexpected response {code} {message}"));
    }
    Ok(body)
}

/// The sources of an HTTP client for controllers: paths of PEM files and their last contents.
pub(super) struct Clients {
    files: Config,
    /// The newest client and the PEM contents that it was built from. The client is reused while the files are
    /// unchanged. During an outage, requests are sent every Ki, and each new client would need new TLS handshakes with
    /// every controller.
    newest: Mutex<Option<(PemFiles, Client)>>,
}

/// Contents of the PEM files.
#[derive(Clone, PartialEq, Eq)]
struct PemFiles {
    authority: Option<Vec<u8>>,
    /// The certificate, followed by its private key.
    identity: Option<Vec<u8>>,
}

impl Clients {
    /// Creates the sources. `files` configures the connection to etcd.
    pub(super) fn new(files: Config) -> Clients {
        // The call fails only if another provider is already installed, which is sufficient.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Clients { files, newest: Mutex::default() }
    }

    /// Returns a client with the present files, or with the last ones that could be read.
    pub(super) async fn client(&self) -> Result<Client, String> {
        let read = PemFiles::read(&self.files).await;
        let mut newest_client = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        match (read, &*newest_client) {
            (Ok(pem), Some((newest_pem, client))) if pem == *newest_pem => Ok(client.clone()),
            (Ok(pem), _) => {
                let client = pem.client()?;
                *newest_client = Some((pem, client.clone()));
                Ok(client)
            }
            (Err(_), Some((_, client))) => Ok(client.clone()),
            (Err(message), None) => Err(message),
        }
    }
}

impl PemFiles {
    async fn read(files: &Config) -> Result<PemFiles, String> {
        let authority = match &files.ca {
            Some(path) => Some(read(path).await?),
            None => None,
        };
        let identity = match (&files.cert, &files.key) {
            (Some(certificate), Some(key)) => {
                let mut pem = read(certificate).await?;
                pem.push(b'\n');
                pem.extend(read(key).await?);
                Some(pem)
            }
            (Some(_) | None, _) => None,
        };
        Ok(PemFiles { authority, identity })
    }

    fn client(&self) -> Result<Client, String> {
        let mut builder =
            Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().http1_only();
        if let Some(pem) = &self.authority {
            let certificates = Certificate::from_pem_bundle(pem)
                .map_err(|error| format!("certificate authority of etcd: {}", innermost_cause(&error)))?;
            builder = builder.tls_certs_only(certificates);
        }
        if let Some(pem) = &self.identity {
            let identity = Identity::from_pem(pem)
                .map_err(|error| format!("certificate of the agent: {}", innermost_cause(&error)))?;
            builder = builder.identity(identity);
        }
        builder.build().map_err(|error| innermost_cause(&error))
    }
}

async fn read(path: &PathBuf) -> Result<Vec<u8>, String> {
    tokio::fs::read(path).await.map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the innermost cause of an error, because the outer layers only repeat the URL.
fn innermost_cause(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
