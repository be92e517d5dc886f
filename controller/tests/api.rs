//! Tests of the HTTP API over the in-memory store: writes, conflicts, watches, limits, and responses beyond
//! Kubernetes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/clients.rs"]
mod clients;
#[path = "support/http.rs"]
mod http;
#[path = "support/roles.rs"]
mod roles;
#[path = "support/suite.rs"]
mod suite;

use axum::body::Body;
use axum::http::header;
use futures::StreamExt;
use ha_api_types::id::Revision;
use ha_api_types::kind::Kind;
use ha_api_types::record::{keys_deleted_by_restore, revision_raise};
use ha_api_types::time::MonotonicTime;
use ha_controller::api::ApiOptions;
use ha_controller::policy::{ControllerPolicy, Limits};
use ha_store::{MemoryStore, Store};
use http::{APPLY, Api, group, resource};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[tokio::test]
async fn clients_cannot_change_server_owned_fields() {
    suite::clients_cannot_change_server_owned_fields(MemoryStore::new()).await;
}

#[tokio::test]
async fn deletion_waits_for_leader_and_empty_node() {
    suite::deletion_waits_for_leader_and_empty_node(MemoryStore::new()).await;
}

#[tokio::test]
async fn the_policy_of_the_controller_limits_nodes_and_the_cluster() {
    let policy = ControllerPolicy::parse("fenceAgents: [fence_ipmilan]").unwrap();
    let options = ApiOptions { limits: Limits::new(Some(policy)), ..ApiOptions::new("c1", "test") };
    let api = Api::with(MemoryStore::new(), options);
    let node = |agent: &str, file: &str| {
        json!({"apiVersion": "hactl.io/v1", "kind": "Node", "metadata": {"name": "node1"}, "spec": {"fencing": {
            "devices": [{"name": "bmc", "parts": [{"agent": agent, "attributesFile": file}]}]}}})
    };
    let refused = api.post("nodes", &node("fence_ssh", "/etc/shadow")).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    assert_eq!(refused.at("/details/causes/0/field"), "spec.fencing.devices[0].parts[0].agent");
    let message =
        "policy of this controller does not allow fence_ssh: add it to policy.fenceAgents in controller.yaml";
    assert_eq!(refused.at("/details/causes/0/message"), message);
    assert_eq!(refused.at("/details/causes/1/field"), "spec.fencing.devices[0].parts[0].attributesFile");
    assert_eq!(api.post("nodes", &node("fence_ipmilan", "bmc")).await.code, 201);
    let cluster = |notifications: Value| {
        json!({"apiVersion": "hactl.io/v1", "kind": "Cluster", "metadata": {"name": "default"},
            "spec": {"notifications": notifications}})
    };
    let mail = json!({"smtp": {"server": "mail.example.org", "user": "u", "passwordFile": "/etc/shadow",
        "from": "a@example.org", "to": ["b@example.org"]}});
    let refused = api.post("clusters", &cluster(mail)).await;
    assert_eq!(
        refused.at("/details/causes/0/field"),
        "spec.notifications.smtp.passwordFile",
        "{}",
        refused.body
    );
    let webhook = json!({"webhooks": [{"url": "http://a", "hmacKeyFile": "../shadow"}]});
    let refused = api.post("clusters", &cluster(webhook)).await;
    let message =
        "must be the name of a file in the secrets directory of the controllers, or an absolute path";
    assert_eq!(refused.at("/details/causes/0/message"), message, "{}", refused.body);
}

#[tokio::test]
async fn a_list_has_the_requested_version() {
    suite::a_list_has_the_requested_version(MemoryStore::new()).await;
}

#[tokio::test]
async fn watch_continues_from_list_revision() {
    suite::watch_continues_from_list_revision(MemoryStore::new()).await;
}

#[tokio::test]
async fn concurrent_patches_are_all_applied() {
    suite::concurrent_patches_are_all_applied(MemoryStore::new()).await;
}

#[tokio::test]
async fn a_log_is_answered_by_the_agent_of_the_node() {
    suite::a_log_is_answered_by_the_agent_of_the_node(MemoryStore::new()).await;
}

#[tokio::test]
async fn requests_that_wait_for_an_agent_are_limited() {
    suite::requests_that_wait_for_an_agent_are_limited(MemoryStore::new()).await;
}

#[tokio::test]
async fn discovery_lists_the_log_of_resources() {
    let api = Api::over(MemoryStore::new());
    let list = api.get("/apis/hactl.io/v1").await;
    let logs: Vec<&Value> =
        list.at("/resources").as_array().unwrap().iter().filter(|one| is_log(&one["name"])).collect();
    assert_eq!(logs.len(), 1, "{}", list.body);
    assert_eq!((&logs[0]["name"], &logs[0]["verbs"]), (&json!("resources/log"), &json!(["get"])));
    let schema = api.get("/openapi/v3/apis/hactl.io/v1").await;
    let log = &schema.at("/paths")["/apis/hactl.io/v1/resources/{name}/log"];
    assert!(log["get"]["responses"]["200"]["content"]["text/plain"].is_object(), "{log}");
}

