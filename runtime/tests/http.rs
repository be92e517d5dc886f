//! Tests of the HTTP server with real sockets and real certificates.

#![allow(clippy::unwrap_used, reason = "a test fails where its helpers do")]

use axum::routing::get;
use axum::{Extension, Router};
use futures::StreamExt;
use ha_runtime::http::{ServeError, ServeOptions, admin, bind, until_shutdown};
use ha_runtime::metrics::Metrics;
use ha_runtime::shutdown::Shutdown;
use ha_runtime::tls::{ClientIdentity, TlsFiles, WithoutCertificate};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SerialNumber,
};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn certificate_pem(&self) -> String {
        self.0.pem()
    }

    /// Returns a certificate for localhost, and its key.
    fn server(&self) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// Returns a client's certificate followed by its key; an empty `name` means no common name.
    fn client(&self, name: &str, groups: &[&str]) -> String {
        self.client_with_serial(name, groups, 1)
    }

    fn client_with_serial(&self, name: &str, groups: &[&str], serial: u64) -> String {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        if !name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.serial_number = Some(SerialNumber::from(serial));
        let (certificate, key) = self.sign(&params);
        certificate + &key
    }

    /// Returns a revocation list with the given serial numbers.
    fn revocation_list(&self, serials: &[u64]) -> String {
        let now = rcgen::date_time_ymd(2026, 1, 1);
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: now,
            // An outdated list stays in effect.
            next_update: rcgen::date_time_ymd(2026, 1, 2),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.0).unwrap().pem().unwrap()
    }

    fn sign(&self, params: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn identity_router() -> Router {
    Router::new().route("/who", get(async |Extension(who): Extension<ClientIdentity>| format!("{who:?}")))
}

#[tokio::test]
async fn plain_http_is_refused_beyond_loopback() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let error = bind(ServeOptions::new(address.parse().unwrap(), None)).await.unwrap_err();
        assert!(matches!(error, ServeError::NotLoopback { .. }), "{address}: {error}");
    }
}

#[tokio::test]
async fn plain_http_on_loopback_has_its_own_identity() {
    let server = bind(ServeOptions::new(loopback(), None)).await.unwrap();
    let address = server.address().unwrap();
    let (trigger, shutdown) = Shutdown::manual();
    let serving = tokio::spawn(server.serve(identity_router(), shutdown));
    let text =
        client(None, None).get(format!("http://{address}/who")).send().await.unwrap().text().await.unwrap();
    assert_eq!(text, "Loopback");
    trigger.request();
    serving.await.unwrap();
}

#[tokio::test]
async fn address_in_use_is_named() {
    let first = bind(ServeOptions::new(loopback(), None)).await.unwrap();
    let error = bind(ServeOptions::new(first.address().unwrap(), None)).await.unwrap_err();
    assert!(error.to_string().contains(&first.address().unwrap().to_string()), "{error}");
}

/// Returns a client that trusts the authority and presents the given certificate.
fn client(authority: Option<&Authority>, identity: Option<String>) -> reqwest::Client {
    // Another test may already have installed this provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder().timeout(Duration::from_secs(20));
    builder = match authority {
        Some(authority) => builder
            .tls_certs_only(
                [reqwest::Certificate::from_pem(authority.certificate_pem().as_bytes()).unwrap()],
            ),
        None => builder.tls_certs_only([]),
    };
    if let Some(identity) = identity {
        builder = builder.identity(reqwest::Identity::from_pem(identity.as_bytes()).unwrap());
    }
    builder.build().unwrap()
}

/// Writes the files of a server whose certificate and clients have the same authority.
fn write_server(directory: &Path, authority: &Authority) -> TlsFiles {
    let path_of = |name: &str| directory.join(name);
    let (certificate, key) = authority.server();
    std::fs::write(path_of("server.pem"), certificate).unwrap();
    std::fs::write(path_of("server.key"), key).unwrap();
    std::fs::write(path_of("ca.pem"), authority.certificate_pem()).unwrap();
    TlsFiles {
        certificate: path_of("server.pem"),
        key: path_of("server.key"),
        client_ca: path_of("ca.pem"),
        client_crl: None,
        without_certificate: WithoutCertificate::Refuse,
    }
}

