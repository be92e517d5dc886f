//! Writes of the status of a GitSync. The leader writes all other statuses.

use super::json_body;
use crate::api::answer::{self, Shape};
use crate::api::audit::{Change, Changes};
use crate::api::commit::{Written, commit};
use crate::api::error::ApiError;
use crate::api::read::{self, KeyContent, Stored};
use crate::api::request::{Parameters, manager, media_type, read_body};
use crate::api::{ApiState, patch};
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use ha_api_types::document;
use ha_api_types::event::{Event, EventType};
use ha_api_types::git_sync::{GitSyncStatus, MAX_DRIFT};
use ha_api_types::kind::Kind;
use ha_api_types::meta::{Condition, ConditionStatus, set_condition};
use ha_api_types::problem::Problem;
use ha_api_types::schema;
use ha_api_types::table::Rows;
use ha_api_types::time::Timestamp;
use ha_store::{Guard, Store, Transaction};
use serde_json::{Value, json};

/// Maximum number of attempts when other writes come first.
const MAX_ATTEMPTS: usize = 8;

/// Maximum number of conditions in a status.
const MAX_CONDITIONS: usize = 8;

/// An event that a change of a status causes.
#[derive(Clone, Debug, PartialEq)]
struct NewEvent {
    kind: Kind,
    name: String,
    condition: Condition,
    event_type: EventType,
}

/// Handles PUT and PATCH of `/apis/hactl.io/v1/gitsyncs/{name}/status`. The API sets the transition times of
/// conditions, and writes an event for each transition of the condition Ready, and for each newly drifted object.
pub(super) async fn write_status<S: Store>(
    state: &ApiState<S>,
    name: &str,
    parameters: &Parameters,
    parts: &Parts,
    body: Body,
) -> Result<Response, ApiError> {
    let kind = Kind::GitSync;
    let shape = Shape::of(&parts.headers, parameters, Rows::Of(kind))?;
    let sent = match (&parts.method, media_type(&parts.headers)) {
        (&Method::PATCH, "application/merge-patch+json") => {
            document::json(&read_body(body).await?).map_err(|error| ApiError::bad_request(error.message))?
        }
        (&Method::PATCH, other) => {
            return Err(ApiError::unsupported_media_type(other, &["application/merge-patch+json"]));
        }
        _ => json_body(parts, body).await?,
    };
    for _ in 0..MAX_ATTEMPTS {
        let current = read::find(state.store(), state.keys(), kind, name).await?;
        let before = current.status.as_ref().map_or_else(|| json!({}), |status| status.value.clone());
        let proposed = if parts.method == Method::PATCH {
            patch::merge(&json!({ "status": before }), &json!({"status": sent.value["status"]}))?
        } else {
            sent.value.clone()
        };
        let before: GitSyncStatus = serde_json::from_value(before).unwrap_or_default();
        let after = admit(name, &before, &proposed["status"], &state.timestamp())?;
        let value = serde_json::to_value(&after).map_err(|error| ApiError::internal(error.to_string()))?;
        let stored = if parameters.dry_run {
            current.clone()
        } else {
            let Some(stored) =
                store(state, name, &current, &value, &new_events(name, &before, &after)).await?
            else {
                continue;
            };
            stored
        };
        Changes::of_request(parts).add(Change {
            resource_version_before: Some(current.resource_version()),
            resource_version_after: (!parameters.dry_run).then(|| stored.resource_version()),
            field_manager: manager(parameters, &parts.headers),
            dry_run: parameters.dry_run,
            ..Change::of(kind, &current.spec.value)
        });
        let object = read::object(kind, &current.spec.value, Some(&value), stored.resource_version());
        return Ok(answer::object_response(state, shape, object, StatusCode::OK, &[]));
    }
    Err(ApiError::conflict_after_change(kind, name))
}

/// Stores a status with its events. Returns `None` if another write came first.
async fn store<S: Store>(
    state: &ApiState<S>,
    name: &str,
    current: &Stored,
    value: &Value,
    events: &[NewEvent],
) -> Result<Option<Stored>, ApiError> {
    let kind = Kind::GitSync;
    let (spec_key, status_key) = (state.keys().spec(kind, name), state.keys().status(kind, name));
    let bytes = serde_json::to_vec(value).map_err(|error| ApiError::internal(error.to_string()))?;
    let guard = current.status.as_ref().map_or(Guard::Absent, |status| Guard::Unchanged(status.mod_revision));
    let mut transaction = Transaction::new()
        .put(&status_key, guard, bytes.clone())
        .guard(&spec_key, Guard::Unchanged(current.spec.mod_revision));
    let id = &state.options().id;
    for new in events {
        let lease = state.event_lease().id(state.store()).await?;
        let event = event(new, &format!("controller/{id}"), state.timestamp());
        let value = serde_json::to_vec(&event).map_err(|error| ApiError::internal(error.to_string()))?;
        let key = state.keys().event(&format!("controller-{id}"), &uuid::Uuid::new_v4().to_string());
        transaction = transaction.put_leased(key, Guard::Absent, value, lease);
    }
    let written = match commit(state.store(), transaction, &status_key, Some(&bytes)).await {
        Ok(written) => written,
        Err(error) => {
            // The lease may be the cause, for example after a restore of etcd.
            if !events.is_empty() {
                let lease = state.event_lease().id(state.store()).await?;
                state.event_lease().forget(lease).await;
            }
            return Err(error);
        }
    };
    match written {
        Written::Conflict => Ok(None),
        Written::Applied(revision) => {
            let create_revision = current.status.as_ref().map_or(revision, |status| status.create_revision);
            let status = KeyContent { value: value.clone(), create_revision, mod_revision: revision };
            Ok(Some(Stored { spec: current.spec.clone(), status: Some(status) }))
        }
    }
}

