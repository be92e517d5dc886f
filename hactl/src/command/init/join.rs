//! `hactl init --join`: the certificate of a new node, from a controller that the join token names.

use super::{Init, Role};
use crate::atomic_file;
use crate::client::root_cause;
use crate::failure::{Exit, Failure};
use crate::terminal::Terminal;
use ha_api_types::join::{AuthorityPin, JoinAnswer, JoinAuthority, JoinRequest, JoinToken};
use ha_pki::{CertificateFacts, new_key, request_for_node};
use reqwest::{Certificate, Client, RequestBuilder, Url};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::time::Duration;

/// Port of the API if the target names none.
const API_PORT: u16 = 7443;
/// Time limit of each request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer that is read, in bytes.
const MAX_RESPONSE_BYTES: usize = 256 * 1024;

/// A join token, and the controller that accepts it: `TOKEN@HOST[:PORT]`.
#[derive(Clone, Debug)]
pub(super) struct JoinTarget {
    token: JoinToken,
    /// Host and port.
    host: String,
    url: Url,
}

impl JoinTarget {
    pub(super) fn parse(text: &str) -> Result<JoinTarget, String> {
        let (token, host) = text.split_once('@').ok_or("specify TOKEN@HOST or TOKEN@HOST:PORT")?;
        let token: JoinToken = token.parse()?;
        let invalid = || format!("{host:?} is not a host: specify TOKEN@HOST or TOKEN@HOST:PORT");
        let mut url = Url::parse(&format!("https://{host}/")).map_err(|_| invalid())?;
        let is_host = url.path() == "/" && url.query().is_none() && url.username().is_empty();
        if !is_host || url.fragment().is_some() || host.is_empty() {
            return Err(invalid());
        }
        if !host.ends_with(&format!(":{}", url.port().unwrap_or(443))) {
            url.set_port(Some(API_PORT)).map_err(|()| invalid())?;
        }
        let name = url.host_str().ok_or_else(invalid)?;
        let host = format!("{name}:{}", url.port_or_known_default().unwrap_or(API_PORT));
        url.set_path(&format!("/apis/hactl.io/v1/nodes/{}/join", token.node));
        Ok(JoinTarget { token, host, url })
    }
}

/// Gets the certificate of the node, writes it with its key and the CA certificate, and completes the flags.
pub(super) async fn join(flags: &mut Init, target: &JoinTarget, terminal: &Terminal) -> Result<(), Failure> {
    let name = target.token.node.to_string();
    if flags.node.as_ref().is_some_and(|node| *node != name) {
        return Err(Failure::usage(format!("the join token is for node {name}")).help("omit --node"));
    }
    if flags.roles.contains(&Role::Controller) {
        return Err(Failure::usage("--join is for nodes only").help(
            "run \"hactl init --role controller\" separately, with certificates from \"hactl pki issue\"",
        ));
    }
    let file = |name: String| flags.directory.join(name);
    let (authority, certificate, key) =
        (file("ca.pem".to_owned()), file(format!("{name}.pem")), file(format!("{name}.key")));
    let existing: Vec<String> = [&certificate, &key]
        .into_iter()
        .filter(|path| path.exists() && !flags.force)
        .map(|path| format!("{} already exists", path.display()))
        .collect();
    if !existing.is_empty() {
        return Err(Failure::failed(existing.join("\n"))
            .help("nothing was written, and the token was not used; add --force to overwrite the files"));
    }
    let present = std::fs::read_to_string(&authority).unwrap_or_default();
    if !present.is_empty() && !flags.force && pinned_certificate(&present, &target.token.pin).is_none() {
        return Err(Failure::failed(format!(
            "{} has the certificate of another authority",
            authority.display()
        ))
        .help("nothing was written, and the token was not used; add --force to overwrite the file"));
    }
    std::fs::create_dir_all(&flags.directory).map_err(|error| {
        Failure::failed(format!("cannot create {}: {error}", flags.directory.display()))
            .help("run the command as root, or add --directory DIR")
    })?;
    // Before the token is used, the key shows that the directory is writable.
    let failed = |error: ha_pki::PkiError| Failure::failed(error.to_string());
    let key_pem = new_key().map_err(failed)?;
    let new_key_file = file(format!("{name}.key.new"));
    write(&new_key_file, &key_pem, 0o600)?;
    let answer = request(target, &request_for_node(&name, &key_pem).map_err(failed)?).await;
    let answer = match answer.and_then(|answer| check(answer, &name, &key_pem)) {
        Ok(answer) => answer,
        Err(failure) => {
            // The file has no use without the certificate. A failed removal hides no other error.
            let _ = std::fs::remove_file(&new_key_file);
            return Err(failure);
        }
    };
    std::fs::rename(&new_key_file, &key)
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", key.display())))?;
    write(&certificate, &answer.certificate, 0o644)?;
    write(&authority, &answer.server_authority, 0o644)?;
    for path in [&authority, &certificate, &key] {
        terminal.report(&format!("{} created", path.display()));
    }
    if flags.etcd_endpoints.is_empty() {
        flags.etcd_endpoints = remote_endpoints(answer.etcd_endpoints, &target.host)?;
    }
    if flags.cluster.is_none() && answer.cluster != "default" {
        flags.cluster = Some(answer.cluster);
    }
    flags.roles = vec![Role::Node];
    flags.node = Some(name);
    (flags.etcd_ca, flags.etcd_cert, flags.etcd_key) = (Some(authority), Some(certificate), Some(key));
    Ok(())
}

