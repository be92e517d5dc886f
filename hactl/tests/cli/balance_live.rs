//! Tests of `hactl balance` on a live cluster, whose leader moves services as operations request.

use super::hactl::{CommandResult, command, hactl, run, start};
use super::server::{Request, ScriptedResponse, Server};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard};

/// Response of the API path `placement`, shared by a test and its server.
#[derive(Clone)]
pub(super) struct PlacementFacts(Arc<Mutex<Value>>);

impl PlacementFacts {
    /// Returns the facts of three nodes with 4 cores each, and all services on the first node.
    pub(super) fn all_on_first_node(services: &[&str]) -> PlacementFacts {
        let node = json!({"unschedulable": false, "capacity": {"cpu": "4", "memory": "16Gi"}});
        let facts = json!({
            "nodes": {"node1": node, "node2": node, "node3": node},
            "services": services.iter().map(|name| ((*name).to_owned(), service("node1"))).collect::<serde_json::Map<_, _>>(),
        });
        PlacementFacts(Arc::new(Mutex::new(facts)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Value> {
        self.0.lock().expect("the facts")
    }

    pub(super) fn set_node(&self, service: &str, node: &str) {
        let mut facts = self.lock();
        facts["services"][service]["node"] = json!(node);
        facts["services"][service]["uses"] = json!([node]);
    }

    pub(super) fn node_of(&self, service: &str) -> String {
        self.lock()["services"][service]["node"].as_str().expect("a node").to_owned()
    }
}

fn service(node: &str) -> Value {
    json!({"node": node, "uses": [node], "driver": "exec", "requests": {"cpu": "500m", "memory": "1Gi"},
        "movesLive": false, "wanted": true, "movable": true})
}

/// Starts a server whose leader answers each operation with the phase and message from `respond`.
pub(super) fn answering_server(
    facts: &PlacementFacts,
    respond: impl Fn(&PlacementFacts, &str, &str) -> (&'static str, &'static str) + Send + Sync + 'static,
) -> Server {
    let (placement_facts, moved_facts) = (facts.clone(), facts.clone());
    Server::start_with(
        move |request: &Request| match request.path.strip_prefix("/apis/hactl.io/v1/")? {
            "placement" => Some(ScriptedResponse::Answer(200, placement_facts.lock().clone())),
            "usage" => Some(ScriptedResponse::Answer(200, json!({}))),
            _ => None,
        },
        move |plural, operation| {
            let text = |field: &str| operation["spec"][field].as_str().unwrap_or_default().to_owned();
            if plural == "operations" && operation["status"].is_null() {
                let (phase, message) = respond(&moved_facts, &text("resource"), &text("node"));
                operation["status"] = json!({"phase": phase, "message": message});
                return true;
            }
            false
        },
    )
}

/// Starts a server whose leader executes every operation.
pub(super) fn executing_server(facts: &PlacementFacts) -> Server {
    answering_server(facts, |facts, service, node| {
        facts.set_node(service, node);
        ("Succeeded", "")
    })
}

fn services_per_node(facts: &PlacementFacts) -> Vec<usize> {
    let facts = facts.lock();
    let services = facts["services"].as_object().expect("services");
    let count_on = |node: &str| services.values().filter(|service| service["node"] == node).count();
    ["node1", "node2", "node3"].map(count_on).to_vec()
}

#[test]
fn live_balance_plan_lists_commands_without_changes() {
    let facts = PlacementFacts::all_on_first_node(&["a", "b", "c"]);
    facts.lock()["services"]["a"]["movesLive"] = json!(true);
    let server = executing_server(&facts);
    let shown = hactl(&server, &["balance", "-C"]).expect_stdout_parts(
        0,
        &[
            "Group default: 3 nodes, 3 instances\n",
            "2 moves in 2 job sets: 0 disk copies (0 MiB), 2 migrations",
            "echo jobset 2, 1 jobs",
        ],
    );
    assert!(!shown.stdout.contains("gnt-instance"), "{}", shown.stdout);
    for line in shown.stdout.lines().filter(|line| line.contains("hactl ")) {
        let verb = if line.contains(" a ") { "hactl migrate a node" } else { "hactl relocate " };
        assert!(line.contains(verb), "{line}");
    }
    assert_eq!(server.writes(), Vec::<String>::new());
    // Options have the same meaning as for files; a service may be named with its type.
    let selected = hactl(&server, &["balance", "--select-instances", "exec:b", "-o", "json"])
        .expect_stdout_parts(0, &[]);
    let plan: Value = serde_json::from_str(&selected.stdout).expect("JSON");
    assert_eq!((&plan["moves"][0]["instance"], &plan["moves"][1]), (&json!("b"), &Value::Null));
    hactl(&server, &["balance", "--exclude-instances", "x"]).expect_stderr(2, "instance \"x\" not found");
    hactl(&server, &["balance", "-l1"])
        .expect_stdout_parts(0, &["1 move in 1 job set: 0 disk copies (0 MiB), 1 migration"]);
    hactl(&server, &["balance", "-G", "elsewhere"]).expect_stderr(2, "-G: group \"elsewhere\" not found");
    hactl(&server, &["balance", "-X", "-t", "file"]).expect_stderr(2, "cannot be used with");
}

#[test]
fn saved_cluster_yields_the_same_plan() {
    let facts = PlacementFacts::all_on_first_node(&["a", "b", "c"]);
    let server = executing_server(&facts);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |suffix: &str| format!("{}{suffix}", directory.path().join("saved").display());
    let live = hactl(&server, &["balance", "-S", &path("")]).expect_stdout_parts(0, &["Score before: "]);
    let from_file = run(&mut command(&["balance", "-t", &path(".original"), "-U", &path(".usage")]));
    assert_eq!(
        from_file.stdout.replace(", 2 of them by relocation", ""),
        live.stdout.replace(", 2 of them by relocation", "")
    );
    run(&mut command(&["balance", "-t", &path(".balanced")]))
        .expect_stdout_parts(0, &["\nNothing to move.\n"]);
}

#[test]
fn balance_apply_executes_job_sets_in_order() {
    let facts = PlacementFacts::all_on_first_node(&["a", "b", "c", "d", "e", "f"]);
    let server = executing_server(&facts);
    let result = hactl(&server, &["balance", "--apply", "-o", "json"])
        .expect_stdout_parts(0, &["\"phase\": \"Succeeded\""]);
    assert_eq!(services_per_node(&facts), [2, 2, 2]);
    let result_value: Value = serde_json::from_str(&result.stdout).expect("JSON");
    let jobs = result_value["applied"].as_array().expect("a list");
    assert_eq!((jobs.len(), &jobs[3]["jobSet"]), (4, &json!(4)), "{result_value:#}");
    assert!(result.stderr.contains("job set 4 of 4: "), "{}", result.stderr);
    assert!(server.objects("operations").iter().all(|operation| operation["spec"]["action"] == "Relocate"));
    hactl(&server, &["balance", "--apply"]).expect_stdout_parts(0, &["\nNothing to move.\n"]);
    assert_eq!(server.objects("operations").len(), 4);
}

/// Returns a resource in the format of the API.
fn resource(name: &str, state: &str, node: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {}, "status": {"state": state, "node": node}})
}

/// Starts a server with two services that must stay together, and a third service. An operation moves only the service that it
/// names.
fn start_affinity_pair() -> (PlacementFacts, Server) {
    let facts = PlacementFacts::all_on_first_node(&["a", "b", "c"]);
    facts.lock()["rules"] = json!({"together": [{"name": "pair", "resources": ["a", "b"], "strict": true}]});
    let server = answering_server(&facts, |facts, service, node| {
        facts.set_node(service, node);
        ("Succeeded", "")
    });
    server.put("resources", resource("b", "Relocate", "node1"));
    (facts, server)
}

#[test]
fn services_with_affinity_move_by_one_operation() {
    let (facts, server) = start_affinity_pair();
    hactl(&server, &["balance", "--apply", "--select-instances", "a"])
        .expect_stdout_parts(0, &["\nNothing to move.\n"]);
    let select_both =
        ["--server", server.url(), "balance", "--apply", "--select-instances", "a,b", "-o", "json"];
    let child = start(&mut command(&select_both));
    server.wait_for(|request| request.path.ends_with("/resources") && request.query.contains("watch=true"));
    // The partner arrives later, and the command must wait for it.
    let target = facts.node_of("a");
    facts.set_node("b", &target);
    server.put("resources", resource("b", "Started", &target));
    let output = child.wait_with_output().expect("hactl exits");
    let stdout = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(output.status.code(), Some(0), "{stdout}");
    assert!(stdout.contains("\"with\": [") && stdout.contains("\"a+b\""), "{stdout}");
    assert_ne!(target, "node1");
    assert_eq!(server.objects("operations").len(), 1);
}

#[test]
fn unmoved_affinity_partner_ends_balance_apply() {
    let (_, server) = start_affinity_pair();
    let select_both = ["--server", server.url(), "balance", "--apply", "--select-instances", "a,b"];
    let child = start(&mut command(&select_both));
    server.wait_for(|request| request.path.ends_with("/resources") && request.query.contains("watch=true"));
    server.put("resources", resource("b", "Started", "node1"));
    let output = child.wait_with_output().expect("hactl exits");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("b was not moved to node") && stderr.contains("hactl why b"), "{stderr}");
}

