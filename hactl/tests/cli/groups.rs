//! Tests of the commands about node groups on files: check, redistribute, compress, balance, allocate, evacuate, capacity.

use super::hactl::{command, file, run};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// g1 has an offline node that holds instances; g2 is preferred, g3 the last resort.
const UNHEALTHY_CLUSTER: &str = "g1|u1|preferred||\ng2|u2|preferred||\ng3|u3|last_resort||\n\n\
    a|8000|0|4000|100000|90000|8|N|u1|1||N|0|0|1.0\n\
    b|8000|0|8000|100000|90000|8|Y|u1|1||N|0|0|1.0\n\
    c|8000|0|7000|100000|100000|8|N|u2|1||N|0|0|1.0\n\
    d|8000|0|8000|100000|100000|8|N|u2|1||N|0|0|1.0\n\
    e|8000|0|8000|100000|100000|8|N|u3|1||N|0|0|1.0\n\
    f|8000|0|8000|100000|100000|8|N|u3|1||N|0|0|1.0\n\n\
    i|2000|10000|2|running|Y|a|b|drbd||1\n\
    j|1000|5000|1|ERROR_nodeoffline|Y|b||rbd||1\n\
    k|1000|5000|1|running|Y|c||rbd||1\n\
    l|2000|5000|1|running|Y|a||rbd||1\n\n\n";

/// Two healthy groups with a policy.
const HEALTHY_CLUSTER: &str = "g2|u2|preferred||\ng3|u3|preferred||\n\n\
    c|8000|0|7000|100000|95000|8|N|u2|1||N|0|0|1.0\n\
    d|8000|0|8000|100000|95000|8|N|u2|1||N|0|0|1.0\n\
    e|8000|0|8000|100000|100000|8|N|u3|1||N|0|0|1.0\n\
    f|8000|0|8000|100000|100000|8|N|u3|1||N|0|0|1.0\n\n\
    k|1000|5000|1|running|Y|c|d|drbd||1|-\n\n\n\
    |128,1,1024,1,1,1|128,1,1024,1,1,1;32768,8,1048576,16,8,12|drbd,plain,rbd|4.0|32.0\n";

struct Files {
    directory: tempfile::TempDir,
    unhealthy: String,
    healthy: String,
}

fn files() -> Files {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (unhealthy, healthy) =
        (file(directory.path(), "ill", UNHEALTHY_CLUSTER), file(directory.path(), "well", HEALTHY_CLUSTER));
    Files { directory, unhealthy, healthy }
}

fn json_output(arguments: &[&str], status: i32) -> Value {
    let result = run(command(arguments).args(["-o", "json"])).expect_stdout_parts(status, &[]);
    serde_json::from_str(&result.stdout).expect("JSON")
}

#[test]
fn group_check_reports_unhealthy_groups() {
    let files = files();
    run(&mut command(&["group", "check", "-t", &files.unhealthy])).expect_stdout_parts(
        1,
        &["g1     2      3          unhealthy ", "offline nodes with instances: b", "Moves required"],
    );
    run(&mut command(&["group", "check", "-t", &files.healthy])).expect_stdout_parts(0, &["Nothing to move"]);
    run(&mut command(&["group", "check", "-t", &files.unhealthy, "-G", "u3"]))
        .expect_stdout_parts(0, &["Nothing to move"]);
    // If c fails, its instance k no longer fits on d.
    let tight =
        file(files.directory.path(), "tight", &HEALTHY_CLUSTER.replace("d|8000|0|8000", "d|8000|0|900"));
    let value = json_output(&["group", "check", "-t", &tight, "--no-simulation"], 1);
    assert_eq!(value["groups"][0]["health"], "WeaklyUnhealthy");
    assert_eq!((&value["groups"][0]["failingNodes"], &value["workNeeded"]), (&json!(["d"]), &json!(true)));
    // All instances on one node: healthy, but balancing helps.
    let uneven = UNHEALTHY_CLUSTER.replace("|Y|u1", "|N|u1").replace("ERROR_nodeoffline|Y|b", "running|Y|a");
    let uneven = file(files.directory.path(), "uneven", &uneven.replace("a|8000|0|4000", "a|8000|0|3000"));
    let value = json_output(&["group", "check", "-t", &uneven, "-G", "g1"], 1);
    assert_eq!(
        (&value["groups"][0]["health"], &value["groups"][0]["needsBalancing"]),
        (&json!("Healthy"), &json!(true))
    );
}

