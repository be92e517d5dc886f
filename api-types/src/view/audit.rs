//! Records of the audit log: `GET /apis/hactl.io/v1/audit`.

use crate::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The newest records of the audit log of one controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditPage {
    /// Id of the controller that wrote the records. Each controller has a log of its own.
    pub controller: String,
    /// Path of the file on the machine of the controller.
    pub file: String,
    /// Records that match the filters, newest first.
    pub items: Vec<AuditRecord>,
    /// Token of the next page, for the parameter `continue`. Absent at the beginning of the file.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub continue_token: Option<String>,
}

/// A change of an object, or a refused request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditRecord {
    /// Time of the response.
    pub time: Timestamp,
    /// Name of the user. Empty if the client was not authenticated.
    pub user: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// Address of the client.
    pub source: String,
    /// Verb of the request, such as `patch`.
    pub verb: String,
    /// API group of the resource. Empty for the core group.
    pub group: String,
    /// Plural name of the kind.
    pub resource: String,
    /// Name of the object.
    pub name: String,
    /// Subresource, such as the action of an operation.
    pub subresource: String,
    /// Path of a request that concerns no object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Field manager of a write.
    pub field_manager: String,
    /// Whether the request was a dry run.
    pub dry_run: bool,
    /// HTTP status of the response.
    pub code: u16,
    /// Result of the request. One of `Done`, `Refused`, `Failed`.
    pub outcome: String,
}
