//! Tests of `hactl pki` with real daemons: every certificate has one purpose, a node joins with a token and renews its
//! certificate, and a stolen certificate is revoked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use ha_e2e::binaries;
use ha_e2e::command::{check_output, output_text, path_text};
use ha_e2e::network::free_port;
use ha_e2e::process::OwnedChild;
use ha_e2e::scenario::STEP_TIMEOUT;
use ha_e2e::scratch;
use ha_e2e::wait::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Name of the only node.
const NODE: &str = "n1";
/// Names of the machines with a controller.
const CONTROLLERS: [&str; 2] = ["c1", "c2"];

/// An etcd member and two controllers on loopback, with certificates from `hactl pki`.
struct TestCluster {
    directory: PathBuf,
    etcd_url: String,
    controllers: Vec<(String, OwnedChild)>,
    _etcd: OwnedChild,
}

impl TestCluster {
    fn start() -> Result<Self> {
        let directory = scratch::directory("certificates")?;
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
        let pki = |arguments: &[&str]| {
            hactl(&[&["pki", "--dir", &path_text(&directory.join("pki"))], arguments].concat())
        };
        check_output(&pki(&["init"])?, 0, &["ca.pem created"])?;
        for kind in ["etcd-peer", "etcd-server"] {
            check_output(&pki(&["issue", kind, "c1"])?, 0, &["valid until"])?;
        }
        for kind in ["controller-server", "controller-client"] {
            check_output(&pki(&["issue", kind, "c1", "c2"])?, 0, &["valid until"])?;
        }
        check_output(&pki(&["issue", "root"])?, 0, &[])?;
        check_output(&pki(&["issue", "user", "ada", "--group", "admin"])?, 0, &[])?;
        check_output(&pki(&["issue", "user", "ada", "--group", "viewer"])?, 1, &["ada.pem already exists"])?;

        let (etcd, etcd_url) = start_etcd(&directory)?;
        let mut cluster = Self { directory, etcd_url, controllers: Vec::new(), _etcd: etcd };
        wait_until("etcd to be healthy", STEP_TIMEOUT, || {
            cluster.etcdctl("root", &["endpoint", "health"]).is_ok_and(|output| output.status.success())
        })?;
        let controllers = CONTROLLERS.map(|name| format!("controller-{name}")).join(",");
        let secured = cluster.run_as_root(&["store", "secure", "--yes", "--controller", &controllers])?;
        check_output(&secured, 0, &["authentication is enabled"])?;
        for name in CONTROLLERS {
            let controller = cluster.start_controller(name)?;
            cluster.controllers.push(controller);
        }
        for index in 0..CONTROLLERS.len() {
            wait_until("a controller to be ready", STEP_TIMEOUT, || {
                cluster.run_as_user(index, &["get", "nodes"]).is_ok_and(|output| output.status.success())
            })?;
        }
        Ok(cluster)
    }

    fn pki_file(&self, name: &str) -> String {
        path_text(&self.directory.join("pki").join(name))
    }

    fn start_controller(&self, name: &str) -> Result<(String, OwnedChild)> {
        let address = format!("127.0.0.1:{}", free_port()?);
        let url = format!("https://{address}");
        let state = self.directory.join(name);
        let mut command = Command::new(binaries::workspace_program("ha-controller")?);
        for (flag, value) in [
            ("etcd-endpoints", self.etcd_url.as_str()),
            ("etcd-ca", &self.pki_file("ca.pem")),
            ("etcd-cert", &self.pki_file(&format!("controller-{name}.pem"))),
            ("etcd-key", &self.pki_file(&format!("controller-{name}.key"))),
            ("id", name),
            ("state-dir", &path_text(&state)),
            ("machine", name),
            ("listen", &address),
            ("advertise-url", &url),
            ("tls-cert", &self.pki_file(&format!("api-{name}.pem"))),
            ("tls-key", &self.pki_file(&format!("api-{name}.key"))),
            ("client-ca", &self.pki_file("client-ca.pem")),
            ("client-crl", &self.pki_file("client-crl.pem")),
            ("authorization", "Roles"),
            ("join-authority", &self.pki_file("")),
            ("audit-log", &path_text(&self.directory.join(format!("{name}.audit")))),
        ] {
            command.args([format!("--{flag}"), value.to_owned()]);
        }
        Ok((url, OwnedChild::start(&mut command, &self.directory.join(format!("{name}.log")))?))
    }

