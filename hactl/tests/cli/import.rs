//! Tests of `hactl import pve`: a sample configuration, the resulting objects, and refused files.

use super::hactl::{CommandResult, command, file, run};
use super::server::Server;
use std::fs;
use std::path::{Path, PathBuf};

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/pve")
}

/// Imports the sample and compares the output with a file next to it. `HACTL_WRITE=1` rewrites that file.
fn check(arguments: &[&str], name: &str) {
    let result = run(command(&["import", "pve", "."]).args(arguments).current_dir(sample()));
    assert_eq!(result.status, 0, "{}", result.stderr);
    let path = sample().join(name);
    if std::env::var_os("HACTL_WRITE").is_some() {
        fs::write(&path, &result.stdout).expect("a file");
    }
    assert_eq!(
        result.stdout,
        fs::read_to_string(&path).expect("a file"),
        "{name} differs: look, then HACTL_WRITE=1"
    );
}

#[test]
fn sample_import_matches_expected_files() {
    check(&[], "imported.yaml");
    check(&["--simulated"], "simulated.yaml");
}

#[test]
fn the_imported_objects_are_applied() {
    let server = Server::start();
    let path = sample().join("imported.yaml").display().to_string();
    let result = super::hactl::hactl(&server, &["apply", "-f", &path]);
    assert_eq!((result.status, result.stderr.as_str()), (0, ""), "{}", result.stdout);
    assert_eq!(result.stdout.lines().count(), 14, "{}", result.stdout);
}

#[test]
fn omitted_settings_are_named_in_all_output() {
    let result = run(command(&["import", "pve"]).arg(sample()));
    for part in [
        "groups.cfg:5: group Storage_Only renamed to storage-only",
        "WATCHDOG_MODULE=iTCO_wdt",
        "migration: ",
    ] {
        assert!(result.stderr.contains(part) && result.stdout.contains(part), "{part}:\n{}", result.stderr);
    }
    let list = run(command(&["import", "pve", "-o", "json"]).arg(sample()));
    assert!(list.stdout.starts_with('{') && list.stdout.contains("\"kind\": \"List\""), "{}", list.stdout);
}

#[test]
fn invalid_files_are_refused_with_line_number() {
    let check = |files: &[(&str, &str)], status: i32, part: &str| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (name, content) in files {
            file(directory.path(), name, content);
        }
        let result = run(command(&["import", "pve"]).arg(directory.path())).expect_stderr(status, part);
        assert_eq!(result.stdout, "");
    };
    let valid_file = ("resources.cfg", "vm: 100\n");
    check(&[], 2, "no resources.cfg in the directory");
    check(
        &[("resources.cfg", "vm: 100\n\tmax_restart many\n")],
        2,
        "resources.cfg:2: max_restart: expected an integer",
    );
    check(
        &[("resources.cfg", "vm: 100\n\tmax_restart 101\n")],
        2,
        "resources.cfg:2: spec.maxRestart: must be",
    );
    check(
        &[
            valid_file,
            ("datacenter.cfg", "ha: shutdown_policy=freeze\n\ncrs: ha-auto-rebalance-margin=150\n"),
        ],
        2,
        "datacenter.cfg:3: spec.scheduler.autoRebalance.margin: must be",
    );
    let rule = "node-affinity: r\n\tresources vm:100\n\tnodes a:9999999\n";
    check(&[valid_file, ("rules.cfg", rule)], 2, "rules.cfg:3: spec.nodeAffinity.nodes.a: ");
    check(
        &[("resources.cfg", "vm: 100\n\tstate running\n")],
        2,
        "resources.cfg:2: state: expected started, stopped,",
    );
    check(&[("resources.cfg", "vm: A_1\n")], 2, "resources.cfg:1: metadata.name: ");
    check(
        &[valid_file, ("groups.cfg", "group: g\n\tnodes a:x\n")],
        2,
        "groups.cfg:2: nodes: expected nodes such as",
    );
    check(&[valid_file, ("groups.cfg", "group: g\n")], 2, "groups.cfg:1: group g has no nodes");
    check(
        &[valid_file, ("rules.cfg", "node-affinity: r\n\tnodes a\n")],
        2,
        "rules.cfg:1: rule r has no resources",
    );
    check(
        &[valid_file, ("rules.cfg", "resource-affinity: r\n\tresources 100\n")],
        2,
        "rules.cfg:2: resources: expected resources such as",
    );
    check(
        &[valid_file, ("datacenter.cfg", "ha: shutdown_policy=never\n")],
        2,
        "datacenter.cfg:1: shutdown_policy: expected",
    );
    check(
        &[valid_file, ("datacenter.cfg", "what\n")],
        2,
        "datacenter.cfg:1: \"what\" is not a valid setting",
    );
    // An encoding error must also name its line.
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::write(directory.path().join("resources.cfg"), b"vm: 100\r\n\tcomment M\xfcller\r\n")
        .expect("written");
    run(command(&["import", "pve"]).arg(directory.path())).expect_stderr(2, "resources.cfg:2: invalid UTF-8");
    run(&mut command(&["import", "pve", "/nonexistent"]))
        .expect_stderr(2, "/nonexistent: directory not found");
}

