//! Tests of commands that show, change and delete objects.

use super::hactl::{command, hactl, run};
use super::server::Server;
use serde_json::{Value, json};
use snapbox::str;

fn web() -> Value {
    json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "web", "labels": {"tier": "front"}},
        "spec": {"driver": {"exec": {"command": ["sleep", "1"]}}, "group": "g"},
        "status": {"state": "Started", "node": "node1", "running": true, "observedGeneration": 1,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Running", "message": "runs as wanted"}]}})
}

fn vm() -> Value {
    json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "100"},
        "spec": {"driver": {"libvirt": {"domain": "x"}}, "state": "Stopped"}})
}

#[test]
fn lists_show_type_and_name() {
    let server = Server::start();
    server.put("resources", web());
    server.put("resources", vm());
    hactl(&server, &["get", "resources"]).expect_stdout(
        0,
        str![[r"
NAME      READY  STATE    DESIRED  NODE   REASON   AGE
vm:100    -      Queued   Stopped  -      -        <unknown>
exec:web  True   Started  Started  node1  Running  <unknown>

"]],
    );
    hactl(&server, &["get", "har", "-l", "tier=front", "-o", "name"]).expect_stdout(0, "resource/web\n");
    hactl(&server, &["get", "resource", "vm:100", "-o", "name"]).expect_stdout(0, "resource/100\n");
    hactl(&server, &["get", "resource", "ct:100"]).expect_stderr(1, "vm:100");
    hactl(&server, &["get", "resource", "wep"]).expect_stderr(1, "did you mean web?");
    hactl(&server, &["get", "har", "-o", "wide"]).expect_stdout_parts(0, &["MESSAGE", "runs as wanted"]);
    hactl(&server, &["get", "pods"]).expect_stderr(2, "not a valid kind");
    let web = hactl(&server, &["get", "resource/web", "-o", "json"]).expect_stdout_parts(0, &[]);
    assert_eq!(serde_json::from_str::<Value>(&web.stdout).expect("JSON")["kind"], "Resource");
    let services = hactl(&server, &["get", "har", "-o", "json"]).expect_stdout_parts(0, &[]);
    assert_eq!(
        serde_json::from_str::<Value>(&services.stdout).expect("JSON")["items"].as_array().map(Vec::len),
        Some(2)
    );
    hactl(&server, &["get", "har", "-o", "yaml"]).expect_stdout_parts(0, &["kind: List\n", "  name: web\n"]);
    hactl(&server, &["get", "all"]).expect_stdout(
        0,
        str![[r"
NAME      READY  STATE    DESIRED  NODE   REASON   AGE
vm:100    -      Queued   Stopped  -      -        <unknown>
exec:web  True   Started  Started  node1  Running  <unknown>

"]],
    );
    let colored = run(&mut command(&["--server", server.url(), "--color", "always", "get", "har"]));
    assert!(colored.stdout.contains("\x1b[32mStarted"), "{:?}", colored.stdout);
}

#[test]
fn describe_shows_the_object_and_its_events() {
    let server = Server::start();
    server.put("resources", web());
    server.put("events", json!({"metadata": {"name": "e1"}, "involvedObject": {"kind": "Resource", "name": "web"},
        "type": "Warning", "reason": "Crashed", "message": "it ended by itself\u{1b}[2J", "source": {"component": "agent/node1"}}));
    server.put(
        "events",
        json!({"metadata": {"name": "e2"}, "involvedObject": {"kind": "Node", "name": "web"},
        "type": "Normal", "reason": "Other", "message": "another object"}),
    );
    let result = hactl(&server, &["describe", "resource", "web"]).expect_stdout_parts(
        0,
        &[
            "Resource exec:web\n",
            "    - sleep\n",
            "state: Started",
            "runs as wanted",
            "Crashed",
            "agent/node1",
        ],
    );
    assert!(
        !result.stdout.contains("another object") && !result.stdout.contains('\u{1b}'),
        "{}",
        result.stdout
    );
    hactl(&server, &["events", "--for", "web"]).expect_stdout_parts(0, &["Crashed"]);
    hactl(&server, &["events"]).expect_stdout_parts(0, &["resource/web", "node/web"]);
}

#[test]
fn set_validates_and_patches_fields() {
    let server = Server::start();
    server.put("resources", web());
    hactl(&server, &["set", "web", "state=stopped", "group="]).expect_stdout(0, "resource/web configured\n");
    let stored = server.object("resources", "web").expect("stored");
    assert_eq!((&stored["spec"]["state"], stored["spec"].get("group")), (&json!("stopped"), None));
    hactl(&server, &["set", "web", "state=stopped"]).expect_stdout(0, "resource/web unchanged\n");
    let writes = server.writes().len();
    hactl(&server, &["set", "web", "state=running"]).expect_stderr(2, "spec.state");
    hactl(&server, &["set", "web", "maxrestart=1"]).expect_stderr(2, "did you mean maxRestart?");
    assert_eq!(server.writes().len(), writes);
}

#[test]
fn delete_updates_the_rules_that_name_the_resource() {
    let server = Server::start();
    let rule = |name: &str, resources: &[&str]| {
        server.put(
            "affinityrules",
            json!({"metadata": {"name": name}, "spec": {"resourceAffinity": {"resources": resources}}}),
        );
    };
    server.put("resources", web());
    rule("pair", &["web", "db"]);
    rule("three", &["exec:web", "db", "cache"]);
    rule("other", &["db", "cache"]);
    hactl(&server, &["delete", "resource", "web", "--dry-run"])
        .expect_stdout_parts(0, &["resource/web deleted (server dry run)"]);
    assert!(server.object("resources", "web").is_some());
    hactl(&server, &["delete", "resource/web", "--wait"]).expect_stdout(
        0,
        str![[r"
resource/web deleted
affinityrule/pair deleted: too few resources left
affinityrule/three updated: deleted resources removed

"]],
    );
    let three = server.object("affinityrules", "three").expect("kept");
    assert_eq!(three["spec"]["resourceAffinity"]["resources"], json!(["db", "cache"]));
    assert!(server.object("affinityrules", "other").is_some());
    hactl(&server, &["delete", "resource", "web"]).expect_stderr(1, "not found");
    hactl(&server, &["delete", "resource", "web", "--ignore-not-found"]).expect_stdout(0, "");
    hactl(&server, &["get", "resource/web", "affinityrule/three", "--ignore-not-found", "-o", "name"])
        .expect_stdout(0, "affinityrule/three\n");
    hactl(&server, &["get", "resource/web", "--ignore-not-found", "-o", "yaml"]).expect_stdout(0, "");
    hactl(&server, &["delete", "resources"]).expect_stderr(2, "--all");
}

#[test]
fn edit_sends_only_valid_changes() {
    let server = Server::start();
    server.put("resources", web());
    let edit = |editor: &str| {
        run(command(&["--server", server.url(), "edit", "resource", "web"]).env("EDITOR", editor))
    };
    edit("true").expect_stdout(0, "resource/web unchanged\n");
    edit("sed -i s/sleep/cat/").expect_stdout(0, "resource/web configured\n");
    let stored = server.object("resources", "web").expect("stored");
    assert_eq!(stored["spec"]["driver"]["exec"]["command"][0], "cat");
    assert_eq!(stored["metadata"]["uid"], "uid-web");
    edit("sed -i s/group:/gruop:/").expect_stderr(2, "group");
    edit("sed -i 's/name: web/name: other/'").expect_stderr(2, "must contain exactly one object");
    edit("false").expect_stderr(1, "editor");
    assert_eq!(server.objects("resources").len(), 1);
}

#[test]
fn create_sends_or_prints_objects() {
    let server = Server::start();
    let line = ["create", "resource", "vm:100", "--state", "started", "--group", "g", "--max-restart", "1"];
    run(&mut command(&[&line[..], &["--dry-run=client", "-o", "yaml"]].concat())).expect_stdout(
        0,
        str![[r#"
apiVersion: hactl.io/v1
kind: Resource
metadata:
  name: "100"
spec:
  driver:
    libvirt:
      domain: "100"
  state: Started
  group: g
  maxRestart: 1

"#]],
    );
    hactl(&server, &line).expect_stdout(0, "resource/100 created\n");
    hactl(&server, &line).expect_stderr(1, "already exists");
    hactl(
        &server,
        &["create", "group", "mygroup1", "--nodes", "node1:2,node2:1,node3:1,node4", "--restricted"],
    )
    .expect_stdout(0, "group/mygroup1 created\n");
    let nodes = &server.object("groups", "mygroup1").expect("stored")["spec"]["nodes"];
    assert_eq!(*nodes, json!({"node1": 2, "node2": 1, "node3": 1, "node4": 0}));
    hactl(&server, &["create", "resource", "Bad_Name", "--exec", "--", "sleep"])
        .expect_stderr(2, "metadata.name");
}

#[test]
fn a_support_dump_has_everything_but_secrets() {
    let server = Server::start();
    server.put("resources", json!({"metadata": {"name": "web"}, "status": {"state": "Error"},
        "spec": {"driver": {"exec": {"command": ["serve", "--password=hunter2"], "environment": {"A": "hunter2"}}}}}));
    server.put("events", json!({"metadata": {"name": "e1"}, "involvedObject": {"kind": "Resource", "name": "web"}, "reason": "Crashed"}));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let target = directory.path().join("dump");
    let result = hactl(&server, &["support", "dump", &target.display().to_string()]);
    let text = |name: &str| std::fs::read_to_string(target.join(name)).unwrap_or_default();
    assert!(text("resources.yaml").contains("state: Error"), "{}\n{}", result.stdout, result.stderr);
    assert!(text("events.yaml").contains("Crashed") && text("nodes.yaml").contains("kind: List"));
    assert!(text("versions.yaml").contains("client:"));
    assert!(!text("resources.yaml").contains("hunter2"), "{}", text("resources.yaml"));
    // The scripted API lacks some data. The dump must name exactly the missing data.
    let problems = text("problems.txt");
    assert_eq!(result.status, i32::from(!problems.is_empty()), "{}", result.stderr);
    assert!(!problems.contains("resources.yaml") && !problems.contains("events.yaml"), "{problems}");
    hactl(&server, &["support", "dump", &target.display().to_string()])
        .expect_stderr(2, "directory is not empty");
    let versions = target.join("versions.yaml").display().to_string();
    hactl(&server, &["support", "dump", &versions]).expect_stderr(2, "not a readable directory");
    hactl(&server, &["support", "dump", "-o", "yaml"])
        .expect_stderr(2, "output format yaml is not supported");
    let copied = directory.path().join("here");
    std::fs::create_dir(&copied).expect("a temporary directory");
    // Without a controller, no directory must be left.
    run(command(&["--server", "http://127.0.0.1:1", "support", "dump"]).current_dir(&copied))
        .expect_stderr(3, "cannot reach any controller");
    assert_eq!(std::fs::read_dir(&copied).expect("a temporary directory").count(), 0);
}
