//! The audit log: one line of JSON for every write and every refusal, without values.

pub(crate) mod page;

use super::authentication::User;
use super::authorization::Attributes;
use axum::http::StatusCode;
use axum::http::request::Parts;
use ha_api_types::id::Revision;
use ha_api_types::kind::{GROUP, Kind};
use ha_api_types::time::Timestamp;
use ha_runtime::clock::wall_unix_ms;
use ha_runtime::http::Peer;
use ha_runtime::problems::Problems;
use serde::Serialize;
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A change of one object that a request has made, or would make without dry run.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Change {
    /// Plural name of the kind.
    pub(crate) resource: String,
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
    /// Version before the change; absent for a new object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_version_before: Option<Revision>,
    /// Version after the change; absent for a deleted object and in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_version_after: Option<Revision>,
    /// Field manager of a write.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) field_manager: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) dry_run: bool,
}

impl Change {
    /// Returns a change of an object, without versions and manager.
    pub(crate) fn of(kind: Kind, object: &Value) -> Change {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Change {
            resource: kind.plural().to_owned(),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            ..Change::default()
        }
    }
}

/// The changes that a request has made. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(Arc<Mutex<Vec<Change>>>);

impl Changes {
    /// Returns the changes to which the handler of a request adds its own.
    pub(crate) fn of_request(parts: &Parts) -> Changes {
        parts.extensions.get::<Changes>().cloned().unwrap_or_default()
    }

    pub(crate) fn add(&self, change: Change) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(change);
    }

    fn take(&self) -> Vec<Change> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One line of the log.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    time: Timestamp,
    user: &'a str,
    groups: &'a [String],
    source: String,
    verb: &'a str,
    group: &'a str,
    #[serde(flatten)]
    change: &'a Change,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    /// HTTP status of the answer.
    code: u16,
    outcome: &'static str,
}

/// Destination of the audit records. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct AuditLog {
    file: Option<Arc<Path>>,
    failing: Arc<Problems<()>>,
}

impl AuditLog {
    /// Returns a log in a file, which is created if necessary; without a file, the log of the process gets the records.
    ///
    /// # Errors
    /// Fails if the file cannot be opened for appending.
    pub fn new(file: Option<PathBuf>) -> io::Result<AuditLog> {
        if let Some(path) = &file {
            open(path)?;
        }
        Ok(AuditLog { file: file.map(Arc::from), failing: Arc::default() })
    }

    /// Returns the file of the records; `None` if the log of the process gets them.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.file.as_deref().map(Path::to_path_buf)
    }

    /// Records a request that changed something or was refused: a line for each changed object, otherwise one line.
    pub(crate) fn record(
        &self,
        user: Option<&User>,
        source: Option<Peer>,
        attributes: &Attributes,
        status: StatusCode,
        changes: &Changes,
    ) {
        let mut changes = changes.take();
        let is_refusal = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if changes.is_empty() {
            if !is_refusal && !attributes.is_write() {
                return;
            }
            changes.push(Change {
                resource: attributes.resource.clone(),
                name: attributes.name.clone(),
                ..Change::default()
            });
        }
        for change in &changes {
            let line = Line {
                time: Timestamp::from_unix_ms_precise(wall_unix_ms()),
                user: user.map_or("", |user| &user.name),
                groups: user.map_or(&[], |user| &user.groups),
                source: source.map_or_else(String::new, |source| source.to_string()),
                verb: &attributes.verb,
                group: &attributes.group,
                change,
                subresource: &attributes.subresource,
                path: attributes.path.as_deref(),
                code: status.as_u16(),
                outcome: match status {
                    _ if is_refusal => "Refused",
                    status if status.is_success() => "Done",
                    _ => "Failed",
                },
            };
            // The serialization of this type cannot fail.
            self.write(&serde_json::to_string(&line).unwrap_or_default());
        }
    }

    fn write(&self, line: &str) {
        if !self.file.as_deref().is_some_and(|path| self.write_to_file(path, line)) {
            tracing::info!(target: "audit", record = line, "API request");
        }
    }

    /// Returns `true` if the file has the record.
    fn write_to_file(&self, path: &Path, line: &str) -> bool {
        // The file is opened for each line, so that a rotated file is replaced immediately. Writes are rare.
        let written = open(path).and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        match &written {
            Ok(()) => {
                if self.failing.record(&(), None) {
                    tracing::info!(path = %path.display(), "resumed writing the audit log");
                }
            }
            Err(error) => {
                if self.failing.record(&(), Some(error.to_string())) {
                    tracing::error!(path = %path.display(), %error, "cannot write the audit log, writing the records to the journal");
                }
            }
        }
        written.is_ok()
    }
}

fn open(path: &Path) -> io::Result<std::fs::File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

impl Attributes {
    /// Returns `true` for a request that can change objects. A review, a plan, computed timings and an etcd-outage hold
    /// change none.
    fn is_write(&self) -> bool {
        let changes_objects = self.group == GROUP
            && !matches!(self.resource.as_str(), "plan" | "timing")
            && !self.is_hold_request();
        let is_read = matches!(self.verb.as_str(), "get" | "list" | "watch");
        changes_objects && !is_read
    }
}
