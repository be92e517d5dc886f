//! Tests of `cordon`, `uncordon` and `drain`.

use super::hactl::hactl;
use super::server::{ScriptedResponse, Server};
use serde_json::{Value, json};
use snapbox::str;

fn put_nodes(server: &Server) {
    for name in ["node1", "node2"] {
        server.put(
            "nodes",
            json!({"apiVersion": "hactl.io/v1", "kind": "Node", "metadata": {"name": name}, "spec": {}}),
        );
    }
}

fn service(server: &Server, node: &str) {
    server.put("resources", json!({"metadata": {"name": "web"}, "spec": {}, "status": {"state": "Started", "node": node,
        "running": true, "conditions": [{"type": "Ready", "status": "False", "message": "no other node fits"}]}}));
}

fn spec(server: &Server, name: &str) -> Value {
    server.object("nodes", name).expect("stored")["spec"].clone()
}

#[test]
fn a_cordoned_node_is_unschedulable_until_it_is_uncordoned() {
    let server = Server::start();
    put_nodes(&server);
    hactl(&server, &["cordon", "node1", "node/node2", "--dry-run"]).expect_stdout(
        0,
        str![[r"
node/node1 cordoned (server dry run)
node/node2 cordoned (server dry run)

"]],
    );
    assert_eq!(spec(&server, "node1"), json!({}));
    let writes = server.writes().len();
    hactl(&server, &["cordon", "node1", "--dry-run=client"])
        .expect_stdout(0, "node/node1 cordoned (dry run)\n");
    hactl(&server, &["drain", "node1", "--dry-run=client"])
        .expect_stdout(0, "node/node1 maintenance enabled (dry run)\n");
    assert_eq!(server.writes().len(), writes);
    hactl(&server, &["cordon", "node1"]).expect_stdout(0, "node/node1 cordoned\n");
    assert_eq!(spec(&server, "node1"), json!({"unschedulable": true}));
    hactl(&server, &["cordon", "node1", "node2"]).expect_stdout(
        0,
        str![[r"
node/node1 already cordoned
node/node2 cordoned

"]],
    );
    hactl(&server, &["uncordon", "node1"]).expect_stdout(0, "node/node1 uncordoned\n");
    assert_eq!(spec(&server, "node1"), json!({"unschedulable": false, "maintenance": false}));
    hactl(&server, &["uncordon", "node1"]).expect_stdout(0, "node/node1 already uncordoned\n");
}

#[test]
fn flags_of_kubectl_are_explained() {
    let server = Server::start();
    let check = |arguments: &[&str], tip: &str| {
        hactl(&server, arguments).expect_stderr(2, &format!("tip: {tip}\n"));
    };
    for flag in ["--force", "--ignore-daemonsets", "--delete-emptydir-data"] {
        check(&["drain", "node1", flag], &format!("drain moves services and deletes none: omit {flag}"));
    }
    for (command, selector) in [("drain", "-l"), ("cordon", "-l"), ("uncordon", "--selector")] {
        let tip = format!("specify the nodes: hactl {command} $(hactl get nodes -l SELECTOR -o name)");
        check(&[command, selector, "rack=1"], &tip);
    }
    check(
        &["drain", "node1", "--grace-period=5"],
        "each resource has its own limit: hactl set RESOURCE timeouts.stopSeconds=SECONDS",
    );
    check(
        &["drain", "node1", "--pod-selector=a=b"],
        "drain moves all services; to move a single service: hactl migrate RESOURCE NODE",
    );
    check(&["drain", "node1", "-n", "a"], "objects of hactl have no namespace: omit -n");
    assert!(server.writes().is_empty());
}

#[test]
fn cordon_keeps_fields_of_newer_server() {
    let server = Server::start();
    let spec_with = |unschedulable: bool| json!({"novel": {"a": 1}, "fencing": {"devices": [{"name": "f", "kind": "Orbital"}]}, "unschedulable": unschedulable});
    server.put(
        "nodes",
        json!({"metadata": {"name": "node1"}, "spec": spec_with(false), "status": {"state": "Asleep"}}),
    );
    hactl(&server, &["cordon", "node1"]).expect_stdout(0, "node/node1 cordoned\n");
    assert_eq!(spec(&server, "node1"), spec_with(true));
    server.put("resources", json!({"metadata": {"name": "web"}, "spec": {"state": "Paused", "driver": {"novel": {}}},
        "status": {"state": "Hibernated", "node": "node1", "conditions": [{"type": "Ready", "status": "Perhaps"}]}}));
    hactl(&server, &["drain", "node1", "--timeout", "1s"]).expect_stderr(124, "\n  web: Hibernated on node1");
}

#[test]
fn drain_with_unknown_node_changes_nothing() {
    let server = Server::start();
    put_nodes(&server);
    for command in ["cordon", "uncordon", "drain"] {
        hactl(&server, &[command, "node1", "node3"]).expect_stderr(1, "node/node3 not found");
        hactl(&server, &[command, "resource/web"]).expect_stderr(2, "resource/web is not a node");
        hactl(&server, &[command]).expect_stderr(2, "<NODE>...");
    }
    assert_eq!(server.writes(), [""; 0]);
}

#[test]
fn a_drain_blocks_every_node_before_it_waits() {
    let server = Server::start();
    put_nodes(&server);
    service(&server, "node2");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| hactl(&server, &["drain", "node1", "node2"]));
        let is_watch = |request: &super::server::Request| request.query.contains("watch=true");
        server.wait_for(is_watch);
        let methods: Vec<String> = server.requests().into_iter().map(|request| request.method).collect();
        let last_patch = methods.iter().rposition(|method| method == "PATCH").expect("patched");
        let first_watch = server.requests().iter().position(is_watch).expect("watched");
        assert!(last_patch < first_watch, "{methods:?}");
        service(&server, "node3");
        waiting.join().expect("the command ran").expect_stdout(
            0,
            str![[r"
node/node1 maintenance enabled
node/node2 maintenance enabled
node/node1 drained
node/node2 drained

"]],
        );
    });
    assert_eq!(
        server.writes(),
        ["node1", "node2", "node1", "node2"].map(|node| format!("PATCH /apis/hactl.io/v1/nodes/{node}")),
        "both are unschedulable before the first one is emptied"
    );
    assert_eq!(spec(&server, "node1"), json!({"maintenance": true}), "the node's own setting is restored");
    hactl(&server, &["uncordon", "node2"]).expect_stdout(0, "node/node2 uncordoned\n");
    assert_eq!(spec(&server, "node2")["maintenance"], false);
}

#[test]
fn a_drain_that_times_out_names_the_remaining_services() {
    let server = Server::start();
    put_nodes(&server);
    service(&server, "node2");
    let result = hactl(&server, &["drain", "node2", "--timeout", "1s"]).expect_stderr(
        124,
        "timed out after 1s: node/node2 still has services\n  web: Started on node2: no other node fits",
    );
    assert!(result.stderr.contains("run \"hactl drain node2\" to wait again"), "{}", result.stderr);
    assert_eq!(spec(&server, "node2")["maintenance"], true);
}

#[test]
fn drain_dry_run_shows_target_nodes() {
    let server = Server::start_with(
        |request| match request.path.as_str() {
            "/apis/hactl.io/v1/plan" => Some(ScriptedResponse::Answer(
                200,
                json!({"effects": [{"resource": "web", "effect": "Migrate", "from": "node2", "to": "node3"}]}),
            )),
            _ if request.method == "PATCH" => Some(ScriptedResponse::Warned(vec![
                "web would live-migrate node2 -> node3",
                "spec.nodeGroup: nodegroup rack2 does not exist yet",
            ])),
            _ => None,
        },
        |_, _| false,
    );
    put_nodes(&server);
    let result = hactl(&server, &["drain", "node2", "--dry-run"]).expect_stdout(
        0,
        str![[r"
node/node2 maintenance enabled (server dry run)

Effect
  web would live-migrate node2 → node3

"]],
    );
    assert_eq!(result.stderr, "warning: spec.nodeGroup: nodegroup rack2 does not exist yet\n");
    assert_eq!(spec(&server, "node2"), json!({}));
    let plan = server.requests().into_iter().find(|request| request.path.ends_with("/plan")).expect("asked");
    assert_eq!(plan.body["objects"][0]["spec"]["maintenance"], true);
}