fn is_log(name: &Value) -> bool {
    name.as_str().is_some_and(|name| name.ends_with("/log"))
}

#[tokio::test]
async fn fields_of_newer_versions_are_kept() {
    let api = Api::over(MemoryStore::new());
    api.post("groups", &group("g")).await;
    let key = api.keys.spec(Kind::Group, "g");
    let mut stored: Value =
        serde_json::from_slice(&api.store.get(&key).await.unwrap().entries[0].value).unwrap();
    stored["spec"]["future"] = json!({"x": 1});
    api.write(&key, &stored).await;
    let patched = api.merge("groups/g", &json!({"spec": {"comment": "c"}})).await;
    assert_eq!((patched.code, patched.at("/spec/future")), (200, &json!({"x": 1})));
    let replaced = api.put("groups/g", &patched.body).await;
    assert_eq!((replaced.code, replaced.at("/spec/future")), (200, &json!({"x": 1})));
    assert_eq!(api.merge("groups/g", &json!({"spec": {"futures": 1}})).await.code, 400);
}

#[tokio::test]
async fn second_exclusive_resource_of_identity_is_refused() {
    let api = Api::over(MemoryStore::new());
    let resource_of_unit = |name: &str, unit: &str, exclusive: bool| {
        let mut value = resource(name);
        value["spec"] = json!({"driver": {"systemd": {"unit": unit}}, "exclusive": exclusive});
        value
    };
    assert_eq!(api.post("resources", &resource_of_unit("web", "nginx.service", true)).await.code, 201);
    let refused = api.post("resources", &resource_of_unit("other", "nginx", false)).await;
    assert_eq!(refused.code, 422, "{:?}", refused.body);
    assert!(refused.at("/message").as_str().unwrap().contains("web"), "{:?}", refused.body);
    assert_eq!(api.post("resources", &resource_of_unit("other", "redis", true)).await.code, 201);
    let edit = json!({"spec": {"driver": {"systemd": {"unit": "nginx"}}}});
    assert_eq!(api.merge("resources/other", &edit).await.code, 422);
    assert_eq!(api.merge("resources/other", &json!({"spec": {"comment": "c"}})).await.code, 200);
    for name in ["first", "second"] {
        assert_eq!(
            api.post("resources", &resource_of_unit(name, "cache.service", false)).await.code,
            201,
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_table_has_the_columns_of_its_kind() {
    let api = Api::over(MemoryStore::new());
    api.post("resources", &resource("web")).await;
    api.post("resources", &resource("db")).await;
    api.status(Kind::Resource, "web", &json!({"state": "Started", "node": "node1"})).await;
    let columns = |table: &Value, priority: i64| -> Vec<String> {
        let all = table["columnDefinitions"].as_array().unwrap().iter();
        let shown = all.filter(|column| column["priority"] == priority);
        shown.map(|column| column["name"].as_str().unwrap().to_owned()).collect()
    };
    let list = api.table("resources?fieldSelector=status.node%3Dnode1").await.body;
    assert_eq!(columns(&list, 0), ["Name", "Ready", "State", "Desired", "Node", "Reason", "Age"]);
    assert!(columns(&list, 1).contains(&"Running".to_owned()), "{list}");
    assert_eq!(list["rows"].as_array().map(Vec::len), Some(1));
    let cells = list["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..5], [json!("vm:web"), json!(""), json!("Started"), json!("Started"), json!("node1")]);
    assert_eq!(list["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let one = api.table("resources/vm:web?includeObject=Object").await.body;
    assert_eq!(one["rows"][0]["object"]["kind"], "Resource");
    assert!(columns(&api.table("nodes").await.body, 1).contains(&"Drivers".to_owned()));
    let refused = api.get("resources?fieldSelector=status.nod%3Dnode1").await;
    assert_eq!((refused.code, refused.at("/reason")), (400, &json!("BadRequest")));
    assert!(refused.at("/message").as_str().unwrap().contains("did you mean node?"), "{:?}", refused.body);
}

#[tokio::test]
async fn a_dry_run_checks_everything_and_writes_nothing() {
    let api = Api::over(MemoryStore::new());
    let dry = api.post("groups?dryRun=All", &group("g")).await;
    assert_eq!((dry.code, dry.at("/metadata/resourceVersion")), (201, &Value::Null));
    assert_eq!(api.get("groups/g").await.code, 404);
    api.post("groups", &group("g")).await;
    assert_eq!(api.post("groups?dryRun=All", &group("g")).await.code, 409);
    let before = api.get("groups/g").await.body;
    let dry = api.merge("groups/g?dryRun=All", &json!({"spec": {"comment": "x"}})).await;
    assert_eq!((dry.at("/spec/comment"), dry.at("/metadata/generation")), (&json!("x"), &json!(2)));
    assert_eq!(api.delete("groups/g?dryRun=All").await.code, 200);
    assert_eq!(api.merge("groups/g?dryRun=All", &json!({"spec": {"coment": "x"}})).await.code, 400);
    assert_eq!(api.get("groups/g").await.body, before);
}

#[tokio::test]
async fn all_mistakes_are_reported_at_once() {
    let api = Api::over(MemoryStore::new());
    let mut wrong = resource("Web");
    wrong["spec"]["maxRestart"] = json!("two");
    wrong["spec"]["state"] = json!("Run");
    let refused = api.post("resources", &wrong).await;
    assert_eq!((refused.code, refused.at("/reason")), (422, &json!("Invalid")));
    let fields: Vec<&str> = refused
        .at("/details/causes")
        .as_array()
        .unwrap()
        .iter()
        .map(|cause| cause["field"].as_str().unwrap())
        .collect();
    assert_eq!(fields, ["spec.maxRestart", "spec.state"]);
    let text =
        br#"{"apiVersion":"hactl.io/v1","kind":"Group","kind":"Group","metadata":{"name":"g"},"spc":{}}"#;
    let response = api.send("POST", "groups", "application/json", text.to_vec()).await;
    assert_eq!(response.status(), 400);
    let response = api.send("POST", "groups?fieldValidation=Warn", "application/json", text.to_vec()).await;
    assert_eq!((response.status().as_u16(), response.headers().get_all("warning").iter().count()), (201, 2));
    for (method, path, media_type, body, code) in [
        ("POST", "groups", "text/plain", "x", 415),
        ("POST", "groups", "application/json", "{", 400),
        ("POST", "groups", "application/json", "[]", 400),
        ("POST", "groups", "application/json", "{\"metadata\": 3}", 422),
        ("POST", "groups", "application/json", "", 400),
        ("POST", "things", "application/json", "{}", 404),
        ("PATCH", "groups/g", "application/strategic-merge-patch+json", "{}", 415),
        (
            "PATCH",
            "groups/g",
            "application/json-patch+json",
            "[{\"op\":\"replace\",\"path\":\"\",\"value\":1}]",
            400,
        ),
        ("PATCH", "groups/g", APPLY, "a: [", 400),
        ("PUT", "groups/none", "application/json", "{}", 404),
        ("PUT", "groups", "application/json", "{}", 405),
        ("GET", "groups?limit=x", "", "", 400),
        ("GET", "groups?continue=x", "", "", 400),
        ("GET", "groups?labelSelector=a%20b", "", "", 400),
        ("GET", "groups/..%2f..", "", "", 404),
        ("GET", "/apis/other/v1", "", "", 404),
        ("DELETE", "/version", "", "", 405),
    ] {
        let response = api.send(method, path, media_type, body.as_bytes().to_vec()).await;
        let got = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), 1_000_000).await.unwrap();
        let status: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!((got, &status["kind"]), (code, &json!("Status")), "{method} {path} {body}: {status}");
    }
    let large = vec![b' '; 1024 * 1024 + 1];
    assert_eq!(api.send("POST", "groups", "application/json", large).await.status(), 413);
}

/// Some clients, kubectl among them, report a broken connection if the server closes it while they still send.
#[tokio::test]
async fn a_refused_request_is_answered_after_its_body() {
    let api = Api::over(MemoryStore::new());
    for (method, path, media_type, code) in [
        ("POST", "groups", "", 415),
        ("PUT", "groups", "application/json", 405),
        ("POST", "things", "application/json", 404),
    ] {
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&sent);
        let parts = futures::stream::iter(0..100).map(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(vec![b' '; 1000])
        });
        let response = api.send(method, path, media_type, Body::from_stream(parts)).await;
        assert_eq!(
            (response.status().as_u16(), sent.load(Ordering::Relaxed)),
            (code, 100),
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn requests_that_kubernetes_refuses_or_accepts_get_the_same_answer() {
    let api = Api::over(MemoryStore::new());
    let path_with_slash = api.get("/version/").await;
    assert_eq!((path_with_slash.code, path_with_slash.body), (200, api.get("/version").await.body));
    assert_eq!(api.get("/apis/hactl.io/v1/").await.code, 200);
    let mut owned = group("g");
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "hactl.io/v1", "kind": "Group", "name": "x", "uid": "1"}]);
    let refused = api.post("groups", &owned).await;
    assert_eq!(
        (refused.code, refused.at("/details/causes/0/field")),
        (422, &json!("metadata.ownerReferences"))
    );
    let mut wide = group("g");
    wide["metadata"]["labels"] = (0..600).map(|at| (format!("l{at}"), json!("v"))).collect();
    assert_eq!(api.post("groups", &wide).await.at("/details/causes/0/field"), "metadata.labels");

    assert_eq!(api.post("groups", &group("g")).await.code, 201);
    for options in [json!({"dryRun": ["Some"]}), json!({"propagationPolicy": "Nope"})] {
        assert_eq!(api.call("DELETE", "groups/g", "application/json", &options).await.code, 400, "{options}");
    }
    let mut one = api.watch("groups/g?watch=1").await;
    assert_eq!(one.next().await.unwrap().1["metadata"]["name"], "g");
    api.post("groups", &group("other")).await;
    api.merge("groups/g", &json!({"metadata": {"finalizers": ["x/y"]}})).await;
    assert_eq!(one.next().await.unwrap().1["metadata"]["finalizers"], json!(["x/y"]), "only this object");
    api.delete("groups/g").await;
    let added = api.merge("groups/g", &json!({"metadata": {"finalizers": ["x/y", "x/z"]}})).await;
    assert_eq!((added.code, added.at("/details/causes/0/field")), (422, &json!("metadata.finalizers")));
    assert_eq!(api.merge("groups/g", &json!({"metadata": {"finalizers": []}})).await.code, 200);
    assert_eq!(api.get("groups/g").await.code, 404);
}

#[tokio::test]
async fn literal_secrets_cause_a_warning() {
    let api = Api::over(MemoryStore::new());
    let web = json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "web"},
        "spec": {"driver": {"exec": {"command": ["true"], "environment": {"DB_PASSWORD": "x", "PORT": "80",
            "TOKEN": {"valueFrom": {"file": "token"}}}}}}});
    let created = api.post("resources", &web).await;
    assert_eq!((created.code, created.warnings.len()), (201, 1), "{:?}", created.warnings);
    assert!(
        created.warnings[0].contains("spec.driver.exec.environment.DB_PASSWORD: is stored in plain text")
    );
    let node = json!({"apiVersion": "hactl.io/v1", "kind": "Node", "metadata": {"name": "node1"},
        "spec": {"fencing": {"devices": [{"name": "bmc", "parts": [{"agent": "fence_ipmilan", "attributes":
            {"ip": "10.0.0.1", "password": "x", "snmp_priv_passwd": {"valueFrom": {"file": "snmp"}}}}]}]}}});
    let warnings = api.post("nodes", &node).await.warnings;
    let path = "spec.fencing.devices[0].parts[0].attributes.password: is stored in plain text";
    assert!(warnings.len() == 1 && warnings[0].contains(path), "{warnings:?}");
    for (value, message) in [
        (json!({"valueFrom": {"file": "../shadow"}}), "must be a name of letters"),
        (json!({"valueFrom": {"vault": "x"}}), "valid fields: file, credential, env"),
        (json!({"valueFrom": {"file": "a", "env": "B"}}), "exactly one of file"),
        (json!(5), "must be string or object, got 5"),
    ] {
        let mut wrong = web.clone();
        wrong["metadata"]["name"] = json!("wrong");
        wrong["spec"]["driver"]["exec"]["environment"]["TOKEN"] = value;
        let refused = api.post("resources", &wrong).await;
        assert!([400, 422].contains(&refused.code), "{}", refused.body);
        let text = refused.body.to_string();
        assert!(text.contains(message) && text.contains("driver.exec.environment.TOKEN"), "{text}");
    }
}

