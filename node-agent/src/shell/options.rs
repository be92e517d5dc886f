//! The agent's command-line options.

use ha_api_types::id::NodeName;
use ha_api_types::node_policy::NodePolicy;
use ha_runtime::logging::LogOptions;
use ha_runtime::program::{ProgramOptions, check_name};
use ha_store::etcd::StoreOptions;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Run this node's services, and renew its heartbeat in etcd and its watchdog
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "ha-node-agent", version)]
pub struct Options {
    /// Connection to etcd
    #[command(flatten)]
    pub store: StoreOptions,
    /// Name of the cluster
    #[arg(long, default_value = "default", value_name = "NAME")]
    pub cluster: String,
    /// Name of this node
    #[arg(long, value_name = "NAME")]
    pub node: NodeName,
    /// Directory of the journal, the lock and the logs of services
    #[arg(long, default_value = "/var/lib/hactl/agent", value_name = "DIR")]
    pub state_dir: PathBuf,
    /// Directory shared by all nodes for services of driver `simulated`
    ///
    /// Default: a directory in --state-dir, which does not permit live migration.
    #[arg(long, value_name = "DIR")]
    pub simulated_dir: Option<PathBuf>,
    /// Directory of OCF resource agents
    #[arg(long, default_value = ha_api_types::ocf::DEFAULT_ROOT, value_name = "DIR")]
    pub ocf_root: PathBuf,
    /// Directory for runtime data of OCF agents; one for each node agent
    #[arg(long, default_value = "/run", value_name = "DIR")]
    pub ocf_run_dir: PathBuf,
    /// Directories with external drivers, in the order of the search
    #[arg(long, default_value = crate::driver::external::DEFAULT_DIRECTORIES, value_name = "DIR:DIR…")]
    pub driver_path: String,
    /// File with the id of this boot
    #[arg(long, default_value = "/proc/sys/kernel/random/boot_id", value_name = "FILE")]
    pub boot_id_file: PathBuf,
    /// File with the id of this machine
    #[arg(long, default_value = "/etc/machine-id", value_name = "FILE")]
    pub machine_id_file: PathBuf,
    /// File with the product id of the hardware
    ///
    /// The id distinguishes machines that were cloned from the same disk.
    #[arg(long, default_value = "/sys/class/dmi/id/product_uuid", value_name = "FILE")]
    pub product_id_file: PathBuf,
    /// Socket of ha-watchdogd
    #[arg(long, default_value = crate::watchdog::protocol::DEFAULT_SOCKET, value_name = "PATH")]
    pub watchdog_socket: PathBuf,
    /// API socket of podman, for driver `podman`
    #[arg(long, default_value = crate::driver::podman::DEFAULT_SOCKET, value_name = "PATH")]
    pub podman_socket: PathBuf,
    /// Directory of LXC's containers, for driver `lxc`
    #[arg(long, default_value = crate::driver::lxc::DEFAULT_PATH, value_name = "DIR")]
    pub lxc_path: PathBuf,
    /// Address of /metrics, /livez, /readyz and /state; loopback only
    #[arg(long, default_value = "127.0.0.1:7444", value_name = "ADDRESS")]
    pub admin_listen: SocketAddr,
    /// Type of this machine: virtual or physical
    ///
    /// The watchdog of a virtual machine does not confirm fencing, because a hypervisor can pause the machine together
    /// with its clock. Configure a fence device.
    #[arg(long = "virtual", value_enum, default_value_t = VirtualMachineMode::Auto, value_name = "MODE")]
    pub virtual_machine: VirtualMachineMode,
    /// Prevent sleep, unless this machine cannot sleep
    #[arg(long, value_enum, default_value_t = SleepMode::Auto, value_name = "MODE")]
    pub sleeps: SleepMode,
    /// Directory of the files that services get with valueFrom
    #[arg(long, default_value = "/etc/hactl/secrets", value_name = "DIRECTORY")]
    pub secrets_directory: PathBuf,
    /// Services that this node runs, such as `{mounts: [/srv]}`
    ///
    /// In the configuration file: a map. See docs/concepts/security.md for its keys. Default: every service, so that
    /// users who may edit resources are root on this node.
    #[arg(long, value_name = "YAML", value_parser = NodePolicy::parse)]
    pub policy: Option<NodePolicy>,
    /// Logging
    #[command(flatten)]
    pub logging: LogOptions,
}

/// Whether the machine can sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SleepMode {
    /// Detect automatically
    Auto,
    /// The machine cannot sleep; use for a container whose host never sleeps
    No,
}

/// Whether the machine is virtual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum VirtualMachineMode {
    /// Detect automatically
    Auto,
    /// The machine is virtual
    Yes,
    /// The machine is physical
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
            VirtualMachineMode::Auto => super::identity::is_probably_virtual(),
            VirtualMachineMode::Yes => true,
            VirtualMachineMode::No => false,
        }
    }
}