/// Asserts that no operation follows the first job set.
#[track_caller]
fn assert_ends_after_first_job_set(result: CommandResult, server: &Server, parts: &[&str]) {
    assert_eq!(server.objects("operations").len(), 1);
    let result = result.expect_stderr(1, "1 left");
    for part in parts {
        assert!(result.stderr.contains(part), "{part} in\n{}", result.stderr);
    }
}

#[test]
fn failed_job_ends_balance_apply_with_reason() {
    let facts = PlacementFacts::all_on_first_node(&["a", "b", "c"]);
    let server = answering_server(&facts, |_, _, _| ("Failed", "its data is not there"));
    let result = hactl(&server, &["balance", "-X"]);
    assert_eq!(server.objects("operations").len(), 1);
    result.expect_stderr(1, ": failed: its data is not there\n  0 of 2 moves done, 2 left");
}

#[test]
fn cluster_change_ends_balance_apply() {
    let check = |change: fn(&PlacementFacts, &str), expected: &[&str]| {
        let facts = PlacementFacts::all_on_first_node(&["a", "b", "c"]);
        let server = answering_server(&facts, move |facts, service, node| {
            facts.set_node(service, node);
            change(facts, node);
            ("Succeeded", "")
        });
        let result = hactl(&server, &["balance", "-X"]);
        assert_ends_after_first_job_set(result, &server, expected);
    };
    check(
        |facts, _| facts.lock()["nodes"]["node2"]["notOnline"] = json!("HeartbeatMissed"),
        &["changed since the plan: node node2 is not online, was online"],
    );
    check(
        |facts, _| facts.lock()["nodes"]["node3"]["maintenance"] = json!(true),
        &["node node3 is in maintenance or not schedulable, was online"],
    );
    check(
        |facts, node| {
            for name in ["a", "b", "c"] {
                facts.set_node(name, node);
            }
        },
        &[" is on node", ", not on node1"],
    );
    check(
        |facts, _| {
            for name in ["a", "b", "c"] {
                facts.lock()["services"][name]["movable"] = json!(false);
            }
        },
        &[" now: service does not run, or an action is in progress"],
    );
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
}

