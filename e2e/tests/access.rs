//! Tests of the identities of clients on a whole cluster: roles of certificates, tokens, the Unix socket, revocation, and
//! the audit log.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use ha_e2e::binaries;
use ha_e2e::command::{check_output, output_text};
use ha_e2e::plan::{API_PORT, ETCD_PEER_PORT, Plan, SHARED_DIRECTORY, TOKEN_FILE, api_socket, audit_log};
use ha_e2e::scenario::{STEP_TIMEOUT, Scenario, WITNESS};
use ha_e2e::scratch;
use ha_e2e::wait::{wait_for, wait_until};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};

/// Settings of `openssl ca`, as in docs/tasks/rotate-certificates.md.
const OPENSSL_SETTINGS: &str = "[ca]\ndefault_ca = hactl\n[hactl]\ndatabase = index.txt\ncrlnumber = crlnumber\n\
    default_md = sha256\ndefault_crl_days = 3650\ncertificate = ca.pem\nprivate_key = ca.key\n";

/// Runs a shell command in the directory with the authority.
fn shell(directory: &Path, command: &str) -> Result<()> {
    let output = Command::new("sh").args(["-ec", command]).current_dir(directory).output()?;
    ensure!(output.status.success(), "{command}: {}", output_text(&output));
    Ok(())
}

/// Issues a client certificate with a role, with the documented commands.
fn issue(certificates: &Path, name: &str, group: &str) -> Result<()> {
    shell(
        certificates,
        &format!(
            "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /O={group}/CN={name} -keyout {name}.key \
             -out {name}.csr\n\
             printf 'keyUsage=digitalSignature\\nextendedKeyUsage=clientAuth\\n' >{name}.ext\n\
             openssl x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 730 -out {name}.pem \
             -extfile {name}.ext"
        ),
    )
}

