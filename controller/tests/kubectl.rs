//! Tests of an unmodified kubectl with the API over the in-memory store; the test acts as the leader.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use ha_api_types::event::{Event, EventType};
use ha_api_types::keys::Keys;
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::time::Timestamp;
use ha_controller::api::{ApiOptions, ApiState, router};
use ha_runtime::tls::ClientIdentity;
use ha_store::{Guard, MemoryStore, Store, Transaction};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// Returns the path of kubectl as `dev/setup` provides it: `$KUBECTL`, `$PATH`, or the project's cache.
fn kubectl_program() -> PathBuf {
    let cached = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.cache/kubectl/usr/bin/kubectl"));
    let on_path = || {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|directory| directory.join("kubectl")).find(|file| file.is_file())
    };
    std::env::var_os("KUBECTL")
        .map(PathBuf::from)
        .or_else(on_path)
        .or_else(|| cached.is_file().then_some(cached))
        .expect("no kubectl: run dev/setup, or set KUBECTL to one of version 1.27 or newer")
}

struct Server {
    runtime: tokio::runtime::Runtime,
    store: Arc<MemoryStore>,
    keys: Keys,
    url: String,
    directory: tempfile::TempDir,
}

impl Server {
    fn start() -> Server {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = Arc::new(MemoryStore::new());
        let keys = Keys::new("test");
        let state = ApiState::new(Arc::clone(&store), keys.clone(), ApiOptions::new("c1", "test"));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = router(state, axum::Router::new()).layer(axum::Extension(ClientIdentity::Loopback));
        runtime.spawn(async move { axum::serve(listener, router).await });
        let directory = tempfile::tempdir().unwrap();
        // Old versions of kubectl warn if the configuration is missing.
        std::fs::write(directory.path().join("config"), "").unwrap();
        Server { runtime, store, keys, url, directory }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(kubectl_program());
        command
            .args(["--server", &self.url, "--cache-dir"])
            .arg(self.directory.path().join("cache"))
            .args(arguments)
            .env("HOME", self.directory.path())
            .env("KUBECONFIG", self.directory.path().join("config"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    }

    /// Runs kubectl, checks its exit status and returns its output.
    #[track_caller]
    fn run(&self, expected: i32, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(expected), "kubectl {}:\n{text}", arguments.join(" "));
        text
    }

    /// Runs kubectl and checks that its output contains all of these parts.
    #[track_caller]
    fn check(&self, expected: i32, arguments: &[&str], parts: &[&str]) {
        let text = self.run(expected, arguments);
        for part in parts {
            assert!(text.contains(part), "kubectl {}: no {part:?} in\n{text}", arguments.join(" "));
        }
    }

    fn file(&self, name: &str, objects: &[Value]) -> String {
        let path = self.directory.path().join(name);
        let mut file = std::fs::File::create(&path).unwrap();
        for object in objects {
            writeln!(file, "---\n{object:#}").unwrap();
        }
        path.to_str().unwrap().to_owned()
    }

    /// Writes a status, as the leader does.
    fn report(&self, kind: Kind, name: &str, status: &Value) {
        let key = self.keys.status(kind, name);
        self.runtime.block_on(async {
            let snapshot = self.store.get(&key).await.unwrap();
            let guard =
                snapshot.entries.first().map_or(Guard::Absent, |entry| Guard::Unchanged(entry.mod_revision));
            let outcome =
                self.store.commit(Transaction::new().put(&key, guard, status.to_string().into_bytes())).await;
            assert!(outcome.applied().is_some(), "{outcome:?}");
        });
    }

    /// Ends the management of a deleted resource, as the leader does: removes both keys.
    fn release(&self, name: &str) {
        self.runtime.block_on(async {
            let mut transaction = Transaction::new();
            for key in [self.keys.spec(Kind::Resource, name), self.keys.status(Kind::Resource, name)] {
                if let Some(entry) = self.store.get(&key).await.unwrap().entries.first() {
                    transaction = transaction.delete(&key, Guard::Unchanged(entry.mod_revision));
                }
            }
            assert!(self.store.commit(transaction).await.applied().is_some());
        });
    }

    fn stored(&self, kind: Kind, name: &str) -> Option<Value> {
        let reading = self.runtime.block_on(self.store.get(&self.keys.spec(kind, name))).unwrap();
        reading.entries.first().map(|entry| serde_json::from_slice(&entry.value).unwrap())
    }
}

/// A process that is killed at the end of the test.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[expect(clippy::needless_pass_by_value, reason = "tables read better without references")]
fn resource(name: &str, extra_fields: Value) -> Value {
    let mut object = json!({
        "apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": name, "labels": {"app": "shop"}},
        "spec": {"driver": {"exec": {"command": ["/bin/sleep", "inf"]}}, "maxRestart": 1},
    });
    for (field, value) in extra_fields.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    object
}

