//! Objects as stored and served: metadata, desired state, observed state.

use crate::kind::{API_VERSION, Kind};
use crate::meta::ObjectMeta;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A spec, which determines the kind of its object and the type of its status.
pub trait Spec: Clone + Default + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// Observed state of such an object, written by controllers.
    type Status: Clone
        + Default
        + PartialEq
        + Serialize
        + DeserializeOwned
        + JsonSchema
        + Send
        + Sync
        + 'static;
    /// Kind of the object.
    const KIND: Kind;
}

/// An object of the API. The spec key holds it without `status`; the status key holds only the status.
///
/// Reading ignores unknown fields, so that an older program can read the data of a newer program. Writers of specs work
/// on the JSON value and keep unknown fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", bound(serialize = "S: Spec", deserialize = "S: Spec"))]
#[schemars(bound = "S: Spec")]
pub struct Object<S: Spec> {
    /// Version of the API, always `hactl.io/v1`.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Name and labels, and fields that the API adds.
    pub metadata: ObjectMeta,
    /// Desired state, written by users.
    #[serde(default)]
    pub spec: S,
    /// Observed state, written by controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<S::Status>,
}

impl<S: Spec> Object<S> {
    /// Builds an object with a name and a spec.
    pub fn new(name: &str, spec: S) -> Object<S> {
        Object {
            api_version: API_VERSION.to_owned(),
            kind: S::KIND.name().to_owned(),
            metadata: ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() },
            spec,
            status: None,
        }
    }

    /// Returns the name of the object.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }
}
