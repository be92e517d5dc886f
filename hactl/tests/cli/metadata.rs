//! Tests of commands that change labels, annotations and single fields.

use super::hactl::{file, hactl, hactl_with_input};
use super::server::{ScriptedResponse, Server};
use serde_json::{Value, json};
use snapbox::str;

fn server() -> Server {
    let server = Server::start();
    put_resources(&server);
    server
}

fn put_resources(server: &Server) {
    for (name, tier) in [("db", "back"), ("web", "front")] {
        server.put(
            "resources",
            json!({"apiVersion": "hactl.io/v1", "kind": "Resource",
                "metadata": {"name": name, "labels": {"tier": tier}},
                "spec": {"driver": {"exec": {"command": ["sleep", "1"]}}, "maxRestart": 1}}),
        );
    }
}

fn labels(server: &Server, name: &str) -> Value {
    server.object("resources", name).expect("stored")["metadata"]["labels"].clone()
}

#[test]
fn labels_are_set_and_removed() {
    let server = server();
    hactl(&server, &["label", "resource", "web", "app=shop", "example.com/owner=a"])
        .expect_stdout(0, "resource/web labeled\n");
    assert_eq!(labels(&server, "web"), json!({"tier": "front", "app": "shop", "example.com/owner": "a"}));
    hactl(&server, &["label", "exec:web", "app-"]).expect_stderr(2, "is not a valid kind");
    hactl(&server, &["label", "resource/exec:web", "app-", "example.com/owner-"])
        .expect_stdout(0, "resource/web unlabeled\n");
    assert_eq!(labels(&server, "web"), json!({"tier": "front"}));
    let writes = server.writes().len();
    hactl(&server, &["label", "resource", "web", "tier=front", "gone-"])
        .expect_stdout(0, "resource/web unchanged\n")
        .expect_stderr(0, "warning: resource/web has no label gone");
    assert_eq!(server.writes().len(), writes);
}

