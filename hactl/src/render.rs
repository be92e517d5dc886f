//! Objects for people and programs: tables, YAML, JSON, names.

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

/// A value as YAML text.
pub(crate) fn yaml(value: &Value) -> Result<String, Failure> {
    ha_api_types::yaml::to_text(value).map_err(|error| Failure::refused(error.to_string()))
}

/// A value as indented JSON text.
pub(crate) fn json(value: &Value) -> String {
    format!("{value:#}\n")
}

/// An object without what only machines read: managed fields and the annotation that apply keeps.
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

/// How long ago a timestamp was, as `3h12m`; `-` when it is missing or no timestamp.
pub(crate) fn age(timestamp: Option<&str>) -> String {
    let seconds = timestamp.and_then(|text| Timestamp(text.to_owned()).unix_seconds());
    match seconds {
        Some(seconds) => crate::duration::short(now_seconds() - seconds),
        None => "-".to_owned(),
    }
}

fn now_seconds() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_secs()).ok())
        .unwrap_or(0)
}
