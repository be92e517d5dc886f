//! Tests of `hactl timing`: the parts add up, equal nodes form one entry, and inactive settings are reported.

use super::hactl::{command, hactl, run};
use super::server::Server;
use serde_json::{Value, json};
use snapbox::str;

fn node(name: &str, sliding: bool, heartbeat_valid_ms: u64) -> Value {
    json!({"apiVersion": "hactl.io/v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": {
        "watchdog": {"kind": "Kernel", "identity": "Software Watchdog", "device": "/dev/watchdog", "timeoutSeconds": 5,
            "armed": true, "dynamicTimeout": sliding, "fdStorePersistent": true},
        "timing": {"heartbeatIntervalSeconds": 1, "heartbeatLifetimeSeconds": heartbeat_valid_ms as f64 / 1000.0,
            "selfFenceMarginSeconds": 2.5, "watchdogTimeoutSeconds": 5, "watchdogClockSkewPercent": 2,
            "watchdogMaxDelaySeconds": 1, "clockRateErrorPercent": 0.1, "ioDrainSeconds": 0,
            "leaderLeaseSeconds": 5, "nodeReturnGracePeriodSeconds": 60, "freezeTimeoutSeconds": 600,
            "shutdownTimeoutSeconds": 1800}}})
}

fn cluster(timing: &Value) -> Value {
    json!({"apiVersion": "hactl.io/v1", "kind": "Cluster", "metadata": {"name": "default"}, "spec": {"timing": timing}})
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn timing_profile_is_computed_without_cluster() {
    let shown = run(&mut command(&["timing", "--profile", "fast", "--commit", "10ms", "-o", "json"]))
        .expect_stdout_parts(0, &[]);
    let value = json_of(&shown.stdout);
    let waits: Vec<&Value> = value["failovers"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|failover| &failover["fencingDelaySeconds"])
        .collect();
    assert_eq!(waits, [&json!(7.1), &json!(9.1), &json!(11.7)]);
    assert_eq!(value["settings"]["clockRateErrorPercent"], json!(0.1));
    assert_eq!(value["etcd"]["commitSeconds"], json!(0.01));
    for failover in value["failovers"].as_array().expect("a list") {
        for bound in [&failover["node"], &failover["leaderNode"]] {
            let mut parts = bound["parts"].as_object().expect("parts").clone();
            let wait = parts.remove("wait").expect("W");
            let numbers = parts.values().chain(wait.as_object().expect("the parts of the wait").values());
            let sum = numbers.map(|seconds| seconds.as_f64().expect("seconds")).sum::<f64>();
            let total = bound["totalSeconds"].as_f64().expect("seconds");
            assert!((sum - total).abs() < 1e-9, "{sum} {total}");
        }
    }
    run(&mut command(&["timing", "--profile", "fast"]))
        .expect_stdout_parts(0, &["fixed timeout\ndetect  4.1 s ", "total   7.5 s ", "total   9.5 s "]);
    run(&mut command(&["timing", "--profile", "fast", "--explain"]))
        .expect_stdout_parts(0, &["fixed timeout", "fencing delay  ", "7.1 s", "9.1 s"]);
}

#[test]
fn equal_nodes_share_one_table() {
    let server = Server::start();
    let spec = |lease: u64| cluster(&json!({"leaderLeaseSeconds": lease}));
    server.put("clusters", spec(5));
    for name in ["node1", "node2"] {
        server.put("nodes", node(name, true, 6_000));
    }
    hactl(&server, &["timing"]).expect_stdout(
        0,
        str![[r"
detect  6.1 s   from the last heartbeat until the node is considered failed
fence   7.3 s   until fencing is confirmed
decide  0.1 s   until its services are scheduled on other nodes
start   0.1 s   until the starts are authorized
total   13.6 s  until the services start

"]],
    );
    hactl(&server, &["timing", "--lost", "1"]).expect_stdout_parts(0, &["decide  3.1 s ", "total   16.6 s "]);
    // The lease of a leader that fails with its node is longer than the fencing delay.
    let leased = |name: &str| {
        let mut node = node(name, true, 6_000);
        node["status"]["timing"]["leaderLeaseSeconds"] = json!(20);
        node
    };
    server.put("clusters", spec(20));
    for name in ["node1", "node2"] {
        server.put("nodes", leased(name));
    }
    hactl(&server, &["timing"])
        .expect_stdout_parts(0, &["        NODE    LEADER'S NODE\n", "total   13.6 s  22.2 s "]);
}

#[test]
fn nodes_with_equal_timing_are_grouped() {
    let server = Server::start();
    server.put("clusters", cluster(&json!({})));
    for (name, sliding) in [("node1", true), ("node2", true), ("node3", false)] {
        server.put("nodes", node(name, sliding, 6_000));
    }
    hactl(&server, &["timing", "--explain"]).expect_stdout_parts(
        0,
        &["profile Default", "node1, node2  Software Watchdog, sliding", "node3  ", "13.2 s", "18.3 s"],
    );
    hactl(&server, &["timing"]).expect_stdout_parts(0, &["node1, node2\ndetect ", "\n\nnode3\ndetect "]);
    let with_lost_request =
        hactl(&server, &["timing", "node3", "--lost", "1", "--commit", "10ms", "-o", "json"])
            .expect_stdout_parts(0, &[]);
    assert_eq!(json_of(&with_lost_request.stdout)["failovers"][0]["node"]["totalSeconds"], 18.3 + 0.04 + 3.0);
}

#[test]
fn inactive_timing_settings_are_reported() {
    let server = Server::start();
    server.put("clusters", cluster(&json!({"heartbeatLifetimeSeconds": 8})));
    server.put("nodes", node("node1", true, 6_000));
    server.put(
        "nodes",
        json!({"kind": "Node", "apiVersion": "hactl.io/v1", "metadata": {"name": "node2"}, "spec": {}}),
    );
    hactl(&server, &["timing"]).expect_stdout_parts(
        1,
        &["has not applied the cluster's settings", "13.6 s", "node2  the agent has not reported"],
    );
    // A value that did not pass the API's validation, such as one from an old backup.
    server.put("clusters", cluster(&json!({"selfFenceMarginSeconds": 5})));
    hactl(&server, &["timing", "node1"]).expect_stdout_parts(
        1,
        &[
            "invalid: Cluster.spec.timing.heartbeatLifetimeSeconds is 6",
            "raise it by more than 1, or lower one",
        ],
    );
}