#[test]
fn existing_label_is_replaced_only_with_overwrite() {
    let server = server();
    hactl(&server, &["label", "resources", "web", "db", "app=shop", "tier=back"])
        .expect_stderr(1, "resource/web: label tier already has the value \"front\"\nhint: nothing was changed; add --overwrite");
    assert_eq!(server.writes(), [""; 0]);
    let arguments = ["label", "resources", "web", "db", "tier=back", "--overwrite"];
    hactl(&server, &[&arguments[..], &["--dry-run"]].concat()).expect_stdout(
        0,
        str![[r"
resource/web labeled (server dry run)
resource/db unchanged (server dry run)

"]],
    );
    assert_eq!(labels(&server, "web"), json!({"tier": "front"}));
    hactl(&server, &arguments).expect_stdout(
        0,
        str![[r"
resource/web labeled
resource/db unchanged

"]],
    );
    assert_eq!(labels(&server, "web"), json!({"tier": "back"}));
}

#[test]
fn label_selector_and_all_select_objects() {
    let server = server();
    hactl(&server, &["label", "resources", "-l", "tier=front", "app=shop", "-o", "name"])
        .expect_stdout(0, "resource/web\n");
    hactl(&server, &["annotate", "har", "--all", "note=a b"]).expect_stdout(
        0,
        str![[r"
resource/db annotated
resource/web annotated

"]],
    );
    let web = server.object("resources", "web").expect("stored");
    assert_eq!(web["metadata"]["annotations"], json!({"note": "a b"}));
    hactl(&server, &["label", "resources", "-l", "tier=none", "app=shop"])
        .expect_stdout(0, "")
        .expect_stderr(0, "No resources found");
}

#[test]
fn invalid_label_changes_nothing() {
    let server = server();
    let check = |arguments: &[&str], status: i32, part: &str| {
        hactl(&server, &[&["label"], arguments].concat()).expect_stderr(status, part);
        assert_eq!(server.writes(), [""; 0], "{arguments:?}");
    };
    check(&["resource", "web", "tier=a b"], 2, "metadata.labels.tier: \"a b\" is not a valid label value");
    check(&["resource", "web", "a/b/c=x"], 2, "is not a valid key");
    check(&["resource", "web"], 2, "no label specified");
    check(&["resource", "web", "a=b", "a-"], 2, "label a is specified twice");
    check(&["resource", "a=b"], 2, "no names specified");
    check(&["a=b"], 2, "no kind specified");
    check(&["resource", "web", "a=b", "--all"], 2, "names cannot be combined");
    check(&["resources", "a=b", "--all", "-l", "tier=front"], 2, "cannot be used with");
    check(&["resource", "wep", "a=b"], 1, "did you mean web?");
    check(&["pod", "web", "a=b"], 2, "is not a valid kind");
    hactl(&server, &["annotate", "resource", "web", "a b=x"]).expect_stderr(2, "is not a valid key");
}

#[test]
fn a_merge_patch_changes_fields() {
    let server = server();
    let patch = "{\"spec\":{\"maxRestart\":3,\"comment\":\"x\"}}";
    hactl(&server, &["patch", "resource", "web", "-p", patch, "--dry-run"])
        .expect_stdout(0, "resource/web patched (server dry run)\n");
    assert_eq!(server.object("resources", "web").expect("stored")["spec"]["maxRestart"], 1);
    hactl(&server, &["patch", "resource", "exec:web", "-p", patch])
        .expect_stdout(0, "resource/web patched\n");
    hactl(&server, &["patch", "resource/web", "-p", patch]).expect_stdout(0, "resource/web unchanged\n");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = file(directory.path(), "patch.yaml", "spec:\n  comment: null\n");
    hactl(&server, &["patch", "resource", "web", "--patch-file", &path, "-o", "name"])
        .expect_stdout(0, "resource/web\n");
    let stored = server.object("resources", "web").expect("stored");
    assert_eq!((&stored["spec"]["maxRestart"], stored["spec"].get("comment")), (&json!(3), None));
    let printed = hactl_with_input(
        &server,
        &["patch", "resource", "web", "--patch-file", "-", "-o", "json"],
        "spec: {maxRestart: 4}",
    );
    assert_eq!(serde_json::from_str::<Value>(&printed.stdout).expect("JSON")["spec"]["maxRestart"], 4);
    let types: Vec<String> = server
        .requests()
        .into_iter()
        .filter(|request| request.method == "PATCH")
        .map(|request| request.content_type)
        .collect();
    assert!(types.iter().all(|content_type| content_type == "application/merge-patch+json"), "{types:?}");
}

#[test]
fn json_patch_is_sent_unchanged() {
    let server = Server::start_with(
        |request| {
            (request.content_type == "application/json-patch+json").then(|| match &request.body[0]["op"] {
                op if op == "remove" => ScriptedResponse::Answer(200, json!({"metadata": {"name": "web"}})),
                _ => ScriptedResponse::Answer(
                    422,
                    json!({"reason": "Invalid", "message": "operation 0 of the JSON patch cannot be applied"}),
                ),
            })
        },
        |_, _| false,
    );
    put_resources(&server);
    let patch = |text: &str| hactl(&server, &["patch", "resource", "web", "--type", "json", "-p", text]);
    patch("[{\"op\":\"remove\",\"path\":\"/spec/maxRestart\"}]").expect_stdout(0, "resource/web patched\n");
    patch("[{\"op\":\"test\",\"path\":\"/x\",\"value\":1}]")
        .expect_stderr(2, "operation 0 of the JSON patch");
    let sent = server.requests().into_iter().find(|request| request.method == "PATCH").expect("sent");
    assert_eq!(sent.body, json!([{"op": "remove", "path": "/spec/maxRestart"}]));
}

#[test]
fn invalid_patch_is_not_sent() {
    let server = server();
    let check = |arguments: &[&str], status: i32, part: &str| {
        hactl(&server, &[&["patch"], arguments].concat()).expect_stderr(status, part);
        assert_eq!(server.writes(), [""; 0], "{arguments:?}");
    };
    check(&["resource", "web", "--type", "strategic", "-p", "{}"], 2, "[possible values: merge, json]");
    check(&["resource", "web"], 2, "--patch <PATCH>");
    check(&["resource", "web", "-p", "[1]"], 2, "--patch: a merge patch must be a map");
    check(&["resource", "web", "--type", "json", "-p", "{}"], 2, "a JSON patch must be a list of operations");
    check(&["resource", "web", "-p", "{\"spec\": "], 2, "--patch: line 1");
    check(&["resource", "web", "--patch-file", "/nonexistent"], 2, "cannot read /nonexistent: No such file");
    check(&["resource", "web", "db", "-p", "{}"], 2, "a patch requires exactly one object");
    check(&["resources", "-p", "{}"], 2, "a patch requires exactly one object");
    check(&["resource", "wep", "-p", "{}"], 1, "did you mean web?");
    let arguments = ["resource", "web", "--type", "json", "-p", "[]", "--dry-run=client"];
    check(&arguments, 2, "a JSON patch is applied only by the server");
    hactl(&server, &["patch", "resource", "web", "-p", "{\"spec\":{\"maxRestart\":3}}", "--dry-run=client"])
        .expect_stdout(0, "resource/web patched (dry run)\n");
    hactl(&server, &["label", "resource", "web", "app=shop", "--dry-run=client"])
        .expect_stdout(0, "resource/web labeled (dry run)\n");
    assert_eq!(server.writes(), [""; 0]);
}