#[tokio::test]
async fn references_of_containers_and_external_drivers_are_checked() {
    let api = Api::over(MemoryStore::new());
    let source = json!({"valueFrom": {"file": "../shadow"}});
    for (driver, path) in [
        (json!({"podman": {"image": "a", "environment": {"A": source}}}), "podman.environment.A.valueFrom"),
        (json!({"external": {"name": "disk", "settings": {"a": source}}}), "external.settings.a.valueFrom"),
    ] {
        let wrong = json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "wrong"},
            "spec": {"driver": driver}});
        let refused = api.post("resources", &wrong).await;
        let text = refused.body.to_string();
        assert!(
            refused.code == 422 && text.contains(path) && text.contains("must be a name of letters"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn object_that_etcd_cannot_store_is_refused_with_its_largest_part() {
    let api = Api::over(MemoryStore::new());
    // The record of the field manager repeats the names of all fields.
    let long_name = "V".repeat(900);
    let environment: Map<String, Value> =
        (0..1000).map(|at| (format!("{long_name}{at}"), json!("x"))).collect();
    let wide = json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "web"},
        "spec": {"driver": {"exec": {"command": ["true"], "environment": environment}}}});
    let refused = api.post("resources", &wide).await;
    assert_eq!(refused.code, 413, "{}", refused.body);
    let message = refused.at("/message").as_str().unwrap();
    assert!(message.contains("shorten metadata.managedFields"), "{message}");
    assert_eq!(refused.at("/details/retryAfterSeconds"), &Value::Null, "a retry cannot help");
}

