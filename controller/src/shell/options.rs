//! The controller's options.

use ha_runtime::logging::LogOptions;
use ha_runtime::tls::TlsFiles;
use ha_store::etcd;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A controller: serves the HTTP API, and decides where services run when it leads.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "ha-controller", version)]
pub struct Options {
    /// Client URLs of the store's members, in the order of preference
    #[arg(long, value_delimiter = ',', required = true, value_name = "URL", help_heading = "Store")]
    pub etcd_endpoints: Vec<String>,
    /// Certificate authority of the members (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    pub etcd_ca: Option<PathBuf>,
    /// Client certificate (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    pub etcd_cert: Option<PathBuf>,
    /// Client key (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    pub etcd_key: Option<PathBuf>,
    /// User
    #[arg(long, value_name = "NAME", help_heading = "Store")]
    pub etcd_user: Option<String>,
    /// File with the user's password
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    pub etcd_password_file: Option<PathBuf>,
    /// Work with an etcd that has known defects all the same
    #[arg(long, help_heading = "Store")]
    pub allow_old_store: bool,
    /// The cluster
    #[arg(long, default_value = "default", value_name = "NAME")]
    pub cluster: String,
    /// This controller's id, stable over restarts; default the host's name
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// Where the HTTP API is served; beyond loopback only with TLS and client certificates
    #[arg(long, default_value = "127.0.0.1:7443", value_name = "ADDRESS", help_heading = "HTTP")]
    pub listen: SocketAddr,
    /// Where others reach this API; default made from --listen
    #[arg(long, value_name = "URL", help_heading = "HTTP")]
    pub advertise_url: Option<String>,
    /// Server certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key", requires = "client_ca", help_heading = "HTTP")]
    pub tls_cert: Option<PathBuf>,
    /// Server key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "HTTP")]
    pub tls_key: Option<PathBuf>,
    /// Certificate authority of the clients (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "HTTP")]
    pub client_ca: Option<PathBuf>,
    /// Where fence agents are looked for first
    #[arg(long, value_name = "DIR")]
    pub fence_agent_path: Option<PathBuf>,
    /// Logging
    #[command(flatten)]
    pub logging: LogOptions,
}

impl Options {
    /// What cannot work whatever the machine is like.
    pub fn check(&self) -> anyhow::Result<()> {
        for (flag, name) in [("--id", &self.id()), ("--cluster", &self.cluster)] {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            if name.is_empty() || name.len() > 253 || !name.bytes().all(allowed) {
                anyhow::bail!("{flag} {name:?}: use 1 to 253 letters, digits, '-', '.' or '_'");
            }
        }
        if self.tls().is_none() && !self.listen.ip().is_loopback() {
            anyhow::bail!(
                "--listen {} is reachable from other machines: give --tls-cert, --tls-key and --client-ca, or listen on 127.0.0.1",
                self.listen
            );
        }
        Ok(())
    }

    /// The controller's id.
    pub fn id(&self) -> String {
        self.id.clone().unwrap_or_else(|| {
            std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
        })
    }

    /// TLS, if given.
    pub fn tls(&self) -> Option<TlsFiles> {
        match (&self.tls_cert, &self.tls_key, &self.client_ca) {
            (Some(certificate), Some(key), Some(client_ca)) => Some(TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                client_ca: client_ca.clone(),
            }),
            _ => None,
        }
    }

    /// Where others reach this API.
    pub fn advertised(&self, address: SocketAddr) -> String {
        let scheme = if self.tls().is_some() { "https" } else { "http" };
        self.advertise_url.clone().unwrap_or_else(|| format!("{scheme}://{address}"))
    }

    /// How the store is reached.
    pub fn store_config(&self) -> etcd::Config {
        etcd::Config {
            endpoints: self.etcd_endpoints.clone(),
            ca: self.etcd_ca.clone(),
            cert: self.etcd_cert.clone(),
            key: self.etcd_key.clone(),
            user: self.etcd_user.clone(),
            password_file: self.etcd_password_file.clone(),
            allow_old_store: self.allow_old_store,
            ..etcd::Config::default()
        }
    }
}
