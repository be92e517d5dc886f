//! Tests of `hactl apply`: created, changed, unchanged, refused and pruned objects.

use super::hactl::{file, hactl, hactl_with_input, resource};
use super::server::Server;
use serde_json::json;
use snapbox::str;

#[test]
fn apply_reports_created_unchanged_and_configured() {
    let server = Server::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = file(directory.path(), "web.yaml", &resource("web"));
    hactl(&server, &["apply", "-f", &path]).expect_stdout(0, "resource/web created\n");
    let writes = server.writes().len();
    hactl(&server, &["apply", "-f", &path]).expect_stdout(0, "resource/web unchanged\n");
    assert_eq!(server.writes().len(), writes, "an unchanged object is not even sent");
    file(directory.path(), "web.yaml", &format!("{}  comment: more\n", resource("web")));
    hactl(&server, &["apply", "-f", &path]).expect_stdout(0, "resource/web configured\n");
    assert_eq!(server.object("resources", "web").expect("stored")["spec"]["comment"], "more");
    file(directory.path(), "web.yaml", &resource("web"));
    hactl(&server, &["apply", "-f", &path]).expect_stdout(0, "resource/web configured\n");
    let stored = server.object("resources", "web").expect("stored");
    assert!(stored["spec"].get("comment").is_none(), "a field of an earlier apply is removed");
}

#[test]
fn apply_keeps_fields_of_other_writers() {
    let server = Server::start();
    let input = resource("web");
    hactl_with_input(&server, &["apply", "-f", "-"], &input).expect_stdout(0, "resource/web created\n");
    hactl(&server, &["set", "web", "comment=by hand"]).expect_stdout(0, "resource/web configured\n");
    let changed = format!("{input}  maxRestart: 3\n");
    hactl_with_input(&server, &["apply", "-f", "-"], &changed).expect_stdout(0, "resource/web configured\n");
    let stored = server.object("resources", "web").expect("stored");
    assert_eq!((&stored["spec"]["comment"], &stored["spec"]["maxRestart"]), (&json!("by hand"), &json!(3)));
}

#[test]
fn misspelled_field_is_reported_before_sending() {
    let server = Server::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    file(directory.path(), "a.yaml", &resource("good"));
    let path = file(directory.path(), "b.yaml", &format!("{}  maxRestrat: 3\n", resource("web")));
    let directory = directory.path().display().to_string();
    let result = hactl(&server, &["apply", "-f", &directory])
        .expect_stderr(2, &format!("{path}:9: spec.maxRestrat: unknown field, did you mean \"maxRestart\"?"));
    assert!(result.stderr.contains("maxRestart"), "{}", result.stderr);
    assert!(result.stderr.contains("nothing was changed"), "{}", result.stderr);
    assert!(server.requests().is_empty(), "{:?}", server.requests());
}