#[test]
fn unknown_settings_are_omitted_with_a_warning() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, content: &str| file(directory.path(), name, content);
    write("resources.cfg", "vm: 100\n\tgroup gone\n\tcolour red\n\nfa: x\n\nvm: 101\n\tgroup g\n");
    write("groups.cfg", "group: g\n\tnodes a b\n\tcolour red\n");
    write(
        "rules.cfg",
        "location: l\n\tresources vm:100\n\nnode-affinity: n\n\tresources vm:101,vm:9\n\tnodes a\n\tcolour red\n",
    );
    write(
        "datacenter.cfg",
        "ha: colour=red\ncrs: dynamic,ha-auto-rebalance=1,ha-auto-rebalance-threshold=40,ha-auto-rebalance-hold-duration=3,colour=red\n\
            max_workers: 100\nfencing: hardware\n",
    );
    let result = run(command(&["import", "pve"]).arg(directory.path()));
    assert_eq!(result.status, 0, "{}", result.stderr);
    for part in [
        "resources.cfg:2: group \"gone\" of 100 not found in groups.cfg",
        "resources.cfg:3: unknown setting colour of vm:100",
        "resources.cfg:5: fa:x is not a vm or ct",
        "groups.cfg:3: unknown setting colour of group g",
        "rules.cfg:1: rule l has unknown type location",
        "rules.cfg:5: 101 is in rule n and in group g; keep only one of them",
        "rules.cfg:5: 9 of rule n not found in resources.cfg",
        "rules.cfg:7: unknown setting colour of rule n",
        "datacenter.cfg:1: ha: unknown setting colour",
        "datacenter.cfg:2: crs: unknown setting colour",
        "datacenter.cfg:3: max_workers: 64 instead of 100",
        "datacenter.cfg:4: fencing: configure fence devices",
    ] {
        assert!(result.stderr.contains(part), "{part:?} is not in\n{}", result.stderr);
    }
    for part in ["mode: Dynamic", "threshold: 0.4", "holdSeconds: 30", "maxWorkers: 64"] {
        assert!(result.stdout.contains(part), "{part:?} is not in\n{}", result.stdout);
    }
}

/// Imports files of a directory, including subdirectories.
fn import(files: &[(&str, &[u8])]) -> CommandResult {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (name, content) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent directory")).expect("a directory");
        fs::write(path, content).expect("written");
    }
    let result = run(command(&["import", "pve"]).arg(directory.path()));
    assert_eq!(result.status, 0, "{}", result.stderr);
    result
}

fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn invalid_node_names_are_converted() {
    let result = import(&[
        ("ha/resources.cfg", b"vm: 100\n\tgroup g"),
        ("ha/groups.cfg", b"group: g\r\n\tnodes PVE01:2,pve02\r\n"),
        ("ha/rules.cfg", b"node-affinity: r\n\tnodes PVE01,PVE03\n\tresources vm:100\n"),
    ]);
    assert_contains(&result.stdout, &["    pve01: 2\n    pve02: 0\n", "      pve01: 0\n      pve03: 0\n"]);
    assert_contains(
        &result.stderr,
        &["groups.cfg:2: node PVE01 renamed to pve01", "rules.cfg:2: node PVE03 renamed to pve03"],
    );
    assert_eq!(result.stderr.matches("node PVE01 renamed").count(), 1, "{}", result.stderr);
}

#[test]
fn imported_rules_apply_to_listed_guests() {
    let result = import(&[
        ("resources.cfg", b"\xef\xbb\xbfVM: 100\n\tgroup gone\n\nct: 101\n\n# ct: 102\n"),
        (
            "rules.cfg",
            b"node-affinity: a\n\tnodes n1\n\tresources vm:100,vm:100,vm:101\n\n\
              resource-affinity: b\n\taffinity positive\n\tresources ct:100,vm:101\n",
        ),
    ]);
    assert_contains(&result.stdout, &["    resources:\n    - \"100\"\n", "# ct: 102\n"]);
    assert_contains(
        &result.stderr,
        &[
            "rules.cfg:3: vm:101 of rule a is ct:101 in resources.cfg; omitted",
            "rules.cfg:7: ct:100 of rule b is vm:100 in resources.cfg; omitted",
            "rules.cfg:5: rule b has no remaining resources; omitted",
        ],
    );
    assert!(!result.stderr.contains("in group gone; keep"), "{}", result.stderr);
}

#[test]
fn guest_sizes_are_imported_or_reported_missing() {
    let result = import(&[
        ("pve/ha/resources.cfg", b"vm: 100\n\nct: 101\n"),
        ("pve/ha/fence.cfg", b"\n# devices\ndevice x\n"),
        ("pve/datacenter.cfg", b"crs: ha=static\nmax_worker: 3\nmigration_unsecure: 1\n"),
        ("pve/nodes/n1/qemu-server/100.conf", b"name: M\xfcller\nmemory: 2048\ncores: 1.5\n"),
    ]);
    assert_contains(&result.stdout, &["memory: 2048Mi\n"]);
    assert_contains(
        &result.stderr,
        &[
            "unknown sizes of ct:101",
            "qemu-server/100.conf:3: cores \"1.5\" is not an integer; omitted",
            "fence.cfg:3: not converted; configure fence devices for each node",
            "datacenter.cfg:2: max_worker: ignored by ha-manager",
            "datacenter.cfg:3: migration_unsecure: ",
        ],
    );
    assert_contains(&import(&[("resources.cfg", b"")]).stderr, &["resources.cfg: no vm and no ct found"]);
}
