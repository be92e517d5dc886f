//! Objects as stored in etcd: the JSON of the spec, kept whole, and the status.

use super::answer::ListVersion;
use super::error::ApiError;
use ha_api_types::id::Revision;
use ha_api_types::keys::{Key, Keys};
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::names::{self, TypedName};
use ha_api_types::renamed;
use ha_api_types::resource::ResourceSpec;
use ha_runtime::problems::Problems;
use ha_store::{Entry, Reading, Store};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Revisions of values that are not JSON, by key. Every request reads them again.
static UNREADABLE: Problems<String, Revision> = Problems::new();

/// Value and revisions of one key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyContent {
    pub(crate) value: Value,
    pub(crate) create_revision: Revision,
    pub(crate) mod_revision: Revision,
}

impl KeyContent {
    /// Reads the value of a spec key, with the current names of its fields.
    pub(crate) fn of_spec(kind: Kind, entry: &Entry) -> KeyContent {
        let mut key_content = KeyContent::of(entry);
        renamed::from_stored(kind, &mut key_content.value);
        key_content
    }

    /// Reads the value of a key as stored in etcd; the types of statuses can read that form. A value that is not a JSON
    /// map is served as an empty map, so that one unreadable key does not hide the others.
    pub(crate) fn of(entry: &Entry) -> KeyContent {
        let value = serde_json::from_slice(&entry.value).unwrap_or_else(|error| {
            if UNREADABLE.record(&entry.key, Some(entry.mod_revision)) {
                tracing::warn!(key = entry.key, %error, "cannot parse a value in etcd as JSON");
            }
            Value::Null
        });
        let value = if value.is_object() { value } else { json!({}) };
        KeyContent { value, create_revision: entry.create_revision, mod_revision: entry.mod_revision }
    }
}

/// An object: its spec key, and its status key if one exists.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) spec: KeyContent,
    pub(crate) status: Option<KeyContent>,
}

impl Stored {
    /// Returns the larger of the two keys' mod revisions.
    pub(crate) fn resource_version(&self) -> Revision {
        self.status
            .as_ref()
            .map_or(self.spec.mod_revision, |status| status.mod_revision.max(self.spec.mod_revision))
    }

    /// Returns the object as it is served.
    pub(crate) fn object(&self, kind: Kind) -> Value {
        object(
            kind,
            &self.spec.value,
            self.status.as_ref().map(|status| &status.value),
            self.resource_version(),
        )
    }
}

/// Joins a spec's JSON and a status in its form in etcd to the object as it is served. Revision 0 means that the object
/// has none yet.
pub(crate) fn object(kind: Kind, spec: &Value, status: Option<&Value>, revision: Revision) -> Value {
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), json!(API_VERSION));
    object.insert("kind".to_owned(), json!(kind.name()));
    for (name, part) in spec.as_object().into_iter().flatten() {
        if !matches!(name.as_str(), "apiVersion" | "kind" | "status") {
            object.insert(name.clone(), part.clone());
        }
    }
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.shift_remove("resourceVersion");
        if revision > Revision(0) {
            metadata.insert("resourceVersion".to_owned(), json!(revision.to_string()));
        }
    }
    if let Some(status) = status {
        let mut status = json!({"status": status});
        renamed::from_stored(kind, &mut status);
        object.insert("status".to_owned(), status["status"].take());
    }
    Value::Object(object)
}

/// Returns the bytes of an object's spec key: its form in etcd.
pub(crate) fn bytes(kind: Kind, value: &Value) -> Result<Vec<u8>, ApiError> {
    let mut value = value.clone();
    renamed::to_stored(kind, &mut value);
    serde_json::to_vec(&value).map_err(|error| ApiError::internal(error.to_string()))
}

/// Returns the object with this bare name, both keys read at one revision; `None` if it does not exist.
pub(crate) async fn get<S: Store>(
    store: &S,
    keys: &Keys,
    kind: Kind,
    name: &str,
) -> Result<Option<Stored>, ApiError> {
    // An invalid name has no key: `a/` must not reach keys under another prefix.
    if names::invalid_reason(name, names::MAX_NODE_NAME_LENGTH).is_some() {
        return Ok(None);
    }
    let reading = store.list_all(&[keys.spec(kind, name), keys.status(kind, name)]).await?;
    Ok(join(keys, kind, &reading.entries).remove(name))
}

