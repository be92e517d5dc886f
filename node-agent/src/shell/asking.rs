//! Asking controllers to hold this node (FENCING, section 9): over their API's TLS, with the certificate that the store knows
//! the agent by.

use super::Inputs;
use crate::core::{HoldId, Input};
use ha_api_types::record::{HoldAnswer, HoldRequest};
use ha_store::etcd::Config;
use reqwest::{Certificate, Identity};
use std::error::Error;
use std::path::Path;
use std::time::Duration;

/// The longest answer that is read, bytes.
const MOST_BYTES: usize = 64 * 1024;

/// The way to the controllers.
pub(super) struct Controllers {
    node: String,
    files: Config,
    inputs: Inputs,
}

impl Controllers {
    /// `files`: how the store is reached; its authority and the client's certificate are those of the controllers too.
    pub(super) fn new(node: String, files: Config, inputs: Inputs) -> Controllers {
        // The only failure is that another provider was installed before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Controllers { node, files, inputs }
    }

    /// Asks one controller; the answer, or that there was none in time, comes as an input.
    pub(super) fn ask(
        &self,
        id: HoldId,
        candidate: String,
        url: &str,
        request: &HoldRequest,
        patience: Duration,
    ) {
        let inputs = self.inputs.clone();
        let url = format!("{}/apis/hactl.io/v1/nodes/{}/hold", url.trim_end_matches('/'), self.node);
        // Made anew for each question, so that certificates which were renewed are used: it is asked seldom.
        let asking = client(&self.files).map(|client| {
            client
                .post(url)
                .header("content-type", "application/json")
                .body(serde_json::to_vec(request).unwrap_or_default())
        });
        tokio::spawn(async move {
            let answer = match asking {
                Ok(asking) => tokio::time::timeout(patience, answer_to(asking))
                    .await
                    .unwrap_or_else(|_| Err("no answer in time".to_owned())),
                Err(message) => Err(message),
            };
            // Nobody listens any more once the loop has ended.
            let _ = inputs.send(Input::HoldAnswered { id, candidate, answer });
        });
    }
}

async fn answer_to(asking: reqwest::RequestBuilder) -> Result<HoldAnswer, String> {
    let mut response = asking.send().await.map_err(|error| deepest(&error))?;
    let code = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| deepest(&error))? {
        if body.len() + chunk.len() > MOST_BYTES {
            return Err(format!("an answer longer than {MOST_BYTES} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    if !code.is_success() {
        let status: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let message = status["message"].as_str().unwrap_or_default();
        return Err(format!("it answered {code} {message}"));
    }
    serde_json::from_slice(&body).map_err(|error| format!("an answer that cannot be read: {error}"))
}

fn client(files: &Config) -> Result<reqwest::Client, String> {
    let mut builder =
        reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().http1_only();
    if let Some(path) = &files.ca {
        let certificates = Certificate::from_pem_bundle(&read(path)?)
            .map_err(|error| format!("{}: {}", path.display(), deepest(&error)))?;
        builder = builder.tls_certs_only(certificates);
    }
    if let (Some(certificate), Some(key)) = (&files.cert, &files.key) {
        let mut pem = read(certificate)?;
        pem.push(b'\n');
        pem.extend(read(key)?);
        let identity = Identity::from_pem(&pem)
            .map_err(|error| format!("{}: {}", certificate.display(), deepest(&error)))?;
        builder = builder.identity(identity);
    }
    builder.build().map_err(|error| deepest(&error))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The last cause of an error: the outer layers only repeat the URL.
fn deepest(error: &dyn Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
