//! Tests of the certificates that controllers issue to nodes: join tokens, requests and renewals, and attacks on each.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/http.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod http;

use ha_api_types::id::NodeName;
use ha_api_types::join::{JoinToken, JoinTokenRecord};
use ha_api_types::kind::API_VERSION;
use ha_api_types::time::Timestamp;
use ha_controller::api::{ApiOptions, AuditLog, AuthorizationMode, JoinOptions};
use ha_pki::{
    Authority, AuthorityKind, CertificateFacts, CertificateKind, Profile, Validity, new_key, request_for_node,
};
use ha_runtime::tls::ClientIdentity;
use ha_store::{Guard, MemoryStore, Store, Transaction};
use http::{Answer, Api};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

/// Two controllers with the same authority over one store.
struct Controllers {
    directory: TempDir,
    first: Api<MemoryStore>,
    second: Api<MemoryStore>,
}

impl Controllers {
    fn new(mode: AuthorizationMode) -> Controllers {
        let directory = tempfile::tempdir().unwrap();
        let validity = Validity { now_unix_seconds: now(), lifetime: Duration::from_secs(3650 * 86_400) };
        for kind in AuthorityKind::ALL {
            let issued = Authority::create(kind, validity).unwrap();
            let path = |extension: &str| directory.path().join(format!("{}.{extension}", kind.file_stem()));
            std::fs::write(path("pem"), issued.certificate_pem).unwrap();
            std::fs::write(path("key"), issued.key_pem).unwrap();
        }
        let options = |id: &str| {
            let mut options = ApiOptions::new(id, "test");
            options.authorization = mode;
            options.join = Some(JoinOptions {
                directory: directory.path().to_owned(),
                etcd_endpoints: vec!["https://c1:2379".to_owned()],
            });
            options.audit_log = AuditLog::new(Some(directory.path().join("audit.jsonl"))).unwrap();
            options
        };
        let first = Api::with(MemoryStore::new(), options("c1"));
        let second = Api::sharing(Arc::clone(&first.store), options("c2"));
        Controllers { directory, first, second }
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }

    async fn token(&self, node: &str) -> String {
        let admin = self.first.of_user("ada", &["hactl:admin"]);
        let answer = admin.post(&format!("nodes/{node}/jointoken"), &json!({"validSeconds": 900})).await;
        assert_eq!(answer.code, 200, "{}", answer.body);
        answer.body["token"].as_str().unwrap().to_owned()
    }

    /// Sends a request to join from a machine without a certificate.
    async fn join(&self, controller: &Api<MemoryStore>, node: &str, token: &str, request: &str) -> Answer {
        let machine = controller.of_identity(ClientIdentity::Anonymous);
        machine.post(&format!("nodes/{node}/join"), &json!({"token": token, "request": request})).await
    }

    async fn create_node(&self, name: &str) {
        let node = json!({"apiVersion": API_VERSION, "kind": "Node", "metadata": {"name": name}, "spec": {}});
        let admin = self.first.of_user("ada", &["hactl:admin"]);
        assert_eq!(admin.post("nodes", &node).await.code, 201);
    }

    fn audit(&self) -> String {
        std::fs::read_to_string(self.directory().join("audit.jsonl")).unwrap_or_default()
    }
}

fn request(node: &str) -> String {
    request_for_node(node, &new_key().unwrap()).unwrap()
}

#[track_caller]
fn check_refused(answer: &Answer, code: u16, part: &str) {
    let message = answer.body["message"].as_str().unwrap_or_default();
    assert!(answer.code == code && message.contains(part), "expected {code} {part:?}: {}", answer.body);
    assert!(!answer.body.to_string().contains("BEGIN CERTIFICATE"), "{}", answer.body);
}

