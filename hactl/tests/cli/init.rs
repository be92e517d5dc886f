//! Tests of `hactl init`: written, unchanged and refused files.

use super::hactl::{CommandResult, command, run};
use std::path::Path;

const HTTP_ARGUMENTS: [&str; 6] =
    ["--etcd-endpoints", "http://127.0.0.1:2379", "--node", "node1", "--profile", "fast"];

fn init(directory: &Path, arguments: &[&str]) -> CommandResult {
    let directory = directory.display().to_string();
    run(command(&["init", "--directory", &directory]).args(arguments))
}

fn read(directory: &Path, name: &str) -> String {
    std::fs::read_to_string(directory.join(name)).expect("a file that was written")
}

#[test]
fn init_without_certificates_serves_a_unix_socket_only() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let deep = directory.path().join("etc/hactl");
    let result = init(&deep, &HTTP_ARGUMENTS)
        .expect_stdout_parts(0, &["agent.yaml created", "systemctl start ha-controller"]);
    assert!(result.stdout.contains("hactl doctor node1"), "{}", result.stdout);
    assert!(!result.stdout.contains("chgrp"), "{}", result.stdout);
    let agent = "# Settings of ha-node-agent(8): the options of the program in camel case.\nnode: node1\netcdEndpoints:\n- http://127.0.0.1:2379\n";
    let text = read(&deep, "agent.yaml");
    let (options, policy) = text.split_once("# Limits for the services of this node").expect("a policy");
    assert_eq!(options, agent);
    assert!(policy.contains("\npolicy:\n  allowRoot: false\n"), "{policy}");
    assert!(
        read(&deep, "controller.yaml")
            .contains("authorization: Roles\nsocket: /run/hactl-controller/api.sock\n# Limits for objects")
    );
    assert!(read(&deep, "cluster.yaml").contains("profile: Fast\n"));
    assert!(read(&deep, "watchdog.env").ends_with("\nWATCHDOG_MODULE=softdog\n"));
    // hactl must read the configuration that init has written for it.
    let config = deep.join("config.yaml");
    run(command(&["config", "get-contexts"]).env("HACTL_CONFIG", &config))
        .expect_stdout_parts(0, &["unix:/run/hactl-controller/api.sock"]);

    // A second run with the same options changes no file. With other options, no file is written without --force.
    init(&deep, &HTTP_ARGUMENTS).expect_stdout_parts(0, &["agent.yaml unchanged", "watchdog.env unchanged"]);
    let other = [HTTP_ARGUMENTS.as_slice(), &["--watchdog", "iTCO_wdt"]].concat();
    std::fs::remove_file(deep.join("agent.yaml")).expect("removed");
    init(&deep, &other).expect_stderr(1, "watchdog.env already exists with different content");
    assert!(!deep.join("agent.yaml").exists(), "nothing was written");
    init(&deep, &[other.as_slice(), &["--force"]].concat())
        .expect_stdout_parts(0, &["agent.yaml created", "config.yaml unchanged", "watchdog.env overwritten"]);
    assert!(read(&deep, "watchdog.env").ends_with("\nWATCHDOG_MODULE=iTCO_wdt\n"));
}

#[test]
fn loopback_without_tls_is_served_only_if_the_option_says_so() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    init(directory.path(), &[HTTP_ARGUMENTS.as_slice(), &["--insecure-loopback"]].concat())
        .expect_stdout_parts(0, &["controller.yaml created"]);
    let controller = read(directory.path(), "controller.yaml");
    let listens = "listen: 127.0.0.1:7443\nadvertiseUrl: http://127.0.0.1:7443\ninsecureLoopback: true\n";
    assert!(controller.contains(listens), "{controller}");
    assert!(controller.ends_with("\npolicy:\n  secretsDirectory: /etc/hactl/secrets\n"), "{controller}");
}

#[test]
fn init_uses_certificates_for_all_connections() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let key = directory.path().join("n1.key");
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
    let result = init(directory.path(), &flags)
        .expect_stdout_parts(0, &[&format!("chgrp _hactl {key} && chmod 640 {key}")]);
    assert!(result.stdout.contains("copy the certificate or key to /etc/hactl/n1.pem"), "{}", result.stdout);
    let controller = read(directory.path(), "controller.yaml");
    for line in [
        "etcdCa: /etc/hactl/ca.pem",
        "clientCa: /etc/hactl/ca.pem",
        "tlsCert: /etc/hactl/n1.pem",
        "advertiseUrl: https://10.0.0.1:7443",
    ] {
        assert!(controller.contains(&format!("{line}\n")), "{line}:\n{controller}");
    }
    let config = read(directory.path(), "config.yaml");
    assert!(
        config.contains("- https://c2:7443\n") && config.contains(&format!("clientKey: {key}\n")),
        "{config}"
    );
}

#[test]
fn init_of_node_installs_no_controller() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    init(directory.path(), &[HTTP_ARGUMENTS.as_slice(), &["--role", "node"]].concat())
        .expect_stdout_parts(0, &["hactl config set-context"]);
    let mut names: Vec<String> = std::fs::read_dir(directory.path())
        .expect("a temporary directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["agent.yaml", "watchdog.env"]);
}

#[test]
fn init_dry_run_writes_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let result = init(directory.path(), &[HTTP_ARGUMENTS.as_slice(), &["--dry-run"]].concat());
    let agent = format!("# {}/agent.yaml\n", directory.path().display());
    result.expect_stdout_parts(0, &[&agent, "node: node1\n", "WATCHDOG_MODULE=softdog\n"]);
    assert_eq!(std::fs::read_dir(directory.path()).expect("a temporary directory").count(), 0);
}

#[test]
fn invalid_init_options_are_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
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
            &[HTTP_ARGUMENTS.as_slice(), &["--listen", "127.0.0.1:0"]].concat()[..],
            "selects a different port at each start",
        ),
        (
            &[HTTP_ARGUMENTS.as_slice(), &["--tls-cert", "c", "--tls-key", "k"]].concat()[..],
            "add --client-ca FILE",
        ),
        (
            &[HTTP_ARGUMENTS.as_slice(), &["--client-ca", "c"]].concat()[..],
            "add --tls-cert FILE and --tls-key FILE",
        ),
        (
            &[HTTP_ARGUMENTS.as_slice(), &["--client-certificate", "c"]].concat()[..],
            "--client-certificate requires --client-key",
        ),
        (
            &["--etcd-endpoints", "http://c1:2379", "--listen", "0.0.0.0:1"],
            "--listen: 0.0.0.0:1 is reachable",
        ),
        (
            &["--etcd-endpoints", "http://c1:2379", "--listen", "127.0.0.1:1"],
            "every local user who can connect to 127.0.0.1:1 is an administrator",
        ),
        (&["--etcd-endpoints", "http://c1:2379", "--listen", "here"], "\"here\" is not an address"),
        (&["--etcd-endpoints", "http://c1:2379", "--watchdog", "a b"], "is not the name of a kernel module"),
        (&["--etcd-endpoints", "http://c1:2379", "-o", "yaml"], "output format yaml is not supported"),
    ] {
        init(directory.path(), arguments).expect_stderr(2, part);
    }
    assert_eq!(std::fs::read_dir(directory.path()).expect("a temporary directory").count(), 0);
    init(Path::new("/proc/hactl"), &HTTP_ARGUMENTS)
        .expect_stderr(1, "cannot write /proc/hactl/controller.yaml");
}
