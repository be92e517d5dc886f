//! Types of the Kubernetes API that this API also serves: lists, errors, discovery, reviews and events. Unknown fields
//! are ignored, and missing fields have their defaults.

use crate::event::EventType;
use crate::meta::ObjectMeta;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Metadata of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMeta {
    /// Etcd revision at which the list was read.
    pub resource_version: String,
    /// Token of the next page. Empty on the last page.
    #[serde(rename = "continue")]
    pub continue_token: String,
}

/// An error: `metav1.Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
    /// Reason in CamelCase, such as `AlreadyExists`.
    pub reason: String,
    /// Message for the user.
    pub message: String,
    /// Invalid fields.
    pub details: StatusDetails,
}

/// Details of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StatusDetails {
    /// Invalid fields, each with its problem.
    pub causes: Vec<StatusCause>,
}

/// An invalid field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    /// Path of the field. May be empty.
    pub field: String,
    /// Description of the problem.
    pub message: String,
}

/// The versions of a controller: `/version`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Version {
    /// Version of Kubernetes that the API resembles.
    pub git_version: Option<String>,
    /// Version of hactl.
    pub hactl_version: Option<String>,
}

/// The API groups: `/apis`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ApiGroupList {
    /// Groups that the API serves.
    pub groups: Vec<ApiGroup>,
}

/// An API group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiGroup {
    /// Version that clients should use.
    pub preferred_version: GroupVersion,
}

/// A version of an API group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupVersion {
    /// Group and version, such as `hactl.io/v1`.
    pub group_version: String,
}

/// The kinds of an API group: `/apis/hactl.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiResourceList {
    /// Group and version, such as `hactl.io/v1`; `v1` for the core group.
    pub group_version: String,
    /// Kinds and their subresources.
    pub resources: Vec<ApiResource>,
}

/// A kind or a subresource that the API serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiResource {
    /// Plural name, as in URLs; `resources/status` for a subresource.
    pub name: String,
    /// Singular name.
    pub singular_name: String,
    /// Whether objects have a namespace.
    pub namespaced: bool,
    /// Name of the kind.
    pub kind: String,
    /// Verbs that the API allows.
    pub verbs: Vec<String>,
    /// Abbreviations.
    pub short_names: Vec<String>,
    /// Categories, such as `all`.
    pub categories: Vec<String>,
}

/// The request of a permission check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReviewSpec {
    /// The action to check.
    pub resource_attributes: ResourceAttributes,
}

/// An action on objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceAttributes {
    /// Verb, such as `create`; `*` for all.
    pub verb: String,
    /// API group; `*` for all.
    pub group: String,
    /// Plural name of the kind; `*` for all.
    pub resource: String,
    /// Name of the object. Empty for all.
    pub name: String,
    /// Subresource. Empty for the object itself.
    pub subresource: String,
}

/// The answer of a review.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ReviewStatus {
    /// Whether the API allows the action.
    pub allowed: bool,
    /// Explanation. May be empty.
    pub reason: String,
}

/// The permissions of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RulesReviewStatus {
    /// Permissions on objects.
    pub resource_rules: Vec<ResourceRule>,
    /// Permissions on paths, such as `/metrics`.
    pub non_resource_rules: Vec<PathRule>,
}

/// Permissions on objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRule {
    /// Verbs; `*` for all.
    pub verbs: Vec<String>,
    /// API groups; `*` for all.
    pub api_groups: Vec<String>,
    /// Plural names of the kinds, some with a subresource; `*` for all.
    pub resources: Vec<String>,
    /// Names of the objects; empty for all.
    pub resource_names: Vec<String>,
}

/// Permissions on paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PathRule {
    /// Verbs; `*` for all.
    pub verbs: Vec<String>,
    /// Paths; a final `*` stands for any rest.
    #[serde(rename = "nonResourceURLs")]
    pub paths: Vec<String>,
}

/// The identity of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IdentityReviewStatus {
    /// Name and groups.
    pub user_info: UserInfo,
}

/// Name and groups of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// Name: the common name of the certificate, or the name of the token.
    pub username: String,
    /// Groups, which select the roles.
    pub groups: Vec<String>,
}

/// An event in the form of core/v1. The reason stays text, because a newer server may have more of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CoreEvent {
    /// Name and annotations.
    pub metadata: ObjectMeta,
    /// Object that the event is about.
    pub involved_object: ObjectReference,
    /// Operation that requested the action, if any.
    pub related: Option<ObjectReference>,
    /// Severity.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// CamelCase reason.
    pub reason: String,
    /// Description, as a sentence.
    pub message: String,
    /// Writer of the event.
    pub source: EventSource,
    /// Time of the first occurrence.
    pub first_timestamp: Option<Timestamp>,
    /// Time of the last occurrence.
    pub last_timestamp: Option<Timestamp>,
    /// Time of the event, if it is not a series.
    pub event_time: Option<Timestamp>,
}

impl CoreEvent {
    /// Returns the time of the last occurrence; empty if unknown.
    pub fn time(&self) -> &str {
        let times = [&self.last_timestamp, &self.event_time, &self.first_timestamp];
        let mut times = times.into_iter().chain([&self.metadata.creation_timestamp]).flatten();
        times.next().map_or("", |time| &time.0)
    }

    /// Returns the value of an annotation; empty if there is none.
    pub fn annotation(&self, name: &str) -> &str {
        self.metadata.annotations.get(name).map_or("", String::as_str)
    }
}

/// A reference to an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ObjectReference {
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

/// Writer of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EventSource {
    /// Program.
    pub component: String,
    /// Host of the program, or id of the controller.
    pub host: String,
}
