//! Tests of status, why, explain, completion and version.

use super::hactl::{command, hactl, run};
use super::server::{ScriptedResponse, Server};
use serde_json::{Value, json};

fn start_server_with_overview(problems: &Value, has_leader: bool) -> Server {
    let mut answer = json!({
        "cluster": "lab", "answeredBy": "c1", "version": "0.1.0", "arming": "Armed",
        "store": {"quorum": true, "revision": 7, "members": [
            {"name": "s1", "url": "https://s1:2379", "healthy": true, "leader": true, "version": "3.5.30", "databaseBytes": 2_097_152},
            {"name": "s2", "healthy": false, "problem": "connection refused"}]},
        "controllers": [{"id": "c1", "state": "Leading", "silentSeconds": 0.4, "version": "0.1.0"}],
        "nodes": [{"name": "node1", "state": "Online", "agent": "Active", "lease": true, "silentSeconds": 1.5, "services": 2, "epoch": 3,
            "watchdog": {"kind": "Kernel", "armed": true}}],
        "services": {"Started": 2, "Error": 1},
        "problems": problems,
    });
    if has_leader {
        answer["leader"] = json!({"id": "c1", "term": 5, "since": "2026-01-01T00:00:00Z"});
    }
    Server::start_with(
        move |request| {
            (request.path == "/apis/hactl.io/v1/status")
                .then(|| ScriptedResponse::Answer(200, answer.clone()))
        },
        |_, _| false,
    )
}

#[test]
fn status_reports_health_in_text_and_exit_status() {
    let result = hactl(&start_server_with_overview(&json!([]), true), &["status"]).expect_stdout_parts(
        0,
        &[
            "Cluster lab: healthy",
            "1 of 2 members, quorum",
            "s2      unreachable",
            "connection refused",
            "leader c1 (for ",
            "node1  Online",
            "armed",
            "1.5s",
            "2 Started, 1 Error",
        ],
    );
    let position = |text: &str| result.stdout.find(text).expect("shown");
    assert!(
        position("etcd") < position("Controllers") && position("Controllers") < position("Nodes"),
        "{}",
        result.stdout
    );
    let problem = |severity: &str| json!([{"severity": severity, "about": "resource/web", "reason": "Unschedulable", "message": "fits nowhere", "help": "hactl why web"}]);
    hactl(&start_server_with_overview(&problem("Degraded"), true), &["status"])
        .expect_stdout_parts(1, &["degraded", "resource/web: fits nowhere", "hactl why web"]);
    hactl(&start_server_with_overview(&problem("Failed"), true), &["status"])
        .expect_stdout_parts(2, &["failed"]);
    hactl(&start_server_with_overview(&json!([]), false), &["status"]).expect_stdout_parts(2, &["no leader"]);
    let result = hactl(&start_server_with_overview(&json!([]), true), &["status", "-o", "json"])
        .expect_stdout_parts(0, &[]);
    assert_eq!(serde_json::from_str::<Value>(&result.stdout).expect("JSON")["leader"]["term"], 5);
    run(&mut command(&["--server", "http://127.0.0.1:1", "status"]))
        .expect_stderr(3, "cannot reach any controller");
}

#[test]
fn delete_names_the_lost_controller_of_a_node() {
    let controllers =
        json!({"controllers": [{"id": "c1", "state": "Lost"}, {"id": "c2", "state": "Leading"}]});
    let server = Server::start_with(
        move |request| {
            (request.path == "/apis/hactl.io/v1/status")
                .then(|| ScriptedResponse::Answer(200, controllers.clone()))
        },
        |_, _| false,
    );
    for name in ["c1", "c2"] {
        server.put("nodes", json!({"metadata": {"name": name}, "spec": {}}));
    }
    let result = hactl(&server, &["delete", "nodes", "c1", "c2"])
        .expect_stderr(0, "hint: controller c1 is not running either: if it was removed permanently, run \"hactl delete controller/c1\"\n");
    assert!(!result.stderr.contains("controller c2"), "{}", result.stderr);
}

