//! Tests of the HTTP server with real sockets and real certificates.

#![allow(clippy::unwrap_used, reason = "a test fails where its helpers do")]

use axum::routing::get;
use axum::{Extension, Router};
use futures::StreamExt;
use ha_runtime::http::{ServeError, ServeOptions, admin, bind, until_shutdown};
use ha_runtime::metrics::Metrics;
use ha_runtime::shutdown::Shutdown;
use ha_runtime::tls::{ClientIdentity, TlsFiles};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose,
};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A certificate authority.
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
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        if !name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (certificate, key) = self.sign(&params);
        certificate + &key
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
    let address = server.address();
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
    let error = bind(ServeOptions::new(first.address(), None)).await.unwrap_err();
    assert!(error.to_string().contains(&first.address().to_string()), "{error}");
}

/// Returns a client that trusts the authority and presents the given certificate.
fn client(authority: Option<&Authority>, identity: Option<String>) -> reqwest::Client {
    // Another test may have installed the provider already; which is the same provider.
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

#[tokio::test]
async fn tls_requires_client_certificates_and_reloads_files() {
    let directory = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let files = TlsFiles {
        certificate: directory.path().join("server.pem"),
        key: directory.path().join("server.key"),
        client_ca: directory.path().join("ca.pem"),
    };
    let write_server = |authority: &Authority| {
        let (certificate, key) = authority.server();
        std::fs::write(&files.certificate, certificate).unwrap();
        std::fs::write(&files.key, key).unwrap();
    };
    write_server(&ours);
    std::fs::write(&files.client_ca, ours.certificate_pem()).unwrap();
    let server = bind(ServeOptions::new(loopback(), Some(files.clone()))).await.unwrap();
    let url = format!("https://localhost:{}/who", server.address().port());
    let (trigger, shutdown) = Shutdown::manual();
    let serving = tokio::spawn(server.serve(identity_router(), shutdown));

    let anna = client(Some(&ours), Some(ours.client("anna", &["admins"])));
    let answer = anna.get(&url).send().await.unwrap();
    assert_eq!(answer.version(), reqwest::Version::HTTP_2);
    let text = answer.text().await.unwrap();
    assert_eq!(text, r#"Certificate { name: "anna", groups: ["admins"] }"#);
    for (what, refused) in [
        ("no certificate", client(Some(&ours), None)),
        ("another authority's", client(Some(&ours), Some(theirs.client("anna", &["admins"])))),
        ("no common name", client(Some(&ours), Some(ours.client("", &["admins"])))),
    ] {
        assert!(refused.get(&url).send().await.is_err(), "{what}");
    }

    // With an incomplete file, the previous files stay active. Then another authority takes over.
    std::fs::write(&files.certificate, "nonsense").unwrap();
    let again = client(Some(&ours), Some(ours.client("anna", &[])));
    assert!(again.get(&url).send().await.is_ok());
    write_server(&theirs);
    std::fs::write(&files.client_ca, theirs.certificate_pem()).unwrap();
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
    let files = TlsFiles { certificate: missing.clone(), key: missing.clone(), client_ca: missing.clone() };
    let error = bind(ServeOptions::new(loopback(), Some(files))).await.unwrap_err();
    let text = format!("{:#}", anyhow::Error::from(error));
    assert!(text.contains(&missing.display().to_string()), "{text}");
}

#[tokio::test]
async fn shutdown_finishes_short_answers_and_ends_watches() {
    let started = std::sync::Arc::new(tokio::sync::Notify::new());
    let (begun, ending) = (started.clone(), started.clone());
    let slow = async move |Extension(shutdown): Extension<Shutdown>| {
        begun.notify_one();
        shutdown.requested().await;
        "finished"
    };
    let watch = async |Extension(shutdown): Extension<Shutdown>| {
        let lines = futures::stream::iter(["first\n"]).chain(futures::stream::pending());
        axum::body::Body::from_stream(until_shutdown(lines, shutdown).map(Ok::<_, std::io::Error>))
    };
    let router = Router::new().route("/slow", get(slow)).route("/watch", get(watch));
    let server = bind(ServeOptions::new(loopback(), None)).await.unwrap();
    let url = format!("http://{}", server.address());
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
    options.connections = 1;
    let server = bind(options).await.unwrap();
    let address = server.address();
    let (trigger, shutdown) = Shutdown::manual();
    let serving = tokio::spawn(server.serve(router, shutdown));
    // The only slot is taken by clients that send half a request or nothing; the server closes their connections.
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
async fn the_admin_endpoints_answer() {
    let (live, ready) = (admin::Checks::new(&[]), admin::Checks::new(&["store", "cache"]));
    let metrics = Metrics::new("ha-test", "0", 1).unwrap();
    let server = bind(ServeOptions::new(loopback(), None)).await.unwrap();
    let url = format!("http://{}", server.address());
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
    ready.set("store", Ok(()));
    assert_eq!(ask("/readyz").await.0, 200);
    assert!(ask("/metrics").await.1.contains("hactl_build_info"));
    assert_eq!(ask("/state").await, (200, "{\"epoch\":3}".to_owned()));
    trigger.request();
    serving.await.unwrap();
}
