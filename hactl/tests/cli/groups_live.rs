//! Tests of the commands about node groups on a live cluster.

use super::balance_live::{PlacementFacts, answering_server, executing_server};
use super::hactl::hactl;
use serde_json::{Value, json};

/// Returns facts in which node1, with all services, and node2 are in east, and node3 is in west.
fn facts(services: &[&str]) -> PlacementFacts {
    let facts = PlacementFacts::all_on_first_node(services);
    for (node, group) in [("node1", "east"), ("node2", "east"), ("node3", "west")] {
        facts.lock()["nodes"][node]["nodeGroup"] = json!(group);
    }
    facts
}

#[test]
fn a_node_is_evacuated_inside_its_group() {
    let facts = facts(&["a", "b"]);
    let server = executing_server(&facts);
    hactl(&server, &["evacuate", "node1", "-C"])
        .expect_stdout_parts(0, &["a node1 => node2 a=fa:node2", "hactl relocate a node2"]);
    assert_eq!((facts.node_of("a"), facts.node_of("b")), ("node1".to_owned(), "node1".to_owned()));
    let output = hactl(&server, &["evacuate", "node1", "--apply", "-o", "json"]).expect_stdout_parts(0, &[]);
    let value: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(value["applied"].as_array().map(Vec::len), Some(2), "{value:#}");
    assert_eq!((facts.node_of("a"), facts.node_of("b")), ("node2".to_owned(), "node2".to_owned()));
    hactl(&server, &["evacuate", "node1"]).expect_stdout(0, "Nothing to move.\n");
    hactl(&server, &["evacuate", "node9"]).expect_stderr(1, "node \"node9\" not found");
    hactl(&server, &["evacuate", "node1", "-X", "-t", "x"]).expect_stderr(2, "cannot be used with");
}

/// A preferred rule does not keep a service on a node. The service returns unless the node is cordoned.
#[test]
fn a_service_is_evacuated_from_the_node_that_it_prefers() {
    let facts = facts(&["a"]);
    facts.lock()["groups"] = json!({"home": {"nodes": {"node1": 1}}});
    facts.lock()["services"]["a"]["group"] = json!("home");
    let server = executing_server(&facts);
    let shown = hactl(&server, &["evacuate", "node1", "-C"]).expect_stdout_parts(0, &["a node1 => node2"]);
    assert!(shown.stderr.contains("run \"hactl cordon node1\" first"), "{}", shown.stderr);
    facts.lock()["nodes"]["node1"]["schedulable"] = json!(false);
    let shown = hactl(&server, &["evacuate", "node1", "-C"]).expect_stdout_parts(0, &["a node1 => node2"]);
    assert_eq!(shown.stderr, "");
}

#[test]
fn moves_between_groups_require_a_flag() {
    let facts = facts(&["a"]);
    facts.lock()["nodes"]["node2"]["maintenance"] = json!(true);
    let server = executing_server(&facts);
    hactl(&server, &["evacuate", "node1", "--apply"])
        .expect_stdout_parts(0, &["a node1 => (west, node3)", "only with --inter-group"]);
    assert_eq!(facts.node_of("a"), "node1");
    // The service must stay if the other group cannot access its storage, or if the cluster's setting forbids the move.
    facts.lock()["services"]["a"]["storagePool"] = json!("fast");
    facts.lock()["nodes"]["node1"]["storagePools"] = json!(["fast"]);
    hactl(&server, &["evacuate", "node1", "--apply", "--inter-group"]).expect_stdout_parts(
        1,
        &["a: no eligible node: ", "west: storage or a rule excludes every node of the group"],
    );
    facts.lock()["nodes"]["node3"]["storagePools"] = json!(["fast"]);
    facts.lock()["settings"] = json!({"interGroupMoves": false});
    hactl(&server, &["evacuate", "node1", "--apply", "--inter-group"])
        .expect_stdout_parts(1, &["Moves between groups are disabled."]);
    facts.lock()["nodeGroups"] = json!({"west": "Unallocable"});
    facts.lock()["settings"] = json!({});
    hactl(&server, &["evacuate", "node1", "--apply", "--inter-group"])
        .expect_stdout_parts(1, &["west: group is unallocable"]);
    facts.lock()["nodeGroups"] = json!({});
    hactl(&server, &["evacuate", "node1", "--apply", "--inter-group"])
        .expect_stdout_parts(0, &["(west, node3)"]);
    assert_eq!(facts.node_of("a"), "node3");
}

#[test]
fn live_groups_are_compressed_and_balanced() {
    let facts = facts(&["a", "b", "c", "d"]);
    let server = executing_server(&facts);
    hactl(&server, &["group", "check"])
        .expect_stdout_parts(1, &["east   2      4          healthy", "west   1      0"]);
    hactl(&server, &["group", "balance", "--apply"]).expect_stdout_parts(0, &["(west, node3)", "deviation "]);
    let moved = ["a", "b", "c", "d"].iter().filter(|name| facts.node_of(name) == "node3").count();
    assert!((1..4).contains(&moved), "{moved}");
    // The output must count CPUs, not thousandths of CPUs.
    hactl(&server, &["group", "compress", "-o", "json"]).expect_stdout_parts(0, &["\"vcpus\": 30.5"]);
    hactl(&server, &["group", "compress", "--apply"])
        .expect_stdout_parts(0, &["Moves that empty group east"]);
    assert!(["a", "b", "c", "d"].iter().all(|name| facts.node_of(name) == "node3"));
    hactl(&server, &["group", "redistribute", "--apply"])
        .expect_stdout(0, "All groups are healthy. Nothing to move.\n");
}