/// Starts `hactl balance --apply` and waits until its first operation is in progress. Returns the process and its
/// standard error.
fn start_with_running_operation(server: &Server) -> (Child, BufReader<std::process::ChildStderr>) {
    start_until_operation(server, &mut command(&["--server", server.url(), "balance", "--apply"]))
}

fn start_until_operation(
    server: &Server,
    balance: &mut Command,
) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut child = start(balance.stdin(std::process::Stdio::null()));
    let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    server.wait_for(|request| request.path.ends_with("/operations") && request.query.contains("watch=true"));
    (child, stderr)
}

#[test]
fn sigint_ends_balance_after_current_job_set() {
    let facts = PlacementFacts::all_on_first_node(&["a", "b", "c"]);
    let server = answering_server(&facts, |_, _, _| ("Running", ""));
    let (mut child, mut stderr) = start_with_running_operation(&server);
    signal(&child, "-INT");
    let mut line = String::new();
    while !line.contains("interrupted") {
        line.clear();
        assert!(
            stderr.read_line(&mut line).expect("hactl writes to standard error") > 0,
            "hactl exited too early"
        );
    }
    assert_eq!(line, "interrupted: job set 1 of 2 is the last job set\n");
    let mut operation = server.objects("operations").remove(0);
    let spec = operation["spec"].clone();
    let text = |field: &str| spec[field].as_str().expect("a text").to_owned();
    facts.set_node(&text("resource"), &text("node"));
    operation["status"]["phase"] = json!("Succeeded");
    server.put("operations", operation);
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).expect("UTF-8");
    assert_eq!(child.wait().expect("hactl exits").code(), Some(1));
    assert!(rest.contains("interrupted after job set 1 of 2\n  1 of 2 moves done, 1 left"), "{rest}");
    assert_eq!(server.objects("operations").len(), 1);
}