#[test]
fn the_certificate_of_a_node_opens_only_its_own_keys_in_etcd() -> Result<()> {
    let scenario = Scenario::start("etcd-users")?;
    let cluster = &scenario.cluster;
    let certificates = cluster.directory().join("tls");
    let file = |name: &str| certificates.join(name).to_string_lossy().into_owned();
    let (authority, endpoints) = (file("ca.pem"), cluster.etcdctl().endpoints);
    let etcdctl = binaries::etcdctl()?;
    let programs = etcdctl.parent().context("etcdctl has no directory")?.to_string_lossy().into_owned();
    let as_identity = |name: &str, command: &[&str], more: &[&str]| {
        let (pem, key) = (file(&format!("{name}.pem")), file(&format!("{name}.key")));
        let etcd = [
            "--etcd-endpoints",
            &endpoints,
            "--etcd-ca",
            &authority,
            "--etcd-cert",
            &pem,
            "--etcd-key",
            &key,
        ];
        cluster.hactl_without_connection(&[command, &etcd, &["--programs", &programs], more].concat())
    };
    check_output(
        &as_identity("node1", &["store", "verify"], &[])?,
        0,
        &["user node1 has the expected permissions"],
    )?;
    let verified = as_identity("controller1", &["store", "verify"], &["--controller"])?;
    check_output(&verified, 0, &["user controller1 has the expected permissions"])?;
    check_output(
        &as_identity("controller1", &["store", "verify"], &[])?,
        1,
        &["differ from the expected permissions"],
    )?;

    // The steps are not repeated, and only the certificate of root may take them.
    check_output(
        &as_identity("root", &["store", "secure"], &["--dry-run"])?,
        0,
        &["etcd already has these users"],
    )?;
    check_output(
        &as_identity("node1", &["store", "secure"], &["--dry-run"])?,
        2,
        &["of user \"node1\", not of root"],
    )?;
    let planned = as_identity("root", &["store", "secure"], &["--node", "node9", "--dry-run"])?;
    check_output(&planned, 0, &["etcdctl user add node9 --no-password"])?;

    // A stolen certificate of a node reaches neither the leases of others nor the administration of etcd.
    let etcdctl_as_node = |arguments: &[&str]| -> Result<Output> {
        let identity = [format!("--cert={}", file("node1.pem")), format!("--key={}", file("node1.key"))];
        // A snapshot comes from one member.
        let endpoint = endpoints.split(',').next().unwrap_or(&endpoints);
        let connection = [format!("--cacert={authority}"), format!("--endpoints={endpoint}")];
        Ok(Command::new(&etcdctl).args(connection).args(identity).args(arguments).output()?)
    };
    let heartbeat =
        cluster.etcdctl().get(&cluster.keys().alive(&"node2".into()))?.context("node2 has no heartbeat")?;
    let lease = format!("{:x}", heartbeat.lease);
    for arguments in [
        &["lease", "list"][..],
        &["lease", "revoke", &lease],
        &["lease", "timetolive", &lease, "--keys"],
        &["put", "/hactl/default/v1/leader", "x"],
        &["put", "/hactl/default/v1/alive/node2", "x"],
        &["put", "/other", "x"],
        &["del", "--prefix", "/hactl/"],
        &["get", "--prefix", "/hactl/default/v1/spec/node/"],
        &["user", "list"],
        &["role", "list"],
        &["auth", "disable"],
        &["snapshot", "save", "/dev/null"],
        &["defrag"],
        &["compact", "1"],
    ] {
        let output = etcdctl_as_node(arguments)?;
        ensure!(
            output_text(&output).contains("permission denied"),
            "etcdctl {} as node1: {}",
            arguments.join(" "),
            output_text(&output)
        );
    }
    let remaining =
        cluster.etcdctl().get(&cluster.keys().alive(&"node2".into()))?.context("node2 has no heartbeat")?;
    ensure!(remaining.lease == heartbeat.lease, "the lease of node2 is unchanged");

    // On the peer port, users and roles do not apply, so its authority must be another one.
    let member = cluster.machine("etcd1")?.address;
    let peer_request = |machine: &str, certificates: &Path, name: &str| -> Result<Output> {
        let [pem, key] = ["pem", "key"]
            .map(|extension| certificates.join(format!("{name}.{extension}")).to_string_lossy().into_owned());
        let url = format!("https://{member}:{ETCD_PEER_PORT}/members");
        // etcd compares the address of a peer with the names in its certificate.
        let curl = ["curl", "--silent", "--show-error", "--fail", "--http1.1", "--insecure"];
        cluster.run_as_client(machine, &[&curl[..], &["--cert", &pem, "--key", &key, &url]].concat())
    };
    check_output(&peer_request("etcd2", &certificates.join("peers"), "etcd2")?, 0, &["clientURLs"])?;
    for (machine, name) in
        [("node1", "node1"), ("controller1", "controller1"), ("etcd2", "etcd2"), ("node1", "root")]
    {
        let refused = peer_request(machine, &certificates, name)?;
        ensure!(!refused.status.success(), "{name} on the peer port: {}", output_text(&refused));
    }
    scenario.finish()
}

