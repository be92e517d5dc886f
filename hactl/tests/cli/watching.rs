//! Tests of watches: rows as they change, over lost connections and compacted revisions.

use super::hactl::{command, hactl, run, start};
use super::server::{Request, ScriptedResponse, Server};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicUsize, Ordering};

fn service(name: &str, state: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"driver": {"exec": {"command": ["sleep"]}}}, "status": {"state": state}})
}

fn is_watch(request: &Request) -> bool {
    request.query.contains("watch=true")
}

/// Starts a watch and passes its lines to the test.
fn follow(server: &Server, arguments: &[&str], test: impl FnOnce(&mut dyn FnMut() -> String)) {
    let mut child = start(command(&["--server", server.url()]).args(arguments));
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    test(&mut || lines.next().expect("a line").expect("UTF-8"));
    child.kill().expect("hactl runs");
    child.wait().expect("hactl exits");
}

#[test]
fn watch_prints_changes_immediately() {
    let server = Server::start();
    server.put("resources", service("web", "Starting"));
    follow(&server, &["get", "har", "-w"], |line| {
        assert_eq!(line(), "NAME      READY  STATE     DESIRED  NODE  REASON  AGE");
        assert!(line().contains("Starting"));
        server.put("resources", service("web", "Started"));
        assert!(line().starts_with("exec:web  -      Started   Started"));
        server.put("resources", service("db", "Queued"));
        assert!(line().contains("exec:db"));
        server.remove("resources", "web");
        assert!(line().contains("(deleted)"));
    });
    follow(&server, &["get", "resource", "db", "-w", "-o", "json"], |line| {
        assert_eq!(serde_json::from_str::<Value>(&line()).expect("JSON")["status"]["state"], "Queued");
        server.put("resources", service("web", "Started"));
        server.put("resources", service("db", "Started"));
        assert_eq!(serde_json::from_str::<Value>(&line()).expect("JSON")["metadata"]["name"], "db");
    });
}

#[test]
fn watch_survives_compaction_and_lost_connection() {
    let watches = AtomicUsize::new(0);
    let server = Server::start_with(
        move |request| match is_watch(request).then(|| watches.fetch_add(1, Ordering::SeqCst)) {
            Some(0) => {
                Some(ScriptedResponse::Answer(410, json!({"reason": "Expired", "message": "compacted"})))
            }
            Some(1) => Some(ScriptedResponse::HangUp),
            Some(2) => Some(ScriptedResponse::Answer(503, json!({"message": "not ready"}))),
            Some(3) => Some(ScriptedResponse::Answer(
                200,
                json!({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}),
            )),
            _ => None,
        },
        |_, _| false,
    );
    server.put("resources", service("web", "Starting"));
    follow(&server, &["get", "har", "-w", "-o", "name"], |line| {
        assert_eq!(line(), "resource/web");
        server.wait_for(is_watch);
        server.put("resources", service("db", "Started"));
        assert_eq!(line(), "resource/db");
    });
}

#[test]
fn wait_ends_with_the_event() {
    let server = Server::start();
    server.put("resources", service("web", "Starting"));
    std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| hactl(&server, &["wait", "web", "--for=state=Started", "--timeout=20s"]));
        server.wait_for(is_watch);
        server.put("resources", service("web", "Started"));
        waiting.join().expect("the command ran").expect_stdout(0, "resource/web state is Started\n");
        let deleting =
            scope.spawn(|| hactl(&server, &["wait", "resource/web", "--for=delete", "--timeout=20s"]));
        server.wait_for(|request| is_watch(request) && request.query.contains("resourceVersion=2"));
        server.remove("resources", "web");
        deleting.join().expect("the command ran").expect_stdout(0, "resource/web deleted\n");
    });
    hactl(&server, &["wait", "resource/web", "--for=delete"]).expect_stdout(0, "resource/web deleted\n");
    hactl(&server, &["wait", "web", "--for=state=Started"]).expect_stderr(1, "not found");
}

#[test]
fn trace_follows_operation_across_processes() {
    let server = Server::start();
    let event = |name: &str,
                 second: u8,
                 component: &str,
                 reason: &str,
                 action: Option<&str>,
                 operation: Option<&str>| {
        let mut event = json!({"apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": "default", "annotations": {"hactl.io/node": "node1", "hactl.io/epoch": "4"}},
            "involvedObject": {"kind": "Resource", "name": "web"}, "type": "Normal", "reason": reason, "message": "so it is",
            "lastTimestamp": format!("2026-01-01T00:00:0{second}.500Z"), "source": {"component": component, "host": "h"}});
        if let Some(action) = action {
            event["metadata"]["annotations"]["hactl.io/action-uid"] = json!(action);
        }
        if let Some(operation) = operation {
            event["related"] = json!({"kind": "Operation", "name": operation});
        }
        server.put("events", event);
    };
    event("1", 1, "ha-controller", "Starting", Some("a0"), None);
    event("2", 2, "ha-controller", "Migrating", Some("a1"), Some("move-1"));
    event("3", 3, "ha-node-agent", "Running", Some("a1"), None);
    server.put(
        "operations",
        json!({"apiVersion": "hactl.io/v1", "kind": "Operation", "metadata": {"name": "move-1", "uid": "u-1"},
        "spec": {"action": "Migrate", "resource": "web", "node": "node1"}, "status": {"phase": "Succeeded"}}),
    );
    server.put(
        "resources",
        json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "web"},
        "spec": {"driver": {"exec": {"command": ["sleep", "1"]}}}, "status": {"internal": {"actionUid": "a0"}}}),
    );
    for subject in ["move-1", "u-1", "operation/move-1"] {
        let result = hactl(&server, &["trace", subject]).expect_stdout_parts(
            0,
            &[
                "operation move-1 (Migrate web node1): Succeeded\nAction a1\n",
                "+0.000s",
                "+1.000s",
                "ha-node-agent/h",
            ],
        );
        assert!(!result.stdout.contains("Starting"), "{}", result.stdout);
    }
    hactl(&server, &["trace", "web"]).expect_stdout_parts(0, &["action a0\n", "Starting"]);
    hactl(&server, &["trace", "a1", "-o", "json"])
        .expect_stdout_parts(0, &["\"afterSeconds\": 1.0", "\"epoch\": \"4\""]);
    hactl(&server, &["trace", "a7"]).expect_stderr(1, "no events found for action a7");
    hactl(&server, &["trace", "operation/gone"]).expect_stderr(1, "operation/gone not found");
    hactl(&server, &["trace", "resource/gone"]).expect_stderr(1, "resource/gone not found");
    hactl(&server, &["trace", "ct:gone"]).expect_stderr(1, "resource/gone not found");
    hactl(&server, &["trace", "ct:web"]).expect_stderr(1, "resource ct:web not found: web has type ");
    // Invalid subjects must be refused even without a controller.
    for (subject, part) in [("node/node1", "cannot trace a node"), ("a:b:c", "\"a:b:c\" is not a valid name")]
    {
        run(&mut command(&["--server", "http://127.0.0.1:1", "trace", subject])).expect_stderr(2, part);
    }
}
