//! Tests of the authorization of requests: every route refuses a client without a role, and the content of operations and
//! nodes is authorized.

use super::http::{APPLY, Api, MERGE};
use ha_api_types::kind::API_VERSION;
use ha_store::MemoryStore;
use serde_json::{Value, json};

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn web() -> Value {
    object("Resource", "web", &json!({"driver": {"simulated": {}}}))
}

fn operation(name: &str, spec: &Value) -> Value {
    object("Operation", name, spec)
}

async fn api() -> Api<MemoryStore> {
    let api = Api::over(MemoryStore::new());
    for object in [web(), object("Node", "node1", &json!({}))] {
        let plural = if object["kind"] == "Node" { "nodes" } else { "resources" };
        assert_eq!(api.post(plural, &object).await.code, 201);
    }
    api
}

#[tokio::test]
async fn every_route_refuses_a_client_without_a_role() {
    let api = api().await;
    let client = api.of_user("mallory", &["staff"]);
    let routes = [
        ("GET", "/version"),
        ("GET", "/api"),
        ("GET", "/apis"),
        ("GET", "/api/v1"),
        ("GET", "/apis/hactl.io"),
        ("GET", "/apis/hactl.io/v1"),
        ("GET", "/apis/authorization.k8s.io"),
        ("GET", "/apis/authentication.k8s.io/v1"),
        ("GET", "/api/v1/namespaces"),
        ("GET", "/api/v1/namespaces/default"),
        ("GET", "/api/v1/events"),
        ("GET", "/api/v1/namespaces/default/events"),
        ("GET", "/api/v1/namespaces/default/events/e1"),
        ("GET", "/openapi/v2"),
        ("GET", "/openapi/v3"),
        ("GET", "/openapi/v3/apis/hactl.io/v1"),
        ("GET", "status"),
        ("GET", "usage"),
        ("GET", "state"),
        ("GET", "placement"),
        ("GET", "reservation"),
        ("GET", "balance"),
        ("GET", "history"),
        ("GET", "audit"),
        ("POST", "plan"),
        ("POST", "timing"),
        ("GET", "resources/web/explain"),
        ("GET", "resources/web/log"),
        ("GET", "events/stream"),
        ("POST", "nodes/node1/hold"),
        ("POST", "nodes/node1/jointoken"),
        ("POST", "nodes/node1/certificate"),
        ("GET", "nodes/node1/certificates"),
        ("POST", "nodes/mallory/hold"),
        ("DELETE", "controllers/c9"),
        ("GET", "resources"),
        ("GET", "resources?watch=1"),
        ("POST", "resources"),
        ("DELETE", "resources"),
        ("GET", "resources/web"),
        ("HEAD", "resources/web"),
        ("PUT", "resources/web"),
        ("PATCH", "resources/web"),
        ("DELETE", "resources/web"),
        ("GET", "resources/web/status"),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
    ];
    for (method, path) in routes {
        let answer = client.call(method, path, "application/json", &json!({})).await;
        assert_eq!(answer.code, 403, "{method} {path}: {}", answer.body);
    }
    assert_eq!(api.get("resources/web").await.code, 200, "nothing was changed");
}