#[test]
fn redistribute_repairs_groups_or_explains_blocker() {
    let files = files();
    let saved = files.directory.path().join("saved").display().to_string();
    run(&mut command(&["group", "redistribute", "-t", &files.unhealthy, "-S", &saved, "-C"]))
        .expect_stdout_parts(
            0,
            &[
                "Group g1 is unhealthy: offline nodes with instances: b\n",
                "    1. i a:b => (g2, d:c) a=r:",
                "gnt-instance failover -f -n d j",
            ],
        );
    // The saved cluster must be healthy.
    let after = format!("{saved}.balanced");
    run(&mut command(&["group", "redistribute", "-t", &after]))
        .expect_stdout(0, "All groups are healthy. Nothing to move.\n");
    run(&mut command(&["group", "redistribute", "-t", &files.unhealthy, "--no-inter-group-moves"]))
        .expect_stdout_parts(1, &["Group g1 is skipped: moves between groups are disabled"]);
    let closed = UNHEALTHY_CLUSTER
        .replace("g2|u2|preferred", "g2|u2|unallocable")
        .replace("last_resort", "unallocable");
    let closed = file(files.directory.path(), "closed", &closed);
    run(&mut command(&["group", "redistribute", "-t", &closed]))
        .expect_stdout_parts(1, &["Cannot redistribute: no healthy group accepts instances\n"]);
    let local = file(files.directory.path(), "local", &UNHEALTHY_CLUSTER.replace("b||rbd", "b||plain"));
    let value = json_output(&["group", "redistribute", "-t", &local], 1);
    let reason = value["blocked"].as_str().expect("a reason");
    assert!(
        reason.starts_with("no eligible node for j of group g1: g2: disk is on one node only"),
        "{reason}"
    );
    assert_eq!(value["moves"], json!([]));
}

#[test]
fn compress_empties_the_group_that_frees_most() {
    let files = files();
    run(&mut command(&["group", "compress", "-t", &files.unhealthy])).expect_stdout_parts(
        0,
        &[
            "g3     0            16000",
            "already empty",
            "total  5000",
            "Moves that empty group g1:\n    1. i a:b => (g2, ",
        ],
    );
    let within_group = json_output(&["group", "compress", "-t", &files.healthy, "--no-inter-group-moves"], 0);
    assert_eq!((&within_group["empties"], &within_group["moves"]), (&Value::Null, &json!([])));
    let used = json_output(&["group", "compress", "-t", &files.healthy], 0);
    assert_eq!(
        (&used["empties"], &used["total"]["used"]),
        (&json!("g2"), &json!({"memory": 1000, "disk": 10000, "vcpus": 1}))
    );
}

#[test]
fn group_balance_evens_load_between_groups() {
    let files = files();
    let value = json_output(&["group", "balance", "-t", &files.unhealthy], 0);
    assert!(value["finalScore"].as_f64() < value["initialScore"].as_f64(), "{value:#}");
    let moves = value["moves"].as_array().expect("a list");
    // Balancing must not move instances of a preferred group to one of last resort.
    assert!(
        !moves.is_empty() && moves.iter().all(|service_move| service_move["toGroup"] == "g2"),
        "{value:#}"
    );
    run(&mut command(&["group", "balance", "-t", &files.unhealthy, "-l", "0"]))
        .expect_stdout_parts(0, &["Nothing to move.\n"]);
}