/// Returns the endpoints of the controller, unless they are only valid on its own machine.
fn remote_endpoints(endpoints: Vec<String>, host: &str) -> Result<Vec<String>, Failure> {
    let is_local = |url: &Url| match url.host_str() {
        Some(name) => {
            let address = name.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
            name == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
        None => true,
    };
    if endpoints.is_empty() || endpoints.iter().any(|text| Url::parse(text).is_ok_and(|url| is_local(&url))) {
        return Err(Failure::failed(format!(
            "the certificate was written, but {host} uses endpoints of etcd that are valid on its machine only"
        ))
        .help("run \"hactl init --role node\" with --etcd-endpoints, --etcd-ca, --etcd-cert and --etcd-key"));
    }
    Ok(endpoints)
}

/// Checks that the certificate is for this node and its key.
fn check(answer: JoinAnswer, node: &str, key_pem: &str) -> Result<JoinAnswer, Failure> {
    let invalid = |message: &str| Failure::failed(format!("the controller sent {message}"));
    let facts = CertificateFacts::of_pem(&answer.certificate)
        .map_err(|error| invalid(&format!("an unusable certificate: {error}")))?;
    let own_key = ha_pki::public_key(key_pem).map_err(|error| Failure::failed(error.to_string()))?;
    if facts.name != node || facts.public_key != own_key {
        return Err(invalid("the certificate of another node or key"));
    }
    Ok(answer)
}

/// Verifies the controller by the token's pin, then sends the token and the certificate request.
async fn request(target: &JoinTarget, request: &str) -> Result<JoinAnswer, Failure> {
    // The call fails only if another provider is already installed, which is sufficient.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let unverified = builder().tls_danger_accept_invalid_certs(true).build();
    let unverified = unverified.map_err(|error| unreachable(target, &error))?;
    // This request contains no secret. Its answer is used only if it has the pinned certificate.
    let authority: JoinAuthority = send(target, unverified.get(target.url.clone())).await?;
    let pinned = pinned_certificate(&authority.server_authority, &target.token.pin).ok_or_else(|| {
        Failure::failed(format!(
            "{} is not the controller of this token: its authority differs",
            target.host
        ))
        .help(
            "check the host; if the host is correct, run \"hactl pki join-token\" again on a machine that you trust",
        )
    })?;
    let certificate = Certificate::from_der(&pinned).map_err(|error| unreachable(target, &error))?;
    let verified = builder().tls_certs_only([certificate]).build();
    let verified = verified.map_err(|error| unreachable(target, &error))?;
    let body = JoinRequest { token: target.token.to_string(), request: request.to_owned() };
    let body = serde_json::to_vec(&body).unwrap_or_default();
    let post = verified.post(target.url.clone()).header("content-type", "application/json").body(body);
    send(target, post).await
}

fn builder() -> reqwest::ClientBuilder {
    Client::builder()
        .user_agent(concat!("hactl/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .timeout(REQUEST_TIMEOUT)
}

/// Returns the certificate with the pin among several in PEM format.
fn pinned_certificate(pem: &str, pin: &AuthorityPin) -> Option<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .filter_map(Result::ok)
        .find(|certificate| AuthorityPin::of_certificate(certificate) == *pin)
}

async fn send<T: DeserializeOwned>(target: &JoinTarget, request: RequestBuilder) -> Result<T, Failure> {
    let mut response = request.send().await.map_err(|error| unreachable(target, &error))?;
    let code = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(target, &error))? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_RESPONSE_BYTES {
            return Err(Failure::failed(format!("response of {} is too long", target.host)));
        }
    }
    if !code.is_success() {
        let status: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let message = status["message"].as_str().unwrap_or("no message").to_owned();
        let (exit, help) = match code.as_u16() {
            401 => (Exit::NotPermitted, "run \"hactl pki join-token NODE\" for a new token"),
            404 => (Exit::Failed, "set joinAuthority in /etc/hactl/controller.yaml of this controller"),
            _ => (Exit::Failed, ""),
        };
        let reason = status["reason"].as_str().unwrap_or_default();
        return Err(Failure::new(exit, message).with_server_reason(reason).help(help));
    }
    serde_json::from_slice(&body)
        .map_err(|error| Failure::failed(format!("cannot parse the response of {}: {error}", target.host)))
}

