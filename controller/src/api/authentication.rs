//! Authentication: the user of each request, from its certificate, its token, or the process that sent it.

pub(crate) mod tokens;

use super::error::ApiError;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use ha_api_types::error_reason::ErrorReason;
use ha_api_types::kind::{GROUP, Kind};
use ha_api_types::role::Role;
use ha_runtime::tls::ClientIdentity;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokens::{AcceptedToken, Tokens};

/// Permissions of clients with a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AuthorizationMode {
    /// Every certificate has all permissions
    #[default]
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    /// The groups in a certificate select its roles
    #[value(name = "Roles")]
    Roles,
}

/// The user that sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    /// Common name of the certificate, name of the token, or name of the local user. Records name this user.
    pub(crate) name: String,
    /// Organizations of the certificate, or the group of the token's role.
    pub(crate) groups: Vec<String>,
    pub(crate) roles: BTreeSet<Role>,
    /// Whether the request came without TLS from this machine, so that the user has no name of its own.
    pub(super) is_local: bool,
}

/// Secret values in the objects that a user reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretValues {
    Shown,
    Redacted,
}

impl SecretValues {
    /// Returns an object as the user may read it.
    pub(crate) fn in_object(self, mut object: Value) -> Value {
        match self {
            SecretValues::Shown => {}
            SecretValues::Redacted => ha_api_types::redact::redact(&mut object),
        }
        object
    }
}

impl User {
    /// Returns a user with the roles of its groups.
    pub(crate) fn of_groups(name: &str, groups: Vec<String>) -> User {
        let roles = groups.iter().filter_map(|group| Role::of_group(group)).collect();
        User { name: name.to_owned(), groups, roles, is_local: false }
    }

    /// Returns the user of a connection; `None` if the client has to identify itself otherwise. A client without TLS on
    /// loopback has the role admin, and so do root and this process's own user on a Unix socket.
    pub(crate) fn of_identity(identity: &ClientIdentity, mode: AuthorizationMode) -> Option<User> {
        match identity {
            ClientIdentity::Certificate { name, groups } => {
                let mut user = User::of_groups(name, groups.clone());
                match mode {
                    AuthorizationMode::AlwaysAllow => user.roles.extend([Role::Admin, Role::Node]),
                    AuthorizationMode::Roles => {}
                }
                Some(user)
            }
            ClientIdentity::Loopback => {
                Some(User { is_local: true, ..User::of_groups("loopback", vec![Role::Admin.group()]) })
            }
            ClientIdentity::LocalUser { uid } => {
                let is_administrator = *uid == 0 || *uid == nix::unistd::geteuid().as_raw();
                let groups = if is_administrator { vec![Role::Admin.group()] } else { Vec::new() };
                Some(User::of_groups(&local_name(*uid), groups))
            }
            ClientIdentity::Anonymous => None,
        }
    }

    /// Returns the user that the checks before the handler passed on with a request.
    pub(crate) fn of_request(parts: &Parts) -> User {
        parts.extensions.get::<User>().cloned().unwrap_or_else(|| User::of_groups("", Vec::new()))
    }

    /// Returns the permissions for the user's own node, in the form of a rule: etcd-outage holds, and the renewal of its
    /// certificate.
    pub(crate) fn own_node_rule(&self) -> Option<Value> {
        let has_rule = self.roles.contains(&Role::Node);
        has_rule.then(|| {
            json!({"verbs": ["create"], "apiGroups": [GROUP], "resources": ["nodes/hold", "nodes/certificate"], "resourceNames": [self.name]})
        })
    }

    /// Returns `true` if the user may read secret values in the objects of a kind. Editors need the values in objects
    /// that they write.
    pub(crate) fn secret_values(&self, kind: Kind) -> SecretValues {
        let is_written_by_editors = match kind {
            Kind::Resource | Kind::Group | Kind::AffinityRule | Kind::GitSync => true,
            Kind::Node | Kind::NodeGroup | Kind::Cluster | Kind::Operation => false,
        };
        if is_written_by_editors && self.roles.contains(&Role::Editor) {
            return SecretValues::Shown;
        }
        self.secret_values_of_cluster()
    }

    /// Returns `true` if the user may read secret values in documents about the whole cluster.
    pub(crate) fn secret_values_of_cluster(&self) -> SecretValues {
        if self.roles.contains(&Role::Admin) { SecretValues::Shown } else { SecretValues::Redacted }
    }
}

/// Returns the name of a local user, or its number if the machine has no user with that number.
fn local_name(uid: u32) -> String {
    let account = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)).ok().flatten();
    account.map_or_else(|| format!("uid:{uid}"), |user| user.name)
}

/// Identifies the users of requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Authenticator {
    mode: AuthorizationMode,
    tokens: Option<Arc<Tokens>>,
}

/// A user, and the token that identified it.
pub(crate) struct Authenticated {
    pub(crate) user: User,
    pub(crate) token: Option<AcceptedToken>,
}

impl Authenticator {
    pub(crate) fn new(mode: AuthorizationMode, tokens: Option<Arc<Tokens>>) -> Authenticator {
        Authenticator { mode, tokens }
    }

