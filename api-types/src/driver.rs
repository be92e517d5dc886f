//! How a service is started, stopped and watched: one driver each.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A map with one key, the driver's name; none set is refused by validation.
///
/// A struct of options rather than an enum, so that "two drivers" and "no such driver" are told apart in errors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub struct DriverSpec {
    /// Programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecDriver>,
    /// A systemd unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub systemd: Option<SystemdDriver>,
    /// An OCF resource agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ocf: Option<OcfDriver>,
    /// A container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub podman: Option<PodmanDriver>,
    /// A virtual machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub libvirt: Option<LibvirtDriver>,
    /// A service that only pretends, for the simulator and tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<SimulatedDriver>,
}

/// The drivers by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DriverKind {
    /// Programs.
    Exec,
    /// A systemd unit.
    Systemd,
    /// An OCF resource agent.
    Ocf,
    /// A container.
    Podman,
    /// A virtual machine.
    Libvirt,
    /// Pretended.
    Simulated,
}

impl DriverKind {
    /// The driver's name, as the key in `spec.driver`.
    pub fn name(self) -> &'static str {
        match self {
            DriverKind::Exec => "exec",
            DriverKind::Systemd => "systemd",
            DriverKind::Ocf => "ocf",
            DriverKind::Podman => "podman",
            DriverKind::Libvirt => "libvirt",
            DriverKind::Simulated => "simulated",
        }
    }
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl DriverSpec {
    /// All drivers that are set; exactly one in a valid spec.
    pub fn kinds(&self) -> Vec<DriverKind> {
        [
            self.exec.as_ref().map(|_| DriverKind::Exec),
            self.systemd.as_ref().map(|_| DriverKind::Systemd),
            self.ocf.as_ref().map(|_| DriverKind::Ocf),
            self.podman.as_ref().map(|_| DriverKind::Podman),
            self.libvirt.as_ref().map(|_| DriverKind::Libvirt),
            self.simulated.as_ref().map(|_| DriverKind::Simulated),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The driver; `None` when not exactly one is set.
    pub fn kind(&self) -> Option<DriverKind> {
        match self.kinds().as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }

    /// The resource's type, as in `vm:100`.
    pub fn type_name(&self) -> String {
        match self.kind() {
            Some(DriverKind::Exec) | None => "exec".to_owned(),
            Some(DriverKind::Systemd) => "unit".to_owned(),
            Some(DriverKind::Ocf) => "ocf".to_owned(),
            Some(DriverKind::Podman) => "ct".to_owned(),
            Some(DriverKind::Libvirt) => "vm".to_owned(),
            Some(DriverKind::Simulated) => {
                self.simulated.as_ref().map_or_else(|| "sim".to_owned(), |simulated| simulated.kind.clone())
            }
        }
    }

    /// Whether the driver can move the service live.
    pub fn can_migrate(&self) -> bool {
        match self.kind() {
            Some(DriverKind::Exec) => self.exec.as_ref().is_some_and(|exec| !exec.migrate.is_empty()),
            Some(DriverKind::Libvirt) => true,
            Some(DriverKind::Simulated) => self.simulated.as_ref().is_some_and(|simulated| simulated.live),
            Some(DriverKind::Systemd | DriverKind::Ocf | DriverKind::Podman) | None => false,
        }
    }
}

/// Programs: `command` is a supervised foreground process; or `start`, `stop`, `monitor` and perhaps `migrate`.
///
/// The programs see `HA_RESOURCE`, `HA_NODE` and, for migrate, `HA_TARGET`. `monitor` exits 0 running, 7 not running,
/// anything else: cannot be told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecDriver {
    /// The foreground process: program and arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Starts the service and exits 0 once it runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub start: Vec<String>,
    /// Stops it and exits 0 once nothing is left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Tells whether it runs. With `command` it is optional: exit 0 means ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub monitor: Vec<String>,
    /// Moves it live to `HA_TARGET`; exit 0: runs there and not here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub migrate: Vec<String>,
    /// Environment variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Where the programs run; default `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// The user that they run as; default the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// A systemd unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SystemdDriver {
    /// The unit's name, as `postgresql@15-main.service`.
    pub unit: String,
}

/// An OCF resource agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OcfDriver {
    /// `provider:agent`, as `heartbeat:IPaddr2`.
    pub agent: String,
    /// The agent's parameters.
    pub parameters: BTreeMap<String, String>,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodmanDriver {
    /// An existing container's name, or the image to run.
    pub container: String,
    /// The image.
    pub image: String,
}

/// A virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LibvirtDriver {
    /// The domain's name.
    pub domain: String,
    /// A file with its definition, on storage that all nodes reach.
    pub definition: String,
}

/// A service that only pretends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SimulatedDriver {
    /// Shown as `type:name`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Can migrate live.
    pub live: bool,
    /// How long a start takes.
    pub start_seconds: u32,
    /// How long a stop takes.
    pub stop_seconds: u32,
    /// How long a live migration takes.
    pub migrate_seconds: u32,
    /// How many starts fail first, over the cluster; a success resets it.
    pub start_failures: u32,
    /// How many migrations fail first.
    pub migrate_failures: u32,
    /// Stops fail.
    pub stop_fails: bool,
    /// Its configuration is wrong: it starts nowhere.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bad_configuration: bool,
    /// Failures happen only on these nodes; empty: everywhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fail_on: Vec<String>,
    /// Nodes where it is not installed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl Default for SimulatedDriver {
    fn default() -> SimulatedDriver {
        SimulatedDriver {
            kind: "sim".to_owned(),
            live: true,
            start_seconds: 1,
            stop_seconds: 1,
            migrate_seconds: 5,
            start_failures: 0,
            migrate_failures: 0,
            stop_fails: false,
            bad_configuration: false,
            fail_on: Vec::new(),
            missing: Vec::new(),
        }
    }
}
