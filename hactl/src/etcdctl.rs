//! etcd's own command-line client, for commands that act on etcd instead of the API.

use crate::failure::Failure;
use clap::{Args, ValueHint};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use tokio::process::Command;

/// Connection to etcd with one identity.
#[derive(Args, Clone, Debug)]
pub(crate) struct EtcdConnection {
    /// Client URLs of the etcd members
    #[arg(long, required = true, value_delimiter = ',', value_name = "URL")]
    pub(crate) etcd_endpoints: Vec<String>,
    /// CA certificate file used to verify the etcd members (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) etcd_ca: PathBuf,
    /// Client certificate file for etcd (PEM); its common name is the user
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) etcd_cert: PathBuf,
    /// Private key file of the client certificate (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) etcd_key: PathBuf,
    /// Directory of the etcd programs; default: search PATH
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) programs: Option<PathBuf>,
}

impl EtcdConnection {
    pub(crate) fn etcdctl(&self) -> Result<Etcdctl, Failure> {
        Ok(Etcdctl {
            program: find_program("etcdctl", self.programs.as_deref())?,
            endpoints: self.etcd_endpoints.join(","),
            ca_file: Some(self.etcd_ca.clone()),
            client_certificate: Some((self.etcd_cert.clone(), self.etcd_key.clone())),
        })
    }
}

/// etcdctl with the flags for one etcd.
#[derive(Clone, Debug)]
pub(crate) struct Etcdctl {
    pub(crate) program: PathBuf,
    /// Client URLs, separated by commas.
    pub(crate) endpoints: String,
    pub(crate) ca_file: Option<PathBuf>,
    /// Certificate and key of the client.
    pub(crate) client_certificate: Option<(PathBuf, PathBuf)>,
}

impl Etcdctl {
    /// Runs etcdctl to its end.
    ///
    /// # Errors
    /// Fails if etcdctl fails. The error contains its last output.
    pub(crate) async fn run<W: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = W>,
    ) -> Result<Output, Failure> {
        run(&mut self.command(arguments)).await
    }

    /// Returns the command, for a caller that handles its output and its failure.
    pub(crate) fn command<W: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = W>) -> Command {
        let mut command = Command::new(&self.program);
        remove_etcd_environment(&mut command);
        command.args(["--endpoints", &self.endpoints, "--command-timeout", "60s"]);
        if let Some(ca_file) = &self.ca_file {
            command.arg("--cacert").arg(ca_file);
        }
        if let Some((certificate, key)) = &self.client_certificate {
            command.arg("--cert").arg(certificate).arg("--key").arg(key);
        }
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

/// Finds a program of etcd in a directory, or in PATH.
pub(crate) fn find_program(name: &str, directory: Option<&Path>) -> Result<PathBuf, Failure> {
    let directories: Vec<PathBuf> = match directory {
        Some(directory) => vec![directory.to_owned()],
        None => std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect(),
    };
    directories.iter().map(|directory| directory.join(name)).find(|path| path.is_file()).ok_or_else(|| {
        let searched = directory.map_or("PATH".to_owned(), |directory| directory.display().to_string());
        Failure::failed(format!("{name} not found in {searched}"))
            .help("install the etcd programs (etcd, etcdctl, etcdutl; docs/etcd.md), or add --programs DIR")
    })
}

/// Removes etcd's settings from the environment, because they apply to the operator's own cluster.
pub(crate) fn remove_etcd_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ETCD") {
            command.env_remove(name);
        }
    }
}

/// Runs a program to its end. On failure, the error contains its last output.
pub(crate) async fn run(command: &mut Command) -> Result<Output, Failure> {
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    remove_etcd_environment(command);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.map_err(|error| Failure::failed(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(output);
    }
    let error_output = String::from_utf8_lossy(&output.stderr);
    let last_line = error_output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output");
    Err(Failure::failed(format!("{program} failed ({}): {last_line}", output.status)))
}
