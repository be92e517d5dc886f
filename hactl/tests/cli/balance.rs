//! Tests of `hactl balance` on files, and of the program under the name `hbal`.

use super::hactl::{command, file, run, start};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

const CLUSTER_TEXT: &str = "g1|u1|preferred||\ng2|u2|preferred||\n\n\
    a|1000|0|600|1000|1000|4|N|u1|1||N|0|0|1.0\n\
    b|1000|0|1000|1000|1000|4|N|u1|1||N|0|0|1.0\n\
    c|1000|0|700|10000|9000|4|N|u2|1||N|0|0|1.0\n\
    d|1000|0|1000|10000|9000|4|N|u2|1||N|0|0|1.0\n\
    e|1000|0|1000|10000|10000|4|N|u2|1||N|0|0|1.0\n\n\
    i0|100|10|1|running|Y|a||rbd||1\ni1|100|10|1|running|Y|a||rbd||1\n\
    i2|100|10|1|running|Y|a||rbd||1\ni3|100|10|1|running|Y|a||rbd||1\n\
    j0|100|300|1|running|Y|c|d|drbd||1\nj1|100|300|1|running|Y|c|d|drbd||1\n\
    j2|100|400|1|ADMIN_down|Y|c|d|drbd||1\n\n\n";

/// Returns a command that runs the binary under the name `hbal`.
fn hbal(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hactl"));
    command.arg0("/usr/bin/hbal").args(arguments).env_clear();
    command
}

#[test]
fn balance_plans_each_group_by_improvement() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = file(directory.path(), "cluster", CLUSTER_TEXT);
    let shown = run(&mut command(&["balance", "-t", &path, "-C", "-p"])).expect_stdout_parts(
        0,
        &[
            "Score before: 8.70000000",
            "Score after:  0.00000000",
            "2 moves in 2 job sets",
            " a=fa:b",
            "600 MiB",
        ],
    );
    let position =
        |part: &str| shown.stdout.find(part).unwrap_or_else(|| panic!("{part} in\n{}", shown.stdout));
    assert!(position("Group g1: 2 nodes, 4 instances") < position("Group g2: 3 nodes, 3 instances"));
    assert!(shown.stdout.contains("gnt-instance migrate -f -n b "));

    let json =
        run(&mut command(&["balance", "-t", &path, "-G", "g2", "-o", "json"])).expect_stdout_parts(0, &[]);
    let value: Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!((&value["diskCopies"], &value["migrations"]), (&json!(2), &json!(2)));
    // The order and the operations of the two equal instances are not defined.
    let copies = |op: &Value| op.as_str().is_some_and(|op| op.starts_with("r:"));
    for step in value["moves"].as_array().expect("a list") {
        assert!(["j0", "j1"].map(Value::from).contains(&step["instance"]), "{value:#}");
        assert_eq!(step["from"], json!(["c", "d"]));
        assert_eq!(step["ops"].as_array().expect("a list").iter().filter(|op| copies(op)).count(), 1);
    }
    assert_eq!(value["moves"][1]["score"], value["finalScore"]);
}

#[test]
fn balance_saves_the_balanced_cluster() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = file(directory.path(), "cluster", CLUSTER_TEXT);
    let saved = directory.path().join("saved").display().to_string();
    run(&mut command(&["balance", "-t", &path, "-S", &saved])).expect_stdout_parts(0, &[]);
    let balanced = format!("{saved}.balanced");
    run(&mut command(&["balance", "-t", &balanced]))
        .expect_stdout_parts(0, &["Score: 0.10328427\nNothing to move.\n"]);
    run(&mut command(&["balance", "-t", &format!("{saved}.original"), "-l", "1"]))
        .expect_stdout_parts(0, &["1 move in 1 job set: 1 disk copy"]);
}

#[test]
fn balance_reports_invalid_input_with_position() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = file(
        directory.path(),
        "cluster",
        &CLUSTER_TEXT.replace("|e|", "|x|").replace("d|1000|0|1000", "d|1000|0|lots"),
    );
    run(&mut command(&["balance", "-t", &path]))
        .expect_stderr(2, "cluster: line 7, free memory (field 4): expected an integer, found `lots`");
    let path = file(directory.path(), "cluster", CLUSTER_TEXT);
    run(&mut command(&["balance", "-t", &path, "-O", "x"])).expect_stderr(2, "-O: node \"x\" not found");
    run(&mut command(&["balance", "-t", &path, "-G", "x"])).expect_stderr(2, "-G: group \"x\" not found");
    run(&mut command(&["balance", "-t", &path, "--exclude-instances", "i0,x"]))
        .expect_stderr(2, "instance \"x\" not found");
    run(&mut command(&["balance", "-t", "/nonexistent"])).expect_stderr(2, "cannot read /nonexistent");
    run(&mut command(&["balance", "-t", &path, "--budget", "10"]))
        .expect_stderr(2, "\"10\" has no unit; specify 10s");
    run(&mut command(&["balance", "-t", &path, "--budget", "1s"])).expect_stdout_parts(0, &["Score after: "]);
    let loads = file(directory.path(), "loads", "i0 1 1 1 1\nx 1 1 1 1\n");
    run(&mut command(&["balance", "-t", &path, "-U", &loads]))
        .expect_stderr(2, "loads: line 2, instance (word 1)");
}

