//! Admission of objects before they are stored: checks fields, fills in metadata, and sets the generation.

use super::error::ApiError;
use super::read::{Stored, object, spec_of};
use super::request::FieldValidation;
use super::server_side_apply::{self, Author};
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::id::Revision;
use ha_api_types::kind::Kind;
use ha_api_types::names::{self, TypedName};
use ha_api_types::operation::OperationAction;
use ha_api_types::problem::Problem;
use ha_api_types::resource::ResourceSpec;
use ha_api_types::time::Timestamp;
use ha_api_types::{schema, validation};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Finalizer that keeps a deleted Resource until the leader no longer manages it.
pub(crate) const MANAGED_FINALIZER: &str = "hactl.io/managed";

/// Metadata that the API writes and users cannot.
const API_METADATA: [&str; 4] = ["uid", "generation", "creationTimestamp", "deletionTimestamp"];

/// Input of an admission in addition to the objects.
#[derive(Clone, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) kind: Kind,
    pub(crate) field_validation: FieldValidation,
    /// Field manager of the write; `None` if server-side apply has already computed the owners.
    pub(crate) manager: Option<&'a str>,
    /// Name of the client, for records.
    pub(crate) requester: &'a str,
    pub(crate) now: &'a Timestamp,
    /// Unused uid, for a new object and for generated names.
    pub(crate) fresh_uid: &'a str,
}

/// An object that is ready to be stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Admitted {
    /// Name without a type prefix.
    pub(crate) name: String,
    /// Value of the spec key.
    pub(crate) value: Value,
    /// Texts of the `Warning:` headers.
    pub(crate) warnings: Vec<String>,
}

/// Admits a new object (`current` is `None`) or a new version of an object.
pub(crate) fn admit(
    context: &Context<'_>,
    current: Option<&Stored>,
    mut proposed: Value,
    duplicates: &[String],
) -> Result<Admitted, ApiError> {
    let kind = context.kind;
    if !proposed.is_object() {
        return Err(ApiError::bad_request(format!("a {kind} must be a map")));
    }
    let mut warnings = Vec::new();
    if let Some(map) = proposed.as_object_mut() {
        // Users do not write status. A client may send back the status that it read: that status is ignored.
        map.shift_remove("status");
    }
    check_fields(context, current, &mut proposed, duplicates, &mut warnings)?;
    schema::prune_nulls(schema::of(kind), &mut proposed);
    if !proposed.get("metadata").is_some_and(Value::is_object) {
        let problems = validation::problems(kind, &proposed);
        return Err(ApiError::invalid(kind, "", &problems));
    }
    let name = resolve_name(context, current, &mut proposed)?;
    resolve_metadata(context, current, &mut proposed)?;
    complete_operation(context, current, &mut proposed)?;
    let problems = problems(kind, current, &proposed);
    if !problems.is_empty() {
        return Err(ApiError::invalid(kind, &name, &problems));
    }
    let stored = current.map(|current| current.spec.value.clone());
    set_generation(stored.as_ref(), &mut proposed);
    if let Some(manager) = context.manager {
        let author = Author { manager, user: context.requester };
        server_side_apply::record_update(stored.as_ref(), &mut proposed, author, context.now);
    }
    Ok(Admitted { name, value: in_order(kind, &proposed), warnings })
}

/// Returns the problems of an object. An Operation that an earlier version stored without an action is checked with the
/// default action.
fn problems(kind: Kind, current: Option<&Stored>, proposed: &Value) -> Vec<Problem> {
    let mut proposed = Cow::Borrowed(proposed);
    if kind == Kind::Operation
        && current.is_some()
        && proposed.pointer("/spec/action").is_none()
        && let Some(Value::Object(spec)) = proposed.to_mut().get_mut("spec")
    {
        spec.insert("action".to_owned(), json!(OperationAction::default()));
    }
    validation::problems(kind, &proposed)
}

/// Handles unknown and duplicate fields: refuses them, or drops them with or without a warning. Stored unknown fields
/// are kept.
fn check_fields(
    context: &Context<'_>,
    current: Option<&Stored>,
    proposed: &mut Value,
    duplicates: &[String],
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    let schema = schema::of(context.kind);
    let current_fields: BTreeSet<String> = current
        .map(|current| schema::unknown_fields(schema, &current.spec.value))
        .into_iter()
        .flatten()
        .map(|problem| problem.path)
        .collect();
    let mut problems: Vec<Problem> = duplicates.iter().map(|path| duplicate(path)).collect();
    problems.extend(
        schema::unknown_fields(schema, proposed)
            .into_iter()
            .filter(|problem| !current_fields.contains(&problem.path)),
    );
    if problems.is_empty() {
        return Ok(());
    }
    match context.field_validation {
        FieldValidation::Strict => return Err(ApiError::strict(context.kind, &problems)),
        FieldValidation::Warn => warnings.extend(problems.into_iter().map(|problem| problem.message)),
        FieldValidation::Ignore => {}
    }
    schema::drop_unknown(schema, proposed, &current_fields);
    Ok(())
}

fn duplicate(path: &str) -> Problem {
    let kind = ha_api_types::problem::ProblemKind::FieldValueDuplicate;
    Problem::new(path, kind, format!("duplicate field \"{path}\""))
}

