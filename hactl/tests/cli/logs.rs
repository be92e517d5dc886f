//! Tests of `hactl logs`.

use super::hactl::{command, hactl, run, start};
use super::server::{Request, ScriptedResponse, Server};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Starts a server with resource web, which answers requests for its log by their number.
fn server(answer: impl Fn(usize, &Request) -> ScriptedResponse + Send + Sync + 'static) -> Server {
    let requests = AtomicUsize::new(0);
    let server = Server::start_with(
        move |request| {
            let is_log = request.path == "/apis/hactl.io/v1/resources/web/log";
            is_log.then(|| answer(requests.fetch_add(1, Ordering::SeqCst), request))
        },
        |_, _| false,
    );
    let driver = json!({"exec": {"command": ["sleep"]}});
    server.put("resources", json!({"metadata": {"name": "web"}, "spec": {"driver": driver}}));
    server
}

#[test]
fn last_log_lines_are_printed_unchanged() {
    let text = "one\ntwo \u{1b}[31mred\nno end";
    let server =
        server(move |_, _| ScriptedResponse::Text(text.to_owned(), vec!["older lines were omitted"]));
    hactl(&server, &["logs", "web"]).expect_stdout(0, text).expect_stderr(0, "older lines were omitted");
    let last_query = |server: &Server| server.requests().last().expect("a request").query.clone();
    assert_eq!(last_query(&server), "tailLines=100");
    hactl(&server, &["logs", "exec:web", "--tail", "-1", "--since=1m30s", "--node", "node2"])
        .expect_stdout(0, text);
    assert_eq!(last_query(&server), "tailLines=10000&sinceSeconds=90&node=node2");
    hactl(&server, &["logs", "wep"]).expect_stderr(1, "did you mean web?");
    hactl(&server, &["logs", "web", "--tail", "0"])
        .expect_stderr(2, "must be -1 or a number from 1 to 10000");
    hactl(&server, &["logs", "web", "--since", "10"]).expect_stderr(2, "specify 10s for seconds");
    hactl(&server, &["logs", "web", "-o", "json"]).expect_stderr(2, "");
    run(&mut command(&["--server", "http://127.0.0.1:1", "logs", "node/node1"]))
        .expect_stderr(2, "is not a resource");
}

#[test]
fn log_refusals_are_shown_with_hint() {
    let refused = |code: u16, reason: &str, message: &str| {
        let body = json!({"kind": "Status", "code": code, "reason": reason, "message": message,
            "details": {"causes": [{"field": "status.node", "message": message}]}});
        server(move |_, _| ScriptedResponse::Answer(code, body.clone()))
    };
    let unassigned = refused(409, "Conflict", "resource web is not assigned to a node");
    hactl(&unassigned, &["logs", "web"]).expect_stderr(1, "hint: add --node NODE");
    let no_logs = refused(400, "BadRequest", "driver simulated does not provide logs");
    hactl(&no_logs, &["logs", "web"]).expect_stderr(2, "driver simulated does not provide logs");
    let timed_out = refused(504, "Timeout", "the agent of node node1 did not answer within 10 s");
    hactl(&timed_out, &["logs", "web"]).expect_stderr(3, "did not answer");
}

#[test]
fn log_following_survives_failures() {
    let server = server(|number, _| match number {
        0 => ScriptedResponse::Text("a\nb\nunfinished".to_owned(), Vec::new()),
        1 => ScriptedResponse::Answer(503, json!({"message": "not ready"})),
        2 => ScriptedResponse::Answer(409, json!({"message": "not assigned"})),
        _ => ScriptedResponse::Text("a\nb\nunfinished line\nc\n".to_owned(), Vec::new()),
    });
    let mut child = start(command(&["--server", server.url()]).args(["logs", "web", "-f"]));
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for expected in ["a", "b", "unfinished line", "c"] {
        assert_eq!(lines.next().expect("a line").expect("UTF-8"), expected);
    }
    let queries: Vec<String> = server.requests().into_iter().map(|request| request.query).collect();
    assert!(
        queries.last().is_some_and(|query| query.starts_with("tailLines=10000&sinceSeconds=")),
        "{queries:?}"
    );
    child.kill().expect("hactl runs");
    child.wait().expect("hactl exits");
}
