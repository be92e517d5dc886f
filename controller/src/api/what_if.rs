//! `/apis/hactl.io/v1/plan`: the effects of a change on services, without making the change.

pub(super) mod effects;

use super::ApiState;
use super::admission::{Context, admit};
use super::authentication::User;
use super::dependency_cycle;
use super::error::ApiError;
use super::facts;
use super::read;
use super::request::{FieldValidation, read_body};
use super::reservation::gate;
use crate::core::world::ClusterView;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use ha_api_types::id::ResourceName;
use ha_api_types::kind::Kind;
use ha_api_types::names;
use ha_api_types::renamed;
use ha_api_types::time::MonotonicTime;
use ha_api_types::view::{Plan, PlanRequest};
use ha_store::{Change, Entry, LeaseId, Store};
use serde_json::Value;

/// Maximum number of objects in one request.
const MAX_OBJECTS: usize = 1000;

/// Handles POST of a [`PlanRequest`] and answers with a [`Plan`].
pub(crate) async fn handler<S: Store>(
    State(state): State<ApiState<S>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let bytes = read_body(body).await?;
    let document =
        ha_api_types::document::json(&bytes).map_err(|error| ApiError::bad_request(error.message))?;
    let plan_request: PlanRequest = serde_json::from_value(document.value).map_err(|error| {
        ApiError::bad_request(format!("request body is not a valid plan request: {error}"))
    })?;
    if plan_request.objects.len() + plan_request.deletions.len() > MAX_OBJECTS {
        return Err(ApiError::bad_request(format!(
            "at most {MAX_OBJECTS} objects can be simulated in one request"
        )));
    }
    let requester_name = User::of_request(&parts).name;
    let mut changed = Vec::new();
    for object in plan_request.objects {
        changed.push(admit_object(&state, &requester_name, object).await?);
    }
    let deleted: Vec<(Kind, String)> = plan_request
        .deletions
        .into_iter()
        .map(|deletion| (deletion.kind, names::without_type(&deletion.name).to_owned()))
        .collect();
    let (mut plan, before, after) = plan_with_views(&state, &changed, &deleted).await?;
    let resources = changed.iter().filter(|(kind, ..)| *kind == Kind::Resource);
    let resources: Vec<ResourceName> = resources.map(|(_, name, _)| name.as_str().into()).collect();
    dependency_cycle::check_all(&before, &after, resources.iter())?;
    plan.warnings.extend(gate::warning(&state, before, after).await?);
    Ok(Json(plan).into_response())
}

/// Returns an object as admission would store it.
async fn admit_object<S: Store>(
    state: &ApiState<S>,
    requester_name: &str,
    mut object: Value,
) -> Result<(Kind, String, Value), ApiError> {
    let kind_name = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let kind = Kind::ALL
        .into_iter()
        .find(|kind| kind.name() == kind_name)
        .ok_or_else(|| ApiError::bad_request(format!("unknown kind {kind_name:?}")))?;
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let current = read::get(state.store(), state.keys(), kind, names::without_type(name)).await?;
    // The uid that a dry run returned for a new object belongs to an object that was never stored.
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("uid");
    }
    let now = state.timestamp();
    let fresh_uid = uuid::Uuid::new_v4().to_string();
    let context = Context {
        kind,
        field_validation: FieldValidation::Strict,
        manager: None,
        requester: requester_name,
        now: &now,
        fresh_uid: &fresh_uid,
    };
    let given_name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    renamed::convert_to_current_names(kind, &mut object)
        .map_err(|problems| ApiError::invalid(kind, &given_name, &problems))?;
    let admitted = admit(&context, current.as_ref(), object, &[])?;
    Ok((kind, admitted.name, admitted.value))
}

/// Returns the effects of storing the changed objects, in the form that would be stored, and of deleting the others.
pub(crate) async fn plan_changes<S: Store>(
    state: &ApiState<S>,
    changed: &[(Kind, String, Value)],
    deleted: &[(Kind, String)],
) -> Result<Plan, ApiError> {
    Ok(plan_with_views(state, changed, deleted).await?.0)
}

/// Returns the plan, and the views of the cluster before and after the change.
async fn plan_with_views<S: Store>(
    state: &ApiState<S>,
    changed: &[(Kind, String, Value)],
    deleted: &[(Kind, String)],
) -> Result<(Plan, ClusterView, ClusterView), ApiError> {
    let before = facts::cluster_view(state).await?;
    let mut after = before.clone();
    let revision = before.revision + 1;
    let mut changes = Vec::new();
    for (kind, name, value) in changed {
        let value = read::bytes(*kind, value)?;
        let key = state.keys().spec(*kind, name);
        let entry = Entry {
            key,
            value: value.into(),
            create_revision: revision,
            mod_revision: revision,
            lease: LeaseId::NONE,
        };
        changes.push(Change::Put(entry));
    }
    for (kind, name) in deleted {
        changes.push(Change::Delete { key: state.keys().spec(*kind, name), revision });
    }
    after.apply(changes, revision, MonotonicTime(0));
    let mut plan = effects::planned_effects(&before, &after);
    if changed.iter().any(|(kind, _, _)| *kind == Kind::Operation) {
        plan.warnings
            .push("operations are not simulated: the leader checks them when it carries them out".to_owned());
    }
    Ok((plan, before, after))
}
