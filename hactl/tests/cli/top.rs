//! Tests of `hactl top`, and of measured usage in wide lists.

use super::hactl::hactl;
use super::server::{ScriptedResponse, Server};
use serde_json::{Value, json};
use snapbox::str;

fn server() -> Server {
    let usage = json!({
        "nodes": [
            {"name": "node1", "usage": {"cpu": "1500m", "memory": "3Gi", "diskRate": "2Mi"},
             "capacity": {"cpu": "6", "memory": "8Gi"}, "allocated": {}},
            {"name": "node2", "capacity": {}, "allocated": {}}],
        "resources": [
            {"name": "db", "type": "exec", "node": "node1", "usage": {"cpu": "200m", "memory": "2Gi"}, "requests": {"cpu": "1"}},
            {"name": "vm1", "type": "vm", "node": "node2", "requests": {}},
            {"name": "web", "type": "exec", "node": "node1", "usage": {"cpu": "900m"}, "requests": {}}],
    });
    let answer = move |path: &str| {
        (path == "/apis/hactl.io/v1/usage").then(|| ScriptedResponse::Answer(200, usage.clone()))
    };
    let server = Server::start_with(move |request| answer(&request.path), |_, _| false);
    for (name, status) in [("web", json!({"state": "Started", "node": "node1"})), ("vm1", Value::Null)] {
        let driver = json!({"exec": {"command": ["sleep"]}});
        server.put(
            "resources",
            json!({"metadata": {"name": name}, "spec": {"driver": driver}, "status": status}),
        );
    }
    server.put("nodes", json!({"metadata": {"name": "node1"}, "spec": {}}));
    server
}

#[test]
fn top_lists_usage_of_nodes_and_resources() {
    let server = server();
    hactl(&server, &["top", "nodes"]).expect_stdout(
        0,
        str![[r"
NAME   CPU    CPU%  MEMORY  MEMORY%  DISK/S  NETWORK/S
node1  1500m  25%   3Gi     38%      2Mi     -
node2  -      -     -       -        -       -

"]],
    );
    hactl(&server, &["top", "nodes", "node1", "--no-headers"])
        .expect_stdout(0, "node1  1500m  25%  3Gi  38%  2Mi  -\n");
    hactl(&server, &["top", "no", "node1", "-o", "json"]).expect_stdout_parts(0, &["\"1500m\""]);
    hactl(&server, &["top", "resources", "--sort-by", "cpu"]).expect_stdout(
        0,
        str![[r"
NAME      NODE   CPU   CPU-REQUEST  MEMORY  MEMORY-REQUEST  DISK/S  NETWORK/S
exec:web  node1  900m  -            -       -               -       -
exec:db   node1  200m  1            2Gi     -               -       -
vm:vm1    node2  -     -            -       -               -       -

"]],
    );
    let row = hactl(&server, &["top", "har", "exec:web"]).expect_stdout_parts(0, &["900m"]);
    assert!(!row.stdout.contains("exec:db"), "{}", row.stdout);
    hactl(&server, &["top", "har", "wep"]).expect_stderr(1, "did you mean web?");
    hactl(&server, &["top", "groups"]).expect_stderr(2, "specify nodes or resources");
}

#[test]
fn a_wide_list_shows_usage() {
    let wide =
        hactl(&server(), &["get", "resources", "-o", "wide"]).expect_stdout_parts(0, &["CPU USED", "900m"]);
    assert!(!wide.stdout.contains("200m"), "{}", wide.stdout);
    let nodes = Server::start();
    nodes.put("nodes", json!({"metadata": {"name": "node1"}, "status": {"drivers": ["exec", "libvirt"]}}));
    hactl(&nodes, &["get", "nodes", "-o", "wide"]).expect_stdout_parts(0, &["DRIVERS", "exec,libvirt"]);
    // A controller without usage data leaves the columns empty.
    let older = Server::start();
    older.put(
        "resources",
        json!({"metadata": {"name": "web"}, "spec": {"driver": {"exec": {"command": ["sleep"]}}}}),
    );
    hactl(&older, &["get", "resources", "-o", "wide"]).expect_stdout_parts(0, &["CPU USED", "exec:web"]);
}
