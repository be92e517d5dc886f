//! Deletion of objects. A Resource waits until the leader no longer manages it; other objects are deleted
//! immediately.

use super::deleted_status;
use crate::api::ApiState;
use crate::api::answer::{self, Shape};
use crate::api::audit::{Change, Changes};
use crate::api::authentication::User;
use crate::api::commit::{Written, commit};
use crate::api::error::ApiError;
use crate::api::read::{self, Stored};
use crate::api::request::{Parameters, read_body};
use crate::api::selector::Selector;
use crate::core::commands::{names_node, node_deletion_refusal};
use axum::Json;
use axum::body::Body;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use ha_api_types::id::NodeName;
use ha_api_types::kind::Kind;
use ha_api_types::record::{Assignment, Fence};
use ha_api_types::table::Rows;
use ha_store::{Guard, Store, Transaction};
use serde_json::{Value, json};

/// Maximum number of attempts of a deletion when other writes come first.
const MAX_ATTEMPTS: usize = 8;

/// Accepted values of `propagationPolicy`. They have no effect, because no object has an owner.
const PROPAGATION_POLICIES: [&str; 3] = ["Background", "Foreground", "Orphan"];

/// Preconditions on the object that the client sets.
#[derive(Clone, Debug, Default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
    dry_run: bool,
}

/// Handles DELETE of one object.
pub(super) async fn delete_object<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    name: &str,
    parameters: &Parameters,
    parts: &Parts,
    body: Body,
) -> Result<Response, ApiError> {
    let shape = Shape::of(&parts.headers, parameters, Rows::Of(kind))?;
    let bytes = read_body(body).await?;
    let mut preconditions = preconditions(&bytes)?;
    preconditions.dry_run |= parameters.dry_run;
    Ok(match delete(state, kind, name, &preconditions, &Changes::of_request(parts)).await? {
        DeletionOutcome::Deleted(uid) => Json(deleted_status(kind, name, &uid)).into_response(),
        DeletionOutcome::Marked(stored) => {
            let object = User::of_request(parts).secret_values(kind).in_object(stored.object(kind));
            answer::object_response(state, shape, object, StatusCode::OK, &[])
        }
    })
}

/// Handles DELETE of all objects of a kind that a selector matches.
pub(super) async fn delete_collection<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    parameters: &Parameters,
    parts: &Parts,
) -> Result<Response, ApiError> {
    let selector = Selector::parse(Rows::Of(kind), &parameters.label_selector, &parameters.field_selector)?;
    let (objects, revision) = read::list(state.store(), state.keys(), kind).await?;
    let preconditions = Preconditions { dry_run: parameters.dry_run, ..Preconditions::default() };
    let secret_values = User::of_request(parts).secret_values(kind);
    let changes = Changes::of_request(parts);
    let mut items = Vec::new();
    for (name, stored) in objects {
        let object = secret_values.in_object(stored.object(kind));
        if selector.matches(&object) {
            match delete(state, kind, &name, &preconditions, &changes).await {
                Ok(_) => items.push(object),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(Json(json!({
        "kind": format!("{kind}List"),
        "apiVersion": ha_api_types::kind::API_VERSION,
        "metadata": {"resourceVersion": revision.to_string()},
        "items": items,
    }))
    .into_response())
}

fn preconditions(bytes: &[u8]) -> Result<Preconditions, ApiError> {
    if bytes.is_empty() {
        return Ok(Preconditions::default());
    }
    let options =
        ha_api_types::document::json(bytes).map_err(|error| ApiError::bad_request(error.message))?.value;
    let text = |pointer: &str| options.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let dry_run_values = options.get("dryRun").and_then(Value::as_array).cloned().unwrap_or_default();
    if dry_run_values.iter().any(|value| value != "All") {
        return Err(ApiError::bad_request("dryRun: must be [\"All\"]"));
    }
    let policy = options.get("propagationPolicy").and_then(Value::as_str).unwrap_or("Background");
    if !PROPAGATION_POLICIES.contains(&policy) {
        let allowed = PROPAGATION_POLICIES.join(", ");
        return Err(ApiError::bad_request(format!("propagationPolicy={policy}: must be one of {allowed}")));
    }
    let dry_run = !dry_run_values.is_empty();
    Ok(Preconditions {
        uid: text("/preconditions/uid"),
        resource_version: text("/preconditions/resourceVersion"),
        dry_run,
    })
}

enum DeletionOutcome {
    /// Deleted; contains the uid.
    Deleted(String),
    /// Deleted once its finalizers are removed; contains the object as it is now.
    Marked(Stored),
}

async fn delete<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    name: &str,
    preconditions: &Preconditions,
    changes: &Changes,
) -> Result<DeletionOutcome, ApiError> {
    for _ in 0..MAX_ATTEMPTS {
        let stored = read::find(state.store(), state.keys(), kind, name).await?;
        let text =
            |pointer: &str| stored.spec.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let uid = text("/metadata/uid").to_owned();
        let version = stored.resource_version().to_string();
        for (precondition, required, actual) in [
            ("UID", &preconditions.uid, &uid),
            ("ResourceVersion", &preconditions.resource_version, &version),
        ] {
            if required.as_ref().is_some_and(|required| required != actual) {
                let text = format!("{precondition} in precondition does not match: the object has {actual}");
                return Err(ApiError::conflict(kind, name, &text));
            }
        }
        let object_name = text("/metadata/name").to_owned();
        let has_finalizers = stored
            .spec
            .value
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty());
        let outcome = if has_finalizers {
            mark_for_deletion(state, kind, &object_name, &stored, preconditions.dry_run).await?
        } else {
            remove(state, kind, &object_name, &stored, preconditions.dry_run)
                .await?
                .then_some(DeletionOutcome::Deleted(uid))
        };
        match outcome {
            Some(deletion) => {
                let after = match &deletion {
                    DeletionOutcome::Marked(marked) if !preconditions.dry_run => {
                        Some(marked.resource_version())
                    }
                    DeletionOutcome::Marked(_) | DeletionOutcome::Deleted(_) => None,
                };
                changes.add(Change {
                    resource_version_before: Some(stored.resource_version()),
                    resource_version_after: after,
                    dry_run: preconditions.dry_run,
                    ..Change::of(kind, &stored.spec.value)
                });
                return Ok(deletion);
            }
            None if preconditions.resource_version.is_some() => {
                return Err(ApiError::conflict_after_change(kind, name));
            }
            None => {}
        }
    }
    Err(ApiError::conflict_after_change(kind, name))
}

/// Sets the deletion timestamp; `None` if another write came first.
async fn mark_for_deletion<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    name: &str,
    stored: &Stored,
    dry_run: bool,
) -> Result<Option<DeletionOutcome>, ApiError> {
    let mut marked = stored.clone();
    if marked.spec.value.pointer("/metadata/deletionTimestamp").is_none() {
        marked.spec.value["metadata"]["deletionTimestamp"] = json!(state.timestamp());
        if !dry_run {
            let key = state.keys().spec(kind, name);
            let bytes = read::bytes(kind, &marked.spec.value)?;
            let transaction =
                Transaction::new().put(&key, Guard::Unchanged(stored.spec.mod_revision), bytes.clone());
            match commit(state.store(), transaction, &key, Some(&bytes)).await? {
                Written::Applied(revision) => marked.spec.mod_revision = revision,
                Written::Conflict => return Ok(None),
            }
        }
    }
    Ok(Some(DeletionOutcome::Marked(marked)))
}