#[tokio::test]
async fn a_unix_socket_identifies_its_clients_and_replaces_an_abandoned_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.sock");
    // The listener ends without removing its socket.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = bind(ServeOptions::unix(&path)).await.unwrap();
    assert_eq!(server.address(), None);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let error = bind(ServeOptions::unix(&path)).await.unwrap_err();
    let text = format!("{:#}", anyhow::Error::from(error));
    assert!(text.contains("another process listens on this socket"), "{text}");
    let (trigger, shutdown) = Shutdown::manual();
    let serving = tokio::spawn(server.serve(identity_router(), shutdown));
    let client = reqwest::Client::builder().unix_socket(path.clone()).tls_certs_only([]).build().unwrap();
    let text = client.get("http://localhost/who").send().await.unwrap().text().await.unwrap();
    assert_eq!(text, format!("LocalUser {{ uid: {} }}", nix::unistd::geteuid()));
    trigger.request();
    serving.await.unwrap();
    assert!(!path.exists(), "removed at the end");
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, "content").unwrap();
    bind(ServeOptions::unix(&path)).await.unwrap_err();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "content");
}

#[tokio::test]
async fn a_revoked_certificate_loses_its_open_connections() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("ours");
    let crl = directory.path().join("crl.pem");
    std::fs::write(&crl, authority.revocation_list(&[7])).unwrap();
    let files = TlsFiles { client_crl: Some(crl.clone()), ..write_server(directory.path(), &authority) };
    let watch = async || {
        let lines = futures::stream::iter(["first\n"]).chain(futures::stream::pending());
        axum::body::Body::from_stream(lines.map(Ok::<_, std::io::Error>))
    };
    let server = bind(ServeOptions::new(loopback(), Some(files))).await.unwrap();
    let url = format!("https://localhost:{}/watch", server.address().unwrap().port());
    let (trigger, shutdown) = Shutdown::manual();
    let serving = tokio::spawn(server.serve(Router::new().route("/watch", get(watch)), shutdown));
    let client_with =
        |serial| client(Some(&authority), Some(authority.client_with_serial("anna", &[], serial)));
    assert!(client_with(7).get(&url).send().await.is_err(), "revoked before the connection");
    let (revoked, valid) = (client_with(8), client_with(9));
    let mut revoked_watch = revoked.get(&url).send().await.unwrap();
    let mut valid_watch = valid.get(&url).send().await.unwrap();
    for watch in [&mut revoked_watch, &mut valid_watch] {
        assert_eq!(watch.chunk().await.unwrap().unwrap(), "first\n");
    }
    std::fs::write(&crl, authority.revocation_list(&[7, 8])).unwrap();
    assert!(revoked_watch.chunk().await.is_err(), "cut");
    assert!(revoked.get(&url).send().await.is_err(), "refused");
    assert!(valid.get(&url).send().await.is_ok(), "unaffected");
    let still_open = tokio::time::timeout(Duration::ZERO, valid_watch.chunk()).await;
    assert!(still_open.is_err(), "no end and no line: {still_open:?}");
    trigger.request();
    serving.await.unwrap();
}

#[tokio::test]
async fn a_client_without_a_certificate_is_anonymous_if_permitted() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("ours");
    let files = TlsFiles {
        without_certificate: WithoutCertificate::Accept,
        ..write_server(directory.path(), &authority)
    };
    let server = bind(ServeOptions::new(loopback(), Some(files))).await.unwrap();
    let url = format!("https://localhost:{}/who", server.address().unwrap().port());
    let (trigger, shutdown) = Shutdown::manual();
    let serving = tokio::spawn(server.serve(identity_router(), shutdown));
    let who = async |client: reqwest::Client| client.get(&url).send().await.unwrap().text().await.unwrap();
    assert_eq!(who(client(Some(&authority), None)).await, "Anonymous");
    let anna = client(Some(&authority), Some(authority.client("anna", &[])));
    assert!(who(anna).await.contains("anna"));
    let theirs = Authority::new("theirs").client("anna", &[]);
    assert!(client(Some(&authority), Some(theirs)).get(&url).send().await.is_err(), "not anonymous");
    trigger.request();
    serving.await.unwrap();
}