/// Returns the object with a name as users write it: `100`, or `vm:100` for resources.
///
/// A type that does not match is refused, and the error names the right type.
pub(crate) async fn find<S: Store>(
    store: &S,
    keys: &Keys,
    kind: Kind,
    written: &str,
) -> Result<Stored, ApiError> {
    let typed = match kind {
        Kind::Resource => TypedName::parse(written),
        Kind::Group
        | Kind::AffinityRule
        | Kind::Node
        | Kind::NodeGroup
        | Kind::Cluster
        | Kind::Operation
        | Kind::GitSync => TypedName { type_name: None, name: written },
    };
    let stored =
        get(store, keys, kind, typed.name).await?.ok_or_else(|| ApiError::not_found(kind, typed.name))?;
    if typed.type_name.is_some() {
        let spec: ResourceSpec = spec_of(&stored.spec.value);
        typed.check(&spec).map_err(ApiError::bad_request)?;
    }
    Ok(stored)
}

/// Returns the typed spec of an object. A spec that this version cannot read counts as the default.
pub(crate) fn spec_of<T: serde::de::DeserializeOwned + Default>(object: &Value) -> T {
    object.get("spec").and_then(|spec| serde_json::from_value(spec.clone()).ok()).unwrap_or_default()
}

/// Returns all objects of a kind by name, at one revision.
pub(crate) async fn list<S: Store>(
    store: &S,
    keys: &Keys,
    kind: Kind,
) -> Result<(BTreeMap<String, Stored>, Revision), ApiError> {
    let reading = read_version(store, &selectors(keys, kind), ListVersion::Newest).await?;
    Ok((join(keys, kind, &reading.entries), reading.revision))
}

/// Reads the keys under the selectors at the requested version.
///
/// # Errors
/// 410 if etcd no longer has that version, 504 if etcd has not reached it.
pub(crate) async fn read_version<S: Store>(
    store: &S,
    selectors: &[String],
    version: ListVersion,
) -> Result<Reading, ApiError> {
    let newest = store.list_all(selectors).await?;
    match version {
        // The reading is linearizable, so waiting for a later one cannot help.
        ListVersion::AtLeast(revision) | ListVersion::At(revision) if revision > newest.revision => {
            Err(ApiError::version_too_large(revision, newest.revision))
        }
        ListVersion::Newest | ListVersion::AtLeast(_) => Ok(newest),
        ListVersion::At(revision) if revision == newest.revision => Ok(newest),
        ListVersion::At(revision) => Ok(store.list_at(selectors, revision).await?),
    }
}

/// Returns the key prefixes of the objects of a kind.
pub(crate) fn selectors(keys: &Keys, kind: Kind) -> [String; 2] {
    [keys.specs_of(kind), keys.statuses_of(kind)]
}

/// Keys of an object as read, unparsed. They share their values with the watch cache.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredKeys {
    pub(crate) spec: Entry,
    pub(crate) status: Option<Entry>,
}

impl StoredKeys {
    pub(crate) fn parse(&self, kind: Kind) -> Stored {
        let status = self.status.as_ref().map(KeyContent::of);
        Stored { spec: KeyContent::of_spec(kind, &self.spec), status }
    }
}

/// Joins the keys of one kind to objects by name. A status without a spec is ignored.
pub(crate) fn join_keys(keys: &Keys, entries: &[Entry]) -> BTreeMap<String, StoredKeys> {
    let mut objects = BTreeMap::new();
    for entry in entries {
        if let Some(Key::Spec(_, name)) = keys.parse(&entry.key) {
            objects.insert(name.to_owned(), StoredKeys { spec: entry.clone(), status: None });
        }
    }
    for entry in entries {
        if let Some(Key::Status(_, name)) = keys.parse(&entry.key)
            && let Some(stored) = objects.get_mut(name)
        {
            stored.status = Some(entry.clone());
        }
    }
    objects
}

/// Joins and parses the keys of one kind.
fn join(keys: &Keys, kind: Kind, entries: &[Entry]) -> BTreeMap<String, Stored> {
    join_keys(keys, entries).into_iter().map(|(name, stored)| (name, stored.parse(kind))).collect()
}
