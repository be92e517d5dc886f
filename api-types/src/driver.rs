//! The driver of a resource: how its service is started, stopped and monitored.

mod exec;
mod external;
mod identity;
mod libvirt;
mod lxc;
mod ocf;
mod podman;
mod simulated;
mod systemd;

pub use exec::ExecDriver;
pub use external::ExternalDriver;
pub use identity::Identity;
pub use libvirt::{
    DefinitionError, DomainDefinition, HostAccess, LibvirtDriver, LibvirtMigration, NODE_PLACEHOLDER,
    console_log, is_domain_name,
};
pub use lxc::LxcDriver;
pub use ocf::OcfDriver;
pub use podman::{HealthCheck, Mount, PodmanDriver, Port, Protocol};
pub use simulated::SimulatedDriver;
pub(crate) use systemd::UNIT_TYPES;
pub use systemd::{Limits, SystemdDriver, is_essential_unit};

use crate::setting::{Setting, ValueSource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Driver of a service: a map with exactly one key, the name of the driver.
///
/// The type is a struct of options and not an enum, so that errors distinguish "two drivers" from "no such
/// driver".
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub struct DriverSpec {
    /// Programs that start, stop and monitor the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecDriver>,
    /// A systemd unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub systemd: Option<SystemdDriver>,
    /// An OCF resource agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ocf: Option<OcfDriver>,
    /// A container, run by podman.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub podman: Option<PodmanDriver>,
    /// A system container, run by LXC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lxc: Option<LxcDriver>,
    /// A virtual machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub libvirt: Option<LibvirtDriver>,
    /// A service of an external driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalDriver>,
    /// A simulated service, for the simulator and tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<SimulatedDriver>,
}

/// Name of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DriverKind {
    /// Programs that start, stop and monitor the service.
    Exec,
    /// A systemd unit.
    Systemd,
    /// An OCF resource agent.
    Ocf,
    /// A container, run by podman.
    Podman,
    /// A system container, run by LXC.
    Lxc,
    /// A virtual machine.
    Libvirt,
    /// A service of an external driver.
    External,
    /// A simulated service.
    Simulated,
}

impl DriverKind {
    /// Every driver.
    pub const ALL: [DriverKind; 8] = [
        DriverKind::Exec,
        DriverKind::Systemd,
        DriverKind::Ocf,
        DriverKind::Podman,
        DriverKind::Lxc,
        DriverKind::Libvirt,
        DriverKind::External,
        DriverKind::Simulated,
    ];

