//! Delivery of notifications by webhook or mail, one attempt at a time, within a limit.

mod mail;
mod webhook;

use crate::core::notifications::deliveries::{Delivery, DeliveryOutcome};
use crate::policy::Limits;
use ha_api_types::cluster::Target;
use std::time::Duration;

/// Maximum duration of an attempt.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(30);
/// Maximum size of a file with a secret or certificate, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Delivers a notification once, to an address and with files that the limits allow. The attempt ends in time, even if
/// the target does not answer.
pub async fn deliver(limits: &Limits, delivery: &Delivery) -> DeliveryOutcome {
    let attempt = async {
        match &delivery.target {
            Target::Webhook(webhook) => webhook::post(limits, webhook, &delivery.notification).await,
            Target::Mail(smtp) => mail::send(limits, smtp, &delivery.notification).await,
        }
    };
    tokio::time::timeout(ATTEMPT_LIMIT, attempt).await.unwrap_or_else(|_| {
        DeliveryOutcome::Failed(format!("no response within {} s", ATTEMPT_LIMIT.as_secs()))
    })
}

/// Reads a file that the object names, again for each attempt, because the content may have changed.
async fn read_file(limits: &Limits, field: &str, name: &str) -> Result<Vec<u8>, String> {
    let file = limits.file(field, name)?;
    let path = file.display();
    let unreadable =
        |error: std::io::Error| format!("{field} {path} cannot be read on this controller: {error}");
    let metadata = tokio::fs::metadata(&file).await.map_err(unreadable)?;
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        return Err(format!("{field} {path} is not a file of at most {MAX_FILE_BYTES} bytes"));
    }
    tokio::fs::read(&file).await.map_err(unreadable)
}

/// Reads a secret on one line; the line ending is not part of it.
async fn read_secret(limits: &Limits, field: &str, name: &str) -> Result<String, String> {
    let text = String::from_utf8(read_file(limits, field, name).await?)
        .map_err(|_| format!("{field} {name} does not contain a line of text"))?;
    let line = text.trim_end_matches(['\r', '\n']);
    if line.is_empty() || line.chars().any(char::is_control) {
        return Err(format!("{field} {name} must contain exactly one line of text"));
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