#[test]
fn allocate_ranks_groups_and_nodes() {
    let files = files();
    let value = json_output(&["allocate", "memory=2Gi,disk=10Gi,cpu=2", "-t", &files.unhealthy], 0);
    let groups: Vec<&Value> =
        value["groups"].as_array().expect("a list").iter().map(|group| &group["group"]).collect();
    assert_eq!(groups, ["g2", "g3", "g1"]);
    assert_eq!(value["groups"][0]["nodes"][0]["nodes"], json!(["d", "c"]));
    let (refused, node) =
        (&value["groups"][2], |index: usize| value["groups"][2]["nodes"][index]["reason"].clone());
    assert_eq!(
        (&refused["score"], node(0)),
        (&Value::Null, json!("no node for the second copy: offline or being drained"))
    );
    assert_eq!(node(1), "offline or being drained");
    run(&mut command(&["allocate", "10g,9000,2", "-t", &files.unhealthy]))
        .expect_stdout_parts(1, &["too little memory", "No eligible node"]);
    let closed = file(
        files.directory.path(),
        "closed",
        &UNHEALTHY_CLUSTER.replace("g2|u2|preferred", "g2|u2|unallocable"),
    );
    run(&mut command(&["allocate", "10g,2g,2", "-t", &closed]))
        .expect_stdout_parts(0, &["1     g3     LastResort", "group is unallocable"]);
    let sizes = [
        ("1,2", "three parts expected"),
        ("memory=2X", "`2X` is not a valid size"),
        ("memory=2Gi,foo=1", "unknown key `foo`"),
        ("memory=1,mem=2", "memory is specified twice"),
        ("disk=5", "memory must be greater than 0"),
        ("memory=1,disk=1,template=tape", "`tape` is not a valid template"),
    ];
    for (size, message) in sizes {
        run(&mut command(&["allocate", size, "-t", &files.unhealthy])).expect_stderr(2, message);
    }
    run(&mut command(&["allocate", "memory=40Gi,disk=2Gi", "-t", &files.healthy]))
        .expect_stdout_parts(1, &["policy of the group requires memory from 128 to 32768, got 40960"]);
}

#[test]
fn evacuate_prefers_nodes_inside_the_group() {
    let files = files();
    // Inside g2, k fits on another node.
    let value = json_output(&["evacuate", "c", "-t", &files.unhealthy], 0);
    assert_eq!((&value["moves"][0]["to"], &value["moves"][0]["interGroup"]), (&json!(["d"]), &json!(false)));
    // a is the only working node of g1.
    let shown = run(&mut command(&["evacuate", "a", "-t", &files.unhealthy, "-C"])).expect_stdout_parts(
        0,
        &["i a:b => (g2, d:c)", "2 of them between groups, applied only with --inter-group\n"],
    );
    assert!(!shown.stdout.contains("gnt-instance"));
    run(&mut command(&["evacuate", "a", "-t", &files.unhealthy, "-C", "--inter-group"]))
        .expect_stdout_parts(0, &["gnt-instance replace-disks -n d i"]);
    run(&mut command(&["evacuate", "a", "-t", &files.unhealthy, "--no-inter-group-moves"]))
        .expect_stdout_parts(
            1,
            &["i: no eligible node: g1: too few working nodes", "Moves between groups are disabled"],
        );
    run(&mut command(&["evacuate", "e", "-t", &files.unhealthy])).expect_stdout(0, "Nothing to move.\n");
    run(&mut command(&["evacuate", "a", "x", "-t", &files.unhealthy]))
        .expect_stderr(1, "node \"x\" not found");
    run(&mut command(&["evacuate", "-t", &files.unhealthy])).expect_stderr(2, "<NODE>");
    let two_groups = HEALTHY_CLUSTER.replace("g3|u3|preferred||\n", "").replace("|u3|", "|u2|");
    let two_groups = file(files.directory.path(), "one", &two_groups);
    let value = json_output(&["evacuate", "c", "d", "-t", &two_groups, "--inter-group"], 0);
    assert_eq!(
        (&value["moves"][0]["interGroup"], &value["moves"][0]["ops"].as_array().map(Vec::len)),
        (&json!(false), &Some(3))
    );
    let value = json_output(&["evacuate", "c", "d", "e", "-t", &two_groups, "--inter-group"], 1);
    assert_eq!((&value["moves"], &value["unplaced"][0]["instance"]), (&json!([]), &json!("k")));
}

