//! Access control: client certificates and their rotation, users and the permissions of FENCING, section 11.

#[path = "support/etcd.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod etcd;

use etcd::{Cluster, Flags, etcdctl};
use futures::StreamExt as _;
use ha_api_types::etcd_access::agent_permissions;
use ha_api_types::id::Revision;
use ha_api_types::keys::Keys;
use ha_api_types::kind::Kind;
use ha_store::{Config, EtcdStore, Guard, Outcome, Store as _, StoreError, Transaction, WatchItem};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::path::Path;
use std::time::{Duration, Instant};

/// A certificate authority.
struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut parameters = CertificateParams::new(Vec::<String>::new()).expect("no names");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = parameters.self_signed(&key).expect("a certificate").pem();
        Authority { certificate, issuer: Issuer::new(parameters, key) }
    }

    /// Writes the certificate of the authority.
    fn write(&self, file: &Path) {
        std::fs::write(file, &self.certificate).expect("a file");
    }

    /// Writes NAME.pem and NAME.key for a server at these addresses, or for a client.
    fn issue(&self, directory: &Path, name: &str, addresses: &[String]) {
        let mut parameters = CertificateParams::new(addresses.to_vec()).expect("addresses");
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = parameters.signed_by(&key, &self.issuer).expect("a certificate");
        std::fs::write(directory.join(format!("{name}.pem")), certificate.pem()).expect("a file");
        std::fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).expect("a file");
    }
}

fn put(key: &str) -> Transaction {
    Transaction::new().put(key, Guard::Absent, vec![1])
}