    /// Identifies the user of a request. If the request has a token, the certificate of the connection is ignored.
    ///
    /// # Errors
    /// 401, with the reason.
    pub(crate) fn authenticate(&self, parts: &Parts) -> Result<Authenticated, ApiError> {
        if let Some(credentials) = parts.headers.get(header::AUTHORIZATION) {
            let token = credentials
                .to_str()
                .ok()
                .and_then(bearer_token)
                .ok_or_else(|| unauthorized("the Authorization header is not a bearer token"))?;
            let tokens = self.tokens.as_ref().ok_or_else(|| {
                unauthorized(
                    "this controller accepts no tokens: start it with --token-file, or use a certificate",
                )
            })?;
            let token = tokens.accept(token).map_err(|reason| unauthorized(&reason))?;
            let user = User::of_groups(token.name(), vec![token.role().group()]);
            return Ok(Authenticated { user, token: Some(token) });
        }
        let identity = parts.extensions.get::<ClientIdentity>();
        let user = identity.and_then(|identity| User::of_identity(identity, self.mode));
        match user {
            Some(user) => Ok(Authenticated { user, token: None }),
            None => Err(unauthorized("no client certificate and no token")),
        }
    }
}

fn unauthorized(reason: &str) -> ApiError {
    ApiError::new(ErrorReason::Unauthorized, format!("Unauthorized: {reason}"))
}

/// Returns the token in the value of an `Authorization` header (RFC 6750).
fn bearer_token(credentials: &str) -> Option<&str> {
    let (scheme, token) = credentials.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

/// Refuses a request that a web page of another origin may have sent, with the credentials of a browser's user.
///
/// Without TLS, a web page can reach this machine under a name of its own (DNS rebinding), so the `Host` must be a name
/// of loopback. Browsers name the origin of each request that can change something.
///
/// # Errors
/// 403, with the reason.
pub(crate) fn check_origin(
    identity: Option<&ClientIdentity>,
    authority: &str,
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    let forbidden = |message: String| Err(ApiError::new(ErrorReason::Forbidden, message));
    if identity == Some(&ClientIdentity::Loopback) && !is_loopback(authority) {
        return forbidden(format!(
            "host {authority:?} is not this machine: without TLS, use the address 127.0.0.1, [::1] or localhost"
        ));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let origin_authority = origin.split_once("://").map(|(_, origin_authority)| origin_authority);
    if origin_authority == Some(authority) {
        return Ok(());
    }
    forbidden(format!("requests from web pages of origin {origin:?} are not permitted"))
}

/// Returns `true` if an authority of a URL, with or without a port, is a name of loopback.
fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[track_caller]
    fn check(identity: &ClientIdentity, authority: &str, origin: Option<&str>, expected: bool) {
        let mut headers = HeaderMap::new();
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        let outcome = check_origin(Some(identity), authority, &headers);
        assert_eq!(outcome.is_ok(), expected, "{authority} {origin:?}: {outcome:?}");
    }

    #[test]
    fn requests_of_other_web_pages_are_refused() {
        let ada = ClientIdentity::Certificate { name: "ada".to_owned(), groups: Vec::new() };
        check(&ada, "c1.example:7443", None, true);
        check(&ada, "c1.example:7443", Some("https://c1.example:7443"), true);
        check(&ada, "c1.example:7443", Some("https://c1.example"), false);
        check(&ada, "c1.example:7443", Some("https://evil.example"), false);
        check(&ada, "c1.example:7443", Some("null"), false);
        for local in ["localhost", "localhost:7443", "127.0.0.1:7443", "127.9.9.9", "[::1]:7443"] {
            check(&ClientIdentity::Loopback, local, None, true);
        }
        for other in
            ["evil.example:7443", "localhost.evil.example", "192.0.2.1", "", "[::2]:7443", "127.0.0.1.nip.io"]
        {
            check(&ClientIdentity::Loopback, other, None, false);
        }
        check(&ClientIdentity::Loopback, "localhost:7443", Some("http://evil.example"), false);
    }

    #[test]
    fn only_root_and_the_own_user_are_local_administrators() {
        let roles = |uid| {
            let identity = ClientIdentity::LocalUser { uid };
            User::of_identity(&identity, AuthorizationMode::AlwaysAllow).unwrap().roles
        };
        assert!(roles(0).contains(&Role::Admin));
        assert!(roles(nix::unistd::geteuid().as_raw()).contains(&Role::Admin));
        assert!(roles(4_000_000_000).is_empty());
    }

    #[test]
    fn editors_read_the_secrets_of_the_objects_that_they_write() {
        let user = |role: Role| User::of_groups("ada", vec![role.group()]);
        for kind in Kind::ALL {
            assert_eq!(user(Role::Admin).secret_values(kind), SecretValues::Shown);
            assert_eq!(user(Role::Viewer).secret_values(kind), SecretValues::Redacted);
            assert_eq!(user(Role::Operator).secret_values(kind), SecretValues::Redacted);
        }
        assert_eq!(user(Role::Editor).secret_values(Kind::Resource), SecretValues::Shown);
        assert_eq!(user(Role::Editor).secret_values(Kind::Node), SecretValues::Redacted);
        assert_eq!(user(Role::Editor).secret_values_of_cluster(), SecretValues::Redacted);
    }
}