    /// Starts the agent of the node, with the files that `hactl init --join` wrote.
    fn start_agent(&self) -> Result<OwnedChild> {
        let files = self.node_directory();
        let state = self.directory.join("agent");
        let machine_id = self.directory.join("machine-id");
        fs::write(&machine_id, "0123456789abcdef0123456789abcdef\n")?;
        let mut command = Command::new(binaries::workspace_program("ha-node-agent")?);
        for (flag, value) in [
            ("etcd-endpoints", self.etcd_url.clone()),
            ("etcd-ca", path_text(&files.join("ca.pem"))),
            ("etcd-cert", path_text(&files.join("n1.pem"))),
            ("etcd-key", path_text(&files.join("n1.key"))),
            ("node", NODE.to_owned()),
            ("state-dir", path_text(&state)),
            ("machine-id-file", path_text(&machine_id)),
            ("watchdog-socket", path_text(&state.join("no-watchdog.sock"))),
            ("podman-socket", path_text(&state.join("no-podman.sock"))),
            ("admin-listen", format!("127.0.0.1:{}", free_port()?)),
        ] {
            command.args([format!("--{flag}"), value]);
        }
        OwnedChild::start(&mut command, &self.directory.join("agent.log"))
    }

    fn node_directory(&self) -> PathBuf {
        self.directory.join(NODE)
    }

    /// Returns the connection of hactl to etcd as root.
    fn run_as_root(&self, arguments: &[&str]) -> Result<Output> {
        let [ca, pem, key] = ["ca.pem", "root.pem", "root.key"].map(|name| self.pki_file(name));
        let programs = path_text(binaries::etcdctl()?.parent().context("etcdctl has no directory")?);
        let etcd = [
            "--etcd-endpoints",
            &self.etcd_url,
            "--etcd-ca",
            &ca,
            "--etcd-cert",
            &pem,
            "--etcd-key",
            &key,
            "--programs",
            &programs,
        ];
        self.run_as_user(0, &[arguments, &etcd].concat())
    }

    /// Runs hactl as user ada, connected to one controller.
    fn run_as_user(&self, controller: usize, arguments: &[&str]) -> Result<Output> {
        let url = self.controllers.get(controller).map_or("https://localhost:1", |(url, _)| url);
        let [ca, pem, key] = ["ca.pem", "ada.pem", "ada.key"].map(|name| self.pki_file(name));
        let api = [
            "--server",
            url,
            "--certificate-authority",
            &ca,
            "--client-certificate",
            &pem,
            "--client-key",
            &key,
        ];
        hactl(&[&api, arguments].concat())
    }

    fn pki(&self, arguments: &[&str]) -> Result<Output> {
        self.run_as_user(1, &[&["pki", "--dir", &self.pki_file("")], arguments].concat())
    }

    /// Runs etcdctl with a certificate of the directory of `hactl pki`.
    fn etcdctl(&self, name: &str, arguments: &[&str]) -> Result<Output> {
        let [pem, key] = ["pem", "key"].map(|extension| self.pki_file(&format!("{name}.{extension}")));
        self.etcdctl_with(&pem, &key, arguments)
    }

    fn etcdctl_with(&self, pem: &str, key: &str, arguments: &[&str]) -> Result<Output> {
        Ok(Command::new(binaries::etcdctl()?)
            .args(["--endpoints", &self.etcd_url, "--command-timeout", "3s"])
            .args(["--cacert", &self.pki_file("ca.pem"), "--cert", pem, "--key", key])
            .args(arguments)
            .output()?)
    }

