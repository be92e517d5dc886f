//! Tests of the clients of the API: tokens, requests of web pages, secret values, and the audit log.

use super::http::{APPLY, Answer, Api, MERGE, resource};
use axum::body::Body;
use axum::http::Request;
use futures::StreamExt;
use ha_api_types::role::Role;
use ha_api_types::time::Timestamp;
use ha_api_types::token::{Token, TokenFile, TokenHash};
use ha_controller::api::{ApiOptions, AuditLog, AuthorizationMode, Tokens};
use ha_runtime::tls::ClientIdentity;
use ha_store::MemoryStore;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

fn write_tokens(path: &Path, tokens: &[(&str, Role)]) {
    let token = |(name, role): &(&str, Role)| Token {
        name: (*name).to_owned(),
        role: *role,
        sha256: TokenHash::of(&format!("token of {name}")),
        expires: Timestamp("9999-01-01T00:00:00Z".to_owned()),
    };
    let file = TokenFile { tokens: tokens.iter().map(token).collect() };
    // JSON is valid YAML.
    std::fs::write(path, serde_json::to_string(&file).unwrap()).unwrap();
}

/// Returns the API for a client with TLS but without a certificate.
fn api_with_tokens(path: &Path, mode: AuthorizationMode) -> Api<MemoryStore> {
    let mut options = ApiOptions::new("c1", "test");
    options.authorization = mode;
    options.tokens = Some(Arc::new(Tokens::new(path).unwrap()));
    Api::with(MemoryStore::new(), options).of_identity(ClientIdentity::Anonymous)
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(format!("/apis/hactl.io/v1/{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

async fn with_token(api: &Api<MemoryStore>, token: &str) -> Answer {
    let authorization = format!("Bearer {token}");
    let request = request("GET", "resources", &[("authorization", &authorization)], "");
    Answer::read(api.dispatch(request).await).await
}

#[tokio::test]
async fn a_token_identifies_a_user_with_one_role() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens.yaml");
    write_tokens(&path, &[("ada", Role::Viewer), ("metrics", Role::Metrics)]);
    let api = api_with_tokens(&path, AuthorizationMode::AlwaysAllow);
    assert_eq!(with_token(&api, "token of ada").await.code, 200);
    assert_eq!(with_token(&api, "token of metrics").await.code, 403);
    for (answer, part) in [
        (with_token(&api, "token of eve").await, "unknown or was revoked"),
        (api.get("resources").await, "no client certificate and no token"),
        (
            Answer::read(
                api.dispatch(request("GET", "resources", &[("authorization", "Basic YTpi")], "")).await,
            )
            .await,
            "not a bearer token",
        ),
    ] {
        assert_eq!((answer.code, answer.at("/reason")), (401, &json!("Unauthorized")));
        assert!(answer.at("/message").as_str().unwrap().contains(part), "{}", answer.body);
    }
    // A wrong token is refused even if the certificate is valid.
    let admin = api.of_user("root", &["hactl:admin"]);
    assert_eq!(admin.get("resources").await.code, 200);
    assert_eq!(with_token(&admin, "token of eve").await.code, 401);
    // The mode concerns certificates: a token keeps its role.
    let headers = [("authorization", "Bearer token of ada"), ("content-type", "application/json")];
    let create = request("POST", "resources", &headers, &resource("web").to_string());
    assert_eq!(api.dispatch(create).await.status(), 403);
}

#[tokio::test]
async fn a_revoked_token_ends_its_watch() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens.yaml");
    write_tokens(&path, &[("ada", Role::Viewer), ("bob", Role::Viewer)]);
    let api = api_with_tokens(&path, AuthorizationMode::Roles);
    let watch = |user: &str| {
        request("GET", "resources?watch=1", &[("authorization", &format!("Bearer token of {user}"))], "")
    };
    let mut ada = api.dispatch(watch("ada")).await.into_body().into_data_stream();
    let mut bob = api.dispatch(watch("bob")).await.into_body().into_data_stream();
    write_tokens(&path, &[("bob", Role::Viewer)]);
    assert!(ada.next().await.is_none(), "the stream ends");
    assert_eq!(with_token(&api, "token of ada").await.code, 401);
    assert!(futures::poll!(bob.next()).is_pending());
    // A token with another role is another token.
    write_tokens(&path, &[("bob", Role::Metrics)]);
    assert!(bob.next().await.is_none());
}

#[tokio::test]
async fn without_an_identity_every_request_is_refused() {
    let api = Api::over(MemoryStore::new()).of_identity(ClientIdentity::Anonymous);
    assert_eq!(api.get("resources").await.code, 401);
    assert_eq!(api.get("/livez").await.code, 401);
    let message = with_token(&api, "any").await;
    assert!(message.at("/message").as_str().unwrap().contains("--token-file"), "{}", message.body);
    let unknown_user = api.of_identity(ClientIdentity::LocalUser { uid: 4_000_000_000 });
    let refused = unknown_user.get("resources").await;
    assert_eq!(refused.code, 403);
    assert!(refused.at("/message").as_str().unwrap().contains("User \"uid:4000000000\""), "{}", refused.body);
}

#[tokio::test]
async fn requests_of_web_pages_are_refused() {
    let api = Api::over(MemoryStore::new());
    let body = resource("web").to_string();
    let post = async |headers: &[(&str, &str)]| {
        api.dispatch(request("POST", "resources?dryRun=All", headers, &body)).await.status().as_u16()
    };
    let (json, local) = (("content-type", "application/json"), ("host", "127.0.0.1:7443"));
    assert_eq!(post(&[json, local]).await, 201);
    assert_eq!(post(&[json, local, ("origin", "http://127.0.0.1:7443")]).await, 201);
    // A page of another origin; a name that resolves to this machine; a form, which needs no permission of the browser.
    assert_eq!(post(&[json, local, ("origin", "https://evil.example")]).await, 403);
    assert_eq!(post(&[json, ("host", "evil.example:7443")]).await, 403);
    assert_eq!(post(&[local]).await, 415);
    assert_eq!(post(&[local, ("content-type", "text/plain")]).await, 415);
    assert_eq!(post(&[local, ("content-type", "")]).await, 415);
}

fn with_environment() -> Value {
    let mut web = resource("web");
    web["spec"]["driver"] =
        json!({"exec": {"command": ["/bin/true"], "environment": {"PASSPHRASE": "planted"}}});
    web["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": web.to_string()});
    web
}

