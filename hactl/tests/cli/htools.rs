//! Tests of the program under the names `hail`, `hcheck` and `hspace`.

use super::hactl::{file, run};
use std::os::unix::process::CommandExt;
use std::process::Command;

const POLICY: &str = "|128,1,1024,1,1,1|128,1,1024,1,1,1;32768,8,1048576,16,8,12|ext,drbd,plain|4.0|32.0";

/// Returns a command that runs the binary under the name of a program of Ganeti.
fn program(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hactl"));
    command.arg0(format!("/usr/bin/{name}")).args(arguments).env_clear();
    command
}

/// Returns a cluster of three nodes. Instances of these sizes run on the first one.
fn cluster(memory: &[i64], template: &str) -> String {
    let node = |name: &str, free: i64| format!("{name}|8192|0|{free}|102400|102400|4|N|u1|1||N|0|1|1.0\n");
    let instance =
        |(number, size): (usize, &i64)| format!("i{number}|{size}|0|1|running|Y|a||{template}||1|1\n");
    let nodes = node("a", 8192 - memory.iter().sum::<i64>()) + &node("b", 8192) + &node("c", 8192);
    let instances: String = memory.iter().enumerate().map(instance).collect();
    format!("g1|u1|preferred||\n\n{nodes}\n{instances}\n\n{POLICY}\n")
}

#[test]
fn hcheck_reports_nodes_that_cannot_be_evacuated() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = file(directory.path(), "cluster", &cluster(&[8000], "ext"));
    run(&mut program("hcheck", &["-t", &path])).expect_stdout_parts(
        0,
        &["No need to rebalance cluster, no problems found.\n\nStatistics for group g1 initially\n"],
    );
    let crowded = cluster(&[4000, 4000], "ext")
        .replace("b|8192|0|8192", "b|8192|0|100")
        .replace("c|8192|0|8192", "c|8192|0|100");
    let path = file(directory.path(), "crowded", &crowded);
    run(&mut program("hcheck", &["-t", &path, "-q", "--machine-readable"])).expect_stdout_parts(
        1,
        &[
            "HCHECK_GROUP_UUID_0=u1\n",
            "HCHECK_INIT_GROUP_0_GN1_FAIL=1\n",
            "HCHECK_FINAL_CLUSTER_NEED_REBALANCE=1\nHCHECK_OK=1\n",
        ],
    );
    run(&mut program("hcheck", &["-t", &path, "--no-simulation"])).expect_stdout_parts(
        0,
        &[
            "Running in no-simulation mode.\n",
            "    Nodes not directly evacuateable: 1\n    Cluster is not healthy: True\n",
        ],
    );
    run(&mut program("hcheck", &["-t", &path, "--no-capacity-checks"])).expect_stdout_parts(
        0,
        &["    Instances having a secondary node offline: 0\n    Cluster is not healthy: False\n"],
    );
    let refused = [
        (
            &["-t", &path, "--machine-readable=maybe"][..],
            1,
            "Invalid choice 'maybe', pass one of 'yes' or 'no'\n",
        ),
        (&["-m", "somewhere"], 1, "-m: RAPI access to a Ganeti cluster is not supported\n"),
        (&["-t", &path, "-G", "g1"], 2, "Command line error: unrecognized option `--group'\n"),
        (&[], 1, "Error: failed to load data, aborting: No backend selected! Exiting.\n"),
    ];
    for (arguments, status, message) in refused {
        run(&mut program("hcheck", arguments)).expect_stderr(status, message);
    }
}

#[test]
fn hspace_counts_standard_and_tiered_instances() {
    let simulated = ["--simu", "p,4,8T,64g,16", "--disk-template", "drbd", "-l", "8"];
    // The figures of hspace 3.0.2.
    run(&mut program("hspace", &simulated)).expect_stdout_parts(
        0,
        &[
            "The cluster has 4 nodes and the following resources:\n  MEM 262144, DSK 30517576, CPU 64, VCPU 256.\n",
            "  -   2 instances of spec MEM 32768, DSK 1048576, CPU 8\n  -   3 instances of spec MEM 32704, DSK 1048576, CPU 8\n",
            "  - most likely failure reason: FailMem\n  - initial cluster score: 0.00000000\n  -   final cluster score: 2.90737632\n",
            "Normal (fixed-size) allocation results:\n  -   8 instances allocated\n",
        ],
    );
    run(&mut program("hspace", &[&simulated[..], &["--machine-readable"]].concat())).expect_stdout_parts(
        0,
        &[
            "HTS_TSPEC='32768,1048576,8,12=2 32704,1048576,8,12=3'\nHTS_KM_USED_CPU=4\nHTS_KM_USED_NPU=1.0\n",
            "HTS_FIN_SCORE=0.00195312\nHTS_FIN_INST_CNT=8\n",
            "HTS_ALLOC_FAIL_REASON=FAILMEM\nHTS_ALLOC_FAILMEM_CNT=0\n",
            "HTS_OK=1\n",
        ],
    );
    let refused = [
        (&["--simulate", "p,4"][..], "but got 2: 'p,4'\n"),
        (&["--simulate", "p,4,8T,64g,x"], "aborting: cpu count: cannot parse string 'x'\n"),
        (&["--simulate", "p,0,1g,1g,1"], "Error: failure during allocation: No online nodes\n"),
        (
            &["--simulate", "p,2,1t,1g,1", "--standard-alloc", "1g,2x,2"],
            "standard specs memory: Unknown unit 'x'\n",
        ),
        (&["-L"], "-L: LUXI access to a Ganeti cluster is not supported\n"),
    ];
    for (arguments, message) in refused {
        run(&mut program("hspace", arguments)).expect_stderr(1, message);
    }
    run(&mut program("hspace", &["--bogus"]))
        .expect_stderr(2, "Command line error: unrecognized option `--bogus'\n");
}