    fn join(&self, token: &str, controller: usize, directory: &Path) -> Result<Output> {
        let host = self.controllers[controller].0.trim_start_matches("https://");
        let target = format!("{token}@{host}");
        let endpoints = ["--etcd-endpoints", self.etcd_url.as_str(), "--watchdog", ""];
        hactl(&[&["init", "--join", &target, "--directory", &path_text(directory)], &endpoints[..]].concat())
    }

    fn join_token(&self) -> Result<String> {
        let created = self.run_as_user(0, &["pki", "join-token", NODE, "--ttl", "10m"])?;
        check_output(&created, 0, &["the token permits one machine to join as node n1"])?;
        Ok(String::from_utf8(created.stdout)?.trim().to_owned())
    }

    /// Sends a request of the node to a controller with curl, and returns its output.
    fn send_as_node(&self, pem: &str, key: &str, path: &str, body: &Value) -> Result<Output> {
        Ok(Command::new("curl")
            .args(["--silent", "--show-error", "--cacert", &self.pki_file("ca.pem")])
            .args(["--cert", pem, "--key", key, "--json", &body.to_string()])
            .arg(format!("{}/apis/hactl.io/v1/{path}", self.controllers[0].0))
            .output()?)
    }

    fn check_audit_record(&self, controller: &str, parts: &[&str]) -> Result<()> {
        let log = fs::read_to_string(self.directory.join(format!("{controller}.audit")))?;
        let is_found = log.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        ensure!(is_found, "no audit record with {parts:?}: {log}");
        Ok(())
    }
}

/// Ends a process as systemd does, and waits for its end.
fn terminate(mut process: OwnedChild) -> Result<()> {
    kill(Pid::from_raw(i32::try_from(process.0.id())?), Signal::SIGTERM)?;
    process.0.wait()?;
    Ok(())
}

fn hactl(arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(binaries::workspace_program("hactl")?)
        .args(arguments)
        .env("HACTL_CONFIG", "/dev/null")
        .stdin(Stdio::null())
        .output()?)
}

/// Starts an etcd member with the settings of docs/install.md. Its certificate is for a server only.
fn start_etcd(directory: &Path) -> Result<(OwnedChild, String)> {
    let (client, peer) = (free_port()?, free_port()?);
    let url = format!("https://localhost:{client}");
    let file = |name: &str| directory.join("pki").join(name);
    let settings = json!({
        "name": "c1",
        "data-dir": directory.join("etcd"),
        "listen-client-urls": format!("https://127.0.0.1:{client}"),
        "advertise-client-urls": url,
        "listen-peer-urls": format!("https://127.0.0.1:{peer}"),
        "initial-advertise-peer-urls": format!("https://localhost:{peer}"),
        "initial-cluster": format!("c1=https://localhost:{peer}"),
        "enable-grpc-gateway": false,
        "ClientTLSInfo": {"CRLFile": file("client-crl.pem")},
        "PeerTLSInfo": {"CRLFile": file("peer-crl.pem")},
        "client-transport-security": {"cert-file": file("etcd-c1.pem"), "key-file": file("etcd-c1.key"),
            "trusted-ca-file": file("client-ca.pem"), "client-cert-auth": true},
        "peer-transport-security": {"cert-file": file("peer-c1.pem"), "key-file": file("peer-c1.key"),
            "trusted-ca-file": file("peer-ca.pem"), "client-cert-auth": true},
        "unsafe-no-fsync": true,
    });
    let path = directory.join("etcd.yaml");
    fs::write(&path, settings.to_string())?;
    let mut command = Command::new(binaries::etcd()?);
    command.arg("--config-file").arg(path);
    Ok((OwnedChild::start(&mut command, &directory.join("etcd.log"))?, url))
}

/// Returns the serial number of a certificate.
fn serial_number(path: &Path) -> Result<String> {
    let output = Command::new("openssl").args(["x509", "-noout", "-serial", "-in"]).arg(path).output()?;
    ensure!(output.status.success(), "{}", output_text(&output));
    let text = String::from_utf8(output.stdout)?;
    Ok(text.trim().trim_start_matches("serial=").to_lowercase())
}

