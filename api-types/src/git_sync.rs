//! The GitSync object: a Git repository from which `hactl sync` applies objects, and the outcome of its passes.

use crate::kind::Kind;
use crate::meta::Condition;
use crate::object::{Object, Spec};
use crate::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Git repository from which objects are applied.
pub type GitSync = Object<GitSyncSpec>;

impl Spec for GitSyncSpec {
    type Status = GitSyncStatus;
    const KIND: Kind = Kind::GitSync;
}

/// Maximum number of drifted objects in a status.
pub const MAX_DRIFT: usize = 100;

/// Settings of a `hactl sync` process, recorded by that process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GitSyncSpec {
    /// URL or directory of the repository, without a password.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub repository: String,
    /// Branch whose last commit is applied; the default branch of the repository if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub branch: String,
    /// Directory of the files within the repository; the whole repository if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Seconds between two passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<u32>,
    /// Whether commits without a valid signature are refused.
    pub verify_signatures: bool,
    /// Free-form description, not interpreted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

/// Outcome of the passes of `hactl sync`, written by that process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GitSyncStatus {
    /// Generation of the object from which this status was computed.
    pub observed_generation: i64,
    /// Id of the commit that was fetched last.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// Id of the commit whose objects were applied last.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub applied_revision: String,
    /// Time when the applied commit changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_time: Option<Timestamp>,
    /// Time of the last pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked_time: Option<Timestamp>,
    /// Number of objects in the files of the applied commit.
    pub objects: u32,
    /// Objects that others had changed or deleted before the last pass, at most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<Drift>,
    /// Conditions Ready: whether the fetched commit is applied; Drifted: whether others changed objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// An object whose fields in Git were changed by others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    /// Kind of the object.
    pub kind: Kind,
    /// Name of the object.
    pub name: String,
    /// Paths of the changed fields; empty if the object was deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Names of the users that changed the fields, as the API authenticated them. Empty if no change is attributed,
    /// such as the removal of a field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Field managers of the changes, as sent by the clients, such as `hactl`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub managers: Vec<String>,
    /// Whether the object was deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

impl Drift {
    /// Returns the change as a sentence without a full stop, such as `spec.priority changed by ada (hactl)`.
    pub fn sentence(&self) -> String {
        if self.deleted {
            return "Object of the Git repository was deleted, see the audit log for the user".to_owned();
        }
        let managers =
            if self.managers.is_empty() { String::new() } else { format!(" ({})", self.managers.join(", ")) };
        let users = if self.users.is_empty() { "an unknown user".to_owned() } else { self.users.join(", ") };
        format!("{} changed by {users}{managers}", self.fields.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_names_its_fields_and_users() {
        let text = |parts: [&[&str]; 3], deleted: bool| {
            let [fields, users, managers] =
                parts.map(|list| list.iter().map(|text| (*text).to_owned()).collect());
            let (kind, name) = (Kind::Resource, "web".to_owned());
            Drift { kind, name, fields, users, managers, deleted }.sentence()
        };
        let fields = &["spec.priority", "spec.group"];
        assert_eq!(
            text([fields, &["ada"], &["hactl"]], false),
            "spec.priority, spec.group changed by ada (hactl)"
        );
        assert_eq!(text([fields, &[], &[]], false), "spec.priority, spec.group changed by an unknown user");
        assert!(text([&[], &[], &[]], true).contains("deleted"));
    }
}