    /// Returns the name of the driver, which is its key in `spec.driver`.
    pub fn name(self) -> &'static str {
        match self {
            DriverKind::Exec => "exec",
            DriverKind::Systemd => "systemd",
            DriverKind::Ocf => "ocf",
            DriverKind::Podman => "podman",
            DriverKind::Lxc => "lxc",
            DriverKind::Libvirt => "libvirt",
            DriverKind::External => "external",
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
    /// Returns all drivers that are set; a valid spec has exactly one.
    pub fn kinds(&self) -> Vec<DriverKind> {
        [
            self.exec.as_ref().map(|_| DriverKind::Exec),
            self.systemd.as_ref().map(|_| DriverKind::Systemd),
            self.ocf.as_ref().map(|_| DriverKind::Ocf),
            self.podman.as_ref().map(|_| DriverKind::Podman),
            self.lxc.as_ref().map(|_| DriverKind::Lxc),
            self.libvirt.as_ref().map(|_| DriverKind::Libvirt),
            self.external.as_ref().map(|_| DriverKind::External),
            self.simulated.as_ref().map(|_| DriverKind::Simulated),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Returns the driver; `None` unless exactly one is set.
    pub fn kind(&self) -> Option<DriverKind> {
        match self.kinds().as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }

    /// Returns the locations on the node from which the service gets values (`valueFrom`).
    pub fn value_sources(&self) -> impl Iterator<Item = ValueSource> {
        let of_programs = self.exec.iter().flat_map(|exec| exec.environment.values());
        let of_containers = self.podman.iter().flat_map(|podman| podman.environment.values());
        let parameters = self.ocf.iter().flat_map(|ocf| ocf.parameters.values());
        let settings = self.external.iter().flat_map(ExternalDriver::value_sources);
        of_programs
            .chain(of_containers)
            .chain(parameters)
            .filter_map(Setting::source)
            .cloned()
            .chain(settings)
    }

    /// Returns `true` if the driver creates the unit, domain or container from the fields of the spec. An edit of these
    /// fields then does not reach a running copy.
    pub fn creates_unit_from_spec(&self) -> bool {
        match self.kind() {
            Some(DriverKind::Podman) => true,
            Some(
                DriverKind::Exec
                | DriverKind::Systemd
                | DriverKind::Ocf
                | DriverKind::Lxc
                | DriverKind::Libvirt
                | DriverKind::External
                | DriverKind::Simulated,
            )
            | None => false,
        }
    }

    /// Returns the type of the resource, such as `vm` in `vm:100`.
    pub fn type_name(&self) -> String {
        match self.kind() {
            Some(DriverKind::Exec) | None => "exec".to_owned(),
            Some(DriverKind::Systemd) => "unit".to_owned(),
            Some(DriverKind::Ocf) => "ocf".to_owned(),
            Some(DriverKind::Podman | DriverKind::Lxc) => "ct".to_owned(),
            Some(DriverKind::Libvirt) => "vm".to_owned(),
            Some(DriverKind::External) => {
                self.external.as_ref().map_or_else(String::new, |external| external.name.clone())
            }
            Some(DriverKind::Simulated) => {
                self.simulated.as_ref().map_or_else(|| "sim".to_owned(), |simulated| simulated.kind.clone())
            }
        }
    }

    /// Returns the name that a node must list among its drivers to run the service; `None` unless exactly one driver is
    /// set.
    pub fn capability(&self) -> Option<String> {
        Some(match self.kind()? {
            DriverKind::External => {
                let name = self.external.as_ref().map_or("", |external| external.name.as_str());
                format!("{}:{name}", DriverKind::External)
            }
            kind @ (DriverKind::Exec
            | DriverKind::Systemd
            | DriverKind::Ocf
            | DriverKind::Podman
            | DriverKind::Lxc
            | DriverKind::Libvirt
            | DriverKind::Simulated) => kind.name().to_owned(),
        })
    }

    /// Returns `true` if the target of a live migration has to act after the cutover.
    pub fn has_arrival(&self) -> bool {
        match self.kind() {
            Some(DriverKind::Ocf | DriverKind::External) => self.can_migrate(),
            Some(
                DriverKind::Exec
                | DriverKind::Systemd
                | DriverKind::Podman
                | DriverKind::Lxc
                | DriverKind::Libvirt
                | DriverKind::Simulated,
            )
            | None => false,
        }
    }

    /// Returns `true` if the driver can live-migrate the service.
    pub fn can_migrate(&self) -> bool {
        match self.kind() {
            Some(DriverKind::Exec) => self.exec.as_ref().is_some_and(|exec| !exec.migrate.is_empty()),
            Some(DriverKind::Libvirt) => true,
            Some(DriverKind::Simulated) => self.simulated.as_ref().is_some_and(|simulated| simulated.live),
            Some(DriverKind::Ocf) => self.ocf.as_ref().is_some_and(|ocf| ocf.allow_migrate),
            Some(DriverKind::External) => {
                self.external.as_ref().is_some_and(|external| external.allow_migrate)
            }
            Some(DriverKind::Systemd | DriverKind::Podman | DriverKind::Lxc) | None => false,
        }
    }

    /// Returns `true` if a copy that arrives in a live migration does not run before the target's permit to resume, in
    /// any boot of the target (FENCING, R8.15). An `exec` service is never gated, because the program on the source
    /// starts the service on the target.
    pub fn waits_for_resume_permit(&self) -> bool {
        match self.kind() {
            Some(DriverKind::Libvirt) => self
                .libvirt
                .as_ref()
                .is_some_and(|libvirt| libvirt.migration.post_copy_after_seconds.is_none()),
            Some(DriverKind::Simulated) => self.simulated.as_ref().is_some_and(|simulated| simulated.gated),
            Some(DriverKind::Ocf) => self.ocf.as_ref().is_some_and(|ocf| ocf.gated),
            Some(DriverKind::External) => self.external.as_ref().is_some_and(|external| external.gated),
            Some(DriverKind::Podman | DriverKind::Lxc | DriverKind::Systemd) => true,
            Some(DriverKind::Exec) | None => false,
        }
    }

    /// Returns `true` if the driver can replace the secondary of a replicated service while the service runs.
    pub fn can_replace_secondary(&self) -> bool {
        match self.kind() {
            Some(DriverKind::Exec) => {
                self.exec.as_ref().is_some_and(|exec| !exec.replace_secondary.is_empty())
            }
            Some(DriverKind::Simulated) => {
                self.simulated.as_ref().is_some_and(|simulated| simulated.replaces_secondary)
            }
            Some(
                DriverKind::Systemd
                | DriverKind::Ocf
                | DriverKind::Podman
                | DriverKind::Lxc
                | DriverKind::Libvirt
                | DriverKind::External,
            )
            | None => false,
        }
    }
}
