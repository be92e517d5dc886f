//! Authorization: the one decision about each request, from the roles of its user.
//!
//! [`decide`] is pure. [`authorize`] applies it to every route. Handlers of writes ask again where the decision depends
//! on the content of the request: the action of an operation, and the fields of a node that change.

mod attributes;
mod roles;
#[cfg(test)]
mod tests;

pub(crate) use attributes::Attributes;
pub(crate) use roles::{Role, Rule, self_reviews};

use super::error::ApiError;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ha_api_types::error_reason::ErrorReason;
use ha_api_types::kind::GROUP;
use ha_runtime::tls::ClientIdentity;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Permissions of the clients of the API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AuthorizationMode {
    /// Every client has all permissions
    #[default]
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    /// The groups in the certificate of a client select its roles
    #[value(name = "Roles")]
    Roles,
}

/// The user that sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    /// Common name of the certificate, or `loopback` for plain HTTP on this machine. Records name this user.
    pub(crate) name: String,
    /// Organizations of the certificate.
    pub(crate) groups: Vec<String>,
    pub(crate) roles: BTreeSet<Role>,
    /// Whether the request came without TLS from this machine, so that the user has no name of its own.
    is_local: bool,
}

impl User {
    /// Returns a user with the roles of its groups.
    pub(crate) fn of_groups(name: &str, groups: Vec<String>) -> User {
        let roles = groups.iter().filter_map(|group| Role::of_group(group)).collect();
        User { name: name.to_owned(), groups, roles, is_local: false }
    }

    /// Returns the user of a connection. A local client has the role admin.
    pub(crate) fn of_identity(identity: Option<&ClientIdentity>, mode: AuthorizationMode) -> User {
        let mut user = match identity {
            Some(ClientIdentity::Certificate { name, groups }) => User::of_groups(name, groups.clone()),
            Some(ClientIdentity::Loopback) | None => {
                User { is_local: true, ..User::of_groups("loopback", vec![Role::Admin.group()]) }
            }
        };
        match mode {
            AuthorizationMode::AlwaysAllow => user.roles.extend([Role::Admin, Role::Node]),
            AuthorizationMode::Roles => {}
        }
        user
    }

    /// Returns the user that [`authorize`] passed on with a request.
    pub(crate) fn of_request(parts: &Parts) -> User {
        parts.extensions.get::<User>().cloned().unwrap_or_else(|| User::of_groups("", Vec::new()))
    }

    /// Returns the permission for etcd-outage holds of the user's own node, in the form of a rule.
    pub(crate) fn own_hold_rule(&self) -> Option<Value> {
        let has_rule = self.roles.contains(&Role::Node);
        has_rule.then(|| {
            json!({"verbs": ["create"], "apiGroups": [GROUP], "resources": ["nodes/hold"], "resourceNames": [self.name]})
        })
    }
}

/// Decides whether a user may do something, for a review of its access.
///
/// Guarantees: the decision depends only on the arguments.
/// Errors: the reason for the refusal.
pub(crate) fn decide(user: &User, attributes: &Attributes) -> Result<(), String> {
    attributes.check_known()?;
    let is_permitted = questions(attributes).iter().any(|each| permits(user, each));
    if is_permitted { Ok(()) } else { Err(refusal_reason(user, attributes)) }
}

/// Returns the permissions of which one suffices. The action decides about an operation, so a question without an action
/// is about any of them.
fn questions(attributes: &Attributes) -> Vec<Attributes> {
    if attributes.is_any_operation() { attributes.alternatives() } else { vec![attributes.clone()] }
}

/// Returns `true` if a role of the user permits a request. Whether the API supports the verb is not considered.
fn permits(user: &User, attributes: &Attributes) -> bool {
    if attributes.is_hold() {
        return user.is_local || (user.name == attributes.name && user.roles.contains(&Role::Node));
    }
    user.roles.iter().any(|role| role.permits(attributes))
        || self_reviews().iter().any(|rule| rule.covers(attributes))
}

/// Returns the refusal as in Kubernetes, with the groups that have the permission.
fn refusal_reason(user: &User, attributes: &Attributes) -> String {
    if attributes.is_hold() {
        return hold_refusal(attributes);
    }
    let questions = questions(attributes);
    let is_permitted = |role: &&Role| questions.iter().any(|each| role.permits(each));
    let roles: Vec<String> = Role::ALL.iter().filter(is_permitted).map(|role| role.group()).collect();
    format!("{}; required group: {}", attributes.sentence(&user.name), roles.join(" or "))
}

fn refusal(user: &User, attributes: &Attributes) -> ApiError {
    let message = format!("{}{}", attributes.forbidden_object(), refusal_reason(user, attributes));
    ApiError::new(ErrorReason::Forbidden, message)
}

fn hold_refusal(attributes: &Attributes) -> String {
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

/// Decides about each request before its handler runs, and passes the user on to the handler.
pub(crate) async fn authorize(
    State(mode): State<AuthorizationMode>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let user = User::of_identity(parts.extensions.get::<ClientIdentity>(), mode);
    if let Some(attributes) = Attributes::of_request(&mut parts).await {
        let is_permitted = attributes.alternatives().iter().any(|each| permits(&user, each));
        if !is_permitted {
            return refusal(&user, &attributes).into_response();
        }
    }
    parts.extensions.insert(user);
    next.run(Request::from_parts(parts, body)).await
}
