//! Tests of the output of lists: expressions, sorting, labels, selectors, and empty lists.

use super::hactl::{CommandResult, hactl};
use super::server::Server;
use serde_json::json;
use snapbox::str;

/// Starts a server with two resources and one node.
fn server() -> Server {
    let server = Server::start();
    let put = |name: &str, priority: i64, labels: serde_json::Value| {
        let spec =
            json!({"driver": {"exec": {"command": ["sleep"]}}, "priority": priority, "tags": ["a", "b"]});
        let status = json!({"state": "Started", "node": "node1"});
        server.put(
            "resources",
            json!({"apiVersion": "hactl.io/v1", "kind": "Resource",
                "metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}),
        );
    };
    put("db", 9, json!({"hactl.io/tier": "back"}));
    put("web", 10, json!({"hactl.io/tier": "front", "app": "shop"}));
    server.put("nodes", json!({"metadata": {"name": "node1"}, "spec": {}, "status": {"state": "Online"}}));
    server
}

/// Returns the standard error of a run that must succeed with an empty standard output.
fn empty(result: CommandResult) -> String {
    result.expect_stdout(0, "").stderr
}

#[test]
fn jsonpath_expressions_select_fields() {
    let server = server();
    let prints = |output: &str, expected: &str| {
        hactl(&server, &["get", "resources", "-o", output]).expect_stdout(0, expected);
    };
    prints("jsonpath={.items[*].metadata.name}", "db web");
    prints(
        "jsonpath={range .items[*]}{.metadata.name}{\"\\t\"}{.spec.tags[0]}{\"\\n\"}{end}",
        "db\ta\nweb\ta\n",
    );
    prints("jsonpath={.items[?(@.spec.priority>9)].metadata.labels.hactl\\.io/tier}", "front");
    prints(
        "custom-columns=NAME:.metadata.name,APP:.metadata.labels.app,TAGS:.spec.tags[*]",
        "NAME  APP     TAGS\ndb    <none>  a,b\nweb   shop    a,b\n",
    );
    hactl(&server, &["get", "resource", "web", "-o", "jsonpath={.status.state}"]).expect_stdout(0, "Started");
    hactl(&server, &["get", "har,no", "--no-headers", "-o", "custom-columns=NAME:metadata.name"])
        .expect_stdout(
            0,
            str![[r"
db
web
node1

"]],
        );
    // Every command with JSON also has the expressions.
    hactl(&server, &["set", "web", "priority=10", "-o", "jsonpath={.spec.priority}"]).expect_stdout(0, "10");
}

#[test]
fn invalid_output_expression_is_refused_with_cause() {
    let server = server();
    let refused = |output: &str, part: &str| {
        let result = hactl(&server, &["get", "resources", "-o", output]).expect_stderr(2, part);
        assert_eq!(result.stderr.matches("error:").count(), 1, "{}", result.stderr);
    };
    refused("jsonpath=.metadata.name", "no expression in braces");
    refused("jsonpath={.items[*", "is not closed");
    refused("jsonpath={range .items[*]}", "has no {end}");
    refused("jsonpath={items}", "invalid expression");
    refused("custom-columns=NAME", "specify HEADER:PATH, such as NAME:.metadata.name");
    refused("go-template={{.items}}", "jsonpath=TEMPLATE");
    refused("xml", "jsonpath=TEMPLATE");
    hactl(&server, &["get", "resources", "--sort-by", ".spec["]).expect_stderr(2, "is not closed");
    hactl(&server, &["get", "resources", "--sort-by", ".spec.prio"])
        .expect_stderr(2, "no object has the field .spec.prio");
    hactl(&server, &["get", "resources", "--sort-by", ".spec.priority", "-w"])
        .expect_stderr(2, "cannot be used with");
    hactl(&server, &["describe", "resource", "web", "-o", "jsonpath={.spec}"])
        .expect_stderr(2, "is not supported");
}

#[test]
fn tables_are_sorted_and_have_labels() {
    let server = server();
    let columns = ["--sort-by", ".spec.priority", "-L", "hactl.io/tier,app", "--show-labels"];
    hactl(&server, &[&["get", "resources"][..], &columns[..]].concat()).expect_stdout(
        0,
        str![[r"
NAME      READY  STATE    DESIRED  NODE   REASON  AGE        TIER   APP   LABELS
exec:db   -      Started  Started  node1  -       <unknown>  back   -     hactl.io/tier=back
exec:web  -      Started  Started  node1  -       <unknown>  front  shop  hactl.io/tier=front,app=shop

"]],
    );
    hactl(&server, &["get", "resources", "--no-headers", "--field-selector", "metadata.name=web"])
        .expect_stdout(0, "exec:web  -  Started  Started  node1  -  <unknown>\n");
    hactl(&server, &["get", "resources,nodes", "--no-headers", "-l", "app=shop"])
        .expect_stdout(0, "exec:web  -  Started  Started  node1  -  <unknown>\n");
    hactl(&server, &["get", "resources", "-o", "name", "--sort-by", "{.metadata.labels.app}"]).expect_stdout(
        0,
        str![[r"
resource/db
resource/web

"]],
    );
}

#[test]
fn empty_list_succeeds_and_missing_object_fails() {
    let server = server();
    for arguments in [&["get", "groups"][..], &["get", "groups", "-o", "name"], &["describe", "groups"]] {
        assert_eq!(empty(hactl(&server, arguments)), "No resources found\n", "{arguments:?}");
    }
    assert_eq!(empty(hactl(&server, &["get", "resources", "-l", "app=none"])), "No resources found\n");
    hactl(&server, &["get", "groups", "-o", "json"]).expect_stdout_parts(0, &["\"items\": []"]);
    hactl(&server, &["get", "group", "gone"]).expect_stderr(1, "group/gone not found");
    hactl(&server, &["get", "group", "gone", "-o", "json"])
        .expect_stderr(1, "group/gone not found")
        .expect_stdout(1, "");
    assert_eq!(empty(hactl(&server, &["events"])), "No events found\n");
    assert_eq!(empty(hactl(&server, &["events", "--for", "resource/web"])), "No events found\n");
    hactl(&server, &["events", "--for", "resource/nosuch"])
        .expect_stderr(1, "resource/nosuch not found")
        .expect_stdout(1, "");
    hactl(&server, &["events", "--for", "nosuch", "-w"]).expect_stderr(1, "resource/nosuch not found");
}

#[test]
fn get_lists_events() {
    let server = server();
    for (name, kind, object) in [("controller.1", "Resource", "web"), ("agent.2", "Node", "node1")] {
        server.put(
            "events",
            json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "type": "Normal", "reason": "Running",
                "message": "Service running", "involvedObject": {"kind": kind, "name": object},
                "source": {"component": "ha-controller"}}),
        );
    }
    hactl(&server, &["get", "events"]).expect_stdout(
        0,
        str![[r"
LAST SEEN  TYPE    REASON   OBJECT        MESSAGE
<unknown>  Normal  Running  node/node1    Service running
<unknown>  Normal  Running  resource/web  Service running

"]],
    );
    hactl(&server, &["get", "events", "-o", "wide"])
        .expect_stdout_parts(0, &["SOURCE", "ha-controller", "controller.1"]);
    hactl(&server, &["get", "ev", "-o", "name"]).expect_stdout(
        0,
        str![[r"
event/agent.2
event/controller.1

"]],
    );
    hactl(&server, &["get", "event/agent.2", "-o", "jsonpath={.reason}"]).expect_stdout(0, "Running");
    hactl(&server, &["get", "event", "gone"])
        .expect_stderr(1, "Error from server (NotFound): event/gone not found");
    hactl(&server, &["get", "event", "gone", "-l", "a=b"])
        .expect_stderr(2, "names cannot be combined with a selector");
    hactl(&server, &["get", "nodes", "node1", "--field-selector", "a=b"])
        .expect_stderr(2, "names cannot be combined with a selector");
    hactl(&server, &["get", "events", "--field-selector", "involvedObject.name=web", "--no-headers"])
        .expect_stdout(0, "<unknown>  Normal  Running  resource/web  Service running\n");
    hactl(&server, &["get", "events,nodes"]).expect_stderr(2, "get does not combine them with other kinds");
    hactl(&server, &["delete", "event/agent.2"]).expect_stderr(2, "this command does not support events");
    hactl(&server, &["events"])
        .expect_stdout_parts(0, &["LAST SEEN  TYPE    REASON   OBJECT        SOURCE         MESSAGE\n"]);
    hactl(&server, &["events", "--for", "web"]).expect_stdout(
        0,
        str![[r"
LAST SEEN  TYPE    REASON   SOURCE         MESSAGE
<unknown>  Normal  Running  ha-controller  Service running

"]],
    );
}
