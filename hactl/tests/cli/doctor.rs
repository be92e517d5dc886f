//! Tests of `hactl doctor` and `hactl node watchdog`.

use super::hactl::hactl;
use super::server::{ScriptedResponse, Server};
use serde_json::{Value, json};

fn node(name: &str, checks: &Value) -> Value {
    json!({"apiVersion": "hactl.io/v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": {
        "state": "Online", "checks": checks,
        "watchdog": {"kind": "Kernel", "identity": "Software Watchdog", "device": "/dev/watchdog", "timeoutSeconds": 5,
            "armed": true, "dynamicTimeout": true, "fdStorePersistent": true, "observed": {"nowayout": false,
            "minTimeoutSeconds": 1, "maxTimeoutSeconds": 65535, "minMarginSeconds": 4.712,
            "maxDelaySeconds": 0.003, "realTime": true, "memoryLocked": true}}}})
}

fn softdog_checks() -> Value {
    json!([{"name": "watchdog", "status": "Warn", "message": "softdog is the weaker kind", "remediation": "name another driver"},
        {"name": "sleep", "status": "Pass", "message": "this machine cannot sleep"}])
}

fn occupied_watchdog_checks() -> Value {
    json!([{"name": "watchdog-owner", "status": "Fail", "message": "process 9 (sbd) holds the watchdog device",
        "remediation": "run systemctl disable --now sbd"}])
}

/// Starts a server whose overview contains these checks of the cluster.
fn server(cluster: &'static str) -> Server {
    Server::start_with(
        move |request| {
            let checks: Value = serde_json::from_str(cluster).expect("JSON");
            (request.path == "/apis/hactl.io/v1/status")
                .then(|| ScriptedResponse::Answer(200, json!({"cluster": "default", "checks": checks})))
        },
        |_, _| false,
    )
}

#[test]
fn doctor_shows_every_node_check_with_remedy() {
    let server = Server::start();
    server.put("nodes", node("node1", &softdog_checks()));
    server.put("nodes", node("node2", &occupied_watchdog_checks()));
    server.put("nodes", node("node3", &json!([])));
    hactl(&server, &["doctor", "node1"]).expect_stdout_parts(
        0,
        &["warn  watchdog", "→ name another driver", "ok    sleep", "this machine cannot sleep"],
    );
    hactl(&server, &["doctor", "node2"])
        .expect_stdout_parts(1, &["FAIL  watchdog-owner", "→ run systemctl disable --now sbd"]);
    hactl(&server, &["doctor", "node3"]).expect_stdout_parts(1, &["no results yet"]);
    let shown = hactl(&server, &["doctor", "node1", "-o", "json"]).expect_stdout_parts(0, &[]);
    let value: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert_eq!(value["nodes"][0]["checks"], softdog_checks());
    hactl(&server, &["doctor", "nodex"]).expect_stderr(1, "did you mean");
}

#[test]
fn doctor_shows_cluster_checks_and_node_problems() {
    let healthy_server =
        server(r#"[{"name": "nodes", "status": "Pass", "message": "the cluster has 3 nodes"}]"#);
    healthy_server.put("nodes", node("node1", &softdog_checks()));
    let shown = hactl(&healthy_server, &["doctor"])
        .expect_stdout_parts(0, &["Cluster\n", "the cluster has 3 nodes", "Node node1\n  warn  watchdog"]);
    assert!(!shown.stdout.contains("cannot sleep"), "{}", shown.stdout);
    healthy_server.put("nodes", node("node2", &occupied_watchdog_checks()));
    hactl(&healthy_server, &["doctor"]).expect_stdout_parts(1, &["FAIL  watchdog-owner"]);
    let two = server(
        r#"[{"name": "etcd-members", "status": "Fail", "message": "2 of the 3", "remediation": "add members"}]"#,
    );
    hactl(&two, &["doctor"]).expect_stdout_parts(1, &["FAIL  etcd-members", "→ add members"]);
}

#[test]
fn doctor_shows_watchdog_with_observed_margin() {
    let server = Server::start();
    server.put("nodes", node("node1", &json!([])));
    hactl(&server, &["node", "watchdog", "node1"]).expect_stdout_parts(
        0,
        &[
            "Software Watchdog",
            "/dev/watchdog",
            "sliding",
            "1 to 65535 s",
            "4712 ms left",
            "3 ms in the renewal loop",
            "real-time, memory locked",
            "none passed: run \"hactl node test-watchdog NODE\"",
        ],
    );
    let mut tested = node("node1", &json!([]));
    let watchdog = &mut tested["status"]["watchdog"];
    watchdog["tested"] = json!(true);
    watchdog["lastTest"] = json!({"operation": "t1", "at": "2026-01-02T03:04:05Z", "bootId": "b1", "nextBootId": "b2",
        "timeoutSeconds": 5, "lastedSeconds": 2.5});
    server.put("nodes", tested.clone());
    let finding = "reset with a timeout of 5 s, 3 s after arming (boot b1 ended, boot b2 started)";
    hactl(&server, &["node", "watchdog", "node1"]).expect_stdout_parts(0, &["2026-01-02T03:04:05Z", finding]);
    tested["status"]["watchdog"]["tested"] = json!(false);
    server.put("nodes", tested);
    hactl(&server, &["node", "watchdog", "node1"])
        .expect_stdout_parts(0, &["the timeout has changed since: test again"]);
    server.put(
        "nodes",
        json!({"kind": "Node", "apiVersion": "hactl.io/v1", "metadata": {"name": "node2"}, "spec": {}}),
    );
    hactl(&server, &["node", "watchdog", "node2"]).expect_stderr(1, "has not reported its watchdog");
}