fn with_fence_device() -> Value {
    let parts = json!([{"agent": "fence_ipmilan", "attributes": {"ip": "planted"}}]);
    let devices = json!([{"name": "ipmi", "parts": parts}]);
    json!({"apiVersion": "hactl.io/v1", "kind": "Node", "metadata": {"name": "node1"},
        "spec": {"fencing": {"devices": devices}}})
}

#[tokio::test]
async fn secret_values_are_shown_to_those_who_write_them() {
    let api = Api::over(MemoryStore::new());
    for (plural, object) in [("resources", with_environment()), ("nodes", with_fence_device())] {
        let created = api.post(plural, &object).await;
        assert_eq!(created.code, 201, "{}", created.body);
    }
    let viewer = api.of_user("ada", &["hactl:viewer"]);
    let operator = api.of_user("olga", &["hactl:operator"]);
    let editor = api.of_user("ed", &["hactl:editor"]);
    for path in ["resources/web", "resources", "resources/web/status", "nodes/node1", "nodes", "state"] {
        let shows = async |client: &Api<MemoryStore>| {
            let answer = client.get(path).await;
            assert_eq!(answer.code, 200, "{path}: {}", answer.body);
            answer.body.to_string().contains("planted")
        };
        assert!(shows(&api).await, "{path}: admin");
        assert!(!shows(&viewer).await, "{path}: viewer");
        assert!(!shows(&operator).await, "{path}: operator");
        assert_eq!(shows(&editor).await, path.starts_with("resources"), "{path}: editor");
    }
    let mut lines = viewer.watch("resources?watch=1").await;
    assert!(!lines.next().await.unwrap().1.to_string().contains("planted"));
    // The answer to a write has the same rule.
    let drained = operator.merge("nodes/node1", &json!({"spec": {"unschedulable": true}})).await;
    assert_eq!(drained.code, 200);
    assert!(!drained.body.to_string().contains("planted"));
    let stored = api.get("nodes/node1").await;
    assert!(stored.body.to_string().contains("planted"), "the stored value is unchanged");
}

#[tokio::test]
async fn the_overview_warns_if_every_certificate_has_all_permissions() {
    let mut options = ApiOptions::new("c1", "test");
    options.authorization = AuthorizationMode::AlwaysAllow;
    let api = Api::with(MemoryStore::new(), options);
    let status = api.get("status").await;
    let about = |problem: &Value| problem["about"] == "controller/c1";
    assert!(status.at("/problems").as_array().unwrap().iter().any(about), "{}", status.body);
    let status = Api::over(MemoryStore::new()).get("status").await;
    assert!(!status.at("/problems").as_array().unwrap().iter().any(about), "{}", status.body);
}

#[tokio::test]
async fn operators_create_no_node_by_server_side_apply() {
    let api = Api::over(MemoryStore::new());
    let operator = api.of_user("olga", &["hactl:operator"]);
    let path = "nodes/node1?fieldManager=test";
    assert_eq!(operator.call("PATCH", path, APPLY, &with_fence_device()).await.code, 403);
    assert_eq!(api.get("nodes/node1").await.code, 404);
    assert_eq!(api.call("PATCH", path, APPLY, &with_fence_device()).await.code, 201);
}

