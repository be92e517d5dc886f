//! Tests of `api-resources`, `auth can-i` and `cluster-info`.

use super::hactl::{command, hactl, run};
use super::server::{Request, ScriptedResponse, Server};
use serde_json::{Value, json};
use snapbox::str;

fn api() -> Server {
    Server::start_with(answer, |_, _| false)
}

fn answer(request: &Request) -> Option<ScriptedResponse> {
    let version = |group: &str| json!({"name": group, "preferredVersion": {"groupVersion": format!("{group}/v1"), "version": "v1"}});
    let body = match request.path.as_str() {
        "/apis" => json!({"groups": [version("hactl.io"), version("authorization.k8s.io")]}),
        "/api/v1" => json!({"groupVersion": "v1", "resources": [
            {"name": "events", "singularName": "event", "namespaced": true, "kind": "Event", "verbs": ["get", "list"],
                "shortNames": ["ev"]},
            {"name": "namespaces", "singularName": "namespace", "namespaced": false, "kind": "Namespace", "verbs": ["get"]}]}),
        "/apis/hactl.io/v1" => json!({"groupVersion": "hactl.io/v1", "resources": [
            {"name": "resources", "singularName": "resource", "namespaced": false, "kind": "Resource",
                "verbs": ["create", "get"], "shortNames": ["har"], "categories": ["all", "hactl"]},
            {"name": "resources/status", "singularName": "", "namespaced": false, "kind": "Resource", "verbs": ["get"]},
            {"name": "clusters", "singularName": "cluster", "namespaced": false, "kind": "Cluster", "verbs": ["get"]}]}),
        "/apis/authorization.k8s.io/v1" => json!({"groupVersion": "authorization.k8s.io/v1", "resources": [
            {"name": "selfsubjectaccessreviews", "singularName": "selfsubjectaccessreview", "namespaced": false,
                "kind": "SelfSubjectAccessReview", "verbs": ["create"]}]}),
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => review(&request.body),
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews" => json!({"status": {
            "resourceRules": [
                {"verbs": ["get", "list"], "apiGroups": ["hactl.io"], "resources": ["resources", "nodes/status"]},
                {"verbs": ["create"], "apiGroups": ["hactl.io"], "resources": ["nodes/hold"], "resourceNames": ["node1"]},
                {"verbs": ["*"], "apiGroups": [""], "resources": ["events"]}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/metrics", "/healthz"]}]}}),
        "/apis/authentication.k8s.io/v1/selfsubjectreviews" => {
            json!({"status": {"userInfo": {"username": "ada", "groups": ["hactl:viewer", "ops"]}}})
        }
        _ => return None,
    };
    Some(ScriptedResponse::Answer(200, body))
}

fn review(request: &Value) -> Value {
    let attributes = &request["spec"]["resourceAttributes"];
    let allowed = attributes["subresource"] == "" && attributes["verb"] != "escalate";
    let reason = if allowed { "" } else { "unknown verb or subresource" };
    json!({"spec": request["spec"], "status": {"allowed": allowed, "reason": reason}})
}

#[test]
fn api_resources_come_from_server_discovery() {
    let server = api();
    hactl(&server, &["api-resources"]).expect_stdout(
        0,
        str![[r"
NAME                      SHORTNAMES  APIVERSION               NAMESPACED  KIND
events                    ev          v1                       true        Event
selfsubjectaccessreviews              authorization.k8s.io/v1  false       SelfSubjectAccessReview
clusters                              hactl.io/v1              false       Cluster
resources                 har         hactl.io/v1              false       Resource

"]],
    );
    hactl(&server, &["api-resources", "-o", "name"]).expect_stdout(
        0,
        str![[r"
events
selfsubjectaccessreviews.authorization.k8s.io
clusters.hactl.io
resources.hactl.io

"]],
    );
    hactl(&server, &["api-resources", "-o", "wide"])
        .expect_stdout_parts(0, &["VERBS", "CATEGORIES", "create,get", "all,hactl"]);
    let rows = hactl(&server, &["api-resources", "--no-headers"]).expect_stdout_parts(0, &["events"]);
    assert!(!rows.stdout.contains("NAME"), "{}", rows.stdout);
    hactl(&server, &["api-resources", "-o", "json"]).expect_stderr(2, "not supported");
    run(&mut command(&["--server", "http://127.0.0.1:1", "api-resources"]))
        .expect_stderr(3, "cannot reach any controller");
}

#[test]
fn identity_and_all_permissions_are_listed_as_by_kubectl() {
    let server = api();
    hactl(&server, &["auth", "whoami"]).expect_stdout(
        0,
        str![[r"
ATTRIBUTE  VALUE
Username   ada
Groups     [hactl:viewer ops]

"]],
    );
    hactl(&server, &["auth", "can-i", "--list"]).expect_stdout(
        0,
        str![[r"
RESOURCES              NON-RESOURCE URLS    RESOURCE NAMES  VERBS
resources.hactl.io     []                   []              [get list]
nodes.hactl.io/status  []                   []              [get list]
nodes.hactl.io/hold    []                   [node1]         [create]
events                 []                   []              [*]
-                      [/metrics /healthz]  []              [get]

"]],
    );
    let rows =
        hactl(&server, &["auth", "can-i", "--list", "--no-headers"]).expect_stdout_parts(0, &["events"]);
    assert!(!rows.stdout.contains("VERBS"), "{}", rows.stdout);
    hactl(&server, &["auth", "can-i", "--list", "get", "nodes"]).expect_stderr(2, "cannot be used with");
    hactl(&server, &["auth", "can-i"]).expect_stderr(2, "<VERB>");
}

#[test]
fn can_i_asks_the_server_for_permissions() {
    let server = api();
    hactl(&server, &["auth", "can-i", "create", "har"]).expect_stdout(0, "yes\n");
    hactl(&server, &["auth", "can-i", "get", "resources.hactl.io/web"]).expect_stdout(0, "yes\n");
    hactl(&server, &["auth", "can-i", "*", "*"]).expect_stdout(0, "yes\n");
    hactl(&server, &["auth", "can-i", "update", "Resource/web", "--subresource", "status"])
        .expect_stdout(1, "no - unknown verb or subresource\n");
    hactl(&server, &["auth", "can-i", "escalate", "events", "-q"]).expect_stdout(1, "");
    let result = hactl(&server, &["auth", "can-i", "get", "resuorces"]).expect_stdout(1, "no\n");
    assert!(result.stderr.contains("did you mean resources?"), "{}", result.stderr);
    hactl(&server, &["auth", "can-i", "get"]).expect_stderr(2, "<KIND[/NAME]>");
    let questions: Vec<Value> = server
        .requests()
        .into_iter()
        .filter(|request| request.method == "POST")
        .map(|request| request.body["spec"]["resourceAttributes"].clone())
        .collect();
    let attributes = |verb: &str, group: &str, resource: &str, name: &str, subresource: &str| json!({"verb": verb, "group": group, "resource": resource, "name": name, "subresource": subresource});
    assert_eq!(
        questions,
        [
            attributes("create", "hactl.io", "resources", "", ""),
            attributes("get", "hactl.io", "resources", "web", ""),
            attributes("*", "*", "*", "", ""),
            attributes("update", "hactl.io", "resources", "web", "status"),
            attributes("escalate", "", "events", "", ""),
        ]
    );
}

#[test]
fn cluster_info_lists_the_addresses() {
    let overview = json!({
        "cluster": "lab", "answeredBy": "c1",
        "controllers": [{"id": "c1", "state": "Leading", "url": "https://c1:7443"},
            {"id": "c2", "state": "Standby", "url": "https://c2:7443"}, {"id": "c3", "state": "Lost"}],
        "store": {"quorum": true, "members": [
            {"name": "s1", "url": "https://s1:2379", "healthy": true, "leader": true},
            {"name": "s2", "url": "https://s2:2379", "healthy": false},
            {"name": "https://s3:2379", "url": "https://s3:2379", "healthy": true}]}});
    let server = Server::start_with(
        move |request| {
            (request.path == "/apis/hactl.io/v1/status")
                .then(|| ScriptedResponse::Answer(200, overview.clone()))
        },
        |_, _| false,
    );
    hactl(&server, &["cluster-info"]).expect_stdout(
        0,
        str![[r"
Cluster lab (answered by c1)
Controller c1 is running at https://c1:7443 (leader)
Controller c2 is running at https://c2:7443
Controller c3 is unreachable at an unknown URL
etcd member s1 is running at https://s1:2379 (leader)
etcd member s2 is unreachable at https://s2:2379
An etcd member is running at https://s3:2379

"]],
    );
}
