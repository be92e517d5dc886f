//! The agent's options.

use ha_runtime::logging::LogOptions;
use ha_store::etcd;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The agent of one node: keeps its lease, runs its services, and tells its watchdog how long the lease is proven.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "ha-node-agent", version)]
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
    /// This node's name
    #[arg(long, value_name = "NAME")]
    pub node: String,
    /// Where the journal, the lock and the logs of services lie
    #[arg(long, default_value = "/var/lib/hactl/agent", value_name = "DIR")]
    pub state_dir: PathBuf,
    /// Folder that all nodes see, where services of driver `simulated` pretend; default a folder in --state-dir, from
    /// where none can move live
    #[arg(long, value_name = "DIR")]
    pub simulated_dir: Option<PathBuf>,
    /// Where this boot's id is read
    #[arg(long, default_value = "/proc/sys/kernel/random/boot_id", value_name = "FILE")]
    pub boot_id_file: PathBuf,
    /// Where this machine's id is read
    #[arg(long, default_value = "/etc/machine-id", value_name = "FILE")]
    pub machine_id_file: PathBuf,
    /// The socket of ha-watchdogd
    #[arg(long, default_value = crate::watchdog::protocol::DEFAULT_SOCKET, value_name = "PATH")]
    pub watchdog_socket: PathBuf,
    /// Where /metrics, /livez and /readyz are served; loopback only
    #[arg(long, default_value = "127.0.0.1:7444", value_name = "ADDRESS")]
    pub admin_listen: SocketAddr,
    /// Whether this machine is itself virtual, so that it can be paused with its clock
    #[arg(long = "virtual", value_enum, default_value_t = Virtual::Auto, value_name = "WHETHER")]
    pub virtual_machine: Virtual,
    /// Logging
    #[command(flatten)]
    pub logging: LogOptions,
}

/// Whether the machine is virtual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Virtual {
    /// Found out.
    Auto,
    /// It is.
    Yes,
    /// It is not.
    No,
}

impl Options {
    /// What cannot work whatever the machine is like.
    pub fn check(&self) -> anyhow::Result<()> {
        for (flag, name) in [("--node", &self.node), ("--cluster", &self.cluster)] {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            if name.is_empty() || name.len() > 253 || !name.bytes().all(allowed) {
                anyhow::bail!("{flag} {name:?}: use 1 to 253 letters, digits, '-', '.' or '_'");
            }
        }
        Ok(())
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

    /// Whether the machine is virtual, as told or as found.
    pub fn machine_is_virtual(&self) -> bool {
        match self.virtual_machine {
            Virtual::Auto => super::identity::looks_virtual(),
            Virtual::Yes => true,
            Virtual::No => false,
        }
    }
}
