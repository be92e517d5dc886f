//! The command-line options of the controller.

use crate::api::{AuthorizationMode, JoinOptions};
use crate::policy::ControllerPolicy;
use ha_api_types::id::{ControllerId, MachineId};
use ha_api_types::role::Role;
use ha_runtime::http::ServeOptions;
use ha_runtime::logging::LogOptions;
use ha_runtime::program::{ProgramOptions, check_name};
use ha_runtime::tls::{TlsFiles, WithoutCertificate};
use ha_store::etcd::StoreOptions;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Serve the HTTP API; as the leader, schedule services and fence nodes
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "ha-controller", version)]
pub struct Options {
    /// Connection to etcd
    #[command(flatten)]
    pub store: StoreOptions,
    /// Name of the cluster
    #[arg(long, default_value = "default", value_name = "NAME")]
    pub cluster: String,
    /// Id of this controller, which must not change; default: host name
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// Directory for the lock of this controller; one for each controller
    #[arg(long, default_value = "/var/lib/hactl/controller", value_name = "DIR")]
    pub state_dir: PathBuf,
    /// Id of the machine with the state directory; default: /etc/machine-id
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,
    /// Address of the HTTP API with TLS, or with --insecure-loopback
    #[arg(long, default_value = "127.0.0.1:7443", value_name = "ADDRESS", help_heading = "HTTP")]
    pub listen: SocketAddr,
    /// URL at which clients and agents reach this API; default: --listen
    #[arg(long, value_name = "URL", help_heading = "HTTP")]
    pub advertise_url: Option<String>,
    /// Unix socket of the HTTP API, for root and the user of this process
    #[arg(long, value_name = "PATH", help_heading = "HTTP")]
    pub socket: Option<PathBuf>,
    /// WARNING: serves HTTP on loopback, with all permissions for every local user
    #[arg(long, help_heading = "HTTP", conflicts_with = "tls_cert")]
    pub insecure_loopback: bool,
    /// Server certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key", requires = "client_ca", help_heading = "HTTP")]
    pub tls_cert: Option<PathBuf>,
    /// Server key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "HTTP")]
    pub tls_key: Option<PathBuf>,
    /// CA certificate of the clients (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "HTTP")]
    pub client_ca: Option<PathBuf>,
    /// Revoked certificates of clients: certificate revocation lists (PEM)
    #[arg(long, value_name = "FILE", requires = "client_ca", help_heading = "HTTP")]
    pub client_crl: Option<PathBuf>,
    /// Tokens of clients without a certificate, from "hactl token create"
    #[arg(long, value_name = "FILE", help_heading = "HTTP")]
    pub token_file: Option<PathBuf>,
    /// Directory with the CA for certificates of nodes (joinAuthority)
    #[arg(long, value_name = "DIR", requires = "tls_cert", help_heading = "HTTP")]
    pub join_authority: Option<PathBuf>,
    /// File for the audit log of writes and refusals; default: the log
    #[arg(long, value_name = "FILE", help_heading = "HTTP")]
    pub audit_log: Option<PathBuf>,
    /// Give every certificate all permissions, or select roles by its groups
    #[arg(long, value_enum, default_value = "AlwaysAllow", value_name = "MODE", help_heading = "HTTP")]
    pub authorization: AuthorizationMode,
    /// Directory that is searched first for fence agents
    #[arg(long, value_name = "DIR")]
    pub fence_agent_path: Option<PathBuf>,
    /// Directory of OCF resource agents, whose meta-data validates parameters
    #[arg(long, default_value = ha_api_types::ocf::DEFAULT_ROOT, value_name = "DIR")]
    pub ocf_root: PathBuf,
    /// Files, fence agents and addresses that objects may use
    ///
    /// In the configuration file: a map. See docs/concepts/security.md for its keys. Default: no limits, so that
    /// administrators of the API can make the controller read any file that it can read.
    #[arg(long, value_name = "YAML", value_parser = ControllerPolicy::parse)]
    pub policy: Option<ControllerPolicy>,
    /// Logging
    #[command(flatten)]
    pub logging: LogOptions,
}

impl ProgramOptions for Options {
    const PREFIX: &'static str = "HACTL_CONTROLLER";

    fn logging(&self) -> &LogOptions {
        &self.logging
    }

    fn check(&self) -> anyhow::Result<()> {
        check_name("--id", &self.id())?;
        check_name("--cluster", &self.cluster)?;
        if self.tls().is_none() && !self.insecure_loopback && self.socket.is_none() {
            anyhow::bail!(
                "no client could connect: set --tls-cert, --tls-key and --client-ca, or set --socket for root on this machine only"
            );
        }
        if self.tls().is_none() && !self.listen.ip().is_loopback() {
            anyhow::bail!(
                "--listen {} is reachable from other machines: set --tls-cert, --tls-key and --client-ca, or listen on 127.0.0.1",
                self.listen
            );
        }
        Ok(())
    }
}

impl Options {
    /// Returns the controller's id.
    pub fn id(&self) -> ControllerId {
        self.id
            .clone()
            .unwrap_or_else(|| {
                std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
            })
            .into()
    }

    /// Returns the machine id; empty if unknown.
    pub fn machine(&self) -> MachineId {
        let read = || std::fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned();
        self.machine.clone().unwrap_or_else(read).into()
    }

    /// Returns the TLS files; `None` without TLS.
    pub fn tls(&self) -> Option<TlsFiles> {
        match (&self.tls_cert, &self.tls_key, &self.client_ca) {
            (Some(certificate), Some(key), Some(client_ca)) => Some(TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                client_ca: client_ca.clone(),
                client_crl: self.client_crl.clone(),
                // A new node has no certificate before it has joined.
                without_certificate: match (&self.token_file, &self.join_authority) {
                    (None, None) => WithoutCertificate::Refuse,
                    (Some(_), _) | (_, Some(_)) => WithoutCertificate::Accept,
                },
            }),
            _ => None,
        }
    }

    /// Returns the authority for certificates of nodes; `None` if this controller issues none.
    pub fn join(&self) -> Option<JoinOptions> {
        let directory = self.join_authority.clone()?;
        Some(JoinOptions { directory, etcd_endpoints: self.store.etcd_endpoints.clone() })
    }

    /// Returns the options of the servers of the API: a TCP port, a Unix socket, or both.
    pub fn servers(&self) -> Vec<ServeOptions> {
        let tls = self.tls();
        let is_on_tcp = tls.is_some() || self.insecure_loopback;
        let mut tcp = is_on_tcp.then(|| ServeOptions::new(self.listen, tls));
        if let Some(options) = &mut tcp {
            // Holds, health and metrics stay reachable if users have opened as many connections as permitted.
            options.limits.reserved_groups =
                [Role::Node, Role::Controller, Role::Metrics].map(Role::group).to_vec();
        }
        tcp.into_iter().chain(self.socket.as_deref().map(ServeOptions::unix)).collect()
    }

    /// Returns the URL under which others reach this API; `address` is that of the TCP port. A controller with only a
    /// Unix socket cannot be reached from other machines.
    pub fn advertised_url(&self, address: Option<SocketAddr>) -> String {
        let scheme = if self.tls().is_some() { "https" } else { "http" };
        self.advertise_url.clone().unwrap_or_else(|| match (address, &self.socket) {
            (Some(address), _) => format!("{scheme}://{address}"),
            (None, Some(path)) => format!("unix:{}", path.display()),
            (None, None) => String::new(),
        })
    }
}