#[test]
fn why_shows_every_node_and_suggested_actions() {
    let answer = json!({
        "resource": "web", "type": "exec", "requested": "Started", "state": "Recovery", "running": false,
        "reason": "Unschedulable", "message": "no node can take web",
        "waitingFor": ["node2 to return"], "help": ["add memory to node1"],
        "nodes": [
            {"node": "node1", "allowed": false, "causes": [
                {"reason": "NotEnoughMemory", "message": "needs 4Gi, 1Gi is free", "help": "lower requests.memory"},
                {"reason": "NotInGroup", "message": "not a member of g"}]},
            {"node": "node2", "allowed": true, "chosen": true, "score": "0.5", "priority": 2, "causes": []}],
    });
    let server = Server::start_with(
        move |request| {
            request
                .path
                .ends_with("/resources/web/explain")
                .then(|| ScriptedResponse::Answer(200, answer.clone()))
        },
        |_, _| false,
    );
    server.put(
        "resources",
        json!({"metadata": {"name": "web"}, "spec": {"driver": {"exec": {"command": ["sleep"]}}}}),
    );
    hactl(&server, &["why", "exec:web"]).expect_stdout_parts(
        0,
        &[
            "exec:web  Recovery",
            "Unschedulable: no node can take web",
            "NotEnoughMemory: needs 4Gi, 1Gi is free (lower requests.memory)",
            "NotInGroup: not a member of g",
            "eligible (best)",
            "- node2 to return",
            "- add memory to node1",
        ],
    );
    hactl(&server, &["why", "vm:web"]).expect_stderr(1, "exec:web");
    hactl(&server, &["why", "nothing"]).expect_stderr(1, "not found");
}

