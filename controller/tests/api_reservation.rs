//! Tests of the N+1 check in the API: the report with its evidence, the warning before a change, and the refusal.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/http.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod http;

use ha_api_types::kind::Kind;
use ha_store::MemoryStore;
use http::{Api, resource};
use serde_json::{Value, json};

/// Creates nodes with 4Gi, with the reports of their agents and the statuses by the leader.
async fn cluster(nodes: &[&str]) -> Api<MemoryStore> {
    let api = Api::over(MemoryStore::new());
    for name in nodes {
        let object = json!({"apiVersion": "hactl.io/v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"rack": if *name == "node3" { "r2" } else { "r1" }}}});
        assert_eq!(api.post("nodes", &object).await.code, 201);
        api.status(Kind::Node, name, &json!({"state": "Online"})).await;
        let report = json!({"drivers": ["simulated"], "watchdog": {"kind": "Kernel"}, "mode": {"kind": "Active"},
            "capacity": {"cpu": "8", "memory": "4Gi"}});
        api.write(&api.keys.node_report(&(*name).into()), &report).await;
    }
    api
}

fn resource_with_memory(name: &str, memory: &str) -> Value {
    let mut resource = resource(name);
    resource["spec"]["requests"] = json!({"memory": memory});
    resource
}

async fn create_running(api: &Api<MemoryStore>, name: &str, node: &str, memory: &str) {
    assert_eq!(api.post("resources", &resource_with_memory(name, memory)).await.code, 201);
    api.status(Kind::Resource, name, &json!({"state": "Started", "node": node, "running": true})).await;
}

fn cluster_with_enforcement(enforce: bool) -> Value {
    json!({"apiVersion": "hactl.io/v1", "kind": "Cluster", "metadata": {"name": "default"},
        "spec": {"reservation": {"enforce": enforce}}})
}

#[tokio::test]
async fn the_report_has_evidence_for_each_failure() {
    let api = cluster(&["node1", "node2", "node3"]).await;
    create_running(&api, "web", "node1", "3Gi").await;
    create_running(&api, "db", "node2", "2Gi").await;
    let report = api.get("reservation?proof=true").await;
    assert_eq!(report.code, 200, "{}", report.body);
    assert_eq!((report.at("/verdict"), report.at("/failureTolerance")), (&json!("Survives"), &json!(1)));
    assert_eq!(report.at("/items/0/what"), "node node1");
    assert_eq!(report.at("/items/0/moves"), &json!([{"resource": "web", "from": "node1", "to": "node3"}]));
    assert_eq!(report.at("/items/2/because"), "no service needs another node");
    let report = api.get("reservation?failures=2").await;
    assert_eq!((report.at("/verdict"), report.at("/failureTolerance")), (&json!("Fails"), &json!(1)));
    assert_eq!(
        (report.at("/checked"), report.at("/items/3/what")),
        (&json!(6), &json!("nodes node1, node2"))
    );
    let report = api.get("reservation?by=rack").await;
    assert_eq!(
        (report.at("/items/0/what"), report.at("/items/1/what")),
        (&json!("rack r1"), &json!("rack r2"))
    );
    assert_eq!(
        (report.at("/items/0/verdict"), report.at("/items/1/verdict")),
        (&json!("Fails"), &json!("Survives"))
    );
    assert_eq!(report.at("/failureTolerance"), &Value::Null);
    let report = api.get("reservation?by=group").await;
    assert_eq!((report.at("/checked"), report.at("/items/0/what")), (&json!(1), &json!("group default")));
    for invalid in ["reservation?failures=3", "reservation?failures=2&by=rack"] {
        assert_eq!(api.get(invalid).await.code, 400, "{invalid}");
    }
}

#[tokio::test]
async fn a_plan_checks_n_plus_1_for_all_its_changes_together() {
    let api = cluster(&["node1", "node2"]).await;
    create_running(&api, "web", "node1", "2Gi").await;
    let plan = api.post("plan", &json!({"objects": [resource_with_memory("small", "1Gi")]})).await;
    assert_eq!((plan.code, plan.at("/warnings")), (200, &json!([])), "{}", plan.body);
    // Each of the two alone would cause no warning.
    let both_resources =
        json!({"objects": [resource_with_memory("one", "2Gi"), resource_with_memory("two", "2Gi")]});
    let plan = api.post("plan", &both_resources).await;
    let warning = plan.at("/warnings/0").as_str().unwrap_or_default();
    assert!(
        warning.starts_with("with this change: Failover capacity (N+1) check of cluster "),
        "{}",
        plan.body
    );
    assert!(warning.contains("would fail: services of"), "{warning}");
    // Deleted resources may free enough capacity.
    let swap = json!({"objects": [resource_with_memory("one", "2Gi"), resource_with_memory("two", "2Gi")], "deletions": [{"kind": "Resource", "name": "web"}]});
    assert_eq!(api.post("plan", &swap).await.at("/warnings"), &json!([]));
}

#[tokio::test]
async fn change_that_breaks_n_plus_1_is_warned_or_refused() {
    let api = cluster(&["node1", "node2", "node3"]).await;
    create_running(&api, "web", "node1", "3Gi").await;
    create_running(&api, "db", "node2", "3Gi").await;
    let contains = |warnings: &[String], part: &str| warnings.iter().any(|text| text.contains(part));
    let sentence = "check of cluster test would fail: services of nodes node1, node2, node3 cannot be restarted \
                    elsewhere after a failure; add capacity or stop unused services: ";
    // A third service of that size takes the last capacity; a small one does not.
    let dry = api.post("resources?dryRun=All", &resource_with_memory("small", "1Gi")).await;
    assert!(dry.code == 201 && !contains(&dry.warnings, "N+1"), "{:?}", dry.warnings);
    let dry = api.post("resources?dryRun=All", &resource_with_memory("big", "3Gi")).await;
    assert!(dry.code == 201 && contains(&dry.warnings, sentence), "{:?}", dry.warnings);
    assert!(
        contains(&dry.warnings, "db on node2: not enough memory: 3Gi requested, 1Gi of 4Gi would be free"),
        "{:?}",
        dry.warnings
    );
    // A stopped service counts as if it ran, unless the cluster's settings specify otherwise.
    let mut stopped = resource_with_memory("big", "3Gi");
    stopped["spec"]["state"] = json!("Stopped");
    let dry = api.post("resources?dryRun=All", &stopped).await;
    assert!(contains(&dry.warnings, sentence), "{:?}", dry.warnings);
    // If the cluster enforces the check, the API refuses the change and writes no object.
    assert_eq!(api.post("clusters", &cluster_with_enforcement(true)).await.code, 201);
    let refused = api.post("resources", &resource_with_memory("big", "3Gi")).await;
    assert_eq!(refused.code, 409, "{}", refused.body);
    let text = refused.at("/message").as_str().unwrap().to_owned();
    assert!(text.contains("refused by reservation.enforce:") && text.contains(sentence), "{text}");
    assert_eq!(refused.at("/details/causes/0/reason"), "InsufficientFailoverCapacity");
    assert_eq!(api.get("resources/big").await.code, 404);
    assert_eq!(
        api.post("resources", &resource_with_memory("small", "1Gi")).await.code,
        201,
        "an object that violates no check is accepted"
    );
    // Maintenance of a node is always allowed, with a warning.
    let drained = api.merge("nodes/node3", &json!({"spec": {"maintenance": true}})).await;
    assert!(
        drained.code == 200 && contains(&drained.warnings, "would fail"),
        "{} {:?}",
        drained.code,
        drained.warnings
    );
}

#[tokio::test]
async fn move_that_breaks_n_plus_1_is_warned_or_refused() {
    let api = cluster(&["node1", "node2", "node3"]).await;
    create_running(&api, "web", "node1", "2Gi").await;
    create_running(&api, "db", "node1", "2Gi").await;
    create_running(&api, "mail", "node2", "1Gi").await;
    let group = json!({"apiVersion": "hactl.io/v1", "kind": "Group", "metadata": {"name": "pair"},
        "spec": {"nodes": ["node2", "node3"], "restricted": true}});
    assert_eq!(api.post("groups", &group).await.code, 201);
    create_running(&api, "log", "node3", "1Gi").await;
    let grouped = api.merge("resources/log", &json!({"spec": {"group": "pair"}})).await;
    assert_eq!((grouped.code, grouped.warnings.len()), (200, 0), "{:?}", grouped.warnings);
    let operation = json!({"apiVersion": "hactl.io/v1", "kind": "Operation", "metadata": {"name": "o1"},
        "spec": {"action": "Migrate", "resource": "web", "node": "node2"}});
    // With the move, services on node2 request 3Gi, and log still fits there. The services of node2 still have eligible
    // nodes, so no failure becomes fatal.
    let response = api.post("operations?dryRun=All", &operation).await;
    assert!(
        response.code == 201 && response.warnings.iter().all(|text| !text.contains("N+1")),
        "{:?}",
        response.warnings
    );
    // With a slightly larger service on node2, there is no capacity for log once web has arrived.
    let larger = api.merge("resources/mail", &json!({"spec": {"requests": {"memory": "2Gi"}}})).await;
    assert_eq!((larger.code, larger.warnings.len()), (200, 0), "{:?}", larger.warnings);
    let response = api.post("operations?dryRun=All", &operation).await;
    let breaks = |text: &String| {
        text.contains("services of node node3 cannot be restarted") && text.contains("log on node3")
    };
    assert!(response.code == 201 && response.warnings.iter().any(breaks), "{:?}", response.warnings);
    assert_eq!(api.post("clusters", &cluster_with_enforcement(true)).await.code, 201);
    let refused = api.post("operations", &operation).await;
    assert_eq!(refused.code, 409, "{}", refused.body);
}

#[tokio::test]
async fn secondary_that_breaks_n_plus_1_is_warned() {
    let api = cluster(&["node1", "node2", "node3"]).await;
    for node in ["node1", "node2", "node3"] {
        let reachable_pools = json!({"spec": {"storagePools": ["disks"]}});
        assert_eq!(api.merge(&format!("nodes/{node}"), &reachable_pools).await.code, 200);
    }
    create_running(&api, "db", "node3", "2Gi").await;
    let mut web = resource_with_memory("web", "3Gi");
    web["spec"]["storage"] = json!({"pool": "disks", "mode": "Replicated", "secondary": "node2"});
    assert_eq!(api.post("resources", &web).await.code, 201);
    let status =
        json!({"state": "Started", "node": "node1", "running": true, "replicas": ["node1", "node2"]});
    api.status(Kind::Resource, "web", &status).await;
    let to = |node: &str| {
        json!({"apiVersion": "hactl.io/v1", "kind": "Operation", "metadata": {"name": format!("to-{node}")},
            "spec": {"action": "ReplaceSecondary", "resource": "web", "node": node}})
    };
    let response = api.post("operations?dryRun=All", &to("node3")).await;
    let breaks = |text: &String| {
        text.contains("services of node node1 cannot be restarted") && text.contains("web on node1")
    };
    assert!(response.code == 201 && response.warnings.iter().any(breaks), "{:?}", response.warnings);
    let response = api.post("operations?dryRun=All", &to("node2")).await;
    assert!(response.code == 201 && !response.warnings.iter().any(breaks), "{:?}", response.warnings);
}

#[tokio::test]
async fn placement_inputs_are_served() {
    let api = cluster(&["node1", "node2"]).await;
    create_running(&api, "web", "node1", "3Gi").await;
    api.status(Kind::Node, "node2", &json!({"state": "Offline"})).await;
    let response = api.get("placement").await;
    assert_eq!(response.code, 200, "{}", response.body);
    assert_eq!(response.at("/nodes/node1/capacity"), &json!({"cpu": "8", "memory": "4Gi"}));
    assert_eq!(response.at("/nodes/node1/notOnline"), &Value::Null);
    assert_eq!(response.at("/nodes/node2/notOnline"), "ShutdownComplete");
    assert_eq!(response.at("/services/web/uses"), &json!(["node1"]));
    assert_eq!(response.at("/services/web/requests/memory"), "3Gi");
    assert_eq!(response.at("/settings/maxCpuRatio"), &json!(4.0));
}
