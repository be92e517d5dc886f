//! Delivers notifications: one attempt each, within a limit, by webhook or mail.

mod mail;
mod webhook;

use crate::core::notifications::deliveries::{Delivery, DeliveryOutcome};
use ha_api_types::cluster::Target;
use std::path::Path;
use std::time::Duration;

/// The longest that an attempt takes.
const LIMIT: Duration = Duration::from_secs(30);
/// Secrets and certificates in files are not longer than this, bytes.
const LONGEST_FILE: u64 = 1 << 20;

/// Delivers once. It ends within the limit, whatever the target does.
pub async fn deliver(delivery: &Delivery) -> DeliveryOutcome {
    let attempt = async {
        match &delivery.target {
            Target::Webhook(webhook) => webhook::post(webhook, &delivery.notification).await,
            Target::Mail(smtp) => mail::send(smtp, &delivery.notification).await,
        }
    };
    tokio::time::timeout(LIMIT, attempt)
        .await
        .unwrap_or_else(|_| DeliveryOutcome::Failed(format!("no answer within {} s", LIMIT.as_secs())))
}

/// Reads a file that the object names, each time anew: it may have been changed since.
async fn file(field: &str, path: &str) -> Result<Vec<u8>, String> {
    let wrong = |error: std::io::Error| format!("{field} {path} cannot be read on this controller: {error}");
    let found = tokio::fs::metadata(path).await.map_err(wrong)?;
    if !found.is_file() || found.len() > LONGEST_FILE {
        return Err(format!("{field} {path} is no file of at most {LONGEST_FILE} bytes"));
    }
    tokio::fs::read(Path::new(path)).await.map_err(wrong)
}

/// A secret on one line; the end of the line is not part of it.
async fn secret(field: &str, path: &str) -> Result<String, String> {
    let text = String::from_utf8(file(field, path).await?)
        .map_err(|_| format!("{field} {path} does not hold a line of text"))?;
    let line = text.trim_end_matches(['\r', '\n']);
    if line.is_empty() || line.chars().any(char::is_control) {
        return Err(format!("{field} {path} does not hold one line of text"));
    }
    Ok(line.to_owned())
}

/// The innermost cause, which says most.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests;