/// Checks a status, and sets the transition times of its conditions.
fn admit(
    name: &str,
    before: &GitSyncStatus,
    status: &Value,
    now: &Timestamp,
) -> Result<GitSyncStatus, ApiError> {
    let invalid = |problems: &[Problem]| ApiError::invalid(Kind::GitSync, name, problems);
    let mut status = status.clone();
    let problems = schema::check_types(&schema::of(Kind::GitSync)["properties"]["status"], &status);
    if !problems.is_empty() {
        return Err(invalid(&problems));
    }
    let mut after: GitSyncStatus = serde_json::from_value(status.take())
        .map_err(|error| invalid(&[Problem::invalid("status", error.to_string())]))?;
    for (path, count, limit) in [
        ("status.conditions", after.conditions.len(), MAX_CONDITIONS),
        ("status.drift", after.drift.len(), MAX_DRIFT),
    ] {
        if count > limit {
            let message = format!("must have at most {limit} elements, got {count}");
            return Err(invalid(&[Problem::invalid(path, message)]));
        }
    }
    let mut conditions = before.conditions.clone();
    for condition in &after.conditions {
        set_condition(&mut conditions, condition.clone(), now);
    }
    conditions.retain(|condition| after.conditions.iter().any(|sent| sent.kind == condition.kind));
    after.conditions = conditions;
    Ok(after)
}

/// Returns the events for the changes of a status.
fn new_events(name: &str, before: &GitSyncStatus, after: &GitSyncStatus) -> Vec<NewEvent> {
    let condition = |status: &GitSyncStatus, kind: &str| {
        status.conditions.iter().find(|condition| condition.kind == kind).cloned()
    };
    let mut events = Vec::new();
    let content = |condition: &Condition| (condition.status, condition.reason, condition.message.clone());
    if let Some(ready) = condition(after, "Ready")
        && condition(before, "Ready").as_ref().map(content) != Some(content(&ready))
    {
        let event_type =
            if ready.status == ConditionStatus::True { EventType::Normal } else { EventType::Warning };
        events.push(NewEvent { kind: Kind::GitSync, name: name.to_owned(), condition: ready, event_type });
    }
    if let Some(drifted) =
        condition(after, "Drifted").filter(|drifted| drifted.status == ConditionStatus::True)
    {
        for drift in after.drift.iter().filter(|drift| !before.drift.contains(drift)) {
            let message = format!("{}. Undone from Git by gitsync/{name}", drift.sentence());
            events.push(NewEvent {
                kind: drift.kind,
                name: drift.name.clone(),
                condition: Condition { message, ..drifted.clone() },
                event_type: EventType::Warning,
            });
        }
    }
    events
}

fn event(new: &NewEvent, source: &str, now: Timestamp) -> Event {
    Event {
        kind: new.kind,
        name: new.name.clone(),
        uid: String::new().into(),
        event_type: new.event_type,
        reason: new.condition.reason,
        message: new.condition.message.clone(),
        source: source.to_owned(),
        node: None,
        action_uid: None,
        operation: None,
        epoch: None,
        at: now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(ready: &str, message: &str, drift: &Value) -> Value {
        let reason = if ready == "True" { "CommitApplied" } else { "FetchFailed" };
        let drifted = if drift.as_array().is_some_and(|list| !list.is_empty()) { "True" } else { "False" };
        json!({"conditions": [
            {"type": "Drifted", "status": drifted, "reason": "DriftCorrected", "message": "m"},
            {"type": "Ready", "status": ready, "reason": reason, "message": message},
        ], "drift": drift})
    }

    fn next(before: &GitSyncStatus, sent: &Value, second: u8) -> (GitSyncStatus, Vec<String>) {
        let now = Timestamp(format!("2026-01-01T00:00:0{second}Z"));
        let after = admit("site1", before, sent, &now).expect("a valid status");
        let events = new_events("site1", before, &after);
        let texts = events.iter().map(|new| format!("{}/{}: {}", new.kind, new.name, new.condition.message));
        (after.clone(), texts.collect())
    }

    #[test]
    fn transitions_and_new_drift_cause_one_event_each() {
        let drift = json!([{"kind": "Resource", "name": "web", "fields": ["spec.group"], "users": ["ada"]}]);
        let (first, events) = next(&GitSyncStatus::default(), &status("True", "applied", &json!([])), 1);
        assert_eq!(events, ["GitSync/site1: applied"]);
        let (second, events) = next(&first, &status("True", "applied", &drift), 2);
        assert_eq!(events, ["Resource/web: spec.group changed by ada. Undone from Git by gitsync/site1"]);
        let times: Vec<_> = second.conditions.iter().map(|held| held.last_transition_time.clone()).collect();
        assert_eq!(
            times,
            ["2026-01-01T00:00:02Z", "2026-01-01T00:00:01Z"].map(|text| Some(Timestamp(text.to_owned())))
        );
        let (third, events) = next(&second, &status("True", "applied", &drift), 3);
        assert_eq!((events, &third), (Vec::new(), &second), "nothing is reported twice");
        let (_, events) = next(&third, &status("False", "no route", &json!([])), 4);
        assert_eq!(events, ["GitSync/site1: no route"]);
    }

    #[test]
    fn invalid_statuses_are_refused() {
        let check = |status: &Value| {
            let now = Timestamp("2026-01-01T00:00:01Z".to_owned());
            assert!(admit("site1", &GitSyncStatus::default(), status, &now).is_err(), "{status}");
        };
        check(&json!({"objects": "many"}));
        check(&json!({"drift": [{"kind": "Pod", "name": "web"}]}));
        check(&json!({"drift": vec![json!({"kind": "Group", "name": "g"}); MAX_DRIFT + 1]}));
        check(&json!([]));
    }
}