#[tokio::test]
async fn a_refusal_names_the_user_the_verb_and_the_kind() {
    let viewer = api().await.of_user("ada", &["hactl:viewer"]);
    assert_eq!(viewer.get("resources/web").await.code, 200);
    let answer = viewer.merge("resources/web", &json!({"spec": {"priority": 5}})).await;
    assert_eq!(answer.code, 403);
    assert_eq!(answer.at("/reason"), "Forbidden");
    let message = answer.at("/message").as_str().unwrap();
    for part in ["resources.hactl.io \"web\"", "User \"ada\" cannot patch", "hactl:editor or hactl:admin"] {
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn editors_write_resources_and_nothing_else() {
    let editor = api().await.of_user("ed", &["hactl:editor"]);
    assert_eq!(editor.merge("resources/web", &json!({"spec": {"priority": 5}})).await.code, 200);
    assert_eq!(
        editor.post("resources", &object("Resource", "db", &json!({"driver": {"simulated": {}}}))).await.code,
        201
    );
    assert_eq!(editor.merge("nodes/node1", &json!({"spec": {"maintenance": true}})).await.code, 403);
    assert_eq!(editor.post("clusters", &object("Cluster", "default", &json!({}))).await.code, 403);
    let stop = json!({"action": "Stop", "resource": "web"});
    assert_eq!(editor.post("operations", &operation("stop", &stop)).await.code, 403);
}

#[tokio::test]
async fn operators_request_operations_without_statements_of_fact() {
    let operator = api().await.of_user("olga", &["hactl:operator"]);
    let create =
        async |name: &str, spec: Value| operator.post("operations", &operation(name, &spec)).await.code;
    assert_eq!(create("stop", json!({"action": "Stop", "resource": "web"})).await, 201);
    assert_eq!(create("start", json!({"action": "Start", "resource": "web"})).await, 201);
    // Each of these requests confirms that a machine, or a service on it, does not run.
    assert_eq!(create("not-on", json!({"action": "Start", "resource": "web", "notOn": "node1"})).await, 403);
    assert_eq!(
        create("confirm", json!({"action": "ConfirmFenced", "node": "node1", "epoch": 1, "bootId": "b1"}))
            .await,
        403
    );
    assert_eq!(
        create("unfence", json!({"action": "Unfence", "node": "node1", "epoch": 1, "bootId": "b1"})).await,
        403
    );
    // Server-side apply creates objects with another method.
    let confirm = operation(
        "applied",
        &json!({"action": "ConfirmFenced", "node": "node1", "epoch": 1, "bootId": "b1"}),
    );
    let path = "operations/applied?fieldManager=test";
    assert_eq!(operator.call("PATCH", path, APPLY, &confirm).await.code, 403);
    assert_eq!(operator.get("operations/applied").await.code, 404);
    assert_eq!(operator.merge("resources/web", &json!({"spec": {"priority": 5}})).await.code, 403);
}

#[tokio::test]
async fn operators_change_only_the_maintenance_of_nodes() {
    let operator = api().await.of_user("olga", &["hactl:operator"]);
    let patch =
        async |spec: Value| operator.call("PATCH", "nodes/node1", MERGE, &json!({"spec": spec})).await.code;
    assert_eq!(patch(json!({"unschedulable": true})).await, 200);
    assert_eq!(patch(json!({"countThreads": true})).await, 403);
    assert_eq!(
        patch(json!({"unschedulable": false, "fencing": {"trustWatchdogOnVirtualMachine": true}})).await,
        403
    );
    let labels = json!({"metadata": {"labels": {"rack": "1"}}});
    assert_eq!(operator.merge("nodes/node1", &labels).await.code, 403);
    assert_eq!(operator.delete("nodes/node1").await.code, 403);
}

#[tokio::test]
async fn reviews_answer_from_the_same_decision() {
    let api = api().await;
    let editor = api.of_user("ed", &["hactl:editor", "staff"]);
    let review = editor.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await;
    let expected = json!({"username": "ed", "groups": ["hactl:editor", "staff"]});
    assert_eq!((review.code, review.at("/status/userInfo")), (201, &expected));

    let ask = |verb: &str, resource: &str| json!({"spec": {"resourceAttributes": {"verb": verb, "group": "hactl.io", "resource": resource}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(editor.post(path, &ask("create", "groups")).await.at("/status/allowed"), true);
    let denied = editor.post(path, &ask("create", "nodes")).await;
    assert_eq!(denied.at("/status/allowed"), false);
    assert!(denied.at("/status/reason").as_str().unwrap().contains("hactl:admin"));

    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let rules = editor.post(path, &json!({"spec": {"namespace": "default"}})).await;
    let writes = json!({"verbs": ["create", "delete", "deletecollection", "patch", "update"],
        "apiGroups": ["hactl.io"], "resources": ["resources", "groups", "affinityrules", "gitsyncs"]});
    assert!(rules.at("/status/resourceRules").as_array().unwrap().contains(&writes), "{}", rules.body);

    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let mut question = ask("create", "nodes");
    question["spec"]["user"] = json!("root");
    question["spec"]["groups"] = json!(["hactl:admin"]);
    assert_eq!(editor.post(path, &question).await.code, 403);
    assert_eq!(api.post(path, &question).await.at("/status/allowed"), true);
    question["spec"]["groups"] = json!(["hactl:viewer"]);
    assert_eq!(api.post(path, &question).await.at("/status/allowed"), false);
}
