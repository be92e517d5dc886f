//! Delivery of a notification by POST, as JSON.

use super::{read_file, read_secret, root_cause};
use crate::core::notifications::deliveries::DeliveryOutcome;
use crate::policy::{self, Limits};
use ha_api_types::cluster::WebhookSpec;
use ha_api_types::notification::Notification;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::{Certificate, StatusCode};
use sha2::Sha256;
use std::fmt::Write;
use std::time::Duration;

/// Timeout of a connection to the host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of the quoted response, in characters.
const MAX_QUOTED_CHARS: usize = 200;

pub(super) async fn post(
    limits: &Limits,
    webhook: &WebhookSpec,
    notification: &Notification,
) -> DeliveryOutcome {
    match attempt(limits, webhook, notification).await {
        Ok(outcome) => outcome,
        Err(cause) => DeliveryOutcome::Failed(cause),
    }
}

async fn attempt(
    limits: &Limits,
    webhook: &WebhookSpec,
    notification: &Notification,
) -> Result<DeliveryOutcome, String> {
    let client = client(limits, webhook).await?;
    let body = serde_json::to_vec(notification).map_err(|error| error.to_string())?;
    let mut request = client
        .post(&webhook.url)
        .header("content-type", "application/json")
        .header("x-hactl-notification", &notification.id);
    if let Some(path) = &webhook.bearer_token_file {
        request = request.bearer_auth(read_secret(limits, "bearerTokenFile", path).await?);
    }
    if let Some(path) = &webhook.hmac_key_file {
        let key = read_secret(limits, "hmacKeyFile", path).await?;
        request = request.header("x-hactl-signature", signature(key.as_bytes(), &body));
    }
    let answer = request.body(body).send().await.map_err(|error| root_cause(&error.without_url()))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(DeliveryOutcome::Delivered(status.as_u16().to_string()));
    }
    let excerpt = response_excerpt(answer).await;
    let permanent_refusals = [
        StatusCode::BAD_REQUEST,
        StatusCode::GONE,
        StatusCode::PAYLOAD_TOO_LARGE,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        StatusCode::UNPROCESSABLE_ENTITY,
    ];
    let message = format!("server returned {status}{excerpt}");
    Ok(if permanent_refusals.contains(&status) {
        DeliveryOutcome::Refused(message)
    } else {
        DeliveryOutcome::Failed(message)
    })
}

/// Creates a client. Requests are rare, and the certificate files may have changed, so the client is not reused.
async fn client(limits: &Limits, webhook: &WebhookSpec) -> Result<reqwest::Client, String> {
    // The call fails only if a provider is already installed, which is sufficient.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("hactl/", env!("CARGO_PKG_VERSION")))
        // A redirected POST would become a GET, or go to an unintended host.
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT);
    if let Some(host) = policy::host_of_url(&webhook.url)
        && let Some(addresses) = limits.addresses(&host, 0).await?
    {
        // The client connects to the addresses that were checked, and does not look the name up again. Port 0 stands
        // for the port of the URL.
        builder = builder.resolve_to_addrs(&host, &addresses);
    }
    if let Some(path) = &webhook.ca_file {
        let certificates = Certificate::from_pem_bundle(&read_file(limits, "caFile", path).await?)
            .ok()
            .filter(|certificates| !certificates.is_empty())
            .ok_or_else(|| format!("caFile {path} does not contain a PEM certificate"))?;
        builder = builder.tls_certs_only(certificates);
    } else if !webhook.url.starts_with("https://") {
        // Plain HTTP needs no certificate authorities, so a machine without them can use it.
        builder = builder.tls_certs_only(Vec::new());
    }
    builder.build().map_err(|error| {
        let cause = root_cause(&error);
        format!("TLS setup failed: {cause}; set caFile to the CA certificate")
    })
}

/// Returns the beginning of the response, on one line.
async fn response_excerpt(mut answer: reqwest::Response) -> String {
    let mut body = Vec::new();
    while body.len() < MAX_QUOTED_CHARS * 4 {
        match answer.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    let text = String::from_utf8_lossy(&body);
    let line: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_QUOTED_CHARS).collect();
    let line = line.trim();
    if line.is_empty() { String::new() } else { format!(": {line}") }
}

/// Returns the signature in the format of GitHub and other services.
pub(super) fn signature(key: &[u8], body: &[u8]) -> String {
    let mut text = "sha256=".to_owned();
    // A key of any length is valid, so this never fails.
    if let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) {
        mac.update(body);
        for byte in mac.finalize().into_bytes() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
    }
    text
}
