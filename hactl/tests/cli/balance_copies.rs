//! Tests of `hactl balance` on a live cluster with replicated services whose secondaries can be replaced.

use super::balance_live::PlacementFacts;
use super::hactl::hactl;
use super::server::{Request, ScriptedResponse, Server};
use serde_json::{Value, json};

/// Returns services of 2 GiB on node1 with their other copy on node2; some have a driver that replaces secondaries.
fn replicated(services: &[(&str, bool)]) -> PlacementFacts {
    let names: Vec<&str> = services.iter().map(|(name, _)| *name).collect();
    let facts = PlacementFacts::all_on_first_node(&names);
    for (name, replaces) in services {
        let mut facts = facts.lock();
        let service = &mut facts["services"][name];
        service["storagePool"] = json!("disks");
        service["storageNodes"] = json!(["node1", "node2"]);
        service["requests"] = json!({"cpu": "500m", "memory": "2Gi", "disk": "1Gi"});
        service["movesLive"] = json!(true);
        service["replacesSecondary"] = json!(replaces);
    }
    for node in ["node1", "node2", "node3"] {
        let mut facts = facts.lock();
        facts["nodes"][node]["storagePools"] = json!(["disks"]);
        facts["nodes"][node]["capacity"] = json!({"cpu": "4", "memory": "16Gi", "disk": "100Gi"});
    }
    facts
}

/// Starts a server whose leader executes every operation: a move exchanges the roles, a replacement changes the other copy.
fn executing_server(facts: &PlacementFacts) -> Server {
    let (shown, moved) = (facts.clone(), facts.clone());
    Server::start_with(
        move |request: &Request| match request.path.strip_prefix("/apis/hactl.io/v1/")? {
            "placement" => Some(ScriptedResponse::Answer(200, shown.lock().clone())),
            "usage" => Some(ScriptedResponse::Answer(200, json!({}))),
            _ => None,
        },
        move |plural, operation| {
            if plural != "operations" || !operation["status"].is_null() {
                return false;
            }
            let text = |field: &str| operation["spec"][field].as_str().unwrap_or_default().to_owned();
            let (resource, node) = (text("resource"), text("node"));
            if text("action") == "ReplaceSecondary" {
                let primary = moved.node_of(&resource);
                moved.lock()["services"][&resource]["storageNodes"] = json!([primary, node]);
            } else {
                moved.set_node(&resource, &node);
            }
            operation["status"] = json!({"phase": "Succeeded", "message": ""});
            true
        },
    )
}

#[test]
fn balance_replaces_secondaries_if_driver_supports_it() {
    let facts = replicated(&[("a", true), ("b", true), ("c", false), ("d", true)]);
    let server = executing_server(&facts);
    let planned = hactl(&server, &["balance", "-C"]).expect_stdout_parts(0, &["hactl replace-secondary "]);
    assert!(!planned.stdout.contains("gnt-instance"), "{}", planned.stdout);
    assert!(!planned.stdout.contains("replace-secondary c "), "{}", planned.stdout);
    assert_eq!(server.writes(), Vec::<String>::new());
    let result =
        hactl(&server, &["balance", "--apply", "-o", "json"]).expect_stdout_parts(0, &["\"Succeeded\""]);
    let result_value: Value = serde_json::from_str(&result.stdout).expect("JSON");
    assert!(result_value["diskCopies"].as_u64() > Some(0), "{result_value:#}");
    let operation_specs: Vec<Value> =
        server.objects("operations").iter().map(|operation| operation["spec"].clone()).collect();
    let copies: Vec<&Value> =
        operation_specs.iter().filter(|spec| spec["action"] == "ReplaceSecondary").collect();
    assert_eq!(Some(copies.len() as u64), result_value["diskCopies"].as_u64(), "{operation_specs:?}");
    assert!(
        copies.iter().all(|spec| spec["resource"] != "c" && spec["node"].is_string()),
        "{operation_specs:?}"
    );
    let uses_node3 = |name: &str| {
        let facts = facts.lock();
        facts["services"][name]["storageNodes"]
            .as_array()
            .is_some_and(|nodes| nodes.contains(&json!("node3")))
    };
    assert!(["a", "b", "d"].into_iter().any(uses_node3) && !uses_node3("c"));
    hactl(&server, &["balance", "--apply"]).expect_stdout_parts(0, &["\nNothing to move.\n"]);
}

#[test]
fn balance_without_replacement_support_copies_nothing() {
    let facts = replicated(&[("a", false), ("b", false), ("c", false), ("d", false)]);
    let server = executing_server(&facts);
    let planned = hactl(&server, &["balance", "-C"]).expect_stdout_parts(0, &["0 disk copies"]);
    assert!(!planned.stdout.contains("replace-secondary"), "{}", planned.stdout);
}
