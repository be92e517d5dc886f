//! Tests of the connection: choice of the controller, requests that must not be sent twice, exit statuses of failures.

use super::hactl::{command, hactl, hactl_with_input, resource, run};
use super::server::{ScriptedResponse, Server};
use serde_json::json;
use std::io::Write;
use std::process::Stdio;

#[test]
fn unreachable_controller_is_skipped() {
    let server = Server::start();
    server.put("nodes", json!({"metadata": {"name": "node1"}, "spec": {}}));
    let server_urls = format!("http://127.0.0.1:1,{}", server.url());
    run(&mut command(&["--server", &server_urls, "get", "nodes", "-o", "name"]))
        .expect_stdout(0, "node/node1\n");
    run(command(&["get", "nodes", "-o", "name"]).env("HACTL_SERVER", &server_urls))
        .expect_stdout(0, "node/node1\n");
    let unready_server = Server::start_with(
        |_| Some(ScriptedResponse::Answer(503, json!({"message": "no store"}))),
        |_, _| false,
    );
    let server_urls = format!("{},{}", unready_server.url(), server.url());
    run(&mut command(&["--server", &server_urls, "get", "nodes", "-o", "name"]))
        .expect_stdout(0, "node/node1\n");
    hactl(&unready_server, &["get", "nodes"]).expect_stderr(3, "no store");
}

#[test]
fn only_read_requests_are_retried() {
    let disconnecting_server = Server::start_with(|_| Some(ScriptedResponse::HangUp), |_, _| false);
    let server = Server::start();
    server.put(
        "resources",
        json!({"metadata": {"name": "web"}, "spec": {"driver": {"exec": {"command": ["sleep"]}}}}),
    );
    let server_urls = format!("{},{}", disconnecting_server.url(), server.url());
    run(&mut command(&["--server", &server_urls, "get", "har", "-o", "name"]))
        .expect_stdout(0, "resource/web\n");
    let server_dropping_writes = Server::start_with(
        |request| (request.method != "GET").then_some(ScriptedResponse::HangUp),
        |_, _| false,
    );
    hactl_with_input(&server_dropping_writes, &["apply", "-f", "-"], &resource("new"))
        .expect_stderr(3, "may or may not have been applied");
    assert_eq!(server_dropping_writes.writes().len(), 1);
    assert!(server.writes().is_empty());
}

#[test]
fn hanging_controller_uses_part_of_the_timeout() {
    // The kernel accepts the connection, and no process ever answers.
    let hung_listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let server = Server::start();
    server.put(
        "resources",
        json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "web"},
            "spec": {"driver": {"simulated": {}}}, "status": {"state": "Started"}}),
    );
    let server_urls = format!("http://{},{}", hung_listener.local_addr().expect("an address"), server.url());
    let run_with_timeout = |arguments: &[&str]| {
        run(command(&["--server", &server_urls, "--request-timeout", "2s"]).args(arguments))
    };
    run_with_timeout(&["get", "har", "-o", "name"]).expect_stdout(0, "resource/web\n");
    run_with_timeout(&["wait", "web", "--for=state=Started"])
        .expect_stdout(0, "resource/web state is Started\n");
    run_with_timeout(&["set", "web", "comment=x"]).expect_stdout(0, "resource/web configured\n");
    let create = ["create", "group", "g", "--nodes", "node1"];
    run_with_timeout(&create).expect_stderr(3, "may or may not have been applied");
    assert!(server.object("groups", "g").is_none());
}

#[test]
fn exit_statuses_identify_the_failure() {
    let refusing_server = |code: u16| {
        Server::start_with(
            move |_| Some(ScriptedResponse::Answer(code, json!({"message": "because", "reason": "X"}))),
            |_, _| false,
        )
    };
    for (code, status) in
        [(400, 2), (401, 4), (403, 4), (409, 1), (422, 2), (429, 1), (500, 1), (503, 3), (504, 3)]
    {
        hactl(&refusing_server(code), &["get", "nodes"])
            .expect_stderr(status, "Error from server (X): because\n");
    }
    run(&mut command(&["--server", "http://127.0.0.1:1", "get", "nodes"]))
        .expect_stderr(3, "cannot reach any controller");
    run(&mut command(&["--server", "ftp://x", "get", "nodes"])).expect_stderr(2, "error: server \"ftp://x\"");
    run(&mut command(&["get", "nodes"])).expect_stderr(3, "unix:/run/hactl-controller/api.sock");
    run(&mut command(&["nonsense"])).expect_stderr(2, "nonsense");
    run(&mut command(&["--help"])).expect_stdout_parts(0, &["Exit status", "apply", "why"]);
    hactl(&Server::start(), &["get", "node", "nobody"])
        .expect_stderr(1, "Error from server (NotFound): node/nobody not found\n");
    let server_without_status =
        Server::start_with(|_| Some(ScriptedResponse::Answer(200, json!("hello"))), |_, _| false);
    hactl(&server_without_status, &["status"]).expect_stderr(1, "cannot parse the response");
}