/// Returns the name without a type prefix: the given one, after a check of its type, or a generated one.
fn resolve_name(
    context: &Context<'_>,
    current: Option<&Stored>,
    proposed: &mut Value,
) -> Result<String, ApiError> {
    let text =
        |pointer: &str| proposed.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut name = text("/metadata/name");
    let generate = text("/metadata/generateName");
    let suffix: String = context.fresh_uid.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    if name.is_empty() && current.is_none() {
        if !generate.is_empty() {
            name = format!("{generate}{suffix}");
        } else if context.kind == Kind::Operation {
            // An Operation does not need a name from the user.
            let part = |pointer: &str| TypedName::parse(&text(pointer)).name.to_lowercase();
            let parts = [part("/spec/action"), part("/spec/resource"), part("/spec/node"), suffix];
            let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            name = parts.join("-");
        }
    }
    if context.kind == Kind::Resource && name.contains(':') {
        let spec: ResourceSpec = spec_of(proposed);
        let typed = TypedName::parse(&name);
        typed.check(&spec).map_err(ApiError::bad_request)?;
        name.drain(..name.len() - names::without_type(&name).len());
    }
    if let Some(current) = current {
        let stored_name =
            current.spec.value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        if !name.is_empty() && name != stored_name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({stored_name})"
            )));
        }
        stored_name.clone_into(&mut name);
    }
    proposed["metadata"]["name"] = json!(name);
    Ok(name)
}

fn resolve_metadata(
    context: &Context<'_>,
    current: Option<&Stored>,
    proposed: &mut Value,
) -> Result<(), ApiError> {
    let Some(metadata) = proposed.get_mut("metadata").and_then(Value::as_object_mut) else { return Ok(()) };
    let stored_metadata =
        current.and_then(|current| current.spec.value.get("metadata")).and_then(Value::as_object);
    let uid = |metadata: &Map<String, Value>| {
        metadata.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    if let Some(stored_metadata) = stored_metadata {
        let (given_uid, stored_uid) = (uid(metadata), uid(stored_metadata));
        if !given_uid.is_empty() && given_uid != stored_uid {
            let name = stored_metadata.get("name").and_then(Value::as_str).unwrap_or_default();
            let text =
                format!("the object has uid {stored_uid}, not {given_uid}: it was deleted and created again");
            return Err(ApiError::conflict(context.kind, name, &text));
        }
    }
    for field in ["resourceVersion", "generateName", "selfLink"] {
        metadata.shift_remove(field);
    }
    for field in API_METADATA {
        match stored_metadata.and_then(|stored_metadata| stored_metadata.get(field)) {
            Some(value) => {
                metadata.insert(field.to_owned(), value.clone());
            }
            None => {
                metadata.shift_remove(field);
            }
        }
    }
    if stored_metadata.is_none() {
        metadata.insert("uid".to_owned(), json!(context.fresh_uid));
        metadata.insert("creationTimestamp".to_owned(), json!(context.now));
    }
    if stored_metadata.is_some_and(|stored_metadata| !stored_metadata.contains_key("managedFields"))
        && metadata.get("managedFields").is_none()
    {
        metadata.shift_remove("managedFields");
    }
    if context.kind == Kind::Resource {
        ensure_finalizer(metadata);
    }
    Ok(())
}

/// Adds the leader's finalizer if it is missing. Only the leader removes it, by deleting the object.
fn ensure_finalizer(metadata: &mut Map<String, Value>) {
    let list = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut()
        && !list.iter().any(|finalizer| finalizer.as_str() == Some(MANAGED_FINALIZER))
    {
        list.push(json!(MANAGED_FINALIZER));
    }
}

/// Sets the requester of a new Operation, and refuses changes of a recorded one.
fn complete_operation(
    context: &Context<'_>,
    current: Option<&Stored>,
    proposed: &mut Value,
) -> Result<(), ApiError> {
    if context.kind != Kind::Operation {
        return Ok(());
    }
    match current {
        None => {
            if proposed.get("spec").is_some_and(Value::is_object) {
                proposed["spec"]["requestedBy"] = json!(context.requester);
                // The leader looks up the name without a type prefix.
                if let Some(Value::String(name)) = proposed.pointer_mut("/spec/resource") {
                    *name = names::without_type(name).to_owned();
                }
            }
            Ok(())
        }
        Some(current) if current.spec.value.get("spec") == proposed.get("spec") => Ok(()),
        Some(_) => {
            let problem =
                Problem::forbidden("spec", "a recorded operation cannot be changed: create another one");
            let name = proposed.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            Err(ApiError::invalid(context.kind, name, &[problem]))
        }
    }
}

/// Sets the generation: 1 for a new object, and one more for each change of the spec.
fn set_generation(current: Option<&Value>, proposed: &mut Value) {
    let generation = match current {
        None => 1,
        Some(current) => {
            let current_generation =
                current.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(1);
            let empty = json!({});
            let spec = |object: &Value| object.get("spec").unwrap_or(&empty).clone();
            if spec(current) == spec(proposed) {
                current_generation
            } else {
                current_generation.saturating_add(1)
            }
        }
    };
    proposed["metadata"]["generation"] = json!(generation);
}

/// Returns the object with its members in the order of the served form.
fn in_order(kind: Kind, value: &Value) -> Value {
    let mut ordered = object(kind, value, None, Revision(0));
    if ordered.get("spec").is_none() {
        ordered["spec"] = json!({});
    }
    ordered
}

/// Checks whether an object of this kind and name may be created.
pub(crate) fn check_creatable(kind: Kind, name: &str) -> Result<(), ApiError> {
    if kind == Kind::Cluster && name != CLUSTER_NAME {
        let text = format!("must be {CLUSTER_NAME}: only one Cluster object exists");
        return Err(ApiError::invalid(kind, name, &[Problem::invalid("metadata.name", text)]));
    }
    Ok(())
}
