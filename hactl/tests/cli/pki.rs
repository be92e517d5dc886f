//! Tests of `hactl pki` in a directory: files and their permissions, refusals, renewal, revocation and the list.

use super::hactl::{CommandResult, command, run};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn pki(directory: &Path, arguments: &[&str]) -> CommandResult {
    run(command(&["pki", "--dir", &directory.display().to_string()]).args(arguments))
}

fn mode(directory: &Path, name: &str) -> u32 {
    directory.join(name).metadata().expect("a file").permissions().mode() & 0o7777
}

fn read(directory: &Path, name: &str) -> String {
    std::fs::read_to_string(directory.join(name)).expect("a file that was written")
}

/// Returns the certificates with a name, as the list shows them.
fn shown(directory: &Path, name: &str) -> Vec<Value> {
    let result = pki(directory, &["show", name, "-o", "json"]).expect_stdout_parts(0, &[name]);
    let list: Value = serde_json::from_str(&result.stdout).expect("JSON");
    list["items"].as_array().expect("a list").clone()
}

fn states(directory: &Path, name: &str) -> Vec<String> {
    shown(directory, name).iter().map(|item| item["state"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn authorities_are_created_once() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let directory = parent.path().join("pki");
    pki(&directory, &["show"]).expect_stderr(1, "run \"hactl pki init\" first");
    pki(&directory, &["issue", "node", "c1"]).expect_stderr(1, "run \"hactl pki init\" first");
    pki(&directory, &["init", "--dry-run"]).expect_stdout_parts(0, &["client-ca.pem would be created"]);
    assert!(!directory.exists(), "a dry run writes nothing");
    pki(&directory, &["init"])
        .expect_stdout_parts(0, &["peer-ca.pem created", "/ca.pem created", "client-ca.pem created"]);
    assert_eq!(directory.metadata().expect("a directory").permissions().mode() & 0o777, 0o700);
    for name in ["peer-ca", "ca", "client-ca"] {
        assert_eq!(mode(&directory, &format!("{name}.key")), 0o600);
    }
    let before = read(&directory, "ca.pem");
    pki(&directory, &["init"]).expect_stdout_parts(0, &["/ca.pem already exists"]);
    assert_eq!(read(&directory, "ca.pem"), before);
    // Neither a lost key nor the authority of another program is replaced.
    std::fs::remove_file(directory.join("ca.key")).expect("removed");
    pki(&directory, &["init"]).expect_stderr(1, "ca.key is missing");
    std::fs::copy(directory.join("client-ca.pem"), directory.join("ca.pem")).expect("copied");
    std::fs::copy(directory.join("client-ca.key"), directory.join("ca.key")).expect("copied");
    pki(&directory, &["issue", "etcd-server", "c1"])
        .expect_stderr(1, "belongs to authority \"hactl clients\" instead of \"hactl servers\"");
}

#[test]
fn certificates_are_issued_renewed_and_revoked() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    pki(directory, &["init"]).expect_stdout_parts(0, &[]);
    pki(directory, &["issue", "node", "c1", "--dry-run"])
        .expect_stdout_parts(0, &["c1.key would be created"]);
    assert!(!directory.join("c1.key").exists(), "a dry run writes nothing");
    pki(directory, &["issue", "node", "c1", "c2"])
        .expect_stdout_parts(0, &["c1.pem created", "c2.pem created"]);
    assert_eq!((mode(directory, "c1.key"), mode(directory, "c1.pem")), (0o600, 0o644));
    pki(directory, &["issue", "controller-server", "c1", "--address", "10.0.0.1,c1.example.com"])
        .expect_stdout_parts(0, &["api-c1.pem created"]);
    let server = shown(directory, "api-c1").remove(0);
    assert_eq!(
        server["addresses"],
        serde_json::json!(["c1", "localhost", "127.0.0.1", "::1", "10.0.0.1", "c1.example.com"])
    );
    let before = read(directory, "c1.pem");
    pki(directory, &["issue", "node", "c3", "c1"]).expect_stderr(1, "c1.pem already exists");
    assert!(!directory.join("c3.pem").exists() && read(directory, "c1.pem") == before, "nothing was written");
    for (arguments, part) in [
        (&["node", "root"][..], "\"root\" is reserved"),
        (&["node", "ca"], "\"ca\" is reserved"),
        (&["node", "../x"], "is not a valid machine name"),
        (&["node"], "no NAME specified"),
        (&["node", "c9", "--group", "admin"], "--group is for users only"),
        (&["node", "c9", "--address", "c9"], "--address is for servers only"),
        (&["user", "ada"], "no role specified for the user"),
        (&["user", "controller-c1", "--group", "admin"], "reserved"),
        (&["root", "ada"], "must have the name root"),
        (&["etcd-server", "c1", "c2", "--address", "10.0.0.1"], "--address is valid for a single machine"),
    ] {
        pki(directory, &[&["issue"], arguments].concat()).expect_stderr(2, part);
    }

    // A short certificate is due, and is renewed with a new key and the same names and validity.
    pki(directory, &["issue", "user", "ada", "--group", "viewer", "--valid", "60s"])
        .expect_stdout_parts(0, &[]);
    assert_eq!(states(directory, "ada"), ["RenewalDue"]);
    let key = read(directory, "ada.key");
    pki(directory, &["renew", "--dry-run"]).expect_stdout_parts(0, &["ada would be renewed"]);
    let renewed = pki(directory, &["renew"]).expect_stdout_parts(0, &["ada.pem renewed"]);
    assert!(!renewed.stdout.contains("c1.pem"), "{}", renewed.stdout);
    assert_ne!(read(directory, "ada.key"), key);
    assert_eq!(states(directory, "ada"), ["RenewalDue", "Replaced"]);
    assert_eq!(shown(directory, "ada")[0]["groups"], serde_json::json!(["hactl:viewer"]));
    pki(directory, &["renew", "api-c1"]).expect_stdout_parts(0, &["api-c1.pem renewed"]);
    assert_eq!(shown(directory, "api-c1")[0]["addresses"], server["addresses"]);
    pki(directory, &["renew", "missing"]).expect_stderr(1, "certificate missing not found");

    // Only the certificate that was replaced is revoked, then also the present one.
    pki(directory, &["revoke", "ada"]).expect_stderr(2, "confirmation required");
    pki(directory, &["revoke", "ada", "--replaced", "--yes"])
        .expect_stdout_parts(0, &["ada (user, replaced)", "client-crl.pem written"]);
    assert_eq!(states(directory, "ada"), ["RenewalDue", "Revoked"]);
    pki(directory, &["revoke", "ada", "c2", "--yes"]).expect_stdout_parts(0, &["c2 (node)"]);
    assert_eq!(states(directory, "ada"), ["Revoked", "Revoked"]);
    pki(directory, &["revoke", "ada", "--yes"]).expect_stdout_parts(0, &["already revoked"]);
    pki(directory, &["renew", "--all"]).expect_stdout_parts(0, &["c1.pem renewed"]);
    assert_eq!(
        states(directory, "c2"),
        ["Revoked"],
        "a revoked certificate is not renewed unless it is named"
    );
    pki(directory, &["revoke", "--serial", "01:ab", "--yes"])
        .expect_stdout_parts(0, &["client certificate with serial 01ab"]);
    pki(directory, &["revoke", "--serial", "xy", "--yes"]).expect_stderr(2, "is not a serial number");
    pki(directory, &["revoke", "api-c1", "--yes"]).expect_stderr(0, "clients do not check it");
    let table = pki(directory, &["show"]).expect_stdout_parts(0, &["NAME", "authority", "hactl etcd peers"]);
    assert!(!table.stdout.contains("PRIVATE"), "{}", table.stdout);
}

#[test]
fn the_settings_of_a_controller_name_lists_and_authorities() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let target = directory.path().display().to_string();
    let flags = "--role controller --etcd-endpoints https://c1:2379 --etcd-ca ca.pem --etcd-cert controller-c1.pem \
        --etcd-key controller-c1.key --tls-cert api-c1.pem --tls-key api-c1.key --client-ca client-ca.pem \
        --client-crl client-crl.pem --join-authority join";
    let arguments: Vec<&str> =
        ["init", "--directory", &target].into_iter().chain(flags.split_whitespace()).collect();
    run(&mut command(&arguments)).expect_stdout_parts(0, &["controller.yaml created"]);
    let text = read(directory.path(), "controller.yaml");
    for (name, file) in [
        ("clientCa", "client-ca.pem"),
        ("clientCrl", "client-crl.pem"),
        ("joinAuthority", "join"),
        ("tlsCert", "api-c1.pem"),
        ("etcdCert", "controller-c1.pem"),
    ] {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}: "))).unwrap_or_default();
        assert!(line.ends_with(&format!("/{file}")), "{name}: {text}");
    }
}

#[test]
fn a_join_needs_a_token_and_no_certificate_files() {
    let token = format!("hactl_join_c4_{}_{}", "a".repeat(64), "b".repeat(64));
    let join = |arguments: &[&str]| run(command(&["init"]).args(arguments));
    join(&["--join", "hactl_join_c4@c1"]).expect_stderr(2, "not a valid join token");
    let target = format!("{token}@127.0.0.1:1");
    join(&["--join", &token]).expect_stderr(2, "specify TOKEN@HOST");
    join(&["--join", &target, "--etcd-cert", "x"]).expect_stderr(2, "cannot be used with");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().display().to_string();
    join(&["--join", &target, "--directory", &path, "--node", "c5"]).expect_stderr(2, "is for node c4");
    join(&["--join", &target, "--directory", &path, "--role", "controller"])
        .expect_stderr(2, "for nodes only");
    let refused = join(&["--join", &target, "--directory", &path]).expect_stderr(3, "127.0.0.1:1");
    assert!(!refused.stderr.contains(&token), "{}", refused.stderr);
    assert_eq!(directory.path().read_dir().expect("a directory").count(), 0, "a failed join leaves no file");
}