#[tokio::test]
async fn tls_requires_client_certificates_and_reloads_files() {
    let directory = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let files = write_server(directory.path(), &ours);
    let server = bind(ServeOptions::new(loopback(), Some(files.clone()))).await.unwrap();
    let url = format!("https://localhost:{}/who", server.address().unwrap().port());
    let (trigger, shutdown) = Shutdown::manual();
    let serving = tokio::spawn(server.serve(identity_router(), shutdown));

    let anna = client(Some(&ours), Some(ours.client("anna", &["admins"])));
    let answer = anna.get(&url).send().await.unwrap();
    assert_eq!(answer.version(), reqwest::Version::HTTP_2);
    let text = answer.text().await.unwrap();
    assert_eq!(text, r#"Certificate { name: "anna", groups: ["admins"] }"#);
    for (description, refused) in [
        ("no certificate", client(Some(&ours), None)),
        ("another authority's", client(Some(&ours), Some(theirs.client("anna", &["admins"])))),
        ("no common name", client(Some(&ours), Some(ours.client("", &["admins"])))),
    ] {
        assert!(refused.get(&url).send().await.is_err(), "{description}");
    }

    // With an incomplete file, the previous files stay active. Then another authority takes over.
    std::fs::write(&files.certificate, "nonsense").unwrap();
    let renewed_client = client(Some(&ours), Some(ours.client("anna", &[])));
    assert!(renewed_client.get(&url).send().await.is_ok());
    write_server(directory.path(), &theirs);
    let new = client(Some(&theirs), Some(theirs.client("berta", &[])));
    assert!(new.get(&url).send().await.unwrap().text().await.unwrap().contains("berta"));
    assert!(client(Some(&theirs), Some(ours.client("anna", &[]))).get(&url).send().await.is_err());
    trigger.request();
    serving.await.unwrap();
}

#[tokio::test]
async fn missing_certificate_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing.pem");
    let files =
        TlsFiles { certificate: missing.clone(), ..write_server(directory.path(), &Authority::new("ours")) };
    let error = bind(ServeOptions::new(loopback(), Some(files))).await.unwrap_err();
    let text = format!("{:#}", anyhow::Error::from(error));
    assert!(text.contains(&missing.display().to_string()), "{text}");
}

#[tokio::test]
async fn shutdown_finishes_short_answers_and_ends_watches() {
    let started = std::sync::Arc::new(tokio::sync::Notify::new());
    let (on_begin, ending) = (started.clone(), started.clone());
    let slow = async move |Extension(shutdown): Extension<Shutdown>| {
        on_begin.notify_one();
        shutdown.wait_for_request().await;
        "finished"
    };
    let watch = async |Extension(shutdown): Extension<Shutdown>| {
        let lines = futures::stream::iter(["first\n"]).chain(futures::stream::pending());
        axum::body::Body::from_stream(until_shutdown(lines, shutdown).map(Ok::<_, std::io::Error>))
    };
    let router = Router::new().route("/slow", get(slow)).route("/watch", get(watch));
    let server = bind(ServeOptions::new(loopback(), None)).await.unwrap();
    let url = format!("http://{}", server.address().unwrap());
    let (trigger, shutdown) = Shutdown::manual();
    let serving = tokio::spawn(server.serve(router, shutdown));
    let client = client(None, None);
    let mut watching = client.get(format!("{url}/watch")).send().await.unwrap();
    assert_eq!(watching.chunk().await.unwrap().unwrap(), "first\n");
    let slow = tokio::spawn({
        let request = client.get(format!("{url}/slow")).send();
        async move { request.await.unwrap().text().await.unwrap() }
    });
    ending.notified().await;
    trigger.request();
    assert_eq!(slow.await.unwrap(), "finished");
    assert_eq!(watching.chunk().await.unwrap(), None, "ended, not cut");
    serving.await.unwrap();
}

