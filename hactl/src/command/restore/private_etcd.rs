//! A private etcd on loopback, run by etcd's own programs while a backup is prepared.

use super::credentials::Credentials;
use crate::etcdctl::{Etcdctl, find_program, remove_etcd_environment, run};
use crate::failure::Failure;
use serde::Deserialize;
use std::ffi::OsStr;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// Name of the only member.
const MEMBER_NAME: &str = "hactl-restore";
/// Time within which etcd answers, even with gigabytes of data on a slow disk.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Paths of etcd's programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    etcd: PathBuf,
    etcdctl: PathBuf,
    etcdutl: PathBuf,
}

/// Output of `etcdutl snapshot status`.
#[derive(Debug, Deserialize)]
struct Status {
    revision: i64,
}

impl Programs {
    pub(crate) fn find(directory: Option<&Path>) -> Result<Programs, Failure> {
        let find = |name: &str| find_program(name, directory);
        Ok(Programs { etcd: find("etcd")?, etcdctl: find("etcdctl")?, etcdutl: find("etcdutl")? })
    }

    /// Restores a backup into a data directory with a raised revision. Returns the revision of the backup.
    pub(super) async fn restore(
        &self,
        backup: &Path,
        data: &Path,
        revision_increase: i64,
        skip_hash_check: bool,
    ) -> Result<i64, Failure> {
        let invalid_backup = |failure: Failure| {
            Failure { exit: crate::failure::Exit::Usage, ..failure }
                .help("specify a file written by `etcdctl snapshot save`; for a copy of member/snap/db, add --skip-hash-check")
        };
        let mut command = Command::new(&self.etcdutl);
        command.args(["snapshot", "status", "--write-out", "json"]).arg(backup);
        let output = run(&mut command).await.map_err(invalid_backup)?;
        let status: Status = serde_json::from_slice(&output.stdout).map_err(|error| {
            Failure::failed(format!("cannot parse the output of etcdutl for {}: {error}", backup.display()))
        })?;
        let mut command = Command::new(&self.etcdutl);
        command.args(["snapshot", "restore"]).arg(backup).arg("--data-dir").arg(data);
        command.args([
            "--name",
            MEMBER_NAME,
            "--initial-cluster",
            &format!("{MEMBER_NAME}=http://localhost:2380"),
        ]);
        command.args(["--initial-advertise-peer-urls", "http://localhost:2380"]);
        command.args(["--bump-revision", &revision_increase.to_string(), "--mark-compacted"]);
        if skip_hash_check {
            command.arg("--skip-hash-check");
        }
        run(&mut command).await.map_err(invalid_backup)?;
        Ok(status.revision)
    }
}

/// The private etcd, which is killed when this value is dropped.
pub(super) struct PrivateEtcd {
    etcdctl: Etcdctl,
    child: Child,
}

impl PrivateEtcd {
    /// Starts the private etcd and waits until it answers.
    pub(super) async fn start(
        programs: &Programs,
        scratch: &Path,
        data: &Path,
    ) -> Result<PrivateEtcd, Failure> {
        let credentials = Credentials::create(scratch)?;
        let [client, peer] = free_ports()?;
        let endpoint = format!("https://127.0.0.1:{client}");
        let log = scratch.join("etcd.log");
        let peers = format!("http://127.0.0.1:{peer}");
        let mut command = Command::new(&programs.etcd);
        remove_etcd_environment(&mut command);
        // An existing data directory keeps its own members.
        command.args([
            "--initial-cluster",
            &format!("{MEMBER_NAME}={peers}"),
            "--initial-advertise-peer-urls",
            &peers,
        ]);
        command.args(["--name", MEMBER_NAME, "--log-level", "error", "--log-outputs"]).arg(&log);
        command.arg("--data-dir").arg(data);
        command.args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint]);
        // The only member has no peers, but etcd binds the port anyway.
        command.args(["--listen-peer-urls", &peers]);
        command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&credentials.authority);
        command.arg("--cert-file").arg(&credentials.certificate).arg("--key-file").arg(&credentials.key);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let child = command
            .spawn()
            .map_err(|error| Failure::failed(format!("{}: {error}", programs.etcd.display())))?;
        let etcdctl = Etcdctl {
            program: programs.etcdctl.clone(),
            endpoints: endpoint,
            ca_file: Some(credentials.authority),
            client_certificate: Some((credentials.certificate, credentials.key)),
        };
        let mut etcd = PrivateEtcd { etcdctl, child };
        let started_at = Instant::now();
        loop {
            let Err(failure) = etcd.etcdctl.run(["endpoint", "health"]).await else { return Ok(etcd) };
            if let Ok(Some(status)) = etcd.child.try_wait() {
                let log_text = std::fs::read_to_string(&log).unwrap_or_default();
                let last_line = log_text.lines().last().unwrap_or_default();
                return Err(Failure::failed(format!(
                    "the temporary etcd failed on the backup ({status}): {last_line}"
                )));
            }
            if started_at.elapsed() > START_TIMEOUT {
                return Err(failure);
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Returns the keys under a prefix.
    pub(super) async fn keys(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        let output = self.etcdctl.run(["get", "--prefix", "--keys-only", "--", prefix]).await?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    /// Returns the keys under a prefix with their values, which are JSON on one line.
    pub(super) async fn values(&self, prefix: &str) -> Result<Vec<(String, String)>, Failure> {
        let output = self.etcdctl.run(["get", "--prefix", "--", prefix]).await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<&str> = text.lines().collect();
        let pairs = lines.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned()));
        Ok(pairs.collect())
    }

    /// Deletes a key, or all keys under it if it ends in `/`.
    pub(super) async fn delete(&self, key_or_prefix: &str) -> Result<(), Failure> {
        let arguments: &[&str] =
            if key_or_prefix.ends_with('/') { &["del", "--prefix", "--"] } else { &["del", "--"] };
        self.etcdctl.run(arguments.iter().chain([&key_or_prefix])).await.map(drop)
    }

    pub(super) async fn put(&self, key: &str, value: &str) -> Result<(), Failure> {
        self.etcdctl.run(["put", "--", key, value]).await.map(drop)
    }

    /// Saves all data as a snapshot.
    pub(super) async fn save(&self, file: &Path) -> Result<(), Failure> {
        self.etcdctl.run([OsStr::new("snapshot"), OsStr::new("save"), file.as_os_str()]).await.map(drop)
    }

    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        self.child
            .kill()
            .await
            .map_err(|error| Failure::failed(format!("cannot stop the temporary etcd: {error}")))
    }
}

fn free_ports() -> Result<[u16; 2], Failure> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
    let ports = bind().and_then(|first_listener| Ok([port(&first_listener)?, port(&bind()?)?]));
    ports.map_err(|error| Failure::failed(format!("cannot find a free port on loopback: {error}")))
}
