//! Tests of edits with a confirmation or a stop: `--in-place` and `--stop-first`.

use super::hactl::{CommandResult, file, hactl, resource};
use super::server::{Request, ScriptedResponse, Server};
use serde_json::{Value, json};

/// Returns a server with a running resource, whose leader answers operations with this phase and message.
fn server_answering_operations(phase: &'static str, message: &'static str) -> Server {
    let server = Server::start_with(
        |_| None,
        move |plural, object| {
            object["status"] = json!({"phase": phase, "reason": "Refused", "message": message});
            plural == "operations"
        },
    );
    server.put("resources", running("web"));
    server
}

fn running(name: &str) -> Value {
    json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": name},
        "spec": {"driver": {"exec": {"command": ["sleep", "1"]}}, "state": "Started"},
        "status": {"state": "Started", "node": "node1", "running": true, "copies": [{"node": "node1"}]}})
}

/// Runs `hactl apply -f FILE ARGUMENTS`.
fn apply(server: &Server, content: &str, arguments: &[&str]) -> CommandResult {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = file(directory.path(), "edit.yaml", content);
    hactl(server, &[&["apply", "-f", path.as_str()][..], arguments].concat())
}

fn edited() -> String {
    resource("web").replace("[sleep, '1']", "[sleep, '2']")
}

fn command_of(server: &Server) -> Value {
    server.object("resources", "web").expect("stored")["spec"]["driver"]["exec"]["command"].clone()
}

#[test]
fn in_place_edit_records_confirmed_generation() {
    let server = server_answering_operations("Succeeded", "Definition rewritten");
    apply(&server, &edited(), &["--in-place", "--yes"]).expect_stdout(0, "resource/web configured\n");
    assert_eq!(command_of(&server), json!(["sleep", "2"]));
    let generation = server.object("resources", "web").expect("stored")["metadata"]["generation"].clone();
    let confirm = json!({"action": "UpdateInPlace", "resource": "web", "generation": generation});
    let recorded: Vec<Value> =
        server.objects("operations").into_iter().map(|operation| operation["spec"].clone()).collect();
    assert_eq!(recorded, [confirm]);
    hactl(&server, &["set", "web", "timeouts.stopSeconds=90", "--in-place", "--yes"])
        .expect_stdout(0, "resource/web configured\n");
    assert_eq!(server.objects("operations").len(), 2);
}

#[test]
fn new_resource_needs_no_in_place_confirmation() {
    let server = server_answering_operations("Succeeded", "");
    let both_resources = format!("{}---\n{}", edited(), resource("new"));
    apply(&server, &both_resources, &["--in-place", "--yes"])
        .expect_stdout_parts(0, &["resource/new created"]);
    let about: Vec<Value> = server
        .objects("operations")
        .into_iter()
        .map(|operation| operation["spec"]["resource"].clone())
        .collect();
    assert_eq!(about, ["web"]);
}

#[test]
fn refused_in_place_edit_leaves_copy_unchanged() {
    for phase in ["Refused", "Failed"] {
        let server = server_answering_operations(phase, "definition runs another service");
        let result = apply(&server, &edited(), &["--in-place", "--yes"]).expect_stderr(
            1,
            &format!(
                "resource/web: in-place update {}: definition runs another service",
                phase.to_lowercase()
            ),
        );
        assert!(
            result.stderr.contains("the edit is stored, but not applied to the running copy"),
            "{}",
            result.stderr
        );
        assert_eq!(command_of(&server), json!(["sleep", "2"]));
    }
}

#[test]
fn in_place_edit_needs_confirmation_and_resource() {
    let server = server_answering_operations("Succeeded", "");
    let group = "apiVersion: hactl.io/v1\nkind: Group\nmetadata: {name: g}\nspec: {nodes: [node1]}\n";
    apply(&server, &edited(), &["--in-place"]).expect_stderr(2, "--yes");
    apply(&server, group, &["--in-place", "--yes"])
        .expect_stderr(2, "--in-place requires an edited resource");
    apply(&server, &edited(), &["--in-place", "--yes", "--dry-run"]).expect_stderr(2, "cannot be used with");
    apply(&server, &edited(), &["--in-place", "--yes", "--stop-first"])
        .expect_stderr(2, "cannot be used with");
    apply(&server, &edited(), &["--yes"]).expect_stderr(2, "--in-place");
    assert_eq!(server.writes(), Vec::<String>::new(), "nothing was changed");
}

#[test]
fn rejected_edit_is_not_confirmed() {
    let server = server_refusing_edits(
        "identity of the service cannot change while a copy may run: state Started on node1",
    );
    apply(&server, &edited(), &["--in-place", "--yes"])
        .expect_stderr(2, "cannot change while a copy may run");
    assert_eq!(server.objects("operations"), Vec::<Value>::new());
}

