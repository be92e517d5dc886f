//! A mail server (aiosmtpd, from another project) and a web server that record all requests: `dev/lib/sinks.py`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::binaries;
use crate::command::tool;
use crate::process::OwnedChild;

/// The certificate of the mail server and the credentials of its only user.
pub struct Mailbox {
    /// File with the certificate (PEM).
    pub certificate: PathBuf,
    /// File with the certificate's key.
    pub key: PathBuf,
    /// Name of the user.
    pub user: String,
    /// Password of the user.
    pub password: String,
}

/// A mail server and a web server that run until this value is dropped or the program ends.
pub struct NotificationReceivers {
    _child: OwnedChild,
    record: PathBuf,
    address: Ipv4Addr,
    /// Port of the web server.
    pub http: u16,
    /// Port of the mail server.
    pub smtp: u16,
}

impl NotificationReceivers {
    /// Starts both servers at the run's own address. `ports` are those of earlier receivers; `None` chooses free ports.
    ///
    /// # Errors
    /// Fails if the servers cannot be started.
    pub fn start(
        directory: &Path,
        address: Ipv4Addr,
        mailbox: &Mailbox,
        ports: Option<(u16, u16)>,
    ) -> Result<Self> {
        let record = directory.join("receivers.jsonl");
        let (http, smtp) = ports.unwrap_or_default();
        let log = fs::File::options().create(true).append(true).open(directory.join("receivers.log"))?;
        let mut child = Command::new(tool("setpriv"))
            .args(["--pdeathsig", "KILL"])
            .arg(binaries::notification_sinks_python()?)
            .arg(binaries::repository().join("dev/lib/sinks.py"))
            .arg("--record")
            .arg(&record)
            .args(["--host", &address.to_string(), "--http-port", &http.to_string()])
            .args(["--smtp-port", &smtp.to_string(), "--user", &mailbox.user])
            .args(["--password", &mailbox.password])
            .args([Path::new("--certificate"), &mailbox.certificate, Path::new("--key"), &mailbox.key])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("cannot start dev/lib/sinks.py")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        let mut receivers = Self { _child: OwnedChild(child), record, address, http: 0, smtp: 0 };
        let ports: Value = serde_json::from_str(&line).with_context(|| {
            format!("dev/lib/sinks.py does not listen: {}", directory.join("receivers.log").display())
        })?;
        let port = |name: &str| ports[name].as_u64().and_then(|port| u16::try_from(port).ok());
        receivers.http = port("http").context("dev/lib/sinks.py did not print the port of the web server")?;
        receivers.smtp =
            port("smtp").context("dev/lib/sinks.py did not print the port of the mail server")?;
        Ok(receivers)
    }

    /// Returns the URL of the web server.
    pub fn url(&self) -> String {
        format!("http://{}:{}/hactl", self.address, self.http)
    }

    /// Returns the address and port of the mail server.
    pub fn server(&self) -> String {
        format!("{}:{}", self.address, self.smtp)
    }

    /// Returns the requests to one server (`http` or `smtp`) in order, including those to earlier receivers in this directory.
    ///
    /// # Errors
    /// Fails if the record cannot be read.
    pub fn requests(&self, sink: &str) -> Result<Vec<Value>> {
        let text = if self.record.exists() { fs::read_to_string(&self.record)? } else { String::new() };
        let all_requests: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
        Ok(all_requests?.into_iter().filter(|request| request["sink"] == sink).collect())
    }
}