#[test]
fn usage_errors_omit_connection_options() {
    let result =
        run(command(&["get"]).env("HACTL_SERVER", "http://127.0.0.1:1").env("HACTL_CLIENT_KEY", "key.pem"));
    let result =
        result.expect_stderr(2, "the following required arguments were not provided:\n  <OBJECT>...");
    assert!(
        !result.stderr.contains("--server") && !result.stderr.contains("--client-key"),
        "{}",
        result.stderr
    );
    let main_help = run(&mut command(&["--help"]))
        .expect_stdout_parts(0, &["Inspect:\n  status ", "Use \"hactl options\""]);
    assert!(!main_help.stdout.contains("--server"), "{}", main_help.stdout);
    run(&mut command(&["options"]))
        .expect_stdout_parts(0, &["Connection:\n", "--server <URL>", "Output:\n", "--verbose"]);
}

#[test]
fn kubectl_namespace_flags_are_refused() {
    for flag in ["-A", "-n", "--namespace", "--all-namespaces"] {
        run(&mut command(&["get", "resources", flag]))
            .expect_stderr(2, &format!("objects of hactl have no namespace: omit {flag}"));
    }
}

#[test]
fn validation_causes_are_listed_with_fields() {
    let body = json!({"message": "invalid", "reason": "Invalid", "details": {"causes": [
        {"field": "spec.group", "message": "there is no such group"}, {"field": "spec.x", "message": "y"}]}});
    let server = Server::start_with(move |_| Some(ScriptedResponse::Answer(422, body.clone())), |_, _| false);
    hactl(&server, &["get", "nodes"]).expect_stderr(2, "spec.group: there is no such group\n  spec.x: y");
}

#[test]
fn closed_standard_output_is_not_an_error() {
    let server = Server::start();
    let mut child = super::hactl::start(
        command(&["--server", server.url()]).args(["apply", "-f", "-"]).stdin(Stdio::piped()),
    );
    drop(child.stdout.take());
    let manifests = format!("{}---\n{}", resource("a"), resource("b"));
    child.stdin.take().expect("a pipe").write_all(manifests.as_bytes()).expect("hactl reads standard input");
    let output = child.wait_with_output().expect("hactl exits");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(server.objects("resources").len(), 2);
}

#[test]
fn contexts_are_stored_in_a_file() {
    let server = Server::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("config.yaml");
    let run_with_config = |arguments: &[&str]| run(command(arguments).env("HACTL_CONFIG", &path));
    run_with_config(&["config", "set-context", "lab", "--server", server.url()])
        .expect_stdout(0, "context lab added\n");
    run_with_config(&["config", "set-context", "away", "--server", "http://127.0.0.1:1"])
        .expect_stdout(0, "context away added\n");
    run_with_config(&["config", "current-context"]).expect_stdout(0, "lab\n");
    run_with_config(&["version", "--client"]).expect_stdout_parts(0, &["hactl      "]);
    run_with_config(&["get", "nodes"]).expect_stdout(0, "");
    run_with_config(&["get", "nodes", "--context", "away"]).expect_stderr(3, "127.0.0.1:1");
    run_with_config(&["config", "use-context", "away"])
        .expect_stdout(0, "context away is the current context\n");
    run_with_config(&["get", "nodes"]).expect_stderr(3, "127.0.0.1:1");
    run_with_config(&["config", "use-context", "nowhere"]).expect_stderr(2, "contexts: lab, away");
    run_with_config(&["config", "get-contexts"]).expect_stdout_parts(0, &["*        away", "lab"]);
    run_with_config(&["config", "delete-context", "away"]).expect_stdout(0, "context away deleted\n");
    run_with_config(&["config", "view"]).expect_stdout_parts(0, &["name: lab"]);
    std::fs::write(&path, "contexts:\n- nane: x\n").expect("a file");
    run_with_config(&["get", "nodes"])
        .expect_stderr(2, "config.yaml:2: unknown field contexts[0].nane; did you mean name?");
}