#[test]
fn directories_streams_and_lists_are_applied_in_dependency_order() {
    let server = Server::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir(directory.path().join("below")).expect("a temporary directory");
    let group = "apiVersion: hactl.io/v1\nkind: Group\nmetadata: {name: g}\nspec: {nodes: [node1]}\n";
    file(directory.path(), "1.yaml", &format!("{}---\n{group}", resource("web")));
    file(directory.path(), "notes.txt", "not ours");
    file(
        &directory.path().join("below"),
        "2.json",
        r#"{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "hactl.io/v1", "kind": "Group", "metadata": {"name": "h"}, "spec": {"nodes": {"n": 1}}}]}"#,
    );
    let path = directory.path().display().to_string();
    hactl(&server, &["apply", "-f", &path]).expect_stdout(
        0,
        str![[r"
group/g created
resource/web created

"]],
    );
    hactl(&server, &["apply", "-R", "-f", &path]).expect_stdout(
        0,
        str![[r"
group/g unchanged
group/h created
resource/web unchanged

"]],
    );
    let twice = format!("{}---\n{}", resource("web"), resource("web"));
    hactl_with_input(&server, &["apply", "-f", "-"], &twice)
        .expect_stderr(2, "<stdin>:10: resource/web is already defined at <stdin>:1");
    hactl(&server, &["apply", "-f", "/nonexistent.yaml"])
        .expect_stderr(2, "cannot read /nonexistent.yaml: No such file or directory\n");
    hactl(&server, &["apply"]).expect_stderr(2, "no objects specified");
}

#[test]
fn apply_dry_run_writes_nothing() {
    let server = Server::start();
    let input = resource("web");
    hactl_with_input(&server, &["apply", "--dry-run", "-f", "-"], &input)
        .expect_stdout(0, "resource/web created (server dry run)\n");
    hactl_with_input(&server, &["apply", "--dry-run=client", "-f", "-"], &input)
        .expect_stdout(0, "resource/web created (dry run)\n");
    hactl_with_input(&server, &["apply", "--dry-run=maybe", "-f", "-"], &input)
        .expect_stderr(2, "[possible values: none, server, client]");
    assert!(server.objects("resources").is_empty());
    assert_eq!(server.writes(), ["POST /apis/hactl.io/v1/resources"], "only the server's dry run was sent");
    hactl_with_input(&server, &["apply", "--dry-run=none", "-f", "-"], &input)
        .expect_stdout(0, "resource/web created\n");
    let writes = server.writes().len();
    for (mode, suffix) in [("--dry-run", "server dry run"), ("--dry-run=client", "dry run")] {
        hactl(&server, &["set", "web", "maxRestart=3", mode])
            .expect_stdout(0, format!("resource/web configured ({suffix})\n"));
        hactl(&server, &["delete", "resource", "web", mode])
            .expect_stdout(0, format!("resource/web deleted ({suffix})\n"));
        hactl(&server, &["create", "group", "g", "--nodes", "node1", mode])
            .expect_stdout(0, format!("group/g created ({suffix})\n"));
    }
    assert_eq!(server.writes().len(), writes + 3, "only the dry runs of the server were sent");
    assert!(server.object("groups", "g").is_none());
    let stored = server.object("resources", "web").expect("the resource is still stored");
    assert_eq!(stored["spec"].get("maxRestart"), None);
}

#[test]
fn apply_prunes_only_objects_of_its_inventory() {
    let server = Server::start();
    server.put(
        "resources",
        json!({"metadata": {"name": "other", "labels": {"hactl.io/inventory": "theirs"}}, "spec": {}}),
    );
    server.put("resources", json!({"metadata": {"name": "free"}, "spec": {}}));
    let apply = |input: &str, options: &[&str]| {
        hactl_with_input(
            &server,
            &[&["apply", "-f", "-", "--prune", "--inventory", "git"], options].concat(),
            input,
        )
    };
    let both_resources = format!("{}---\n{}", resource("a"), resource("b"));
    apply(&both_resources, &[]).expect_stdout(
        0,
        str![[r"
resource/a created
resource/b created

"]],
    );
    apply(&resource("a"), &["--dry-run"]).expect_stdout(
        0,
        str![[r"
resource/a unchanged (server dry run)
resource/b pruned (server dry run)

"]],
    );
    assert!(server.object("resources", "b").is_some());
    apply(&resource("a"), &[]).expect_stdout(
        0,
        str![[r"
resource/a unchanged
resource/b pruned

"]],
    );
    let names: Vec<_> =
        server.objects("resources").iter().map(|object| object["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["a", "free", "other"]);
    apply(&resource("other"), &[]).expect_stderr(1, "resource/other belongs to inventory theirs");
    apply("", &[]).expect_stderr(2, "no object");
    apply("", &["--allow-empty"]).expect_stdout(0, "resource/a pruned\n");
}

#[test]
fn diff_exit_status_reports_differences_and_effects() {
    let server = Server::start_with(
        |request| {
            (request.path == "/apis/hactl.io/v1/plan").then(|| {
                assert_eq!(request.body["objects"][0]["spec"]["maxRestart"], 3);
                let effect = json!({"resource": "web", "effect": "Migrate", "from": "node1", "to": "node2"});
                super::server::ScriptedResponse::Answer(
                    200,
                    json!({"effects": [effect], "warnings": ["g has no node"]}),
                )
            })
        },
        |_, _| false,
    );
    let input = resource("web");
    hactl_with_input(&server, &["apply", "-f", "-"], &input);
    hactl_with_input(&server, &["diff", "-f", "-"], &input).expect_stdout(0, "");
    let changed = format!("{input}  maxRestart: 3\n");
    let result = hactl_with_input(&server, &["diff", "-f", "-"], &changed).expect_stdout_parts(
        1,
        &[
            "--- live/resource/web\n+++ files/resource/web\n@@",
            "\n+  maxRestart: 3\n",
            "  web would live-migrate node1 → node2\n",
            "g has no node",
        ],
    );
    assert!(!result.stdout.contains("last-applied"), "{}", result.stdout);
    assert_eq!(server.object("resources", "web").expect("stored")["spec"].get("maxRestart"), None);
    hactl_with_input(&server, &["diff", "-f", "-"], "nonsense: [").expect_stderr(2, "<stdin>:");
}

#[test]
fn diff_lists_changes_for_programs() {
    let server = Server::start_with(
        |request| {
            (request.path == "/apis/hactl.io/v1/plan").then(|| {
                assert_eq!(request.body["deletions"], json!([{"kind": "Resource", "name": "old"}]));
                let effect = json!({"resource": "web", "effect": "Migrate", "from": "node1", "to": "node2"});
                super::server::ScriptedResponse::Answer(200, json!({"effects": [effect]}))
            })
        },
        |_, _| false,
    );
    let apply = ["apply", "-f", "-", "--inventory", "git"];
    let diff = |input: &str, options: &[&str]| {
        let arguments = [&["diff", "-f", "-", "--inventory", "git", "-o", "json"], options].concat();
        hactl_with_input(&server, &arguments, input)
    };
    let both = format!("{}---\n{}", resource("web"), resource("old"));
    hactl_with_input(&server, &apply, &both);
    diff(&both, &["--prune"]).expect_stdout(0, "{\n  \"changes\": []\n}\n");
    let changed = format!("{}  maxRestart: 3\n---\n{}", resource("web"), resource("new"));
    let result = diff(&changed, &["--prune"]).expect_stdout_parts(1, &[]);
    let report: serde_json::Value = serde_json::from_str(&result.stdout).expect("JSON");
    let changes: Vec<_> = report["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|change| (change["change"].as_str(), change["name"].as_str()))
        .collect();
    assert_eq!(
        changes,
        [(Some("Update"), Some("web")), (Some("Create"), Some("new")), (Some("Delete"), Some("old"))]
    );
    assert_eq!(report["changes"][0]["fields"], json!([{"path": "spec.maxRestart", "after": 3}]));
    assert_eq!(report["effects"][0]["message"], "web would live-migrate node1 → node2");
    let result = diff(&changed, &["--prune", "--no-effect"]).expect_stdout_parts(1, &["maxRestart"]);
    assert!(!result.stdout.contains("effects"), "{}", result.stdout);
    let text = hactl_with_input(
        &server,
        &["diff", "-f", "-", "--inventory", "git", "--prune", "--no-effect"],
        &changed,
    );
    text.expect_stdout_parts(1, &["--- live/resource/old (pruned)\n+++ files/resource/old (pruned)\n"]);
}

#[test]
fn diff_prints_equal_warnings_once() {
    let plan = |warning: &'static str| {
        Server::start_with(
            move |request| match request.path.rsplit('/').next() {
                Some("plan") => Some(super::server::ScriptedResponse::Answer(
                    200,
                    json!({"warnings": [format!("{warning}: a, b")]}),
                )),
                Some(_) if request.method == "POST" => Some(super::server::ScriptedResponse::Warned(vec![
                    "the check would fail: a",
                    "spec.group: group g does not exist yet",
                ])),
                Some(_) | None => None,
            },
            |_, _| false,
        )
    };
    let check = |message: &'static str, arguments: &[&str], expected: &[&str]| {
        let server = plan(message);
        let result = hactl_with_input(&server, &[&["diff", "-f", "-"], arguments].concat(), &resource("web"));
        let result = result.expect_stdout_parts(1, &["resource/web (new)"]);
        let warnings: Vec<String> = result
            .stderr
            .lines()
            .chain(result.stdout.lines())
            .filter_map(|line| line.trim().strip_prefix("warning: ").map(str::to_owned))
            .collect();
        assert_eq!(warnings, expected, "{} {}", result.stderr, result.stdout);
    };
    let group = "spec.group: group g does not exist yet";
    check("the check would fail", &[], &[group, "the check would fail: a, b"]);
    check("something else", &[], &["the check would fail: a", group, "something else: a, b"]);
    check("the check would fail", &["--no-effect"], &["the check would fail: a", group]);
}

#[test]
fn apply_waits_until_everything_is_ready() {
    let server = Server::start_with(
        |_| None,
        |plural, object| {
            let ready =
                json!([{"type": "Ready", "status": "True", "reason": "Running", "observedGeneration": 1}]);
            object["status"] = json!({"state": "Started", "node": "node1", "conditions": ready});
            plural == "resources"
        },
    );
    hactl_with_input(&server, &["apply", "--wait", "-f", "-"], &resource("web"))
        .expect_stdout(0, "resource/web created\n");
    server.put("resources", json!({"kind": "Resource", "metadata": {"name": "slow"}, "spec": {}, "status": {"state": "Queued",
        "conditions": [{"type": "Ready", "status": "False", "reason": "NotProbed", "message": "node2 has not answered"}]}}));
    hactl(&server, &["wait", "resource/slow", "--for=condition=Ready", "--timeout=200ms"])
        .expect_stderr(124, "resource/slow: condition=Ready not met; now NotProbed: node2 has not answered");
}

#[test]
fn every_example_is_applied_without_warnings() {
    let server = Server::start();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/examples");
    let result = hactl(&server, &["apply", "-R", "-f", examples]);
    assert_eq!((result.status, result.stderr.as_str()), (0, ""), "{}", result.stdout);
    for name in
        ["builder", "cache", "ticker", "clock", "current", "database", "machine", "sessions", "web", "wiki"]
    {
        assert!(
            result.stdout.contains(&format!("resource/{name} created")),
            "{name} is not in\n{}",
            result.stdout
        );
    }
}