/// Returns a server that refuses edits of the driver until it was asked to stop the resource.
fn server_refusing_edits(message: &'static str) -> Server {
    let is_stopped = std::sync::atomic::AtomicBool::new(false);
    let script = move |request: &Request| {
        if request.method != "PATCH" {
            return None;
        }
        let state = request.body.pointer("/spec/state").and_then(Value::as_str);
        let is_edit = request.body.pointer("/spec/driver").is_some();
        if !is_edit {
            is_stopped
                .store(matches!(state, Some("Stopped" | "Disabled")), std::sync::atomic::Ordering::SeqCst);
            return None;
        }
        let refused = !is_stopped.load(std::sync::atomic::Ordering::SeqCst);
        refused.then(|| {
            ScriptedResponse::Answer(
                422,
                json!({"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid", "message": message}),
            )
        })
    };
    let react = |plural: &str, object: &mut Value| {
        let requested_state = object["spec"]["state"].as_str().unwrap_or("Started").to_owned();
        if plural != "resources" || requested_state == "Started" {
            return false;
        }
        object["status"]["state"] = json!(requested_state);
        // A copy on an unreachable node stays.
        if object["metadata"]["labels"]["copy"] != "stays" {
            object["status"]["copies"] = json!([]);
        }
        true
    };
    let server = Server::start_with(script, react);
    server.put("resources", running("web"));
    server
}

const STOP_REQUIRED_MESSAGE: &str =
    "spec.driver: identity of the service cannot change while a copy may run: state Started on node1";

/// Returns the requested states of all patches; `None` for a patch that does not change the state.
fn states(server: &Server) -> Vec<Option<String>> {
    let patches = server.requests().into_iter().filter(|request| request.method == "PATCH");
    patches
        .map(|patch| patch.body.pointer("/spec/state").and_then(Value::as_str).map(str::to_owned))
        .collect()
}

#[test]
fn edit_stops_and_restarts_the_resource() {
    for (arguments, wanted) in
        [(&["--stop-first"][..], "Started"), (&["--stop-first", "--stop-timeout=20s"][..], "Disabled")]
    {
        let server = server_refusing_edits(STOP_REQUIRED_MESSAGE);
        let mut stored = running("web");
        stored["spec"]["state"] = json!(wanted);
        server.put("resources", stored);
        apply(&server, &edited(), arguments).expect_stdout(0, "resource/web configured\n");
        let expected = [None, Some("Stopped".to_owned()), Some(wanted.to_owned())];
        assert_eq!(states(&server), expected);
        assert_eq!(command_of(&server), json!(["sleep", "2"]));
        assert_eq!(server.object("resources", "web").expect("stored")["spec"]["state"], wanted);
    }
}

#[test]
fn a_resource_in_error_is_disabled_before_the_edit() {
    let server = server_refusing_edits(STOP_REQUIRED_MESSAGE);
    let mut stored = running("web");
    stored["status"]["state"] = json!("Error");
    server.put("resources", stored);
    hactl(&server, &["set", "web", "driver.exec.command=[\"sleep\",\"2\"]", "--stop-first"])
        .expect_stdout(0, "resource/web configured\n");
    assert_eq!(states(&server), [None, Some("Disabled".to_owned()), Some("Started".to_owned())]);
}

#[test]
fn stop_timeout_before_edit_explains_undo() {
    let server = server_refusing_edits(STOP_REQUIRED_MESSAGE);
    let mut stored = running("web");
    stored["metadata"]["labels"] = json!({"copy": "stays"});
    server.put("resources", stored);
    let result = apply(&server, &edited(), &["--stop-first", "--stop-timeout=300ms"])
        .expect_stderr(124, "stopping resource/web before the edit");
    assert!(result.stderr.contains("run \"hactl set web state=Started\""), "{}", result.stderr);
    assert_eq!(command_of(&server), json!(["sleep", "1"]), "unchanged");
}

#[test]
fn resource_is_stopped_only_if_edit_needs_it() {
    let server = server_refusing_edits(STOP_REQUIRED_MESSAGE);
    apply(&server, &edited(), &[]).expect_stderr(2, "cannot change while a copy may run");
    assert_eq!(states(&server), [None]);
    let server = server_refusing_edits("spec.driver: resource db already manages unit a.service");
    apply(&server, &edited(), &["--stop-first"]).expect_stderr(2, "resource db already manages");
    assert_eq!(states(&server), [None], "a stop would not help");
    // For an edit that needs no stop, the service is not stopped.
    let server = server_answering_operations("Succeeded", "");
    apply(&server, &edited(), &["--stop-first"]).expect_stdout(0, "resource/web configured\n");
    assert_eq!(states(&server), [None]);
    apply(&server, &edited(), &["--stop-first", "--dry-run"]).expect_stderr(2, "cannot be used with");
    apply(&server, &edited(), &["--stop-timeout=5s"]).expect_stderr(2, "--stop-first");
}
