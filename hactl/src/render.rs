//! Output of objects: tables, YAML, JSON, names.

pub(crate) mod columns;
pub(crate) mod cpus;
pub(crate) mod table;
pub(crate) mod usage;

use crate::failure::Failure;
use crate::merge::LAST_APPLIED;
use clap::ValueEnum;
use ha_api_types::time::Timestamp;
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table with more columns.
    Wide,
    /// YAML.
    Yaml,
    /// JSON.
    Json,
    /// Kind and name only.
    Name,
}

/// Returns a value as YAML.
pub(crate) fn yaml(value: &Value) -> Result<String, Failure> {
    ha_api_types::yaml::to_text(value).map_err(|error| Failure::refused(error.to_string()))
}

/// Returns a value as indented JSON.
pub(crate) fn json(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Returns an object without managed fields and without the annotation of apply.
pub(crate) fn readable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    object
}

/// Returns the age of a timestamp, such as `3h12m`; `-` if the timestamp is missing or invalid.
pub(crate) fn age(timestamp: Option<&str>) -> String {
    let seconds = timestamp.and_then(|text| Timestamp(text.to_owned()).unix_seconds());
    match seconds {
        Some(seconds) => crate::duration::short(now_seconds() - seconds),
        None => "-".to_owned(),
    }
}

/// Returns the time since a node's last heartbeat. The stored time is updated only once a minute. For an Online node
/// with a more recent stored time, only an upper bound is known.
pub(crate) fn last_seen(node: &Value) -> String {
    last_seen_at(node, now_seconds())
}

fn last_seen_at(node: &Value, now: i64) -> String {
    let at = node.pointer("/status/lastSeen").and_then(Value::as_str);
    let is_online = node.pointer("/status/state").and_then(Value::as_str) == Some("Online");
    let seconds = at.and_then(|text| Timestamp(text.to_owned()).unix_seconds());
    match seconds {
        Some(seconds) if is_online && now - seconds <= MINUTE => "<1m".to_owned(),
        Some(seconds) => crate::duration::short(now - seconds),
        None => "-".to_owned(),
    }
}

/// Interval of the stored time in seconds, plus a margin for the write.
const MINUTE: i64 = 65;

fn now_seconds() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_secs()).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_that_is_in_time_does_not_look_late() {
        let node = |state: &str| json!({"status": {"state": state, "lastSeen": "1970-01-01T00:00:10Z"}});
        assert_eq!(last_seen_at(&node("Online"), 68), "<1m");
        assert_eq!(last_seen_at(&node("Online"), 130), "2m");
        assert_eq!(last_seen_at(&node("Unknown"), 40), "30s");
        assert_eq!(last_seen_at(&json!({"status": {"state": "Online"}}), 40), "-");
    }
}