#[test]
fn every_client_has_the_permissions_of_its_roles_until_it_is_revoked() -> Result<()> {
    let scenario = Scenario::start("access")?;
    let cluster = &scenario.cluster;
    let certificates = cluster.directory().join("tls");
    let file = |path: &Path| path.to_string_lossy().into_owned();
    let (url, authority) = (cluster.url("controller1")?, file(&certificates.join("ca.pem")));
    let server = ["--server", url.as_str(), "--certificate-authority", authority.as_str()];
    let run_as_client = |connection: &[&str], arguments: &[&str]| {
        cluster.hactl_without_connection(&[&server, connection, arguments].concat())
    };

    // A token has one role. It is valid as soon as the file has it.
    let token_file = file(&cluster.directory().join(TOKEN_FILE));
    let created = cluster.hactl_without_connection(&[
        "token",
        "create",
        "ada",
        "--role",
        "viewer",
        "--file",
        &token_file,
    ])?;
    check_output(&created, 0, &["token ada with role viewer is valid until"])?;
    let token = String::from_utf8(created.stdout)?.trim().to_owned();
    ensure!(!fs::read_to_string(&token_file)?.contains(&token), "the file contains the token itself");
    let token_path = cluster.directory().join("ada.token");
    fs::write(&token_path, &token)?;
    let token_path = file(&token_path);
    let ada = ["--token-file", token_path.as_str()];
    check_output(&run_as_client(&ada, &["get", "resources"])?, 0, &["witness"])?;
    check_output(
        &run_as_client(&ada, &["stop", "witness"])?,
        4,
        &["User \"ada\" cannot create", "hactl:operator or hactl:admin"],
    )?;
    check_output(&run_as_client(&[], &["get", "resources"])?, 4, &["no client certificate and no token"])?;
    check_output(
        &run_as_client(&["--token", "hactl_wrong"], &["get", "nodes"])?,
        4,
        &["unknown or was revoked"],
    )?;
    let kubectl = |arguments: &[&str]| -> Result<Output> {
        let connection = [
            "--server",
            &url,
            "--certificate-authority",
            &authority,
            "--token",
            &token,
            "--kubeconfig",
            "/dev/null",
        ];
        Ok(Command::new(binaries::kubectl()?).args(connection).args(arguments).output()?)
    };
    check_output(&kubectl(&["auth", "whoami"])?, 0, &["ada", "hactl:viewer"])?;
    check_output(&kubectl(&["auth", "can-i", "delete", "resources"])?, 1, &["no"])?;

    // Root is the administrator on the socket. Other users cannot open it.
    let socket = format!("unix:{}", api_socket(cluster.machine("controller1")?).display());
    let local = ["--server", socket.as_str()];
    check_output(
        &cluster.hactl_without_connection(&[&local[..], &["auth", "can-i", "delete", "nodes"]].concat())?,
        0,
        &["yes"],
    )?;
    check_output(
        &cluster.hactl_without_connection(
            &[&local[..], &["label", "resource", "witness", "tier=test"]].concat(),
        )?,
        0,
        &[],
    )?;
    if nix::unistd::geteuid().is_root() {
        let program = binaries::workspace_program("hactl")?;
        // Copied, because other users may not enter the directory of the build.
        let copy = Path::new("/tmp").join(format!("hactl-{}", std::process::id()));
        fs::copy(&program, &copy)?;
        let as_anonymous = Command::new("setpriv")
            .args(["--reuid", "65534", "--clear-groups", "--"])
            .arg(&copy)
            .args(local)
            .args(["get", "nodes"])
            .output();
        fs::remove_file(&copy)?;
        check_output(&as_anonymous?, 3, &["Permission denied"])?;
    }

    // A revoked certificate loses its watch, and is refused from then on.
    fs::write(certificates.join("ca.cnf"), OPENSSL_SETTINGS)?;
    issue(&certificates, "bob", "hactl:editor")?;
    let (pem, key) = (file(&certificates.join("bob.pem")), file(&certificates.join("bob.key")));
    let bob = ["--client-certificate", pem.as_str(), "--client-key", key.as_str()];
    check_output(&run_as_client(&bob, &["set", "witness", "priority=7"])?, 0, &[])?;
    check_output(&run_as_client(&bob, &["cordon", "node1"])?, 4, &["User \"bob\" cannot patch"])?;
    let watching = |connection: &[&str]| {
        Command::new(binaries::workspace_program("hactl")?)
            .args(server)
            .args(connection)
            .args(["get", "resources", "--watch"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("hactl cannot be started")
    };
    let (bob_watch, ada_watch) = (watching(&bob)?, watching(&ada)?);
    shell(
        &certificates,
        "touch index.txt; echo 10 >crlnumber\nopenssl ca -config ca.cnf -revoke bob.pem\n\
         openssl ca -config ca.cnf -gencrl -out crl.new\nmv crl.new crl.pem",
    )?;
    let ended = bob_watch.wait_with_output()?;
    ensure!(!ended.status.success(), "{}", output_text(&ended));
    wait_until("bob is refused", STEP_TIMEOUT, || {
        run_as_client(&bob, &["get", "resources"]).is_ok_and(|output| !output.status.success())
    })?;
    check_output(
        &cluster.hactl_without_connection(&["token", "revoke", "ada", "--file", &token_file])?,
        0,
        &["token ada revoked"],
    )?;
    let ended = ada_watch.wait_with_output()?;
    check_output(&ended, 4, &["unknown or was revoked"])?;
    check_output(&cluster.hactl(&["get", "resources"])?, 0, &["witness"])?;

    // Each of these is in the audit log.
    let log_path = audit_log(cluster.machine("controller1")?);
    let has_line = |expected: &[(&str, &str)]| -> Result<bool> {
        let text = fs::read_to_string(&log_path)?;
        let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let text_of = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Ok(lines.iter().any(|line| expected.iter().all(|(field, value)| text_of(&line[*field]) == *value)))
    };
    for expected in [
        [("user", "ada"), ("verb", "create"), ("resource", "operations"), ("outcome", "Refused")],
        [("user", "bob"), ("verb", "patch"), ("name", "witness"), ("outcome", "Done")],
        [("user", "bob"), ("verb", "patch"), ("resource", "nodes"), ("code", "403")],
        [("user", "root"), ("verb", "patch"), ("name", "witness"), ("outcome", "Done")],
        [("user", ""), ("verb", "list"), ("resource", "resources"), ("code", "401")],
    ] {
        let is_in_log = wait_for("an audit record", STEP_TIMEOUT, || {
            has_line(&expected).ok().filter(|is_recorded| *is_recorded)
        });
        is_in_log.with_context(|| {
            format!("{expected:?} is missing: {}", fs::read_to_string(&log_path).unwrap_or_default())
        })?;
    }

    // 1,100 connections of unknown clients keep neither a user nor an agent out.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    let address = (cluster.machine("controller1")?.address, API_PORT);
    let silent: Vec<TcpStream> = (0..1100).map(|_| TcpStream::connect(address)).collect::<Result<_, _>>()?;
    let client =
        |name: &str| ["pem", "key"].map(|extension| file(&certificates.join(format!("{name}.{extension}"))));
    let [pem, key] = client("admin");
    let admin = ["--client-certificate", pem.as_str(), "--client-key", key.as_str()];
    check_output(&run_as_client(&admin, &["get", "resources"])?, 0, &["witness"])?;
    let [pem, key] = client("node1");
    let hold = Command::new("curl")
        .args(["--silent", "--show-error", "--cacert", &authority, "--cert", &pem, "--key", &key])
        .args(["--json", r#"{"candidate": "another"}"#, &format!("{url}/apis/hactl.io/v1/nodes/node1/hold")])
        .output()?;
    check_output(&hold, 0, &["granted"])?;
    drop(silent);
    scenario.finish()
}

#[test]
fn a_node_runs_no_program_that_its_policy_forbids() -> Result<()> {
    let mut plan = Plan::test(&scratch::directory("node-policy")?);
    plan.policies.insert("node1".to_owned(), "{allowRoot: false}".to_owned());
    let scenario = Scenario::start_with(plan)?;
    let cluster = &scenario.cluster;
    ensure!(scenario.wait_until_started(WITNESS)? != "node1", "the witness runs as root on node1");

    // The monitor reports that the service does not run. Its probes on the other nodes show that the programs work.
    let script = format!("touch {SHARED_DIRECTORY}/intruder-$HA_NODE; exit 7");
    let program = ["/bin/sh", "-c", &script];
    let is_marked = |node: &str| cluster.shared_directory().join(format!("intruder-{node}")).exists();
    scenario.apply("groups", "only1", &json!({"nodes": {"node1": 0}, "restricted": true}))?;
    let exec = json!({"start": program, "stop": program, "monitor": program});
    scenario.apply("resources", "intruder", &json!({"driver": {"exec": exec}, "group": "only1"}))?;
    wait_until("the refusal in hactl why", STEP_TIMEOUT, || {
        cluster
            .hactl(&["why", "intruder"])
            .is_ok_and(|output| output_text(&output).contains("node policy does not allow exec as root"))
    })?;
    check_output(&cluster.hactl(&["get", "node", "node1", "-o", "yaml"])?, 0, &["allowRoot: false"])?;
    let doctor = output_text(&cluster.hactl(&["doctor", "node1"])?);
    ensure!(doctor.contains("root: no; drivers: all"), "{doctor}");
    let doctor = output_text(&cluster.hactl(&["doctor", "node2"])?);
    ensure!(doctor.contains("users who may edit resources are root on this node"), "{doctor}");

    check_output(&cluster.hactl(&["delete", "resource", "intruder", "--stop"])?, 0, &[])?;
    wait_until("the deletion of the resource", STEP_TIMEOUT, || {
        scenario.object("resources", "intruder").is_none()
    })?;
    ensure!(
        is_marked("node2") && is_marked("node3"),
        "no program of the resource ran on nodes without a policy"
    );
    ensure!(!is_marked("node1"), "a program of the resource ran on node1");
    scenario.finish()
}
