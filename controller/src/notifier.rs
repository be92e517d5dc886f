//! Delivery of notifications by webhook or mail, one attempt at a time, within a limit.

mod mail;
mod webhook;

use crate::core::notifications::deliveries::{Delivery, DeliveryOutcome};
use ha_api_types::cluster::Target;
use std::path::Path;
use std::time::Duration;

/// Maximum duration of an attempt.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(30);
/// Maximum size of a file with a secret or certificate, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Delivers a notification once. The attempt ends within the limit, even if the target does not answer.
pub async fn deliver(delivery: &Delivery) -> DeliveryOutcome {
    let attempt = async {
        match &delivery.target {
            Target::Webhook(webhook) => webhook::post(webhook, &delivery.notification).await,
            Target::Mail(smtp) => mail::send(smtp, &delivery.notification).await,
        }
    };
    tokio::time::timeout(ATTEMPT_LIMIT, attempt).await.unwrap_or_else(|_| {
        DeliveryOutcome::Failed(format!("no response within {} s", ATTEMPT_LIMIT.as_secs()))
    })
}

/// Reads a file that the object names, again for each attempt, because the content may have changed.
async fn read_file(field: &str, path: &str) -> Result<Vec<u8>, String> {
    let wrong = |error: std::io::Error| format!("{field} {path} cannot be read on this controller: {error}");
    let metadata = tokio::fs::metadata(path).await.map_err(wrong)?;
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        return Err(format!("{field} {path} is not a file of at most {MAX_FILE_BYTES} bytes"));
    }
    tokio::fs::read(Path::new(path)).await.map_err(wrong)
}

/// Reads a secret on one line; the line ending is not part of it.
async fn read_secret(field: &str, path: &str) -> Result<String, String> {
    let text = String::from_utf8(read_file(field, path).await?)
        .map_err(|_| format!("{field} {path} does not contain a line of text"))?;
    let line = text.trim_end_matches(['\r', '\n']);
    if line.is_empty() || line.chars().any(char::is_control) {
        return Err(format!("{field} {path} must contain exactly one line of text"));
    }
    Ok(line.to_owned())
}

/// Returns the innermost cause of an error, which is the most specific cause.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests;