fn group() -> Value {
    json!({"apiVersion": "hactl.io/v1", "kind": "Group", "metadata": {"name": "g1"},
        "spec": {"nodes": {"node1": 2, "node2": 1}, "restricted": true}})
}

fn started() -> Value {
    json!({"observedGeneration": 1, "state": "Started", "node": "node1", "running": true, "conditions": [
        {"type": "Ready", "status": "True", "reason": "Running", "message": "Service is running", "observedGeneration": 1}]})
}

#[test]
fn objects_are_applied_shown_and_deleted() {
    let server = Server::start();
    let file = server.file("all.yaml", &[group(), resource("web", json!({"group": "g1"}))]);
    server.check(0, &["api-resources"], &["resources", "har", "affinityrules", "clusters"]);
    server.check(0, &["apply", "-f", &file], &["group.hactl.io/g1 created", "resource.hactl.io/web created"]);
    server.check(
        0,
        &["apply", "-f", &file],
        &["group.hactl.io/g1 unchanged", "resource.hactl.io/web unchanged"],
    );
    server.report(Kind::Resource, "web", &started());
    server.check(
        0,
        &["get", "resources"],
        &["NAME", "READY", "STATE", "DESIRED", "NODE", "exec:web", "Started", "node1", "Running"],
    );
    server.check(0, &["get", "har,hag", "-o", "wide"], &["MESSAGE", "Service is running", "node1:2,node2:1"]);
    server.check(0, &["get", "resource", "exec:web", "-o", "yaml"], &["state: Started", "uid:", "name: web"]);
    server.check(1, &["get", "resource", "vm:web"], &["specify exec:web"]);
    server.check(0, &["get", "all"], &["resource.hactl.io/exec:web", "group.hactl.io/g1"]);
    server.check(0, &["explain", "operation.spec.action"], &["Action to perform."]);
    server.check(0, &["get", "resources", "-l", "app=shop", "-o", "name"], &["resource.hactl.io/web"]);
    server.check(0, &["get", "resources", "-l", "app!=shop"], &["No resources found"]);
    server.check(1, &["get", "resource", "nope"], &["NotFound", "nope"]);
    server.check(0, &["wait", "--for=condition=Ready", "resource/web", "--timeout=20s"], &["condition met"]);
    server.check(
        0,
        &["wait", "--for=jsonpath={.status.state}=Started", "resource/web", "--timeout=20s"],
        &["condition met"],
    );

    let changed = server.file("changed.yaml", &[resource("web", json!({"group": "g1", "comment": "new"}))]);
    server.check(0, &["diff", "-f", &file], &[]);
    server.check(1, &["diff", "-f", &changed], &["comment: new"]);
    server.check(0, &["apply", "-f", &changed], &["configured"]);
    assert_eq!(server.stored(Kind::Resource, "web").unwrap()["metadata"]["generation"], 2);
    // kubectl waits until the leader no longer manages the resource.
    let waiting = server.command(&["delete", "resource", "web", "--timeout=30s"]).spawn().unwrap();
    let mut waiting = Background(waiting);
    let is_marked_for_deletion =
        || server.stored(Kind::Resource, "web").unwrap()["metadata"]["deletionTimestamp"].is_string();
    let started_at = std::time::Instant::now();
    while !is_marked_for_deletion() {
        assert!(started_at.elapsed().as_secs() < 30, "kubectl delete has not marked the resource");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    server.release("web");
    assert!(waiting.0.wait().unwrap().success());
    server.check(0, &["delete", "-f", &file, "--ignore-not-found"], &["group.hactl.io \"g1\" deleted"]);
    server.check(0, &["get", "groups"], &["No resources found"]);
}

#[test]
fn invalid_kubectl_requests_change_nothing() {
    let server = Server::start();
    let typo = server.file("typo.yaml", &[resource("web", json!({"maxRestrat": 2}))]);
    server.check(
        1,
        &["apply", "-f", &typo],
        &["unknown field \"spec.maxRestrat\"", "did you mean \"maxRestart\""],
    );
    assert_eq!(server.stored(Kind::Resource, "web"), None);
    let mut invalid = resource("web", json!({"maxRestart": 1000, "state": "Startd"}));
    invalid["spec"]["driver"] = json!({"exec": {"start": ["x"]}});
    let invalid = server.file("wrong.yaml", &[invalid]);
    server.check(1, &["create", "-f", &invalid], &["spec.maxRestart", "spec.state", "did you mean"]);
    let group = server.file(
        "group.yaml",
        &[json!({"apiVersion": "hactl.io/v1", "kind": "Group", "metadata": {"name": "g"}})],
    );
    // kubectl sends raw bodies without a media type.
    server.check(1, &["create", "--raw", "/apis/hactl.io/v1/groups", "-f", &group], &["no Content-Type"]);
    // The field is dropped with a warning if the client asks for that.
    server.check(0, &["apply", "-f", &typo, "--validate=warn"], &["Warning: unknown field", "created"]);
    assert_eq!(server.stored(Kind::Resource, "web").unwrap()["spec"].get("maxRestrat"), None);
    server.check(
        1,
        &["create", "-f", &server.file("again.yaml", &[resource("web", json!({}))])],
        &["AlreadyExists"],
    );
    let other = server.file(
        "cluster.yaml",
        &[json!({"apiVersion": "hactl.io/v1", "kind": "Cluster", "metadata": {"name": "mine"}})],
    );
    server.check(1, &["apply", "-f", &other], &["only one Cluster object exists"]);
    server.check(
        1,
        &["patch", "resource", "web", "--subresource=status", "--type=merge", "-p", "{\"status\":{}}"],
        &["MethodNotAllowed"],
    );
}

#[test]
fn server_side_apply_records_the_owner_of_each_field() {
    let server = Server::start();
    let file = server.file("web.yaml", &[resource("web", json!({"priority": 1}))]);
    server.check(0, &["apply", "--server-side", "-f", &file], &["serverside-applied"]);
    let first = server.stored(Kind::Resource, "web").unwrap();
    server.check(0, &["apply", "--server-side", "-f", &file], &["serverside-applied"]);
    assert_eq!(server.stored(Kind::Resource, "web").unwrap(), first);
    let other = server.file("other.yaml", &[resource("web", json!({"priority": 5}))]);
    let other_manager = ["apply", "--server-side", "--field-manager=other", "-f", &other];
    server.check(1, &other_manager, &["conflict with \"kubectl\"", ".spec.priority"]);
    let mut forced = other_manager.to_vec();
    forced.push("--force-conflicts");
    server.check(0, &forced, &["serverside-applied"]);
    assert_eq!(server.stored(Kind::Resource, "web").unwrap()["spec"]["priority"], 5);
    server.check(0, &["diff", "--server-side", "-f", &other, "--field-manager=other"], &[]);
    // Server-side apply takes over an object of client-side apply.
    let group = server.file("group.yaml", &[group()]);
    server.run(0, &["apply", "-f", &group]);
    server.check(0, &["apply", "--server-side", "-f", &group], &["serverside-applied"]);
}

#[test]
fn kubectl_changes_single_fields() {
    let server = Server::start();
    let file = server.file("web.yaml", &[resource("web", json!({}))]);
    server.run(0, &["create", "-f", &file]);
    server.check(
        0,
        &["patch", "resource", "web", "--type=merge", "-p", "{\"spec\":{\"priority\":7}}"],
        &["patched"],
    );
    server.check(
        0,
        &["patch", "resource", "web", "--type=merge", "-p", "{\"spec\":{\"priority\":7}}"],
        &["no change"],
    );
    let operations = "[{\"op\":\"replace\",\"path\":\"/spec/priority\",\"value\":8}]";
    server.check(0, &["patch", "resource", "web", "--type=json", "-p", operations], &["patched"]);
    server.check(
        1,
        &["patch", "resource", "web", "--type=merge", "-p", "{\"spec\":{\"priorty\":7}}"],
        &["priority"],
    );
    server.run(0, &["label", "resource", "web", "tier=front"]);
    server.run(0, &["annotate", "resource", "web", "note=x"]);
    let stored = server.stored(Kind::Resource, "web").unwrap();
    assert_eq!((&stored["spec"]["priority"], &stored["metadata"]["generation"]), (&json!(8), &json!(3)));
    assert_eq!(stored["metadata"]["labels"]["tier"], "front");
    let output = server
        .command(&["edit", "resource", "web"])
        .env("KUBE_EDITOR", "sed -i s/priority:.8/priority:\\ 9/")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(server.stored(Kind::Resource, "web").unwrap()["spec"]["priority"], 9);
    let replaced = server.file("replace.yaml", &[resource("web", json!({"priority": 3}))]);
    server.check(0, &["replace", "-f", &replaced], &["replaced"]);
    let stored = server.stored(Kind::Resource, "web").unwrap();
    assert_eq!(stored["spec"]["priority"], 3);
    assert_eq!(stored["metadata"]["finalizers"], json!(["hactl.io/managed"]));
}

#[test]
fn a_watch_shows_changes_of_spec_and_status() {
    let server = Server::start();
    let file = server.file("web.yaml", &[resource("web", json!({}))]);
    server.run(0, &["apply", "-f", &file]);
    let mut child = server.command(&["get", "resources", "-w"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let _child = Background(child);
    let mut until = |part: &str| lines.by_ref().find(|line| line.contains(part)).unwrap();
    until("Queued");
    server.report(Kind::Resource, "web", &started());
    assert!(until("Started").contains("node1"));
    let other = server.file("other.yaml", &[resource("other", json!({}))]);
    server.run(0, &["apply", "-f", &other]);
    until("other");
}

#[test]
fn describe_explain_events_and_access_work() {
    let server = Server::start();
    server.run(0, &["apply", "-f", &server.file("web.yaml", &[resource("web", json!({}))])]);
    let uid = server.stored(Kind::Resource, "web").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let event = Event {
        kind: Kind::Resource,
        name: "web".to_owned(),
        uid: uid.into(),
        event_type: EventType::Warning,
        reason: Reason::Unschedulable,
        message: "No eligible node: node1 is in maintenance".to_owned(),
        source: "controller/c1".to_owned(),
        node: None,
        action_uid: None,
        operation: None,
        epoch: None,
        at: Timestamp("2026-01-01T00:00:00Z".to_owned()),
    };
    let key = server.keys.event("controller-c1", "1-1");
    let put = Transaction::new().put(&key, Guard::Absent, serde_json::to_vec(&event).unwrap());
    assert!(server.runtime.block_on(server.store.commit(put)).applied().is_some());
    server.check(
        0,
        &["describe", "resource", "web"],
        &["Name:", "web", "Events:", "Unschedulable", "node1 is in maintenance"],
    );
    server.check(0, &["get", "events"], &["LAST SEEN", "Warning", "resource/web", "Unschedulable"]);
    server.check(0, &["get", "resources"], &["READY", "STATE", "DESIRED", "NODE", "REASON", "AGE"]);
    server.check(
        1,
        &["get", "resources", "--field-selector", "status.stat=Started"],
        &["did you mean state?"],
    );
    server.check(
        0,
        &["get", "events", "-A", "--field-selector", "involvedObject.name=web"],
        &["Unschedulable"],
    );
    server.check(0, &["explain", "resource"], &["KIND:", "Resource", "spec"]);
    server.check(0, &["explain", "resource.spec"], &["maxRestart", "driver", "Keep the service running"]);
    server.check(0, &["explain", "har.spec.driver.exec.command"], &["program and arguments"]);
    server.check(0, &["explain", "cluster.spec.timing", "--recursive"], &["heartbeatLifetimeSeconds"]);
    server.check(0, &["auth", "can-i", "create", "resources.hactl.io"], &["yes"]);
    server.check(1, &["auth", "can-i", "delete", "events"], &["no"]);
    server.check(0, &["auth", "can-i", "*", "*"], &["yes"]);
    server.check(0, &["auth", "can-i", "get", "/metrics"], &["yes"]);
    server.check(0, &["auth", "can-i", "--list"], &["selfsubjectreviews.authentication.k8s.io", "[*]"]);
    server.check(0, &["auth", "whoami"], &["loopback", "hactl:admin"]);
    server.check(0, &["get", "namespaces"], &["default"]);
    server.check(0, &["version"], &["Server Version"]);
}

#[test]
fn kubectl_lists_are_paginated() {
    let server = Server::start();
    let objects: Vec<Value> = (0..7).map(|n| resource(&format!("r{n}"), json!({}))).collect();
    server.run(0, &["create", "-f", &server.file("many.yaml", &objects)]);
    let text = server.run(0, &["get", "resources", "--chunk-size=3", "--no-headers"]);
    assert_eq!(text.lines().count(), 7, "{text}");
    server.check(0, &["delete", "resources", "--all", "--wait=false"], &["r0", "r6"]);
}