#[test]
fn sigterm_ends_balance_immediately() {
    let facts = PlacementFacts::all_on_first_node(&["a", "b", "c"]);
    let server = answering_server(&facts, |_, _, _| ("Running", ""));
    let (mut child, mut stderr) = start_with_running_operation(&server);
    signal(&child, "-TERM");
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).expect("UTF-8");
    assert_eq!(child.wait().expect("hactl exits").code(), Some(1));
    assert!(rest.contains("terminated during job set 1 of 2; its operations continue"), "{rest}");
}

#[test]
fn invoked_as_hbal_sigterm_ends_the_execution_with_status_2() {
    let facts = PlacementFacts::all_on_first_node(&["a", "b", "c"]);
    let server = answering_server(&facts, |_, _, _| ("Running", ""));
    let mut hbal = Command::new(env!("CARGO_BIN_EXE_hactl"));
    hbal.arg0("/usr/bin/hbal").args(["-L", "-X"]).env_clear().env("HACTL_SERVER", server.url());
    let (mut child, _stderr) = start_until_operation(&server, &mut hbal);
    signal(&child, "-TERM");
    let mut shown = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut shown).expect("UTF-8");
    assert_eq!(child.wait().expect("hactl exits").code(), Some(2), "{shown}");
    assert!(shown.ends_with("Double cancel request, exiting now...\n"), "{shown}");
}

#[test]
fn invoked_as_hbal_option_l_reads_live_cluster() {
    let facts = PlacementFacts::all_on_first_node(&["a", "b", "c"]);
    let server = executing_server(&facts);
    let hbal = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hactl"));
        command.arg0("/usr/bin/hbal").args(arguments).env_clear().env("HACTL_SERVER", server.url());
        run(&mut command)
    };
    hbal(&["-L/run/socket", "-C"]).expect_stdout_parts(
        0,
        &["Loaded 3 nodes, 3 instances\n", "Solution length=2\n", "    hactl relocate "],
    );
    hbal(&["-L", "-t", "file"])
        .expect_stderr(1, "Only one of the rapi, luxi, and data files options should be given.");
    hbal(&["-L", "-X"]).expect_stdout_parts(0, &["Solution length=2\n"]);
    assert_eq!(services_per_node(&facts), [1, 1, 1]);
}