#[tokio::test]
async fn the_audit_log_has_writes_and_refusals_without_values() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let mut options = ApiOptions::new("c1", "test");
    options.audit_log = AuditLog::new(Some(path.clone())).unwrap();
    let api = Api::with(MemoryStore::new(), options);
    let editor = api.of_user("ed", &["hactl:editor", "staff"]);
    assert_eq!(editor.post("resources?dryRun=All", &with_environment()).await.code, 201);
    let created = editor.post("resources?fieldManager=gitops", &with_environment()).await;
    let changed = editor.call("PATCH", "resources/web", MERGE, &json!({"spec": {"priority": 5}})).await;
    // A write without effect has no versions. A read is not recorded.
    editor.call("PATCH", "resources/web", MERGE, &json!({"spec": {"priority": 5}})).await;
    editor.get("resources/web").await;
    assert_eq!(editor.get("/apis/hactl.io/v1/state?x=planted").await.code, 200);
    assert_eq!(editor.post("nodes", &with_fence_device()).await.code, 403);
    assert_eq!(editor.post("resources", &with_environment()).await.code, 409);
    assert_eq!(editor.delete("resources/web").await.code, 200);
    let anonymous = api.of_identity(ClientIdentity::Anonymous);
    assert_eq!(anonymous.get("resources").await.code, 401);

    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("planted"), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = |line: &Value| {
        let field =
            |name: &str| line.get(name).map_or(String::new(), |value| value.to_string().replace('"', ""));
        ["user", "verb", "resource", "name", "code", "outcome", "dryRun", "fieldManager"].map(field).join(" ")
    };
    let summaries: Vec<String> = lines.iter().map(summary).collect();
    let expected = [
        "ed create resources web 201 Done true test",
        "ed create resources web 201 Done  gitops",
        "ed patch resources web 200 Done  test",
        "ed patch resources web 200 Done  ",
        "ed create nodes  403 Refused  ",
        "ed create resources  409 Failed  ",
        "ed delete resources web 200 Done  ",
        " list resources  401 Refused  ",
    ];
    assert_eq!(summaries, expected);
    assert_eq!(lines[1]["groups"], json!(["hactl:editor", "staff"]));
    assert_eq!(lines[1]["uid"], *created.at("/metadata/uid"));
    assert_eq!(lines[1]["resourceVersionBefore"], Value::Null);
    let version =
        |answer: &Answer| answer.at("/metadata/resourceVersion").as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(lines[2]["resourceVersionBefore"], version(&created));
    assert_eq!(lines[2]["resourceVersionAfter"], version(&changed));
    assert_eq!(lines[6]["resourceVersionBefore"], version(&changed));
    // The leader deletes the object once the service has stopped.
    assert!(lines[6]["resourceVersionAfter"].as_u64() > lines[6]["resourceVersionBefore"].as_u64());
}

#[tokio::test]
async fn admins_read_the_audit_log_in_pages() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = ApiOptions::new("c1", "test");
    options.audit_log = AuditLog::new(Some(directory.path().join("audit.jsonl"))).unwrap();
    let api = Api::with(MemoryStore::new(), options);
    let editor = api.of_user("ed", &["hactl:editor"]);
    assert_eq!(editor.post("resources", &with_environment()).await.code, 201);
    assert_eq!(editor.get("audit").await.code, 403);
    assert_eq!(editor.post("nodes", &with_fence_device()).await.code, 403);
    // Computed timings change nothing, so they are not recorded.
    assert_eq!(editor.post("timing", &json!({})).await.code, 200);
    let first = api.get("audit?limit=2").await;
    let items = first.at("/items").as_array().unwrap();
    assert_eq!(
        (items.len(), &items[0]["resource"], &items[0]["outcome"]),
        (2, &json!("nodes"), &json!("Refused"))
    );
    assert_eq!(items[1]["resource"], "audit");
    let token = first.at("/continue").as_str().unwrap();
    let second = api.get(&format!("audit?limit=2&continue={token}")).await;
    assert_eq!((second.at("/items/0/name"), second.at("/continue")), (&json!("web"), &Value::Null));
    assert_eq!(api.get("audit?user=nobody").await.at("/items"), &json!([]));
    assert_eq!(api.get("audit?limit=0").await.code, 400);
    assert_eq!(api.get("audit?continue=x").await.code, 400);
    assert_eq!(api.get("audit?continue=1-1").await.code, 410);
    let without_file = Api::over(MemoryStore::new()).get("audit").await;
    assert_eq!(without_file.code, 404);
    assert!(without_file.body["message"].as_str().unwrap().contains("auditLog"));
}

#[tokio::test]
async fn proposed_timings_are_answered_with_bounds_and_problems() {
    let api = Api::over(MemoryStore::new());
    let node =
        json!({"apiVersion": "hactl.io/v1", "kind": "Node", "metadata": {"name": "node1"}, "spec": {}});
    assert_eq!(api.post("nodes", &node).await.code, 201);
    let answer =
        api.post("timing", &json!({"timing": {"profile": "Fast", "heartbeatLifetimeSeconds": 2}})).await;
    assert_eq!((answer.code, answer.at("/unreportedNodes")), (200, &json!(["node1"])));
    assert_eq!(answer.at("/problems/0/field"), "heartbeatLifetimeSeconds");
    assert_eq!(
        answer.at("/settings/1"),
        &json!({"field": "heartbeatLifetimeSeconds", "value": 2.0, "profileValue": 4.0, "min": 0.0, "max": 600.0})
    );
    assert_eq!(api.post("timing", &json!({"timing": {"profile": "Slow"}})).await.code, 400);
}