#[tokio::test]
async fn server_side_apply_creates_objects_and_owns_fields() {
    let api = Api::over(MemoryStore::new());
    let no_manager = api.call("PATCH", "groups/g", APPLY, &group("g")).await;
    assert_eq!(no_manager.code, 400);
    let created = api.call("PATCH", "groups/g?fieldManager=a", APPLY, &group("g")).await;
    assert_eq!((created.code, created.at("/metadata/managedFields/0/operation")), (201, &json!("Apply")));
    let again = api.call("PATCH", "groups/g?fieldManager=a", APPLY, &group("g")).await;
    assert_eq!(
        (again.code, again.at("/metadata/resourceVersion")),
        (200, created.at("/metadata/resourceVersion"))
    );
    let mut other = group("g");
    other["spec"]["nodes"]["node1"] = json!(9);
    let conflict = api.call("PATCH", "groups/g?fieldManager=b", APPLY, &other).await;
    assert_eq!((conflict.code, conflict.at("/details/causes/0/field")), (409, &json!(".spec.nodes.node1")));
    let forced = api.call("PATCH", "groups/g?fieldManager=b&force=true", APPLY, &other).await;
    assert_eq!((forced.code, forced.at("/spec/nodes/node1")), (200, &json!(9)));
    let typo = json!({"apiVersion": "hactl.io/v1", "kind": "Group", "metadata": {"name": "g"}, "spec": {"node": {}}});
    assert_eq!(api.call("PATCH", "groups/g?fieldManager=b", APPLY, &typo).await.code, 400);
}