#[tokio::test]
async fn slow_requests_and_silent_clients_are_disconnected() {
    let router = Router::new().route("/ever", get(async || std::future::pending::<()>().await));
    let mut options = ServeOptions::new(loopback(), None);
    options.grace = Duration::from_millis(50);
    options.header_read_timeout = Duration::from_millis(100);
    options.limits.unknown = 1;
    let server = bind(options).await.unwrap();
    let address = server.address().unwrap();
    let (trigger, shutdown) = Shutdown::manual();
    let serving = tokio::spawn(server.serve(router, shutdown));
    // Clients that send half a request or nothing: the server closes their connections.
    for sent in ["GET / HTTP/1.1\r\nHost:", "PRI * HTTP", ""] {
        let mut silent = tokio::net::TcpStream::connect(address).await.unwrap();
        silent.write_all(sent.as_bytes()).await.unwrap();
        silent.read_to_end(&mut Vec::new()).await.unwrap();
    }
    let ever = tokio::spawn(client(None, None).get(format!("http://{address}/ever")).send());
    let mut idle = tokio::net::TcpStream::connect(address).await.unwrap();
    trigger.request();
    serving.await.unwrap();
    assert!(ever.await.unwrap().is_err());
    assert!(!matches!(idle.read(&mut [0; 1]).await, Ok(1..)), "never served");
}

#[tokio::test]
async fn silent_connections_do_not_keep_a_client_out() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("ours");
    let mut options = ServeOptions::new(loopback(), Some(write_server(directory.path(), &authority)));
    // Only displacement can close these connections during the test.
    options.handshake_timeout = Duration::from_secs(3600);
    options.limits.unknown = 20;
    let server = bind(options).await.unwrap();
    let address = server.address().unwrap();
    let (trigger, shutdown) = Shutdown::manual();
    let serving = tokio::spawn(server.serve(identity_router(), shutdown));
    let url = format!("https://localhost:{}/who", address.port());
    let identified = client(Some(&authority), Some(authority.client("ada", &[])));
    let answer = identified.get(&url).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), r#"Certificate { name: "ada", groups: [] }"#);
    let mut silent = Vec::new();
    for _ in 0..60 {
        silent.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    assert!(
        identified.get(&url).send().await.unwrap().status().is_success(),
        "an open connection stays open"
    );
    let other = client(Some(&authority), Some(authority.client("bob", &[])));
    assert!(other.get(&url).send().await.unwrap().status().is_success(), "a new client is served");
    let mut closed = silent.swap_remove(0);
    let ended = tokio::time::timeout(Duration::from_secs(60), closed.read(&mut [0; 1])).await.unwrap();
    assert_eq!(ended.unwrap_or(0), 0, "the oldest silent connection was closed");
    trigger.request();
    serving.await.unwrap();
}

#[tokio::test]
async fn the_admin_endpoints_answer() {
    let (live, ready) = (admin::HealthChecks::new(&[]), admin::HealthChecks::new(&["store", "cache"]));
    let metrics = Metrics::new("ha-test", "0", 1).unwrap();
    let server = bind(ServeOptions::new(loopback(), None)).await.unwrap();
    let url = format!("http://{}", server.address().unwrap());
    let (trigger, shutdown) = Shutdown::manual();
    let state: admin::ReadState =
        std::sync::Arc::new(|| Box::pin(std::future::ready(Some(serde_json::json!({"epoch": 3})))));
    let serving = tokio::spawn(server.serve(admin::router(live, ready.clone(), metrics, state), shutdown));
    let client = client(None, None);
    let ask = async |path: &str| {
        let answer = client.get(format!("{url}{path}")).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    assert_eq!(ask("/livez").await.0, 200);
    ready.set("cache", Ok(()));
    assert_eq!(
        ask("/readyz").await,
        (503, "[+]cache ok\n[-]store failed: not yet\nreadyz check failed\n".to_owned())
    );
    assert_eq!(ask("/readyz/store").await, (503, "store check failed: not yet\n".to_owned()));
    assert_eq!(ask("/readyz/cache").await, (200, "ok\n".to_owned()));
    assert_eq!(ask("/readyz/other").await.0, 404);
    assert_eq!(ask("/healthz").await.0, 503);
    ready.set("store", Ok(()));
    assert_eq!(ask("/readyz").await.0, 200);
    assert_eq!(ask("/healthz").await.0, 200);
    assert!(ask("/metrics").await.1.contains("hactl_build_info"));
    assert_eq!(ask("/state").await, (200, "{\"epoch\":3}".to_owned()));
    trigger.request();
    serving.await.unwrap();
}