#[test]
fn a_node_joins_renews_its_certificate_and_is_revoked() -> Result<()> {
    let cluster = TestCluster::start()?;
    let files = cluster.node_directory();
    let log = fs::read_to_string(cluster.directory.join("etcd.log"))?;
    ensure!(!log.contains("rejected connection"), "etcd accepts its own connections: {log}");

    // The etcd user comes first. Each step is planned, and not repeated.
    let planned = cluster.run_as_root(&["node", "add", NODE, "--dry-run"])?;
    check_output(&planned, 0, &["etcdctl user add n1 --no-password"])?;
    check_output(&cluster.run_as_root(&["node", "add", NODE])?, 0, &["etcd user n1 created"])?;
    check_output(&cluster.run_as_root(&["node", "add", NODE])?, 0, &["etcd already has user n1"])?;
    check_output(
        &cluster.run_as_root(&["node", "add", "controller-c1"])?,
        1,
        &["is not the user of a node"],
    )?;

    // A token whose pin is that of another authority is never sent to the controller.
    let token = cluster.join_token()?;
    let (start, pin) = token.rsplit_once('_').context("a token has a pin")?;
    let other_pin = format!("{start}_{}", pin.chars().rev().collect::<String>());
    check_output(&cluster.join(&other_pin, 0, &files)?, 1, &["is not the controller of this token"])?;
    ensure!(!files.join("n1.key").exists(), "a failed join leaves no key");
    check_output(&cluster.join(&token, 0, &files)?, 0, &["n1.pem created", "agent.yaml created"])?;
    let mode = Command::new("stat").args(["-c", "%a"]).arg(files.join("n1.key")).output()?;
    check_output(&mode, 0, &["600"])?;
    // The other controller refuses the same token.
    let second_join = cluster.join(&token, 1, &cluster.directory.join("thief"))?;
    check_output(&second_join, 4, &["was used"])?;
    cluster.check_audit_record("c1", &["\"subresource\":\"join\"", "\"name\":\"n1\"", "\"code\":200"])?;
    cluster.check_audit_record("c2", &["\"subresource\":\"join\"", "\"name\":\"n1\"", "\"code\":401"])?;
    check_output(&cluster.join(&token, 0, &files)?, 1, &["n1.pem already exists", "the token was not used"])?;

    let agent = cluster.start_agent()?;
    wait_until("the node to register", STEP_TIMEOUT, || {
        cluster.run_as_user(1, &["get", "node", NODE]).is_ok_and(|output| output.status.success())
    })?;
    let ready = ["wait", "node/n1", "--for=condition=Ready", "--timeout", "60s"];
    check_output(&cluster.run_as_user(1, &ready)?, 0, &["condition met"])?;

    // The certificate of a node is not accepted as a server, and renews only its own node.
    let (pem, key) = (path_text(&files.join("n1.pem")), path_text(&files.join("n1.key")));
    let as_server = Command::new("openssl")
        .args([
            "verify",
            "-x509_strict",
            "-purpose",
            "sslserver",
            "-CAfile",
            &cluster.pki_file("client-ca.pem"),
            &pem,
        ])
        .output()?;
    ensure!(!as_server.status.success(), "{}", output_text(&as_server));
    let refused = cluster.send_as_node(&pem, &key, "nodes/n2/certificate", &json!({"request": ""}))?;
    check_output(&refused, 0, &["only the agent of n2", "403"])?;
    let refused = cluster.send_as_node(&pem, &key, "nodes/n1/jointoken", &json!({"validSeconds": 60}))?;
    check_output(&refused, 0, &["required group: hactl:admin", "403"])?;

    // The agent replaces a certificate that has used two thirds of its lifetime, and keeps running.
    check_output(&cluster.pki(&["issue", "node", NODE, "--valid", "140s"])?, 0, &["valid until"])?;
    let issued_serial_number = serial_number(Path::new(&cluster.pki_file("n1.pem")))?;
    for extension in ["key", "pem"] {
        let next = files.join("next");
        fs::copy(cluster.pki_file(&format!("n1.{extension}")), &next)?;
        fs::rename(&next, files.join(format!("n1.{extension}")))?;
    }
    wait_until("the agent to renew its certificate", STEP_TIMEOUT, || {
        serial_number(&files.join("n1.pem")).is_ok_and(|serial_number| serial_number != issued_serial_number)
    })?;
    let renewed_serial_number = serial_number(&files.join("n1.pem"))?;
    let shown = cluster.run_as_user(0, &["get", "node", NODE, "-o", "jsonpath={.status.state}"])?;
    check_output(&shown, 0, &["Online"])?;
    check_output(
        &cluster.etcdctl_with(&pem, &key, &["get", "/hactl/default/v1/alive/n1"])?,
        0,
        &["/alive/n1"],
    )?;
    let stolen = cluster.directory.join("stolen.pem");
    fs::copy(&pem, &stolen)?;

    // Revocation includes the certificates that controllers issued. Controllers do not renew them any longer, and etcd
    // refuses them.
    check_output(&cluster.run_as_root(&["node", "remove", NODE, "--yes"])?, 1, &["registration is active"])?;
    terminate(agent)?;
    let planned = cluster.pki(&["revoke", NODE, "--renewed", "--dry-run"])?;
    check_output(&planned, 0, &[&renewed_serial_number, &issued_serial_number])?;
    check_output(&cluster.pki(&["revoke", NODE, "--renewed", "--yes"])?, 0, &["client-crl.pem written"])?;
    let stolen = path_text(&stolen);
    let body = json!({"request": ""});
    wait_until("the controller to refuse the revoked certificate", STEP_TIMEOUT, || {
        cluster
            .send_as_node(&stolen, &key, "nodes/n1/certificate", &body)
            .is_ok_and(|output| !output.status.success())
    })?;
    let refused = cluster.etcdctl_with(&stolen, &key, &["get", "/hactl/default/v1/alive/n1"])?;
    ensure!(!refused.status.success(), "etcd accepts a revoked certificate: {}", output_text(&refused));
    check_output(&cluster.etcdctl("controller-c1", &["get", "/hactl/default/v1/leader"])?, 0, &["leader"])?;
    let shown = cluster.pki(&["show", NODE])?;
    check_output(&shown, 0, &["Revoked"])?;
    ensure!(!output_text(&shown).contains("Valid"), "{}", output_text(&shown));

    // The removal is refused while the node can run services, and is not repeated.
    check_output(&cluster.run_as_root(&["node", "remove", NODE, "--yes"])?, 1, &["registration is active"])?;
    wait_until("the node to be confirmed as powered off", STEP_TIMEOUT, || {
        let confirmed = cluster.run_as_user(0, &["node", "confirm-fenced", NODE, "--yes"]);
        confirmed.is_ok_and(|output| output.status.success())
    })?;
    let planned = cluster.run_as_root(&["node", "remove", NODE, "--dry-run"])?;
    check_output(&planned, 0, &["hactl delete node/n1", "etcdctl user delete n1"])?;
    let removed = cluster.run_as_root(&["node", "remove", NODE, "--yes"])?;
    check_output(
        &removed,
        0,
        &["hactl delete node/n1", "etcdctl user delete n1", "etcdctl role delete hactl-default-node-n1"],
    )?;
    check_output(&cluster.run_as_root(&["node", "remove", NODE, "--yes"])?, 0, &["do not exist"])?;
    let users = cluster.etcdctl("root", &["user", "list"])?;
    check_output(&users, 0, &["controller-c1"])?;
    ensure!(!output_text(&users).lines().any(|line| line == NODE), "{}", output_text(&users));
    fs::remove_dir_all(&cluster.directory)?;
    Ok(())
}
