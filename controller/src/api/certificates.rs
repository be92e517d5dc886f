//! `/apis/hactl.io/v1/nodes/NAME/{jointoken,join,certificate,certificates}`: certificates that a controller issues to nodes.
//!
//! A join token permits one certificate for one node. A transaction deletes the token and records the certificate, so
//! that several controllers together accept a token once. The agent of a node renews its own certificate.

use super::authentication::User;
use super::commit::{Written, commit};
use super::error::ApiError;
use super::request::read_body;
use super::{ApiState, read};
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use ha_api_types::error_reason::ErrorReason;
use ha_api_types::id::{NodeName, Revision};
use ha_api_types::join::{
    AuthorityPin, IssuedCertificate, IssuedCertificates, JOIN_TOKEN_SECONDS_MAX, JoinAnswer, JoinAuthority,
    JoinRequest, JoinToken, JoinTokenAnswer, JoinTokenRecord, JoinTokenRequest, RenewalAnswer,
    RenewalRequest,
};
use ha_api_types::kind::Kind;
use ha_api_types::role::Role;
use ha_api_types::time::Timestamp;
use ha_pki::{Authority, AuthorityKind, CertificateFacts, CertificateRequest, PkiError, Profile, Validity};
use ha_runtime::tls::{ClientIdentity, certificates};
use ha_store::{Guard, LeaseId, Store, Transaction};
use serde::de::DeserializeOwned;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

/// Lifetime of the certificates that controllers issue.
const LIFETIME: Duration = Duration::from_secs(30 * 86_400);
/// Maximum number of certificates of a node that have not expired. The limit prevents a stolen key from filling etcd.
const VALID_CERTIFICATES_MAX: usize = 8;

/// Authority with which a controller issues certificates to nodes.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// Directory with the certificates of the authorities of servers and clients, and the key of the latter.
    pub directory: PathBuf,
    /// Client URLs of etcd, which new nodes use.
    pub etcd_endpoints: Vec<String>,
}

impl JoinOptions {
    /// Checks that the files of the directory can be used.
    ///
    /// # Errors
    /// Fails with the problem and the file.
    pub fn check(&self) -> Result<(), String> {
        self.authority()?;
        self.pin().map(drop)
    }

    fn file(&self, kind: AuthorityKind, extension: &str) -> PathBuf {
        self.directory.join(format!("{}.{extension}", kind.file_stem()))
    }

    /// Reads the authority of the clients. The authority is read for each certificate, so that a replaced one is used
    /// immediately.
    fn authority(&self) -> Result<Authority, String> {
        let certificate = self.file(AuthorityKind::Clients, "pem");
        let key = self.file(AuthorityKind::Clients, "key");
        Authority::load(&read_file(&certificate)?, &read_file(&key)?)
            .map_err(|error| format!("{}: {error}", certificate.display()))
    }

    fn server_authority(&self) -> Result<String, String> {
        read_file(&self.file(AuthorityKind::Servers, "pem"))
    }

    /// Returns the pin of the authority of the servers.
    fn pin(&self) -> Result<AuthorityPin, String> {
        let path = self.file(AuthorityKind::Servers, "pem");
        let certificates = certificates("CA certificate", &path).map_err(|error| error.to_string())?;
        let first = certificates.first().ok_or_else(|| format!("{}: no certificate", path.display()))?;
        Ok(AuthorityPin::of_certificate(first))
    }
}

fn read_file(path: &FilePath) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn unusable(message: &str) -> ApiError {
    tracing::error!(error = message, "cannot use the join authority");
    ApiError::internal("the join authority of this controller cannot be used: see the log of the controller")
}

impl<S> ApiState<S> {
    fn join_options(&self) -> Result<&JoinOptions, ApiError> {
        self.options().join.as_ref().ok_or_else(|| {
            ApiError::new(
                ErrorReason::NotFound,
                "this controller issues no certificates: set joinAuthority in controller.yaml",
            )
        })
    }
}

