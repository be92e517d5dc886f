//! Tests of `hactl init`: written, unchanged and refused files.

use super::hactl::{Ran, command, run};
use std::path::Path;

const HTTP: [&str; 6] = ["--etcd-endpoints", "http://127.0.0.1:2379", "--node", "node1", "--profile", "fast"];

fn init(folder: &Path, arguments: &[&str]) -> Ran {
    let folder = folder.display().to_string();
    run(command(&["init", "--directory", &folder]).args(arguments))
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).expect("a file that was written")
}

#[test]
fn a_machine_without_certificates_is_for_itself() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let deep = folder.path().join("etc/hactl");
    let ran = init(&deep, &HTTP).shows(0, &["agent.yaml created", "systemctl start ha-controller"]);
    assert!(ran.stdout.contains("hactl doctor node1"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("chgrp"), "{}", ran.stdout);
    let agent = "# Settings of ha-node-agent(8): the options of the program in camel case.\nnode: node1\netcdEndpoints:\n- http://127.0.0.1:2379\n";
    assert_eq!(read(&deep, "agent.yaml"), agent);
    assert!(
        read(&deep, "controller.yaml")
            .ends_with("listen: 127.0.0.1:7443\nadvertiseUrl: http://127.0.0.1:7443\n")
    );
    assert!(read(&deep, "cluster.yaml").contains("profile: Fast\n"));
    assert!(read(&deep, "watchdog.env").ends_with("\nWATCHDOG_MODULE=softdog\n"));
    // hactl must read the configuration that init has written for it.
    let config = deep.join("config.yaml");
    run(command(&["config", "get-contexts"]).env("HACTL_CONFIG", &config))
        .shows(0, &["http://127.0.0.1:7443"]);

    // A second run with the same options changes nothing. With other options, no file is written without --force.
    init(&deep, &HTTP).shows(0, &["agent.yaml unchanged", "watchdog.env unchanged"]);
    let other = [HTTP.as_slice(), &["--watchdog", "iTCO_wdt"]].concat();
    std::fs::remove_file(deep.join("agent.yaml")).expect("removed");
    init(&deep, &other).fails(1, "watchdog.env already exists with different content");
    assert!(!deep.join("agent.yaml").exists(), "nothing was written");
    init(&deep, &[other.as_slice(), &["--force"]].concat())
        .shows(0, &["agent.yaml created", "config.yaml unchanged", "watchdog.env overwritten"]);
    assert!(read(&deep, "watchdog.env").ends_with("\nWATCHDOG_MODULE=iTCO_wdt\n"));
}

#[test]
fn certificates_serve_everything_unless_told_otherwise() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let key = folder.path().join("n1.key");
    std::fs::write(&key, "").expect("written");
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    let key = key.display().to_string();
    let flags = [
        "--etcd-endpoints",
        "https://c1:2379,https://c2:2379",
        "--etcd-ca",
        "/etc/hactl/ca.pem",
        "--etcd-cert",
        "/etc/hactl/n1.pem",
        "--etcd-key",
        &key,
        "--node",
        "n1",
        "--listen",
        "10.0.0.1:7443",
        "--server",
        "https://c1:7443,https://c2:7443",
    ];
    let ran = init(folder.path(), &flags).shows(0, &[&format!("chgrp _hactl {key} && chmod 640 {key}")]);
    assert!(ran.stdout.contains("copy the certificate or key to /etc/hactl/n1.pem"), "{}", ran.stdout);
    let controller = read(folder.path(), "controller.yaml");
    for line in [
        "etcdCa: /etc/hactl/ca.pem",
        "clientCa: /etc/hactl/ca.pem",
        "tlsCert: /etc/hactl/n1.pem",
        "advertiseUrl: https://10.0.0.1:7443",
    ] {
        assert!(controller.contains(&format!("{line}\n")), "{line}:\n{controller}");
    }
    let config = read(folder.path(), "config.yaml");
    assert!(
        config.contains("- https://c2:7443\n") && config.contains(&format!("clientKey: {key}\n")),
        "{config}"
    );
}

#[test]
fn a_node_alone_gets_no_controller() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    init(folder.path(), &[HTTP.as_slice(), &["--role", "node"]].concat())
        .shows(0, &["hactl config set-context"]);
    let mut names: Vec<String> = std::fs::read_dir(folder.path())
        .expect("a temporary directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["agent.yaml", "watchdog.env"]);
}

#[test]
fn a_dry_run_writes_nothing() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let ran = init(folder.path(), &[HTTP.as_slice(), &["--dry-run"]].concat());
    let agent = format!("# {}/agent.yaml\n", folder.path().display());
    ran.shows(0, &[&agent, "node: node1\n", "WATCHDOG_MODULE=softdog\n"]);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a temporary directory").count(), 0);
}

#[test]
fn what_cannot_work_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for (arguments, part) in [
        (&[][..], "no etcd endpoints specified"),
        (&["--etcd-endpoints", "c1:2379"], "\"c1:2379\" is not an http or https URL"),
        (&["--etcd-endpoints", "https://c1:2379"], "add --etcd-ca FILE"),
        (&["--etcd-endpoints", "http://c1:2379", "--etcd-cert", "x"], "add --etcd-key FILE"),
        (
            &["--etcd-endpoints", "http://c1:2379", "--node", "a/b"],
            "--node is not a valid node name: \"a/b\"",
        ),
        (&["--etcd-endpoints", "http://c1:2379", "--node", "PVE_1"], "\"PVE_1\" is not a valid name"),
        (
            &["--etcd-endpoints", "http://c1:2379", "--cluster", "a/b"],
            "--cluster: \"a/b\" is not a valid name",
        ),
        (
            &[HTTP.as_slice(), &["--listen", "127.0.0.1:0"]].concat()[..],
            "selects a different port at each start",
        ),
        (&[HTTP.as_slice(), &["--tls-cert", "c", "--tls-key", "k"]].concat()[..], "add --client-ca FILE"),
        (&[HTTP.as_slice(), &["--client-ca", "c"]].concat()[..], "add --tls-cert FILE and --tls-key FILE"),
        (
            &[HTTP.as_slice(), &["--client-certificate", "c"]].concat()[..],
            "--client-certificate requires --client-key",
        ),
        (
            &["--etcd-endpoints", "http://c1:2379", "--listen", "0.0.0.0:1"],
            "--listen: 0.0.0.0:1 is reachable",
        ),
        (&["--etcd-endpoints", "http://c1:2379", "--listen", "here"], "\"here\" is not an address"),
        (&["--etcd-endpoints", "http://c1:2379", "--watchdog", "a b"], "is not the name of a kernel module"),
        (&["--etcd-endpoints", "http://c1:2379", "-o", "yaml"], "output format yaml is not supported"),
    ] {
        init(folder.path(), arguments).fails(2, part);
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a temporary directory").count(), 0);
    init(Path::new("/proc/hactl"), &HTTP).fails(1, "cannot write /proc/hactl/controller.yaml");
}
