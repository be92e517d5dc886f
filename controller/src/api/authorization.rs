//! Authorization: the one decision about each request, from the roles of its user; pure.
//!
//! Every request is checked before its handler runs. Handlers of writes check again where the decision depends on the
//! content of the request: the action of an operation, and the fields of a node that change.

mod attributes;
mod roles;
#[cfg(test)]
mod tests;

pub(crate) use attributes::Attributes;
pub(crate) use roles::{Rule, rules, self_reviews};

use super::authentication::User;
use super::error::ApiError;
use ha_api_types::error_reason::ErrorReason;
use ha_api_types::role::Role;
use roles::rules_permit;

/// Decides whether a user may perform an action, for a review of its access.
///
/// Guarantees: the decision depends only on the arguments.
/// Errors: the reason for the refusal.
pub(crate) fn decide(user: &User, attributes: &Attributes) -> Result<(), String> {
    attributes.check_resource_and_verb()?;
    let is_permitted = questions(attributes).iter().any(|each| permits(user, each));
    if is_permitted { Ok(()) } else { Err(refusal_reason(user, attributes)) }
}

/// Returns the permissions of which one suffices. The action decides about an operation, so a question without an action
/// is about any of them.
fn questions(attributes: &Attributes) -> Vec<Attributes> {
    if attributes.is_operation_without_action() {
        attributes.sufficient_attributes()
    } else {
        vec![attributes.clone()]
    }
}

/// Returns `true` if a role of the user permits a request. Whether the API supports the verb is not considered.
fn permits(user: &User, attributes: &Attributes) -> bool {
    // The join token in the body is the permission, so a client needs no other identity.
    if attributes.is_join() {
        return true;
    }
    // The handler requires a certificate, so that no token and no local user gets one.
    if attributes.is_renewal() {
        return user.name == attributes.name && user.roles.contains(&Role::Node);
    }
    if attributes.is_hold_request() {
        return user.is_local || (user.name == attributes.name && user.roles.contains(&Role::Node));
    }
    user.roles.iter().any(|role| rules_permit(*role, attributes))
        || self_reviews().iter().any(|rule| rule.covers(attributes))
}

/// Returns the refusal as in Kubernetes, with the groups that have the permission.
fn refusal_reason(user: &User, attributes: &Attributes) -> String {
    if attributes.is_hold_request() || attributes.is_renewal() {
        return own_node_refusal(attributes);
    }
    let questions = questions(attributes);
    let is_permitted = |role: &&Role| questions.iter().any(|question| rules_permit(**role, question));
    let roles: Vec<String> = Role::ALL.iter().filter(is_permitted).map(|role| role.group()).collect();
    format!("{}; required group: {}", attributes.refusal_message(&user.name), roles.join(" or "))
}

pub(crate) fn refusal(user: &User, attributes: &Attributes) -> ApiError {
    let message = format!("{}{}", attributes.refusal_prefix(), refusal_reason(user, attributes));
    ApiError::new(ErrorReason::Forbidden, message)
}

fn own_node_refusal(attributes: &Attributes) -> String {
    format!(
        "only the agent of {} may send this request, with the client certificate of that name and group {}",
        attributes.name,
        Role::Node.group()
    )
}

/// Decides about the content of a request.
///
/// Errors: 403 with the object, user and verb.
pub(crate) fn require(user: &User, attributes: &Attributes) -> Result<(), ApiError> {
    if permits(user, attributes) { Ok(()) } else { Err(refusal(user, attributes)) }
}

/// Returns `true` if the handler of a request may run, because the user has one of the permissions that the content can
/// require.
pub(crate) fn permits_any_sufficient(user: &User, attributes: &Attributes) -> bool {
    attributes.sufficient_attributes().iter().any(|each| permits(user, each))
}