fn tls_config(cluster: &Cluster, directory: &Path) -> Config {
    Config {
        ca: Some(directory.join("ca.pem")),
        cert: Some(directory.join("client.pem")),
        key: Some(directory.join("client.key")),
        ..Config::new(cluster.endpoints())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificates_are_presented_verified_and_reloaded() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let addresses = etcd::addresses(1);
    let authority = Authority::new("store");
    authority.write(&directory.path().join("ca.pem"));
    authority.issue(directory.path(), "member", &addresses);
    authority.issue(directory.path(), "client", &[]);
    let path_of = |name: &str| directory.path().join(name);
    let flags = Flags {
        tls: Some((path_of("ca.pem"), path_of("member.pem"), path_of("member.key"))),
        ..Flags::default()
    };
    let cluster = Cluster::start_on(&addresses, &flags);

    let store = EtcdStore::connect(tls_config(&cluster, directory.path())).await.expect("good settings");
    let outcome = store.commit(put("/tls/1")).await;
    assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");

    // Version 3.5 reports its quota only on the metrics page, which requires the same certificates.
    let status = store.status().await;
    assert!(
        status[0].leader && status[0].quota_bytes.is_some() && status[0].problem.is_none(),
        "{status:#?}"
    );

    // Without a client certificate, or with a member whose certificate another authority has signed, no read succeeds.
    let config_without_certificate =
        Config { cert: None, key: None, ..tls_config(&cluster, directory.path()) };
    let without_certificate = EtcdStore::connect(config_without_certificate).await.expect("good settings");
    assert!(matches!(without_certificate.get("/tls/1").await, Err(StoreError::Unreachable(_))));
    let other_directory = tempfile::tempdir().expect("a temporary directory");
    let other_authority = Authority::new("other");
    other_authority.write(&other_directory.path().join("ca.pem"));
    other_authority.issue(other_directory.path(), "client", &[]);
    let wrong_authority =
        EtcdStore::connect(tls_config(&cluster, other_directory.path())).await.expect("good settings");
    assert!(matches!(wrong_authority.get("/tls/1").await, Err(StoreError::Unreachable(_))));

    // The correct files are installed while the client runs. The client reads them and connects.
    authority.write(&other_directory.path().join("ca.pem"));
    authority.issue(other_directory.path(), "client", &[]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while wrong_authority.get("/tls/1").await.is_err() {
        assert!(Instant::now() < deadline, "the new certificates are not used");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Invalid files do not replace the known certificates.
    std::fs::write(other_directory.path().join("client.pem"), "half of a").expect("a file");
    let broken_since = Instant::now();
    while broken_since.elapsed() < Duration::from_millis(2500) {
        wrong_authority.get("/tls/1").await.expect("the client still works");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn unusable_certificates_are_reported_immediately() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| Some(directory.path().join(name));
    let check = |config: Config, part: &'static str| async move {
        match EtcdStore::connect(config).await {
            Err(StoreError::Configuration(text)) => assert!(text.contains(part), "{text} has no {part}"),
            other => panic!("expected a refusal with {part}: {:?}", other.err()),
        }
    };
    let valid_config = Config::new(["https://127.0.0.1:1"]);
    check(Config { ca: file("missing.pem"), ..valid_config.clone() }, "missing.pem").await;
    std::fs::write(directory.path().join("empty.pem"), "").expect("a file");
    check(Config { ca: file("empty.pem"), ..valid_config.clone() }, "empty.pem").await;
    let user = Config {
        user: Some("node1".to_owned()),
        password_file: file("missing"),
        ..Config::new(["http://127.0.0.1:1"])
    };
    check(user, "missing").await;
}

/// Grants the permissions of one node's agent.
fn grant_agent(endpoint: &str, keys: &Keys, node: &str) {
    let run = |arguments: &[&str]| etcdctl(endpoint, arguments).expect("etcdctl");
    run(&["role", "add", node]);
    for permission in agent_permissions(keys, &node.into()) {
        let kind = if permission.is_write { "readwrite" } else { "read" };
        let mut arguments = vec!["role", "grant-permission", node, kind, &permission.selector];
        arguments.extend(permission.is_prefix().then_some("--prefix"));
        run(&arguments);
    }
    run(&["user", "add", &format!("{node}:secret-{node}")]);
    run(&["user", "grant-role", node, node]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_role_limits_agent_to_its_keys() {
    let flags = Flags { extra_flags: vec!["--auth-token-ttl=2".to_owned()], ..Flags::default() };
    let cluster = Cluster::start(1, &flags);
    let endpoint = cluster.endpoints()[0].clone();
    let keys = Keys::new("default");
    grant_agent(&endpoint, &keys, "node1");
    for arguments in [["user", "add", "root:root"], ["user", "grant-role", "root"]] {
        let arguments: Vec<&str> =
            arguments.iter().copied().chain((arguments[1] == "grant-role").then_some("root")).collect();
        etcdctl(&endpoint, &arguments).expect("etcdctl");
    }
    let controller_setup: &[&[&str]] = &[
        &["role", "add", "controller"],
        &["role", "grant-permission", "controller", "readwrite", keys.root(), "--prefix"],
        &["user", "add", "controller:secret-controller"],
        &["user", "grant-role", "controller", "controller"],
    ];
    for arguments in controller_setup {
        etcdctl(&endpoint, arguments).expect("etcdctl");
    }
    etcdctl(&endpoint, &["auth", "enable"]).expect("etcdctl");

    let directory = tempfile::tempdir().expect("a temporary directory");
    let connect = |user: &str, password: &str| {
        let file = directory.path().join(user);
        std::fs::write(&file, format!("{password}\n")).expect("a file");
        let config = Config {
            user: Some(user.to_owned()),
            password_file: Some(file),
            ..Config::new(cluster.endpoints())
        };
        async { EtcdStore::connect(config).await.expect("good settings") }
    };
    let root = connect("root", "root").await;
    let agent = connect("node1", "secret-node1").await;
    // A controller needs only the keys of its cluster.
    let controller = connect("controller", "secret-controller").await;
    let fence = controller.commit(put(&keys.fence(&"node1".into()))).await.applied().expect("applied");

    // An agent writes its own keys, with guards on keys that it may only read.
    let lease = agent.grant_lease(60).await.expect("a lease");
    let heartbeat = Transaction::new()
        .put_leased(keys.alive(&"node1".into()), Guard::Absent, vec![1], lease)
        .guard(keys.fence(&"node1".into()), Guard::Unchanged(fence))
        .guard(keys.assignment(&"web".into()), Guard::Absent);
    let applied = agent.commit(heartbeat).await;
    assert!(matches!(applied, Outcome::Applied(_)), "{applied:?}");
    for own_key in [
        keys.node_report(&"node1".into()),
        keys.service_report(&"node1".into(), &"web".into()),
        keys.event("agent-node1", "1"),
    ] {
        let outcome = agent.commit(put(&own_key)).await;
        assert!(matches!(outcome, Outcome::Applied(_)), "{own_key}: {outcome:?}");
    }
    assert!(agent.keep_alive(lease).await.is_ok());
    let request = keys.log_request(&"node1".into(), "1");
    let requested_at = controller.commit(put(&request)).await.applied().expect("applied");
    let answer = Transaction::new().guard(request, Guard::Created(requested_at)).put_leased(
        keys.log_answer(&"node1".into(), "1"),
        Guard::Absent,
        vec![1],
        lease,
    );
    let answered = agent.commit(answer).await;
    assert!(matches!(answered, Outcome::Applied(_)), "{answered:?}");

    // An agent must not write keys of other nodes, not even of a node whose name begins with the name of the agent's
    // node.
    for foreign_key in [
        keys.alive(&"node10".into()),
        keys.alive(&"node2".into()),
        keys.node_report(&"node10".into()),
        keys.service_report(&"node2".into(), &"web".into()),
        keys.fence(&"node1".into()),
        keys.assignment(&"web".into()),
        keys.leader(),
        keys.candidate(&"c1".into()),
        keys.event("agent-node10", "1"),
        keys.log_request(&"node1".into(), "2"),
        keys.log_answer(&"node10".into(), "1"),
    ] {
        let outcome = agent.commit(put(&foreign_key)).await;
        assert!(matches!(&outcome, Outcome::Refused(_)), "{foreign_key}: {outcome:?}");
        let snapshot = root.get(&foreign_key).await.expect("root reads");
        assert!(
            snapshot.entries.is_empty() || foreign_key == keys.fence(&"node1".into()),
            "{foreign_key} was written"
        );
    }
    assert!(matches!(agent.get(&keys.alive(&"node2".into())).await, Err(StoreError::Refused(_))));
    assert!(matches!(agent.get(&keys.log_answer(&"node2".into(), "1")).await, Err(StoreError::Refused(_))));

    // All keys that an agent follows fit into one watch; a watch of a forbidden key fails with an error instead of
    // waiting.
    let selectors: Vec<String> = [
        keys.specs_of(Kind::Cluster),
        keys.specs_of(Kind::Resource),
        keys.assignments(),
        keys.fences(),
        keys.reports_of(&"node1".into()),
        keys.alive(&"node1".into()),
        keys.candidates(),
    ]
    .into();
    let reading = agent.list_all(&selectors).await.expect("all keys are readable");
    assert_eq!(reading.entries.len(), 4);
    let mut watch = agent.watch_all(&selectors, reading.revision + 1);
    let assignment_revision =
        controller.commit(put(&keys.assignment(&"web".into()))).await.applied().expect("applied");
    let changes = async {
        loop {
            if let Some(Ok(WatchItem::Changes { changes, .. })) = watch.next().await {
                return changes.iter().map(ha_store::Change::revision).collect::<Vec<_>>();
            }
        }
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(10), changes).await, Ok(vec![assignment_revision]));
    let forbidden = agent.watch(&keys.alive(&"node2".into()), Revision(1)).next().await;
    assert!(matches!(forbidden, Some(Err(StoreError::Refused(_)))), "{forbidden:?}");

    // An expired token is replaced automatically, for requests and for watches.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let outcome = agent.commit(put(&keys.event("agent-node1", "2"))).await;
    assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");

    // A user without root permissions also gets the member's status, as far as etcd reports it.
    let status = agent.status().await;
    assert!(status[0].reachable && status[0].leader && status[0].version.is_some(), "{status:#?}");
    assert!(status[0].problem.is_none() && status[0].database_size_bytes > 0, "{status:#?}");

    // A wrong password and a missing one are refused, with the reason.
    let unknown_user = connect("nobody", "guess").await;
    let result = unknown_user.get(&keys.fence(&"node1".into())).await;
    assert!(matches!(&result, Err(StoreError::Refused(text)) if text.contains("password")), "{result:?}");
    let anonymous = EtcdStore::connect(Config::new(cluster.endpoints())).await.expect("good settings");
    let result = anonymous.get(&keys.fence(&"node1".into())).await;
    assert!(matches!(&result, Err(StoreError::Refused(_))), "{result:?}");
}