#[tokio::test]
async fn operations_are_recorded_once_with_their_requester() {
    let api = Api::over(MemoryStore::new());
    let operation = json!({"apiVersion": "hactl.io/v1", "kind": "Operation",
        "metadata": {}, "spec": {"action": "Restart", "resource": "vm:100", "requestedBy": "somebody else"}});
    let created = api.post("operations", &operation).await;
    assert_eq!(
        (created.code, created.at("/spec/requestedBy")),
        (201, &json!("loopback")),
        "{}",
        created.body
    );
    assert_eq!(created.at("/spec/resource"), "100");
    let mut imperative = operation.clone();
    imperative["metadata"]["name"] = json!("o");
    imperative["spec"].as_object_mut().unwrap().remove("action");
    for answer in [
        api.post("operations", &imperative).await,
        api.post("operations?dryRun=All", &imperative).await,
        api.call("PATCH", "operations/o?fieldManager=a", APPLY, &imperative).await,
    ] {
        assert_eq!(
            (answer.code, answer.at("/reason"), answer.at("/details/causes/0/field")),
            (422, &json!("Invalid"), &json!("spec.action")),
            "{}",
            answer.body
        );
        assert!(answer.at("/message").as_str().unwrap().contains("Migrate, Relocate"), "{}", answer.body);
    }
    let name = created.at("/metadata/name").as_str().unwrap().to_owned();
    assert!(name.starts_with("restart-100-"), "{name}");
    assert_ne!(api.post("operations", &operation).await.at("/metadata/name"), &json!(name));
    let changed = api.merge(&format!("operations/{name}"), &json!({"spec": {"resource": "101"}})).await;
    assert_eq!(changed.code, 422);
    assert_eq!(
        api.merge(&format!("operations/{name}"), &json!({"metadata": {"labels": {"a": "b"}}})).await.code,
        200
    );
}