#[test]
fn free_capacity_is_shown_only_where_capacity_is_known() {
    let facts = facts(&["a", "b"]);
    let server = executing_server(&facts);
    let check = |capacities: [Value; 3], rows: [&str; 3], free: [Value; 3]| {
        for (node, capacity) in ["node1", "node2", "node3"].into_iter().zip(capacities) {
            facts.lock()["nodes"][node]["capacity"] = capacity;
        }
        let compress = ["group", "compress"];
        let output = hactl(&server, &compress).expect_stdout_parts(0, &[]).stdout;
        let row = |line: &str| line.split_whitespace().take(7).collect::<Vec<_>>().join(" ");
        let shown: Vec<String> = output.lines().skip(1).take(3).map(row).collect();
        assert_eq!(shown, rows, "{output}");
        let output =
            hactl(&server, &[&compress[..], &["-o", "json"]].concat()).expect_stdout_parts(0, &[]).stdout;
        let value: Value = serde_json::from_str(&output).expect("JSON");
        let actual_free =
            [&value["groups"][0]["free"], &value["groups"][0]["freeElsewhere"], &value["total"]["free"]];
        assert_eq!(actual_free, free.each_ref(), "{output}");
    };
    let all_amounts = json!({"cpu": "4", "memory": "16Gi", "disk": "100Gi"});
    let no_disk = json!({"cpu": "4", "memory": "16Gi"});
    check(
        [all_amounts.clone(), all_amounts.clone(), all_amounts.clone()],
        ["east 2048 30720 0 204800 1 31", "west 0 16384 0 102400 0 16", "total 2048 47104 0 307200 1 47"],
        [
            json!({"memory": 30720, "disk": 204_800, "vcpus": 31}),
            json!({"memory": 16384, "disk": 102_400, "vcpus": 16}),
            json!({"memory": 47104, "disk": 307_200, "vcpus": 47}),
        ],
    );
    check(
        [all_amounts.clone(), no_disk, json!({"disk": "1Gi"})],
        ["east 2048 30720 0 - 1 31", "west 0 - 0 1024 0 -", "total 2048 - 0 - 1 -"],
        [
            json!({"memory": 30720, "disk": null, "vcpus": 31}),
            json!({"memory": null, "disk": 1024, "vcpus": null}),
            json!({"memory": null, "disk": null, "vcpus": null}),
        ],
    );
}

#[test]
fn first_failed_move_ends_the_command() {
    let facts = facts(&["a", "b"]);
    let server = answering_server(&facts, |_, _, _| ("Failed", "it does not stop"));
    let result =
        hactl(&server, &["evacuate", "node1", "--apply"]).expect_stderr(1, "0 of 2 moves done, 2 left");
    assert!(result.stderr.contains("it does not stop"), "{}", result.stderr);
    assert_eq!(facts.node_of("a"), "node1");
}

#[test]
fn new_services_are_allocated_and_counted() {
    let facts = facts(&["a", "b"]);
    let server = executing_server(&facts);
    let read = |arguments: &[&str], status: i32| -> Value {
        let result = hactl(&server, &[arguments, &["-o", "json"]].concat()).expect_stdout_parts(status, &[]);
        serde_json::from_str(&result.stdout).expect("JSON")
    };
    let offers = read(&["allocate", "memory=2Gi,vcpus=1"], 0);
    assert_eq!(offers["groups"][0]["group"], "west", "{offers:#}");
    // Each node has 16 GiB and 4 cores at ratio 4; a and b use 1 GiB and half a core; some memory stays free.
    let room = read(&["capacity", "memory=2Gi,vcpus=1"], 0);
    assert_eq!(room["groups"][0]["now"], 13, "{room:#}");
    assert_eq!((&room["size"]["vcpus"], &room["size"]["template"]), (&json!(1), &Value::Null));
    // CPUs must have the same format everywhere, including text output.
    hactl(&server, &["capacity", "memory=2Gi,vcpus=1"])
        .expect_stdout_parts(0, &["0 MiB, 1 vCPUs\n", " 2048,0,1="]);
    let large = read(&["capacity", "memory=1Gi,vcpus=4,disk=1Gi"], 0);
    assert_eq!(large["groups"][1]["now"], 4, "{large:#}");
    // Only node3 reaches the pool, and closed groups must be excluded.
    facts.lock()["nodes"]["node3"]["storagePools"] = json!(["fast"]);
    let pooled = read(&["allocate", "memory=2Gi,pool=fast"], 0);
    assert_eq!(pooled["groups"][0]["nodes"][0]["nodes"], json!(["node3"]));
    assert_eq!(pooled["groups"][1]["nodes"][0]["reason"], "excluded by storage, a rule or the node itself");
    facts.lock()["nodeGroups"] = json!({"west": "Unallocable"});
    read(&["allocate", "memory=2Gi,pool=fast"], 1);
    hactl(&server, &["allocate", "memory=2Gi,pool=slow"])
        .expect_stderr(2, "no node has the storage pool slow");
    hactl(&server, &["allocate", "memory=2Gi,template=drbd"])
        .expect_stderr(2, "template= is valid only with -t");
    hactl(&server, &["capacity"]).expect_stdout_parts(0, &["memory 1024 MiB, disk 10240 MiB, 1 vCPUs"]);
}
