//! Refusal of changes to the identity and `exclusive` of a resource while a copy may exist (FENCING, R6.7).

use super::ApiState;
use super::error::ApiError;
use super::read::Stored;
use crate::core::definition_change::{BlockingRecords, keeps_identity_and_exclusive, refusal};
use ha_api_types::id::{ResourceName, Revision};
use ha_api_types::keys::Key;
use ha_api_types::kind::Kind;
use ha_api_types::problem::Problem;
use ha_api_types::record::{Assignment, ServiceReport};
use ha_api_types::resource::{Resource, ResourceStatus, ServiceState};
use ha_store::{Guard, Store};
use serde_json::Value;

/// Refuses a change that is not allowed while a copy may exist. Returns the guards of the keys on which the decision is
/// based; none if identity and `exclusive` stay.
pub(crate) async fn check<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    name: &str,
    current: &Stored,
    value: &Value,
) -> Result<Vec<(String, Guard)>, ApiError> {
    if kind != Kind::Resource {
        return Ok(Vec::new());
    }
    let read = |value: &Value| serde_json::from_value::<Resource>(value.clone()).ok();
    let (Some(before), Some(after)) = (read(&current.spec.value), read(value)) else { return Ok(Vec::new()) };
    if keeps_identity_and_exclusive(&before, &after) {
        return Ok(Vec::new());
    }
    let keys = state.keys();
    let status = current
        .status
        .as_ref()
        .map(|status| serde_json::from_value::<ResourceStatus>(status.value.clone()))
        .transpose()
        .map_err(|error| {
            ApiError::internal(format!("the status of resource {name} cannot be read: {error}"))
        })?;
    let resource = ResourceName::from(name);
    let (assignment_key, tombstone_key) = (keys.assignment(&resource), keys.tombstone(&resource));
    let reading = state.store().list_all(&[assignment_key.clone(), tombstone_key.clone()]).await?;
    let find = |key: &str| reading.entries.iter().find(|entry| entry.key == key);
    let assignment = find(&assignment_key);
    let mut blocking_records = BlockingRecords {
        assigned: assignment.map(|entry| {
            serde_json::from_slice::<Assignment>(&entry.value)
                .map_or_else(|_| "a node".to_owned(), |location| location.node.to_string())
        }),
        has_tombstone: find(&tombstone_key).is_some(),
        reported: Vec::new(),
    };
    if status.as_ref().is_none_or(|status| status.state == ServiceState::Queued) {
        for entry in state.store().list_all(&[keys.reports()]).await?.entries {
            if let Some(Key::ServiceReport(node, reported)) = keys.parse(&entry.key)
                && reported == resource
                && serde_json::from_slice::<ServiceReport>(&entry.value)
                    .map_or(true, |report| report.uid == before.metadata.uid && report.phase.may_run())
            {
                blocking_records.reported.push(node);
            }
        }
    }
    if let Some(refusal) = refusal(&before, &after, status.as_ref(), &blocking_records) {
        return Err(ApiError::invalid(kind, name, &[Problem::forbidden(refusal.field, refusal.message)]));
    }
    let guard_of = |revision: Option<Revision>| revision.map_or(Guard::Absent, Guard::Unchanged);
    Ok(vec![
        (keys.status(kind, name), guard_of(current.status.as_ref().map(|status| status.mod_revision))),
        (assignment_key, guard_of(assignment.map(|entry| entry.mod_revision))),
    ])
}