fn unreachable(target: &JoinTarget, error: &reqwest::Error) -> Failure {
    Failure::new(Exit::Unreachable, format!("{}: {}", target.host, root_cause(error)))
        .help("check the host and the port of the controller")
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    atomic_file::replace_with_mode(path, text, mode)
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_pki::{Authority, AuthorityKind, CertificateRequest, Profile, Validity};

    const VALIDITY: Validity =
        Validity { now_unix_seconds: 1_790_000_000, lifetime: Duration::from_secs(86_400) };

    fn token() -> String {
        JoinToken::new("c4".into(), [1; 32], AuthorityPin::of_certificate(b"x")).to_string()
    }

    #[test]
    fn the_target_names_host_and_port() {
        for (host, expected) in [
            ("c1", "https://c1:7443/apis/hactl.io/v1/nodes/c4/join"),
            ("c1.example.com:7000", "https://c1.example.com:7000/apis/hactl.io/v1/nodes/c4/join"),
            ("10.0.0.1", "https://10.0.0.1:7443/apis/hactl.io/v1/nodes/c4/join"),
            ("[::1]:443", "https://[::1]/apis/hactl.io/v1/nodes/c4/join"),
        ] {
            let target = JoinTarget::parse(&format!("{}@{host}", token())).unwrap();
            assert_eq!(target.url.as_str(), expected);
        }
        for invalid in ["", "c1", &token(), &format!("{}@", token()), &format!("{}@c1/x", token()), "x@c1"] {
            assert!(JoinTarget::parse(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn only_the_pinned_certificate_is_trusted() {
        let create = || Authority::create(AuthorityKind::Servers, VALIDITY).unwrap().certificate_pem;
        let (own_identity, other) = (create(), create());
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let pin = AuthorityPin::of_certificate(&der(&own_identity));
        assert_eq!(pinned_certificate(&format!("{other}{own_identity}"), &pin), Some(der(&own_identity)));
        assert_eq!(pinned_certificate(&other, &pin), None);
        assert_eq!(pinned_certificate("", &pin), None);
    }

    #[test]
    fn the_certificate_is_for_the_node_and_its_key() {
        let issued = Authority::create(AuthorityKind::Clients, VALIDITY).unwrap();
        let authority = Authority::load(&issued.certificate_pem, &issued.key_pem).unwrap();
        let key = new_key().unwrap();
        let answer = |name: &str, key: &str| {
            let profile = Profile::node(name).unwrap();
            let request = CertificateRequest::check(&request_for_node(name, key).unwrap(), &profile).unwrap();
            let certificate = authority.sign(&profile, VALIDITY, &request).unwrap();
            JoinAnswer { certificate, ..JoinAnswer::default() }
        };
        assert!(check(answer("c4", &key), "c4", &key).is_ok());
        assert!(check(answer("c5", &key), "c4", &key).is_err());
        assert!(check(answer("c4", &new_key().unwrap()), "c4", &key).is_err());
        assert!(check(JoinAnswer::default(), "c4", &key).is_err());
    }

    #[test]
    fn endpoints_of_the_controllers_own_machine_are_refused() {
        let endpoints = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let remote = "https://c1:2379,https://10.0.0.2:2379";
        assert_eq!(remote_endpoints(endpoints(remote), "c1").unwrap(), endpoints(remote));
        for local in
            ["https://localhost:2379", "https://c1:2379,https://127.0.0.1:2379", "https://[::1]:2379"]
        {
            assert!(remote_endpoints(endpoints(local), "c1").is_err(), "{local}");
        }
    }
}
