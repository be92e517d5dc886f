//! The agent's command-line options.

use ha_runtime::logging::LogOptions;
use ha_runtime::program::{ProgramOptions, check_name};
use ha_store::etcd::StoreOptions;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The agent of one node: keeps its lease, runs its services, and tells its watchdog how long the lease is proven.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "ha-node-agent", version)]
pub struct Options {
    /// The store
    #[command(flatten)]
    pub store: StoreOptions,
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
    /// Where OCF resource agents lie
    #[arg(long, default_value = ha_api_types::ocf::DEFAULT_ROOT, value_name = "DIR")]
    pub ocf_root: PathBuf,
    /// Where OCF resource agents keep what does not outlive a boot; agents that share a machine must not share it
    #[arg(long, default_value = "/run", value_name = "DIR")]
    pub ocf_run_dir: PathBuf,
    /// Folders of third parties' drivers; the first that has one of a name wins
    #[arg(long, default_value = crate::driver::external::DEFAULT_FOLDERS, value_name = "DIR:DIR…")]
    pub driver_path: String,
    /// Where this boot's id is read
    #[arg(long, default_value = "/proc/sys/kernel/random/boot_id", value_name = "FILE")]
    pub boot_id_file: PathBuf,
    /// Where this machine's id is read
    #[arg(long, default_value = "/etc/machine-id", value_name = "FILE")]
    pub machine_id_file: PathBuf,
    /// Where the product id of this machine's hardware is read; it tells a machine from one with a copy of its disk
    #[arg(long, default_value = "/sys/class/dmi/id/product_uuid", value_name = "FILE")]
    pub product_id_file: PathBuf,
    /// The socket of ha-watchdogd
    #[arg(long, default_value = crate::watchdog::protocol::DEFAULT_SOCKET, value_name = "PATH")]
    pub watchdog_socket: PathBuf,
    /// The API socket of podman's service, for driver `podman`
    #[arg(long, default_value = crate::driver::podman::DEFAULT_SOCKET, value_name = "PATH")]
    pub podman_socket: PathBuf,
    /// Where /metrics, /livez and /readyz are served; loopback only
    #[arg(long, default_value = "127.0.0.1:7444", value_name = "ADDRESS")]
    pub admin_listen: SocketAddr,
    /// Whether this machine is itself virtual, so that it can be paused with its clock
    #[arg(long = "virtual", value_enum, default_value_t = Virtual::Auto, value_name = "WHETHER")]
    pub virtual_machine: Virtual,
    /// Whether this machine can sleep, so that something must keep it awake
    #[arg(long, value_enum, default_value_t = Sleeps::Auto, value_name = "WHETHER")]
    pub sleeps: Sleeps,
    /// Logging
    #[command(flatten)]
    pub logging: LogOptions,
}

/// Whether the machine can sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sleeps {
    /// Found out.
    Auto,
    /// It cannot, as in a container whose host never sleeps.
    No,
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

impl ProgramOptions for Options {
    const PREFIX: &'static str = "HACTL_AGENT";

    fn logging(&self) -> &LogOptions {
        &self.logging
    }

    fn check(&self) -> anyhow::Result<()> {
        check_name("--node", &self.node)?;
        check_name("--cluster", &self.cluster)?;
        Ok(())
    }
}

impl Options {
    /// Returns `true` if the machine is virtual, as configured or as detected.
    pub fn machine_is_virtual(&self) -> bool {
        match self.virtual_machine {
            Virtual::Auto => super::identity::looks_virtual(),
            Virtual::Yes => true,
            Virtual::No => false,
        }
    }
}