/// Handles POST of a [`JoinTokenRequest`]: creates the token of a node, which replaces an earlier one.
pub(crate) async fn create_token<S: Store>(
    State(state): State<ApiState<S>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let pin = state.join_options()?.pin().map_err(|message| unusable(&message))?;
    let (parts, body) = request.into_parts();
    let JoinTokenRequest { valid_seconds } = parse(&read_body(body).await?, "join token request")?;
    if valid_seconds == 0 || valid_seconds > JOIN_TOKEN_SECONDS_MAX {
        let message = format!("validSeconds: must be from 1 to {JOIN_TOKEN_SECONDS_MAX}");
        return Err(ApiError::bad_request(message));
    }
    let node = NodeName::from(name.as_str());
    profile(&node)?;
    let token = JoinToken::new(node.clone(), random_secret(), pin);
    let expires = Timestamp::from_unix_ms(i128::from(state.now_seconds() + i64::from(valid_seconds)) * 1000);
    let record = JoinTokenRecord {
        sha256: token.hash(),
        expires: expires.clone(),
        created_by: User::of_request(&parts).name,
    };
    // The key of an unused token vanishes. The record decides about the validity.
    let lease = state.store().grant_lease(i64::from(valid_seconds) + 60).await?;
    let key = state.keys().join_token(&node);
    let current = state.store().get(&key).await?.entries.first().map(|entry| entry.mod_revision);
    let value = serde_json::to_vec(&record).unwrap_or_default();
    let transaction = Transaction::new().put_leased(&key, guard_of(current), value.clone(), lease);
    match commit(state.store(), transaction, &key, Some(&value)).await? {
        Written::Applied(_) => {}
        Written::Conflict => {
            return Err(ApiError::conflict(
                Kind::Node,
                &node,
                "another join token was just created or used; try again",
            ));
        }
    }
    Ok(Json(JoinTokenAnswer { token: token.to_string(), expires }).into_response())
}

/// Handles GET: the certificate of the servers' authority, which is public. A new node compares it with its token.
pub(crate) async fn join_authority<S: Store>(State(state): State<ApiState<S>>) -> Result<Response, ApiError> {
    let server_authority = state.join_options()?.server_authority().map_err(|message| unusable(&message))?;
    Ok(Json(JoinAuthority { server_authority }).into_response())
}

/// Handles POST of a [`JoinRequest`] from a machine without a certificate.
pub(crate) async fn join<S: Store>(
    State(state): State<ApiState<S>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let options = state.join_options()?;
    let body = read_body(request.into_body()).await?;
    // Taken after the body has arrived, so that slow clients do not block others.
    let _permit = state.join_permit()?;
    let JoinRequest { token, request } = parse(&body, "join request")?;
    let node = NodeName::from(name.as_str());
    let refused = || {
        ApiError::new(
            ErrorReason::Unauthorized,
            format!("Unauthorized: the join token for node {node} is not valid, has expired, or was used"),
        )
    };
    let token: JoinToken = token.parse().map_err(|_| refused())?;
    if token.node != node {
        return Err(refused());
    }
    let key = state.keys().join_token(&node);
    let reading = state.store().get(&key).await?;
    let entry = reading.entries.first().ok_or_else(refused)?;
    let record: JoinTokenRecord = serde_json::from_slice(&entry.value).map_err(|_| refused())?;
    if !record.accepts(&token, state.now_seconds()) {
        return Err(refused());
    }
    let issued = issue(&state, options, &node, &request).await?;
    let transaction = issued.transaction.delete(&key, Guard::Unchanged(entry.mod_revision));
    // Another request with the same token changes this key.
    if commit(state.store(), transaction, &issued.key, Some(&issued.value)).await? == Written::Conflict {
        return Err(refused());
    }
    tracing::info!(node = %node, serial = issued.serial, created_by = record.created_by, "issued the certificate of a new node");
    let answer = JoinAnswer {
        certificate: issued.certificate,
        server_authority: options.server_authority().map_err(|message| unusable(&message))?,
        etcd_endpoints: options.etcd_endpoints.clone(),
        cluster: state.options().cluster.clone(),
    };
    Ok(Json(answer).into_response())
}

/// Handles POST of a [`RenewalRequest`] from the agent of the node, with its present certificate.
pub(crate) async fn renew<S: Store>(
    State(state): State<ApiState<S>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let options = state.join_options()?;
    let (parts, body) = request.into_parts();
    let node = NodeName::from(name.as_str());
    require_own_certificate(&parts, &node)?;
    let RenewalRequest { request } = parse(&read_body(body).await?, "renewal request")?;
    // The certificate of a removed node is not renewed.
    if read::get(state.store(), state.keys(), Kind::Node, &node).await?.is_none() {
        let message = format!("node {node} does not exist, so its certificate is not renewed");
        return Err(ApiError::new(ErrorReason::Forbidden, message));
    }
    let issued = issue(&state, options, &node, &request).await?;
    if commit(state.store(), issued.transaction, &issued.key, Some(&issued.value)).await? == Written::Conflict
    {
        return Err(ApiError::conflict(Kind::Node, &node, "another certificate was just issued; try again"));
    }
    tracing::info!(node = %node, serial = issued.serial, "renewed the certificate of a node");
    Ok(Json(RenewalAnswer { certificate: issued.certificate }).into_response())
}

/// Handles GET: the certificates that controllers issued to a node and that have not expired.
pub(crate) async fn list<S: Store>(
    State(state): State<ApiState<S>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let node = NodeName::from(name.as_str());
    let mut items = Vec::new();
    for (_, certificate) in issued_certificates(&state, &node).await? {
        if !has_expired(&certificate, state.now_seconds()) {
            items.push(certificate);
        }
    }
    Ok(Json(IssuedCertificates { items }).into_response())
}