#[tokio::test]
async fn a_watch_from_before_compaction_is_expired() {
    let api = Api::over(MemoryStore::new());
    for name in ["a", "b", "c"] {
        api.post("groups", &group(name)).await;
    }
    api.store.compact(Revision(3));
    // A controller that started later has not seen the changes.
    let api = Api::sharing(Arc::clone(&api.store), ApiOptions::new("c2", "test"));
    let (event_type, status) = api.watch("groups?watch=1&resourceVersion=1").await.next().await.unwrap();
    assert_eq!(
        (event_type.as_str(), &status["code"], &status["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
    let mut short = api.watch("groups?watch=1&resourceVersion=4&timeoutSeconds=1").await;
    assert!(short.next().await.is_none());
}

#[tokio::test]
async fn watch_from_before_restore_is_expired() {
    let api = Api::over(MemoryStore::new());
    let created = api.post("groups", &group("a")).await;
    let version: i64 = created.at("/metadata/resourceVersion").as_str().unwrap().parse().unwrap();
    for path in ["groups", "/api/v1/events"] {
        // After a restore without `hactl restore`, the revision is lower than the revision that the client has seen.
        let answer = api.get(&format!("{path}?watch=1&resourceVersion={}", version + 1000)).await;
        assert_eq!((answer.code, answer.at("/reason")), (410, &json!("Expired")), "{path}");
    }
    let mut present = api.watch(&format!("groups?watch=1&resourceVersion={version}&timeoutSeconds=1")).await;
    assert!(present.next().await.is_none());
    drop(present);
    // `hactl restore` raises the revision, even above that of an earlier restore of the same backup. The revision that
    // the client has seen is therefore compacted.
    let backup = api.store.backup();
    let mut seen = backup.revision();
    let mut running = api.watch(&format!("groups?watch=1&resourceVersion={version}")).await;
    for at_us in [1_767_225_600_000_000, 1_767_225_601_000_000] {
        let marker = (api.keys.restore_marker(), b"{}".to_vec());
        let restored = backup.restored(
            MonotonicTime(0),
            revision_raise(at_us),
            &keys_deleted_by_restore(&api.keys),
            marker,
        );
        assert!(restored.revision() > seen, "no revision comes twice");
        api.store.replace(restored);
        let mut resumed = api.watch(&format!("groups?watch=1&resourceVersion={seen}")).await;
        for watch in [&mut running, &mut resumed] {
            let (event_type, status) = watch.next().await.unwrap();
            assert_eq!((event_type.as_str(), &status["code"]), ("ERROR", &json!(410)));
        }
        let present = api.store.backup().revision();
        // Only two watches may be open.
        drop(resumed);
        running = api.watch(&format!("groups?watch=1&resourceVersion={present}")).await;
        for name in ["x", "y", "z"] {
            assert_eq!(api.post("groups", &group(name)).await.code, 201);
        }
        for name in ["x", "y", "z"] {
            assert_eq!(running.next().await.unwrap().1["metadata"]["name"], name, "nothing is missed");
        }
        seen = api.store.backup().revision();
    }
}

/// Creates a node with the reports of its agent and the status by the leader.
async fn node(api: &Api<MemoryStore>, name: &str, state: &str) {
    let object = json!({"apiVersion": "hactl.io/v1", "kind": "Node", "metadata": {"name": name}});
    api.post("nodes", &object).await;
    let status = json!({"state": state, "conditions": [
        {"type": "Ready", "status": if state == "Online" { "True" } else { "False" },
            "reason": "HeartbeatMissed", "message": "Heartbeats are missing"}]});
    api.status(Kind::Node, name, &status).await;
    let report =
        json!({"drivers": ["simulated"], "watchdog": {"kind": "Kernel"}, "mode": {"kind": "Active"}});
    api.write(&api.keys.node_report(&name.into()), &report).await;
}

fn running(node: &str) -> Value {
    json!({"state": "Started", "node": node, "running": true})
}

#[tokio::test]
async fn a_placement_is_explained_node_by_node() {
    let api = Api::over(MemoryStore::new());
    node(&api, "node1", "Online").await;
    node(&api, "node2", "Unknown").await;
    node(&api, "node3", "Online").await;
    let mut restricted = group("g");
    restricted["spec"] = json!({"nodes": {"node1": 2, "node2": 1}, "restricted": true});
    api.post("groups", &restricted).await;
    let mut web = resource("web");
    web["spec"]["group"] = json!("g");
    api.post("resources", &web).await;
    let explanation = api.get("resources/vm:web/explain").await;
    assert_eq!(
        (explanation.code, explanation.at("/type"), explanation.at("/reason")),
        (200, &json!("vm"), &json!("Pending")),
        "{}",
        explanation.body
    );
    let nodes: Vec<(&str, bool, &str)> = explanation
        .at("/nodes")
        .as_array()
        .unwrap()
        .iter()
        .map(|verdict| {
            let reason = verdict["causes"][0]["reason"].as_str().unwrap();
            (verdict["node"].as_str().unwrap(), verdict["allowed"].as_bool().unwrap(), reason)
        })
        .collect();
    assert_eq!(
        nodes,
        [("node1", true, "Scheduled"), ("node2", false, "NodeNotOnline"), ("node3", false, "NotInGroup")]
    );
    api.merge("nodes/node1", &json!({"spec": {"maintenance": true}})).await;
    let explanation = api.get("resources/web/explain").await;
    let help: Vec<&str> =
        explanation.at("/help").as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(help.iter().any(|text| text.contains("hactl node maintenance disable node1")), "{help:?}");
    assert_eq!(api.get("resources/ct:web/explain").await.code, 400);
    assert_eq!(api.get("resources/none/explain").await.code, 404);
    assert_eq!(api.get("resources/web/status").await.code, 200);
}

#[tokio::test]
async fn plan_shows_effects_without_changes() {
    let api = Api::over(MemoryStore::new());
    for name in ["node1", "node2"] {
        node(&api, name, "Online").await;
    }
    for name in ["web", "db"] {
        api.post("resources", &resource(name)).await;
        api.status(Kind::Resource, name, &running("node1")).await;
    }
    let effects = async |request: Value| -> Vec<String> {
        let plan = api.post("plan", &request).await;
        assert_eq!(plan.code, 200, "{}", plan.body);
        let effects = plan.at("/effects").as_array().unwrap();
        effects.iter().map(|effect| effect["message"].as_str().unwrap().to_owned()).collect()
    };
    let mut node1 = api.get("nodes/node1").await.body;
    node1["spec"]["maintenance"] = json!(true);
    assert_eq!(
        effects(json!({"objects": [node1.clone()]})).await,
        ["db would live-migrate node1 → node2", "web would live-migrate node1 → node2"]
    );
    let mut stopped = api.get("resources/web").await.body;
    stopped["spec"]["state"] = json!("Stopped");
    assert_eq!(
        effects(json!({"objects": [stopped, resource("new")]})).await,
        ["new would start on node2", "web would stop on node1"]
    );
    let deletion = json!({"deletions": [{"kind": "Resource", "name": "vm:web"}]});
    assert_eq!(effects(deletion).await, ["web would no longer be managed; a running service is not stopped"]);
    assert_eq!(
        effects(json!({"objects": [api.get("resources/web").await.body]})).await,
        Vec::<String>::new()
    );
    // No node is eligible.
    let mut both = node1.clone();
    both["metadata"] = json!({"name": "node2"});
    let plan = api.post("plan", &json!({"objects": [node1.clone(), both]})).await;
    assert_eq!(
        (plan.at("/effects"), plan.at("/warnings").as_array().unwrap().len()),
        (&json!([]), 3),
        "{}",
        plan.body
    );
    let last = plan.at("/warnings/2").as_str().unwrap();
    assert!(last.contains("would fail: services of"), "{last}");
    // A dry run returns the same effects as warnings.
    let dry = api.put("nodes/node1?dryRun=All", &node1).await;
    assert!(
        dry.warnings.iter().any(|warning| warning.contains("web would live-migrate node1 -> node2")),
        "{:?}",
        dry.warnings
    );
    assert_eq!(api.get("nodes/node1").await.at("/spec"), &json!({}));
    assert_eq!(api.post("plan", &json!({"objects": [{"kind": "Resource"}]})).await.code, 422);
    assert_eq!(api.post("plan", &json!({"objects": [{"kind": "Thing"}]})).await.code, 400);
}

#[tokio::test]
async fn the_overview_lists_problems() {
    let api = Api::over(MemoryStore::new());
    let empty = api.get("status").await;
    assert_eq!((empty.at("/store/quorum"), empty.at("/leader")), (&json!(true), &Value::Null));
    assert_eq!(empty.at("/problems/0/about"), "leader");
    api.write(&api.keys.leader(), &json!({"id": "c1", "url": "http://c1", "since": "2026-01-01T00:00:00Z"}))
        .await;
    api.write(&api.keys.candidate(&"c1".into()), &json!({"id": "c1", "url": "http://c1", "version": "1"}))
        .await;
    node(&api, "node1", "Online").await;
    node(&api, "node2", "Unknown").await;
    for name in ["web", "db"] {
        api.post("resources", &resource(name)).await;
    }
    api.status(Kind::Resource, "web", &running("node1")).await;
    let status = api.get("status").await;
    assert_eq!(status.at("/leader/id"), "c1");
    assert_eq!(status.at("/controllers/0/state"), "Leading");
    assert_eq!(status.at("/services"), &json!({"Queued": 1, "Started": 1}));
    let about: Vec<&str> =
        status.at("/problems").as_array().unwrap().iter().map(|one| one["about"].as_str().unwrap()).collect();
    assert_eq!(about, ["resource/db", "node/node1", "node/node2"], "{}", status.body);
}

#[tokio::test]
async fn events_are_streamed() {
    let api = Api::over(MemoryStore::new());
    let event = |name: &str| {
        json!({"kind": "Resource", "name": name, "type": "Normal", "reason": "Running", "message": "m",
            "source": "agent/node1", "at": "2026-01-01T00:00:00Z"})
    };
    let response = api.send("GET", "events/stream", "", Vec::new()).await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut chunks = response.into_body().into_data_stream();
    api.write(&api.keys.event("agent-node1", "1"), &event("web")).await;
    let text = String::from_utf8(chunks.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(
        text.contains("event: event") && text.contains("id: 2") && text.contains("\"name\":\"web\""),
        "{text}"
    );
    let shown = api.get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dweb,involvedObject.namespace%3D").await;
    assert_eq!(shown.at("/items/0/source/component"), "ha-agent");
    let answer = api.get("/api/v1/events").await;
    assert_eq!((answer.code, answer.warnings.len()), (200, 0));
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(48))]

    /// Every request to any path gets a JSON response, and never a server error.
    #[test]
    fn arbitrary_requests_cause_no_server_error(
        text in "\\PC{0,20}", name in "[a-z0-9:./%-]{0,12}", field in "(metadata|spec|status|kind|apiVersion|nodes|x)", number in proptest::num::f64::ANY,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let api = Api::over(MemoryStore::new());
            api.post("groups", &group("g")).await;
            let strange = json!({"apiVersion": "hactl.io/v1", "kind": "Group", "metadata": {"name": "g", field.as_str(): text},
                field.as_str(): {text.as_str(): number}});
            let operations = json!([{"op": "add", "path": format!("/{field}"), "value": text}, {"op": "move", "from": "/spec", "path": format!("/{text}")}]);
            let query = format!("fieldManager=f&force=1&labelSelector={name}&fieldSelector={name}&limit=1&continue={name}");
            for (method, path, media_type, body) in [
                ("POST", "groups".to_owned(), "application/json", &strange),
                ("PUT", "groups/g".to_owned(), "application/json", &strange),
                ("PATCH", "groups/g".to_owned(), http::MERGE, &strange),
                ("PATCH", format!("groups/g?{query}"), APPLY, &strange),
                ("PATCH", "groups/g".to_owned(), "application/json-patch+json", &operations),
                ("POST", "plan".to_owned(), "application/json", &json!({"objects": [strange.clone()]})),
                ("DELETE", format!("groups/{name}"), "application/json", &strange),
                ("GET", format!("groups?{query}"), "", &Value::Null),
                ("GET", format!("resources/{name}/explain"), "", &Value::Null),
            ] {
                let bytes = body.to_string().into_bytes();
                let Ok(response) = api.try_send(method, &path, media_type, bytes).await else { continue };
                assert!(response.status().as_u16() < 500, "{method} {path} {body}: {}", response.status());
            }
        });
    }
}