#[test]
fn hspace_saves_the_result() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let base = directory.path().join("space");
    let base = base.to_str().expect("a path");
    run(&mut program(
        "hspace",
        &["--simulate", "p,2,1t,8g,4", "-l1", "-S", base, "--disk-template", "plain", "-v"],
    ))
    .expect_stdout_parts(0, &["  -   1 instances allocated\n"]);
    let saved = std::fs::read_to_string(format!("{base}.standard")).expect("the file");
    assert!(saved.contains("\nnew-0|128|1024|1|running|Y|node-01-002||plain||1|1|N\n"), "{saved}");
    run(&mut program("hcheck", &["-t", &format!("{base}.tiered")]))
        .expect_stdout_parts(0, &["no problems found"]);
}

/// Returns a request to hail for a cluster of three nodes, of which the first one runs two instances.
fn request(question: &str) -> String {
    let size = |memory: i64, disk: i64, cpus: i64| {
        format!(
            r#"{{"memory-size":{memory},"disk-size":{disk},"cpu-count":{cpus},"disk-count":1,"nic-count":1,"spindle-use":1}}"#
        )
    };
    let node = |name: &str, free: i64| {
        format!(
            r#""{name}":{{"group":"u1","offline":false,"drained":false,"ndparams":{{"exclusive_storage":false,"spindle_count":1}},
            "total_memory":8192,"reserved_memory":0,"free_memory":{free},"total_disk":102400,"free_disk":102400,
            "total_cpus":4,"reserved_cpus":1,"free_spindles":0}}"#
        )
    };
    let instance = |name: &str, template: &str, nodes: &str| {
        format!(
            r#""{name}":{{{},"disk_template":"{template}","nodes":{nodes}}}"#,
            r#""disks":[{"size":1024}],"disk_space_total":0,"memory":1024,"vcpus":1,"tags":[],"spindle_use":1,"nics":[]"#
        )
    };
    format!(
        r#"{{"cluster_tags":[],"enabled_hypervisors":["xen-pvm"],"nodegroups":{{"u1":{{"name":"g1","alloc_policy":"preferred",
        "networks":[],"tags":[],"ipolicy":{{"std":{small},"minmax":[{{"min":{small},"max":{large}}}],"vcpu-ratio":4.0,
        "spindle-ratio":32.0,"disk-templates":["drbd","ext"]}}}}}},"nodes":{{{},{},{}}},"instances":{{{},{}}},"request":{question}}}"#,
        node("a", 6144),
        node("b", 8192),
        node("c", 8192),
        instance("i1", "drbd", r#"["a","b"]"#),
        instance("i2", "ext", r#"["a"]"#),
        small = size(128, 1, 1),
        large = size(8192, 65536, 4),
    )
}

#[test]
fn hail_answers_requests() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let check = |question: &str, expected: &[&str]| {
        let path = file(directory.path(), "request", &request(question));
        run(&mut program("hail", &[&path])).expect_stdout_parts(0, expected);
    };
    let new = r#""name":"new","disks":[{"size":1024}],"disk_space_total":0,"memory":1024,"vcpus":1,"tags":[],"spindle_use":1,
        "nics":[],"disk_template":"ext""#;
    check(
        &format!(r#"{{"type":"allocate","required_nodes":1,{new}}}"#),
        &[r#"{"success":true,"info":"Request successful: Selected group: g1, Group g1 (preferred): score: "#],
    );
    check(
        &format!(r#"{{"type":"allocate","required_nodes":1,"restrict-to-nodes":["b"],{new}}}"#),
        &[" for node(s) b\",\"result\":[\"b\"]}\n"],
    );
    check(
        r#"{"type":"relocate","name":"i1","required_nodes":1,"relocate_from":["b"]}"#,
        &[r#"{"success":true,"info":"Request successful: success","result":["c"]}"#],
    );
    check(
        r#"{"type":"relocate","name":"i1","required_nodes":1,"relocate_from":["c"]}"#,
        &[
            "Request failed: Unsupported request: excluded nodes not equal to instance's secondary(1 versus [2])",
        ],
    );
    check(
        r#"{"type":"node-evacuate","instances":["i1","i2"],"evac_mode":"primary-only"}"#,
        &[
            "0 instances failed to move and 2 were moved successfully",
            r#"["i1","g1",["b","a"]]"#,
            r#"{"OP_ID":"OP_INSTANCE_MIGRATE","instance_name":"i1","allow_runtime_changes":false,"#,
        ],
    );
    check(
        r#"{"type":"node-evacuate","instances":["i2"],"evac_mode":"secondary-only"}"#,
        &[r#"[["i2","Instances with disk template 'ext' can't execute change secondary"]]"#],
    );
    let path = file(directory.path(), "unknown", &request(r#"{"type":"nosuch"}"#));
    for (arguments, status, message) in [
        (&[path.as_str()][..], 1, "Error: Invalid request type 'nosuch'\n"),
        (&[], 1, "Error: This program needs an input file.\n"),
        (&[&path, "--mond"], 1, "Error: --mond: monitoring daemons of Ganeti are not supported\n"),
    ] {
        run(&mut program("hail", arguments)).expect_stderr(status, message);
    }
}