/// A signed certificate, and the transaction that records it. The certificate leaves this process only after the
/// transaction was applied.
struct SignedCertificate {
    certificate: String,
    serial: String,
    key: String,
    value: Vec<u8>,
    transaction: Transaction,
}

async fn issue<S: Store>(
    state: &ApiState<S>,
    options: &JoinOptions,
    node: &NodeName,
    request: &str,
) -> Result<SignedCertificate, ApiError> {
    let profile = profile(node)?;
    let request = CertificateRequest::check(request, &profile).map_err(|error| refusal(&error))?;
    let validity = Validity { now_unix_seconds: state.now_seconds(), lifetime: LIFETIME };
    let certificate = options
        .authority()
        .and_then(|authority| authority.sign(&profile, validity, &request).map_err(|error| error.to_string()))
        .map_err(|message| unusable(&message))?;
    let facts = CertificateFacts::of_pem(&certificate).map_err(|error| unusable(&error.to_string()))?;
    let mut transaction = Transaction::new();
    let mut valid_count = 0;
    for ((key, revision), certificate) in issued_certificates(state, node).await? {
        if has_expired(&certificate, state.now_seconds()) {
            transaction = transaction.delete(key, Guard::Unchanged(revision));
        } else {
            valid_count += 1;
        }
    }
    if valid_count >= VALID_CERTIFICATES_MAX {
        return Err(ApiError::new(
            ErrorReason::TooManyRequests,
            format!("node {node} already has {valid_count} certificates that have not expired"),
        ));
    }
    let record = IssuedCertificate {
        serial: facts.serial.to_string(),
        not_after: Timestamp::from_unix_ms(i128::from(facts.not_after) * 1000),
        controller: state.options().id.clone(),
    };
    let key = state.keys().issued_certificate(node, &record.serial);
    let value = serde_json::to_vec(&record).unwrap_or_default();
    let transaction = transaction.put_leased(&key, Guard::Absent, value.clone(), LeaseId::NONE);
    Ok(SignedCertificate { certificate, serial: record.serial, key, value, transaction })
}

/// Returns the records of the certificates of a node, with their keys and revisions.
async fn issued_certificates<S: Store>(
    state: &ApiState<S>,
    node: &NodeName,
) -> Result<Vec<((String, Revision), IssuedCertificate)>, ApiError> {
    let reading = state.store().list(&state.keys().issued_certificates_of(node)).await?;
    // A record that cannot be read counts as expired, and is deleted with the next certificate.
    Ok(reading
        .entries
        .into_iter()
        .map(|entry| {
            let record = serde_json::from_slice(&entry.value).unwrap_or_default();
            ((entry.key, entry.mod_revision), record)
        })
        .collect())
}

fn has_expired(certificate: &IssuedCertificate, now_seconds: i64) -> bool {
    certificate.not_after.unix_seconds().is_none_or(|not_after| not_after < now_seconds)
}

/// Refuses every client except one with a certificate of the node itself, which has the group of nodes. Neither a token
/// nor the setting AlwaysAllow is sufficient.
fn require_own_certificate(parts: &Parts, node: &NodeName) -> Result<(), ApiError> {
    let is_own = match parts.extensions.get::<ClientIdentity>() {
        Some(ClientIdentity::Certificate { name, groups }) => {
            *name == **node && groups.contains(&Role::Node.group())
        }
        Some(ClientIdentity::Loopback | ClientIdentity::LocalUser { .. } | ClientIdentity::Anonymous)
        | None => false,
    };
    if is_own && !parts.headers.contains_key(header::AUTHORIZATION) {
        return Ok(());
    }
    let message = format!(
        "only the agent of {node} may renew this certificate, with the client certificate of that name and group {}",
        Role::Node.group()
    );
    Err(ApiError::new(ErrorReason::Forbidden, message))
}

fn profile(node: &NodeName) -> Result<Profile, ApiError> {
    Profile::node(node).map_err(|error| ApiError::bad_request(error.to_string()))
}

fn refusal(error: &PkiError) -> ApiError {
    ApiError::bad_request(error.to_string())
}

fn guard_of(current: Option<Revision>) -> Guard {
    current.map_or(Guard::Absent, Guard::Unchanged)
}

fn parse<T: DeserializeOwned>(body: &[u8], expected: &str) -> Result<T, ApiError> {
    // The error of the parser could contain a part of a token.
    serde_json::from_slice(body)
        .map_err(|_| ApiError::bad_request(format!("request body is not a valid {expected}")))
}

fn random_secret() -> [u8; 32] {
    use rand::Rng as _;
    let mut secret = [0; 32];
    rand::rng().fill_bytes(&mut secret);
    secret
}