#[tokio::test]
async fn requests_are_counted_by_route() {
    let metrics = ha_runtime::metrics::Metrics::new("test", "0", 0).unwrap();
    let mut options = ha_controller::api::ApiOptions::new("c1", "test");
    options.metrics = Some(ha_controller::api::ApiMetrics::new(&metrics).unwrap());
    let api = Api::with(MemoryStore::new(), options);
    api.get("groups/none").await;
    let watch = api.watch("groups?watch=1").await;
    let text = metrics.encode().unwrap();
    let counted =
        "hactl_api_requests_total{code=\"404\",method=\"GET\",route=\"/apis/hactl.io/v1/{plural}/{name}\"} 1";
    assert!(text.contains(counted) && text.contains("hactl_api_watches 1"), "{text}");
    drop(watch);
    let text = metrics.encode().unwrap();
    assert!(text.contains("hactl_api_watches 0"), "{text}");
}

#[tokio::test]
async fn start_and_stop_record_requested_state() {
    let api = Api::over(MemoryStore::new());
    assert_eq!(api.post("resources", &resource("web")).await.code, 201);
    let operation = |name: &str, action: &str, resource: &str| {
        json!({
            "apiVersion": "hactl.io/v1", "kind": "Operation", "metadata": {"name": name},
            "spec": {"action": action, "resource": resource},
        })
    };
    assert_eq!(api.post("operations", &operation("o1", "Stop", "web")).await.code, 201);
    let stopped = api.get("resources/web").await;
    assert_eq!(stopped.at("/spec/state"), &json!("Stopped"));
    assert_eq!(stopped.at("/metadata/generation"), &json!(2));
    // A second request for the same operation has no effect. A request with the name of another operation has no effect
    // either.
    assert_eq!(api.post("operations", &operation("o2", "Stop", "web")).await.code, 201);
    assert_eq!(api.post("operations", &operation("o2", "Start", "web")).await.code, 409);
    assert_eq!(api.get("resources/web").await.at("/metadata/generation"), &json!(2));
    assert_eq!(api.post("operations", &operation("o3", "Start", "web")).await.code, 201);
    assert_eq!(api.get("resources/web").await.at("/spec/state"), &json!("Started"));
    // The leader refuses an operation on a missing resource, so that the refusal is recorded.
    assert_eq!(api.post("operations", &operation("o4", "Start", "nix")).await.code, 201);
}