#[test]
fn a_search_that_time_cuts_is_reported() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = file(directory.path(), "cluster", CLUSTER_TEXT);
    let message = "The search ended at the time limit. ";
    for (budget, is_cut) in [("0s", true), ("1h", false)] {
        let options = ["-t", &path, "-G", "g2", "--budget", budget];
        let balance = run(&mut command(&[&["balance"], &options[..]].concat())).expect_stdout_parts(0, &[]);
        assert_eq!(balance.stdout.contains(message), is_cut, "{}", balance.stdout);
        let json = run(&mut command(&[&["balance", "-o", "json"], &options[..]].concat()));
        let value: Value = serde_json::from_str(&json.expect_stdout_parts(0, &[]).stdout).expect("JSON");
        assert_eq!(value["timeLimited"], json!(is_cut));
        let check = run(&mut command(&[&["group", "check"], &options[..]].concat()));
        assert_eq!(check.stdout.contains(message), is_cut, "{}", check.stdout);
        // Scripts read standard output, which stays that of hbal.
        let as_hbal = run(&mut hbal(&options)).expect_stdout_parts(0, &["Solution length="]);
        assert_eq!((as_hbal.stderr.contains(message), as_hbal.stdout.contains(message)), (is_cut, false));
    }
}

#[test]
fn invoked_as_hbal_prints_hbal_output() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = file(directory.path(), "cluster", CLUSTER_TEXT);
    run(&mut hbal(&["-t", &path]))
        .expect_stderr(1, "Found multiple node groups:\n  g1\n  g2\nError: Aborting.\n");
    let script = directory.path().join("script");
    let shown = run(&mut hbal(&["-t", &path, "-G", "u2", "-pname,rmem", &format!("-C{}", script.display())]));
    let shown = shown.expect_stdout_parts(
        0,
        &[
            "Loaded 5 nodes, 7 instances\nGroup size 3 nodes, 3 instances\nSelected node group: g2\n",
            "Initial check done: 0 bad nodes, 0 bad instances.\n",
            "Initial score: 6.48315520\nTrying to minimize the CV...\n",
            "    1. j",
            " 0.10328427 a=",
            "Cluster score improved from 6.48315520 to 0.10328427\nSolution length=2\n",
        ],
    );
    assert!(shown.stderr.contains("\nInitial cluster status:\n Name r_mem\n"), "{}", shown.stderr);
    assert!(!shown.stdout.contains("gnt-instance"));
    let script = std::fs::read_to_string(script).expect("the script");
    assert!(script.starts_with("#!/bin/sh\n") && script.contains("gnt-instance replace-disks -n e j"));
    run(&mut hbal(&["-t", &path, "-G", "g2", "-o"]))
        .expect_stdout_parts(0, &["\n6.48315520 2 0.10328427   62.770\n"]);
    run(&mut hbal(&["-t", &path, "-G", "g2", "-l0"]))
        .expect_stdout_parts(0, &["No solution found\nSolution length=0\n"]);
    run(&mut hbal(&["-t", &path, "-G", "g2", "-e10"])).expect_stdout_parts(
        0,
        &["Cluster is already well balanced (initial score 6.483155,\noptimum score due to N+1 reservations "],
    );
    let refused = [
        (&["-m", "somewhere"][..], "-m: RAPI access to a Ganeti cluster is not supported"),
        (&["-t", &path, "-X", "-G", "g1"], "Error: hbal: Execution of commands possible only on LUXI\n"),
        (&["-t", &path, "-O", "x"], "Error: wrong node name(s) set as offline: x\n"),
        (&["-t", &path, "-G", "x"], "Node group x not found. Node group list is:\n  g1\n  g2\n"),
        (&["-t", "/nonexistent"], "Error: failed to load data, aborting: "),
        (&["-t", &path, "--prio", "abc"], "Unknown priority 'abc'"),
        (&["argument"], "Error: This program doesn't take any arguments."),
        (&[], "Error: failed to load data, aborting: No backend selected! Exiting.\n"),
    ];
    for (arguments, message) in refused {
        run(&mut hbal(arguments)).expect_stderr(1, message);
    }
    run(&mut hbal(&["--bogus"])).expect_stderr(2, "Command line error: unrecognized option `--bogus'\n");
    run(&mut hbal(&["-V"])).expect_stdout_parts(0, &["hbal "]);
}

/// Waits until a process handles SIGTERM.
fn wait_for_handler(child: &Child) {
    const SIGTERM_BIT: u64 = 1 << 14;
    loop {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("the process runs");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
        if u64::from_str_radix(caught.trim(), 16).expect("hexadecimal") & SIGTERM_BIT != 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_signal_ends_the_search_with_the_moves_found_so_far() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let nodes: String = (0..30)
        .map(|node| format!("n{node}|64000|0|64000|9000|9000|8|N|u1|1||N|0|0|1.0\n"))
        .collect::<Vec<_>>()
        .concat();
    let instances: String = (0..400)
        .map(|number| format!("i{number}|{}|10|1|running|Y|n0||rbd||1\n", 100 + number % 7))
        .collect::<Vec<_>>()
        .concat();
    // The nodes have more memory than is free, so that the first node holds all instances.
    let nodes = nodes.replacen("n0|64000|0|64000", "n0|64000|0|20000", 1);
    let text = format!("g1|u1|preferred||\n\n{nodes}\n{instances}\n\n");
    let path = file(directory.path(), "cluster", &text);
    let arguments = ["-t", &path, "--evaluations=24000000", "--budget=600s"];
    for (mut started, found) in
        [(command(&["balance"]), "Score before: "), (hbal(&[]), "Trying to minimize the CV...\n")]
    {
        let child = start(started.args(arguments));
        wait_for_handler(&child);
        let status = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
        let output = child.wait_with_output().expect("hactl exits");
        let text = |stream: &[u8]| String::from_utf8_lossy(stream).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{stdout}{stderr}");
        assert!(stdout.contains(found), "{stdout}");
        assert!(
            stderr.contains("A signal ended the search. The plan contains the moves found so far"),
            "{stderr}"
        );
    }
}