#[tokio::test]
async fn a_token_permits_one_certificate_of_its_node_with_several_controllers() {
    let controllers = Controllers::new(AuthorizationMode::Roles);
    let token = controllers.token("n4").await;
    let machine = controllers.first.of_identity(ClientIdentity::Anonymous);
    let authority = machine.get("nodes/n4/join").await;
    let text = std::fs::read_to_string(controllers.directory().join("ca.pem")).unwrap();
    assert_eq!((authority.code, authority.at("/serverAuthority")), (200, &json!(text)));

    // Both controllers get the token at the same time: exactly one accepts it.
    let (first_request, second_request) = (request("n4"), request("n4"));
    let (first, second) = tokio::join!(
        controllers.join(&controllers.first, "n4", &token, &first_request),
        controllers.join(&controllers.second, "n4", &token, &second_request),
    );
    let mut codes = [first.code, second.code];
    codes.sort_unstable();
    assert_eq!(codes, [200, 401], "{} {}", first.body, second.body);
    let accepted = if first.code == 200 { first } else { second };
    let facts = CertificateFacts::of_pem(accepted.body["certificate"].as_str().unwrap()).unwrap();
    assert_eq!((facts.kind, facts.name.as_str()), (Some(CertificateKind::Node), "n4"));
    assert_eq!(facts.lifetime(), Duration::from_secs(30 * 86_400));
    assert_eq!(accepted.at("/etcdEndpoints/0"), &json!("https://c1:2379"));
    for controller in [&controllers.first, &controllers.second] {
        let repeated = controllers.join(controller, "n4", &token, &request("n4")).await;
        check_refused(&repeated, 401, "not valid, has expired, or was used");
    }
    let audit = controllers.audit();
    assert!(!audit.contains(&token), "{audit}");
    for expected in [
        r#""user":"ada","groups":["hactl:admin"],"source":"","verb":"create","group":"hactl.io","resource":"nodes","name":"n4","subresource":"jointoken","code":200,"outcome":"Done""#,
        r#""name":"n4","subresource":"join","code":200,"outcome":"Done""#,
        r#""name":"n4","subresource":"join","code":401,"outcome":"Refused""#,
    ] {
        assert!(audit.contains(expected), "{expected}: {audit}");
    }
    // The serial number is known, so that the certificate can be revoked.
    let viewer = controllers.second.of_user("bob", &["hactl:viewer"]);
    let listed = viewer.get("nodes/n4/certificates").await;
    assert_eq!(listed.at("/items/0/serial"), &json!(facts.serial.to_string()));
    assert_eq!(listed.body["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn wrong_tokens_and_requests_are_refused_and_keep_the_token() {
    let controllers = Controllers::new(AuthorizationMode::Roles);
    let token = controllers.token("n4").await;
    let api = &controllers.first;
    let other = controllers.token("n5").await;
    let parsed: JoinToken = token.parse().unwrap();
    let guessed = JoinToken::new("n4".into(), [0; 32], parsed.pin).to_string();
    for (node, token) in
        [("n4", other.as_str()), ("n5", &token), ("n4", &guessed), ("n4", "x"), ("n6", &token)]
    {
        let refused = controllers.join(api, node, token, &request(node)).await;
        check_refused(&refused, 401, "not valid, has expired, or was used");
    }
    for (request, part) in [
        (request("n5"), "has another subject"),
        ("x".to_owned(), "not a valid certificate request"),
        ("x".repeat(5000), "too long"),
    ] {
        check_refused(&controllers.join(api, "n4", &token, &request).await, 400, part);
    }
    // No role except admin creates a token, and no token is valid for long.
    for group in ["hactl:operator", "hactl:editor", "hactl:node", "hactl:controller"] {
        let user = api.of_user("n4", &[group]);
        let refused = user.post("nodes/n4/jointoken", &json!({"validSeconds": 60})).await;
        check_refused(&refused, 403, "required group: hactl:admin");
    }
    let admin = api.of_user("ada", &["hactl:admin"]);
    for seconds in [0, 3601] {
        let refused = admin.post("nodes/n4/jointoken", &json!({"validSeconds": seconds})).await;
        check_refused(&refused, 400, "must be from 1 to 3600");
    }
    let refused = admin.post("nodes/root/jointoken", &json!({"validSeconds": 60})).await;
    check_refused(&refused, 400, "\"root\" is reserved");
    let accepted = controllers.join(api, "n4", &token, &request("n4")).await;
    assert_eq!(accepted.code, 200, "{}", accepted.body);
}

#[tokio::test]
async fn an_expired_token_is_refused() {
    let controllers = Controllers::new(AuthorizationMode::Roles);
    let api = &controllers.first;
    let token = controllers.token("n4").await;
    let key = api.keys.join_token(&NodeName::from("n4"));
    let entry = api.store.get(&key).await.unwrap().entries.remove(0);
    let mut record: JoinTokenRecord = serde_json::from_slice(&entry.value).unwrap();
    assert!(!String::from_utf8_lossy(&entry.value).contains(&token), "etcd has only the hash");
    record.expires = Timestamp::from_unix_ms(i128::from(now() - 1) * 1000);
    let value = serde_json::to_vec(&record).unwrap();
    let transaction = Transaction::new().put(&key, Guard::Unchanged(entry.mod_revision), value);
    assert!(api.store.commit(transaction).await.applied().is_some());
    check_refused(&controllers.join(api, "n4", &token, &request("n4")).await, 401, "has expired");
    // A new token replaces the earlier one.
    let earlier = controllers.token("n4").await;
    let newer = controllers.token("n4").await;
    check_refused(&controllers.join(api, "n4", &earlier, &request("n4")).await, 401, "not valid");
    assert_eq!(controllers.join(api, "n4", &newer, &request("n4")).await.code, 200);
}

#[tokio::test]
async fn a_node_renews_only_its_own_certificate() {
    for mode in [AuthorizationMode::Roles, AuthorizationMode::AlwaysAllow] {
        let controllers = Controllers::new(mode);
        let api = &controllers.first;
        controllers.create_node("n4").await;
        let renew = async |client: &Api<MemoryStore>, node: &str, request: &str| {
            client.post(&format!("nodes/{node}/certificate"), &json!({"request": request})).await
        };
        let node = api.of_user("n4", &["hactl:node"]);
        let renewed = renew(&node, "n4", &request("n4")).await;
        assert_eq!(renewed.code, 200, "{}", renewed.body);
        let facts = CertificateFacts::of_pem(renewed.body["certificate"].as_str().unwrap()).unwrap();
        assert_eq!((facts.kind, facts.name.as_str()), (Some(CertificateKind::Node), "n4"));

        check_refused(&renew(&node, "n5", &request("n5")).await, 403, "only the agent of n5");
        check_refused(&renew(&node, "n4", &request("n5")).await, 400, "has another subject");
        for (name, groups) in [
            ("n4", &["hactl:viewer"][..]),
            ("n4", &[]),
            ("ada", &["hactl:admin"]),
            ("n5", &["hactl:node"]),
            ("root", &["hactl:node"]),
        ] {
            let client = api.of_user(name, groups);
            check_refused(&renew(&client, "n4", &request("n4")).await, 403, "only the agent of n4");
        }
        for identity in [ClientIdentity::Loopback, ClientIdentity::LocalUser { uid: 0 }] {
            let client = api.of_identity(identity);
            check_refused(&renew(&client, "n4", &request("n4")).await, 403, "only the agent of n4");
        }
        let anonymous = api.of_identity(ClientIdentity::Anonymous);
        check_refused(&renew(&anonymous, "n4", &request("n4")).await, 401, "no client certificate");
        // The certificate of a removed node is not renewed.
        let removed = api.of_user("n9", &["hactl:node"]);
        check_refused(&renew(&removed, "n9", &request("n9")).await, 403, "node n9 does not exist");
        // A stolen key does not fill etcd.
        for _ in 0..7 {
            assert_eq!(renew(&node, "n4", &request("n4")).await.code, 200);
        }
        check_refused(&renew(&node, "n4", &request("n4")).await, 429, "already has 8 certificates");
    }
}

#[tokio::test]
async fn a_controller_without_an_authority_issues_nothing() {
    let api = Api::with(MemoryStore::new(), ApiOptions::new("c1", "test"));
    let admin = api.of_user("ada", &["hactl:admin"]);
    let refused = admin.post("nodes/n4/jointoken", &json!({"validSeconds": 60})).await;
    check_refused(&refused, 404, "set joinAuthority");
    let node = api.of_user("n4", &["hactl:node"]);
    check_refused(
        &node.post("nodes/n4/certificate", &json!({"request": ""})).await,
        404,
        "set joinAuthority",
    );
    let machine = api.of_identity(ClientIdentity::Anonymous);
    check_refused(&machine.get("nodes/n4/join").await, 404, "set joinAuthority");
    check_refused(&machine.get("nodes/n4").await, 401, "no client certificate");
}

#[test]
fn an_unusable_authority_is_found_at_the_start() {
    let controllers = Controllers::new(AuthorizationMode::Roles);
    let options = JoinOptions { directory: controllers.directory().to_owned(), etcd_endpoints: Vec::new() };
    options.check().unwrap();
    let leaf = Authority::load(
        &std::fs::read_to_string(controllers.directory().join("client-ca.pem")).unwrap(),
        &std::fs::read_to_string(controllers.directory().join("client-ca.key")).unwrap(),
    )
    .unwrap()
    .issue(
        &Profile::node("n4").unwrap(),
        Validity { now_unix_seconds: now(), lifetime: Duration::from_secs(60) },
    )
    .unwrap();
    std::fs::write(controllers.directory().join("client-ca.key"), leaf.key_pem).unwrap();
    assert!(options.check().unwrap_err().contains("does not belong to the certificate"));
    std::fs::remove_file(controllers.directory().join("client-ca.key")).unwrap();
    assert!(options.check().unwrap_err().contains("client-ca.key: No such file"));
}