#[tokio::test]
async fn maintenance_begins_only_if_services_can_leave() {
    let api = Api::over(MemoryStore::new());
    node(&api, "up", "Online").await;
    node(&api, "off", "Offline").await;
    let enable = json!({"spec": {"maintenance": true}});
    let disable = json!({"spec": {"maintenance": false}});
    let refused = api.merge("nodes/off", &enable).await;
    assert_eq!((refused.code, refused.at("/reason")), (409, &json!("Conflict")));
    assert_eq!(refused.at("/details/causes/0/reason"), "NodeNotOnline");
    assert!(
        refused.at("/message").as_str().unwrap().contains("cannot drain off in state Offline"),
        "{}",
        refused.body
    );
    assert_eq!(api.merge("nodes/up?dryRun=All", &enable).await.code, 200);
    let cluster = json!({"apiVersion": "hactl.io/v1", "kind": "Cluster", "metadata": {"name": "default"},
        "spec": {"disarmed": "Ignore"}});
    assert_eq!(api.post("clusters", &cluster).await.code, 201);
    let refused = api.merge("nodes/up", &enable).await;
    assert_eq!((refused.code, refused.at("/details/causes/0/reason")), (409, &json!("Disarmed")));
    assert_eq!(api.merge("clusters/default", &json!({"spec": {"disarmed": null}})).await.code, 200);
    assert_eq!(api.merge("nodes/up", &enable).await.code, 200);
    // A node that is already in maintenance can be changed, and can leave maintenance, in every state.
    api.status(Kind::Node, "up", &json!({"state": "Offline"})).await;
    assert_eq!(api.merge("nodes/up", &json!({"spec": {"unschedulable": true}})).await.code, 200);
    assert_eq!(api.merge("nodes/up", &disable).await.code, 200);
}