#[test]
fn capacity_is_counted_with_reserve_and_tiers() {
    let files = files();
    let value = json_output(&["capacity", "10g,2g,1", "-t", &files.healthy], 0);
    assert_eq!(value["total"], json!({"now": 12, "withNPlusOne": 6}));
    assert_eq!(
        value["groups"][1]["tiers"],
        json!([
            {"memory": 2048, "disk": 10240, "vcpus": 1, "count": 3},
            {"memory": 1792, "disk": 10240, "vcpus": 1, "count": 1},
        ])
    );
    run(&mut command(&["capacity", "-t", &files.healthy]))
        .expect_stdout_parts(0, &["memory 128 MiB, disk 1024 MiB, 1 vCPUs, template drbd"]);
    run(&mut command(&["capacity", "-t", &files.unhealthy])).expect_stderr(2, "policy has no standard size");
    run(&mut command(&["capacity", "-t", &files.healthy, "--disk-template", "tape"]))
        .expect_stderr(2, "`tape` is not a valid template");
    run(&mut command(&["capacity", "1G,1G,1", "-t", &files.unhealthy]))
        .expect_stdout_parts(0, &["some services of a cannot be scheduled if the node fails"]);
    for about in [
        "group check",
        "group redistribute",
        "group compress",
        "group balance",
        "allocate 1,1,1",
        "evacuate a",
        "capacity",
    ] {
        let words: Vec<&str> = about.split(' ').collect();
        run(command(&words).args(["-t", "/nonexistent"])).expect_stderr(2, "cannot read /nonexistent");
    }
}

/// Returns the output of a Ganeti tool, if it is installed.
#[expect(clippy::print_stderr, reason = "the output lists the fields that were not compared")]
fn tool(name: &str, arguments: &[&str]) -> Option<String> {
    let result = Command::new(name).args(arguments).stderr(Stdio::null()).output();
    if result.is_err() {
        eprintln!("{name} is not installed: nothing is compared with it");
    }
    Some(String::from_utf8_lossy(&result.ok()?.stdout).into_owned())
}

#[test]
fn group_commands_match_hcheck_and_hspace() {
    let files = files();
    for (path, needs_work) in [(&files.unhealthy, true), (&files.healthy, false)] {
        let status = i32::from(needs_work);
        let value = json_output(&["group", "check", "-t", path], status);
        let Some(output) = tool("hcheck", &["-t", path, "--machine-readable"]) else { return };
        for (index, group) in value["groups"].as_array().expect("a list").iter().enumerate() {
            let number = |key: &str| {
                let key = format!("HCHECK_INIT_GROUP_{index}_{key}=");
                let line = output.lines().find_map(|line| line.strip_prefix(&key));
                line.unwrap_or_else(|| panic!("{key} in\n{output}"))
                    .trim_matches('\'')
                    .parse::<f64>()
                    .expect("a number")
            };
            let score = group["initialScore"].as_f64().expect("a number");
            assert!((score - number("SCORE")).abs() < 1e-6, "{group:#}");
            let offline = number("OFFLINE_PRI") + number("OFFLINE_SEC") > 0.0;
            assert_eq!(group["health"] == "Unhealthy", offline);
            assert_eq!(group["failingNodes"].as_array().map(Vec::is_empty), Some(number("N1_FAIL") == 0.0));
        }
    }
    let value = json_output(&["capacity", "10g,2g,1", "-t", &files.healthy], 0);
    let size = [
        "--standard-alloc",
        "10g,2g,1",
        "--tiered-alloc",
        "10g,2g,1",
        "--disk-template",
        "drbd",
        "--machine-readable",
    ];
    let Some(output) = tool("hspace", &[&["-t", files.healthy.as_str()], &size[..]].concat()) else { return };
    let tiers =
        output.lines().find_map(|line| line.strip_prefix("HTS_TSPEC=")).expect("tiers").trim_matches('\'');
    let first = tiers.split([' ', '=']).nth(1).and_then(|count| count.parse::<u64>().ok());
    assert_eq!(value["total"]["withNPlusOne"].as_u64(), first);
}
