//! A mail server that is not ours (aiosmtpd) and a web server, which keep what they get: `dev/lib/sinks.py`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::binaries;
use crate::command::tool;

/// Who may send mails, and over which certificate.
pub struct Mailbox {
    /// The certificate (PEM).
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Who logs in.
    pub user: String,
    /// With what.
    pub password: String,
}

/// They listen until this is dropped, also when the program ends otherwise.
pub struct Sinks {
    child: Child,
    record: PathBuf,
    address: Ipv4Addr,
    /// The port of the web server.
    pub http: u16,
    /// The port of the mail server.
    pub smtp: u16,
}

impl Sinks {
    /// Both, at an address of the run's own; ports are free ones, or those of sinks that were dropped before.
    ///
    /// # Errors
    /// When they cannot be started.
    pub fn start(
        folder: &Path,
        address: Ipv4Addr,
        mailbox: &Mailbox,
        ports: Option<(u16, u16)>,
    ) -> Result<Self> {
        let record = folder.join("sinks.jsonl");
        let (http, smtp) = ports.unwrap_or_default();
        let log = fs::File::options().create(true).append(true).open(folder.join("sinks.log"))?;
        let mut child = Command::new(tool("setpriv"))
            .args(["--pdeathsig", "KILL"])
            .arg(binaries::sinks_python()?)
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
            .context("dev/lib/sinks.py could not be started")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        let mut sinks = Self { child, record, address, http: 0, smtp: 0 };
        let ports: Value = serde_json::from_str(&line)
            .with_context(|| format!("the sinks do not listen: {}", folder.join("sinks.log").display()))?;
        let port = |name: &str| ports[name].as_u64().and_then(|port| u16::try_from(port).ok());
        sinks.http = port("http").context("the sinks name no port of the web server")?;
        sinks.smtp = port("smtp").context("the sinks name no port of the mail server")?;
        Ok(sinks)
    }

    /// Where the web server is.
    pub fn url(&self) -> String {
        format!("http://{}:{}/hactl", self.address, self.http)
    }

    /// Where the mail server is.
    pub fn server(&self) -> String {
        format!("{}:{}", self.address, self.smtp)
    }

    /// What came in through one of them (`http`, `smtp`), in order, by all sinks of this folder.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn got(&self, sink: &str) -> Result<Vec<Value>> {
        let text = if self.record.exists() { fs::read_to_string(&self.record)? } else { String::new() };
        let all: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
        Ok(all?.into_iter().filter(|got| got["sink"] == sink).collect())
    }
}

impl Drop for Sinks {
    fn drop(&mut self) {
        // They may have ended by themselves.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
