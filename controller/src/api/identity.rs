//! Refusal of a resource with the identity of another resource (FENCING, R7.13).
//!
//! Two resources that are created at the same moment can both pass this check. The leader starts only one of them
//! (IdentityTaken).

use super::error::ApiError;
use super::{ApiState, facts, read};
use ha_api_types::id::ResourceName;
use ha_api_types::kind::Kind;
use ha_api_types::problem::{Problem, ProblemKind};
use ha_api_types::resource::ResourceSpec;
use ha_store::Store;
use serde_json::Value;

/// Refuses a resource whose unit, domain or container belongs to another resource, unless both may run twice. An
/// identity that was shared before the change is not refused again.
pub(super) async fn check<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    name: &str,
    current: Option<&Value>,
    value: &Value,
) -> Result<(), ApiError> {
    if kind != Kind::Resource {
        return Ok(());
    }
    let spec = read::spec_of::<ResourceSpec>(value);
    let resource = ResourceName::from(name);
    let before = current.map(read::spec_of::<ResourceSpec>);
    let identity = spec.driver.identity(&resource);
    let is_as_before = before.is_some_and(|before| {
        before.driver.identity(&resource) == identity && (before.exclusive || !spec.exclusive)
    });
    let Some(identity) = identity.filter(|_| !is_as_before) else { return Ok(()) };
    let cluster_view = facts::cluster_view(state).await?;
    let conflicting =
        cluster_view.resources_with_identity(&identity).filter(|other| **other != resource).find(|other| {
            let exclusive =
                cluster_view.resources.get(*other).is_some_and(|other| other.value.spec.exclusive);
            exclusive || spec.exclusive
        });
    let Some(other) = conflicting else { return Ok(()) };
    let message = format!(
        "resource {other} already manages {identity}: delete resource {other}, or change spec.driver"
    );
    let problem = Problem::new("spec.driver", ProblemKind::FieldValueInvalid, message);
    Err(ApiError::invalid(kind, name, &[problem]))
}