/// Removes the object. Returns `false` if another write came first.
async fn remove<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    name: &str,
    stored: &Stored,
    dry_run: bool,
) -> Result<bool, ApiError> {
    let key = state.keys().spec(kind, name);
    let status_key = state.keys().status(kind, name);
    let mut transaction = Transaction::new().delete(&key, Guard::Unchanged(stored.spec.mod_revision));
    if kind == Kind::Node {
        // The status of a Node stays: the leader shows the node as Gone for a while.
        transaction = release_node(state, &name.into(), transaction).await?;
    } else {
        transaction = match &stored.status {
            Some(status) => transaction.delete(&status_key, Guard::Unchanged(status.mod_revision)),
            None => transaction.guard(&status_key, Guard::Absent),
        };
    }
    if dry_run {
        return Ok(true);
    }
    Ok(match commit(state.store(), transaction, &key, None).await? {
        Written::Applied(_) => true,
        Written::Conflict => false,
    })
}

/// Refuses to delete a Node unless no service can run there under hactl: its epoch is closed, and no assignment names
/// it.
///
/// The guard on the fence key keeps this true, because an assignment needs an open epoch. The fence key is never
/// deleted.
async fn release_node<S: Store>(
    state: &ApiState<S>,
    name: &NodeName,
    transaction: Transaction,
) -> Result<Transaction, ApiError> {
    let key = state.keys().fence(name);
    let reading = state.store().get(&key).await?;
    let (fence, guard) = match reading.entries.first() {
        None => (None, Guard::Absent),
        Some(entry) => {
            let fence: Fence = serde_json::from_slice(&entry.value)
                .map_err(|error| ApiError::internal(format!("the record {key} cannot be read: {error}")))?;
            (Some(fence.state), Guard::Unchanged(entry.mod_revision))
        }
    };
    let assignments = state.store().list(&state.keys().assignments()).await?;
    let assigned_resources: Vec<&str> = assignments
        .entries
        .iter()
        .filter(|entry| names_node(serde_json::from_slice::<Assignment>(&entry.value).ok().as_ref(), name))
        .filter_map(|entry| entry.key.rsplit('/').next())
        .collect();
    match node_deletion_refusal(name, fence, &assigned_resources) {
        None => Ok(transaction.guard(key, guard)),
        Some(text) => Err(ApiError::conflict(Kind::Node, name, &text)),
    }
}