#[test]
fn local_commands_work_without_a_cluster() {
    run(&mut command(&["explain", "resource.spec.state"]))
        .expect_stdout_parts(0, &["Started, Stopped, Disabled, Ignored", "Default: Started"]);
    run(&mut command(&["explain", "resource.spec.stat"])).expect_stderr(2, "did you mean state?");
    run(&mut command(&["explain", "resource.spec.after"]))
        .expect_stderr(2, "this field was renamed\nhint: run \"hactl explain resource.spec.dependsOn\"");
    run(&mut command(&["explain", "resource.status.copies.definition.after"]))
        .expect_stderr(2, "resource.status.copies.definition.dependsOn");
    run(&mut command(&["explain", "har", "--recursive"])).expect_stdout_parts(0, &["workingDirectory"]);
    for shell in ["bash", "zsh", "fish"] {
        run(&mut command(&["completion", shell])).expect_stdout_parts(0, &["hactl", "maintenance"]);
    }
    run(&mut command(&["version", "--client", "-o", "json"]))
        .expect_stdout_parts(0, &[env!("CARGO_PKG_VERSION")]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().display().to_string();
    run(&mut command(&["generate", &path])).expect_stdout(0, "");
    assert!(directory.path().join("man1/hactl-node-maintenance-enable.1").exists());
    assert!(directory.path().join("completions/_hactl").exists());
    run(&mut command(&["status", "-o", "name"])).expect_stderr(2, "valid formats: wide, yaml, json");
}

#[test]
fn explain_shows_the_metadata_of_resource_agents() {
    // The agents that are installed on this machine.
    run(&mut command(&["explain", "ocf:heartbeat:IPaddr2"])).expect_stdout_parts(
        0,
        &[
            "ocf:heartbeat:IPaddr2  /usr/lib/ocf/resource.d/heartbeat/IPaddr2\n\n  Manages virtual IPv4 and IPv6 addresses",
            "Parameters\n  ip  string, required, unique\n      The IPv4",
            "Actions\n  start         timeout 20s",
            "  monitor       timeout 20s, every 10s",
        ],
    );
    run(&mut command(&["explain", "ocf:heartbeat:IPadr2"]))
        .expect_stderr(2, "did you mean ocf:heartbeat:IPaddr2?");
    run(&mut command(&["explain", "ocf:heartbeat:../IPaddr2"])).expect_stderr(2, "must be provider:agent");
    let all_agents =
        run(&mut command(&["explain", "ocf"])).expect_stdout_parts(0, &["ocf:heartbeat:Filesystem"]);
    assert!(all_agents.stdout.lines().count() > 50, "{}", all_agents.stdout);
    // An agent that the test creates.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = directory.path().display().to_string();
    run(&mut command(&["explain", "ocf", "--ocf-root", &root])).expect_stderr(2, "no resource agents ocf in");
    let agents = directory.path().join("resource.d/own");
    std::fs::create_dir_all(&agents).expect("a temporary directory");
    let agent = super::hactl::file(
        &agents,
        "Lamp",
        "#!/bin/sh\necho '<resource-agent><shortdesc>Keeps a lamp lit</shortdesc><parameters><parameter name=\"bulb\">\
         <content type=\"integer\" default=\"1\"/></parameter></parameters></resource-agent>'\n",
    );
    let executable = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(agent, executable).expect("permissions");
    run(&mut command(&["explain", "ocf:own", "--ocf-root", &root]))
        .expect_stdout(0, "ocf:own:Lamp  Keeps a lamp lit\n");
    run(&mut command(&["explain", "ocf:own:Lamp", "--ocf-root", &root]))
        .expect_stdout_parts(0, &["bulb  integer, default 1"]);
}

#[test]
fn a_scenario_runs_under_a_virtual_clock() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let scenario = |node: &str| {
        format!(
            "seed: 1\nnodes: [{{name: node1}}, {{name: node2}}, {{name: node3}}]\nobjects:\n\
             - {{apiVersion: hactl.io/v1, kind: Resource, metadata: {{name: web}}, spec: {{driver: {{simulated: {{}}}}}}}}\n\
             expect:\n  services: {{web: {{state: Started, running: true}}}}\n  onOneOf: {{web: [{node}]}}\n"
        )
    };
    let valid_scenario = super::hactl::file(directory.path(), "good.yaml", &scenario("node1, node2, node3"));
    run(&mut command(&["simulate", &valid_scenario])).expect_stdout_parts(0, &["ok: service web is Started"]);
    run(&mut command(&["simulate"]))
        .expect_stdout_parts(0, &["node2 off", "hactl simulate --print-default > cluster.yaml"]);
    let default =
        run(&mut command(&["simulate", "--print-default"])).expect_stdout_parts(0, &["name: database"]);
    let default_directory = tempfile::tempdir().expect("a temporary directory");
    let edited = super::hactl::file(default_directory.path(), "default.yaml", &default.stdout);
    run(&mut command(&["simulate", &edited])).expect_stdout_parts(0, &["running"]);
    run(&mut command(&["simulate", &edited, "--print-default"])).expect_stderr(2, "cannot be used with");
    let result = run(&mut command(&["simulate", &valid_scenario, "-o", "json"])).expect_stdout_parts(0, &[]);
    assert_eq!(
        serde_json::from_str::<Value>(&result.stdout).expect("JSON")["services"]["web"]["state"],
        "Started"
    );
    // A machine that is never switched on.
    let never = scenario("node9").replace("{name: node3}]", "{name: node3}, {name: node9, power: off}]");
    super::hactl::file(directory.path(), "never.yaml", &never);
    let path = directory.path().display().to_string();
    run(&mut command(&["simulate", &path])).expect_stdout_parts(1, &["good.yaml: ok", "never.yaml: failed"]);
    super::hactl::file(directory.path(), "broken.yaml", "nodes: []\n");
    run(&mut command(&["simulate", &path])).expect_stderr(2, "broken.yaml");
    run(&mut command(&["simulate", "/nonexistent.yaml"])).expect_stderr(2, "cannot read");
}

#[test]
fn rule_check_shows_placements_only_on_request() {
    let report = json!({"verdict": "Survives", "checked": 1, "items": []});
    let server = Server::start_with(
        move |request| {
            request.path.ends_with("/reservation").then(|| ScriptedResponse::Answer(200, report.clone()))
        },
        |_, _| false,
    );
    let asks_for_placements = |arguments: &[&str]| {
        let result = hactl(&server, arguments).expect_stdout_parts(0, &["Simulated failures: 1"]);
        assert!(!result.stdout.contains("GET "), "{}", result.stdout);
        let requests = server.requests();
        (requests.last().is_some_and(|request| request.query.contains("proof=true")), result.stderr)
    };
    assert!(asks_for_placements(&["check", "n+1", "--show-placement"]).0);
    let (placements, trace) = asks_for_placements(&["check", "n+1", "-v"]);
    assert!(!placements && trace.contains("GET http"), "{trace}");
}
