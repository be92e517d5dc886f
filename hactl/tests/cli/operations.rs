//! Tests of imperative commands and node maintenance, with a leader that answers as scripted.

use super::hactl::{command, hactl, start};
use super::server::{ScriptedResponse, Server};
use serde_json::{Value, json};
use snapbox::str;
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicUsize, Ordering};

fn server_answering_operations(phase: &'static str, status: Value) -> Server {
    let server = Server::start_with(
        |_| None,
        move |plural, object| {
            object["status"] = status.clone();
            object["status"]["phase"] = json!(phase);
            plural == "operations"
        },
    );
    put_objects(&server);
    server
}

fn put_objects(server: &Server) {
    server.put(
        "resources",
        json!({"metadata": {"name": "web"}, "spec": {"driver": {"exec": {"command": ["sleep"]}}},
        "status": {"state": "Started", "node": "node1", "running": true}}),
    );
    server.put(
        "nodes",
        json!({"apiVersion": "hactl.io/v1", "kind": "Node", "metadata": {"name": "node2"}, "spec": {},
        "status": {"state": "Online", "internal": {"epoch": 3, "fence": "Open"}, "bootId": "b"}}),
    );
}

#[test]
fn operation_is_recorded_and_outcome_printed() {
    let server =
        server_answering_operations("Succeeded", json!({"message": "web runs on node2", "together": ["db"]}));
    hactl(&server, &["migrate", "exec:web", "node2"]).expect_stdout(
        0,
        str![[r"
migrate web: succeeded: web runs on node2
  also moved: db

"]],
    );
    let operation = server.objects("operations").remove(0);
    assert_eq!(operation["spec"], json!({"action": "Migrate", "resource": "web", "node": "node2"}));
    let name = hactl(&server, &["stop", "web", "--grace-period", "5s", "--no-wait", "-o", "name"])
        .expect_stdout_parts(0, &["operation/stop-web-"]);
    let stop =
        server.object("operations", name.stdout.trim().trim_start_matches("operation/")).expect("recorded");
    assert_eq!(stop["spec"], json!({"action": "Stop", "resource": "web", "timeoutSeconds": 5}));
    hactl(&server, &["start", "web", "-q"]).expect_stdout(0, "");
    hactl(&server, &["restart", "web", "-o", "json"]).expect_stdout_parts(0, &["\"phase\": \"Succeeded\""]);
    hactl(&server, &["relocate", "web", "nowhere"]).expect_stderr(1, "node/nowhere not found");
    hactl(&server, &["migrate", "node/node2", "node2"]).expect_stderr(2, "not a resource");
}

#[test]
fn a_timeout_only_limits_the_wait() {
    let server = server_answering_operations("Running", json!({"message": "stopping"}));
    let result = hactl(&server, &["stop", "web", "--timeout", "200ms"])
        .expect_stderr(124, "continues as operation/stop-web-");
    assert!(result.stderr.contains("run \"hactl stop web --grace-period DURATION\""), "{}", result.stderr);
    assert_eq!(server.objects("operations").remove(0)["spec"], json!({"action": "Stop", "resource": "web"}));
    for (arguments, expected) in [
        (&["stop", "web", "--grace-period", "5"][..], "\"5\" has no unit; specify 5s for seconds"),
        (&["start", "web", "--timeout", "30"], "\"30\" has no unit; specify 30s for seconds"),
        (&["stop", "web", "--wait-timeout", "5s"], "unexpected argument '--wait-timeout'"),
    ] {
        hactl(&server, arguments).expect_stderr(2, expected);
    }
    assert_eq!(server.objects("operations").len(), 1);
}

#[test]
fn pacemaker_command_names_are_accepted() {
    let server = server_answering_operations("Succeeded", json!({}));
    hactl(&server, &["move", "web", "node2"]).expect_stdout(0, "migrate web: succeeded\n");
    hactl(&server, &["cleanup", "web"]).expect_stdout(0, "clear-error web: succeeded\n");
    hactl(&server, &["maintenance-mode", "freeze"]).expect_stdout(0, "cluster/default disarming (Freeze)\n");
}

#[test]
fn refused_operation_shows_blocking_reason() {
    let server = server_answering_operations(
        "Refused",
        json!({"reason": "NegativePartner", "message": "node2 is taken", "blockedBy": ["db"]}),
    );
    hactl(&server, &["migrate", "web", "node2"])
        .expect_stderr(1, "migrate web: refused: node2 is taken\n  blocked by: db");
}

#[test]
fn an_operation_continues_after_the_timeout() {
    let server = server_answering_operations("Running", json!({"message": "copying"}));
    let result = hactl(&server, &["relocate", "web", "node2", "--timeout", "200ms"])
        .expect_stderr(124, "continues as operation/relocate-web-");
    assert!(result.stderr.contains("hactl get operation relocate-web-"), "{}", result.stderr);
}

#[test]
fn lost_response_does_not_duplicate_operation() {
    let lost_connections = AtomicUsize::new(0);
    let server = Server::start_with(
        move |request| {
            let is_create = request.method == "POST" && request.path.ends_with("/operations");
            match (is_create, lost_connections.fetch_add(usize::from(is_create), Ordering::SeqCst)) {
                (true, 0) => Some(ScriptedResponse::HangUp),
                // The first request was executed, although its answer was lost.
                (true, 1) => Some(ScriptedResponse::Answer(
                    409,
                    json!({"reason": "AlreadyExists", "message": "exists"}),
                )),
                _ => None,
            }
        },
        |_, _| false,
    );
    put_objects(&server);
    hactl(&server, &["restart", "web", "--no-wait"]).expect_stdout_parts(0, &["recorded"]);
    let requests = server.requests();
    let names: Vec<&Value> = requests
        .iter()
        .filter(|request| request.method == "POST")
        .map(|request| &request.body["metadata"]["name"])
        .collect();
    assert_eq!(names.len(), 2);
    assert_eq!(names[0], names[1]);
}

#[test]
fn maintenance_waits_until_the_node_is_empty() {
    let server = Server::start_with(
        |request| {
            request.path.ends_with("/resources/go/explain").then(|| {
                ScriptedResponse::Answer(
                    200,
                    json!({"resource": "go", "help": ["bring another node online"]}),
                )
            })
        },
        |_, _| false,
    );
    put_objects(&server);
    server.put(
        "resources",
        json!({"metadata": {"name": "stay"}, "spec": {}, "status": {"state": "Stopped", "node": "node2"}}),
    );
    server.put("resources", json!({"metadata": {"name": "go"}, "spec": {}, "status": {"state": "Started", "node": "node2", "running": true,
        "conditions": [{"type": "Ready", "status": "False", "message": "no other node fits"}]}}));
    let result = hactl(&server, &["node", "maintenance", "enable", "node2", "--wait", "--timeout", "2s"])
        .expect_stderr(124, "go: Started on node2: no other node fits");
    assert!(result.stderr.contains("suggested action: bring another node online"), "{}", result.stderr);
    assert_eq!(server.object("nodes", "node2").expect("stored")["spec"]["maintenance"], true);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| hactl(&server, &["node", "maintenance", "enable", "node2", "--wait"]));
        server.wait_until(|requests| {
            requests.iter().filter(|request| request.query.contains("watch=true")).count() > 1
        });
        server.put("resources", json!({"metadata": {"name": "go"}, "spec": {}, "status": {"state": "Started", "node": "node1", "running": true}}));
        waiting.join().expect("the command ran").expect_stdout(
            0,
            str![[r"
node/node2 already in maintenance
node/node2 drained

"]],
        );
    });
    hactl(&server, &["node", "maintenance", "disable", "node2"])
        .expect_stdout(0, "node/node2 maintenance disabled\n");
    hactl(&server, &["node", "list"]).expect_stderr(2, "hint: run \"hactl get nodes\"");
}

#[test]
fn services_that_delay_a_drain_are_reported_without_a_terminal() {
    let server = Server::start();
    put_objects(&server);
    let service = |state: &str, node: &str, stalled: &str, message: &str| {
        json!({"metadata": {"name": "go"}, "spec": {}, "status": {"state": state, "node": node, "running": true, "conditions": [
            {"type": "Ready", "status": "True", "reason": "Draining", "message": message},
            {"type": "Stalled", "status": stalled, "reason": "Draining", "message": message}]}})
    };
    server.put("resources", service("Started", "node2", "True", "no node can take it"));
    let arguments = ["--server", server.url(), "node", "maintenance", "enable", "node2", "--wait"];
    let mut child = start(&mut command(&arguments));
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut next = || lines.next().map(|line| line.expect("UTF-8"));
    // Each line is read before the next change is stored, which proves that it was printed immediately.
    assert_eq!(next().as_deref(), Some("go: Started on node2: no node can take it"));
    server.put("resources", service("Started", "node2", "False", "its move to node1 failed"));
    assert_eq!(next().as_deref(), Some("go: Started on node2: its move to node1 failed"));
    // Another change of the object, with the same message.
    let mut unchanged = service("Started", "node2", "False", "its move to node1 failed");
    unchanged["metadata"]["labels"] = json!({"a": "b"});
    server.put("resources", unchanged);
    server.put("resources", service("Started", "node1", "False", "Running on node1"));
    assert_eq!(next(), None, "no other line is printed");
    assert!(child.wait().expect("hactl exits").success());
}

#[test]
fn confirm_fenced_requires_yes_and_sends_boot() {
    let server = server_answering_operations("Succeeded", json!({}));
    hactl(&server, &["node", "confirm-fenced", "node2"]).expect_stderr(2, "--yes");
    assert!(server.writes().is_empty());
    hactl(&server, &["node", "confirm-fenced", "node2", "--yes"])
        .expect_stdout(0, "confirm-fenced node2: succeeded\n");
    let operation = server.objects("operations").remove(0);
    assert_eq!(
        operation["spec"],
        json!({"action": "ConfirmFenced", "node": "node2", "epoch": 3, "bootId": "b"})
    );
}

#[test]
fn watchdog_test_requires_yes_and_sends_boot() {
    let server =
        server_answering_operations("Refused", json!({"message": "services are active on node2 (web)"}));
    hactl(&server, &["node", "test-watchdog", "node2"]).expect_stderr(2, "--yes");
    assert!(server.writes().is_empty());
    hactl(&server, &["node", "test-watchdog", "node2", "-y"])
        .expect_stderr(1, "services are active on node2 (web)");
    let operation = server.objects("operations").remove(0);
    assert_eq!(operation["spec"], json!({"action": "TestWatchdog", "node": "node2", "bootId": "b"}));
}

#[test]
fn delete_with_stop_deletes_only_stopped_resources() {
    let server = server_answering_operations("Failed", json!({"message": "the stop command failed"}));
    hactl(&server, &["delete", "resource", "web", "--stop"])
        .expect_stderr(1, "cannot stop resource/web: the stop command failed");
    assert!(server.object("resources", "web").is_some());
    let server = server_answering_operations("Succeeded", json!({}));
    hactl(&server, &["delete", "resource", "web", "--stop"]).expect_stdout(
        0,
        str![[r"
resource/web stopped
resource/web deleted

"]],
    );
}

#[test]
fn disarm_and_arm_wait_for_every_node() {
    let server = Server::start_with(
        |request| {
            // The overview shows the leader's progress: at first, one node is missing.
            (request.path.ends_with("/v1/status")).then(|| {
                ScriptedResponse::Answer(
                    200,
                    json!({"arming": "Disarming", "waitingFor": ["cluster default: Disarming waits for web (Migrate)"],
                        "nodes": [{"name": "node1", "arming": "Disarmed", "state": "Online"},
                            {"name": "node2", "arming": "Disarming", "state": "Online"}]}),
                )
            })
        },
        |_, _| false,
    );
    hactl(&server, &["arm"]).expect_stdout(0, "cluster/default already armed\n");
    hactl(&server, &["disarm", "freeze"]).expect_stdout(0, "cluster/default disarming (Freeze)\n");
    assert_eq!(server.object("clusters", "default").expect("stored")["spec"]["disarmed"], "Freeze");
    hactl(&server, &["disarm", "freeze"]).expect_stdout(0, "cluster/default already disarmed (Freeze)\n");
    let result = hactl(&server, &["disarm", "ignore", "--wait", "--timeout", "1s"])
        .expect_stderr(124, "timed out after 1s: cluster/default is not Disarmed");
    assert!(result.stderr.contains("Disarming waits for web (Migrate)"), "{}", result.stderr);
    assert!(result.stderr.contains("node2: Disarming, Online"), "{}", result.stderr);
    hactl(&server, &["arm"]).expect_stdout(0, "cluster/default arming\n");
    assert_eq!(server.object("clusters", "default").expect("stored")["spec"].get("disarmed"), None);
    hactl(&server, &["disarm", "softly"]).expect_stderr(2, "freeze");
}

#[test]
fn continue_shutdown_sends_the_observed_boot() {
    let server = server_answering_operations("Succeeded", json!({}));
    hactl(&server, &["node", "shutdown-continue", "node2"])
        .expect_stdout(0, "shutdown-continue node2: succeeded\n");
    let operation = server.objects("operations").remove(0);
    assert_eq!(operation["spec"], json!({"action": "ShutdownContinue", "node": "node2", "bootId": "b"}));
}

#[test]
fn fence_and_unfence_require_yes_and_boot() {
    for (word, spec) in [
        ("fence", json!({"action": "Fence", "node": "node2"})),
        ("unfence", json!({"action": "Unfence", "node": "node2", "epoch": 3, "bootId": "b"})),
    ] {
        let server = server_answering_operations("Succeeded", json!({}));
        hactl(&server, &["node", word, "node2"]).expect_stderr(2, "--yes");
        assert!(server.writes().is_empty());
        hactl(&server, &["node", word, "node2", "--yes"])
            .expect_stdout(0, format!("{word} node2: succeeded\n"));
        assert_eq!(server.objects("operations").remove(0)["spec"], spec);
    }
}
