//! Driver `systemd`: a unit of the node's service manager.

use crate::id::ResourceName;
use crate::quantity::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A unit of the node's systemd, or a transient unit that is created from a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SystemdDriver {
    /// Name of the unit, such as `postgresql@15-main.service`. A name without a type means `.service`, as
    /// with systemctl. Default with `command`: `hactl-RESOURCE.service`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Whether every node disables the start at boot of the unit, and of units that activate it (as with `systemctl
    /// disable`). If false, an enabled unit is rejected, because it would run twice.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disable_at_boot: bool,
    /// Program of a transient unit, as an absolute path, and arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Environment variables of the transient unit.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Working directory of the transient unit. Default: `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// User that runs the transient unit. Default: root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Resource limits of the transient unit.
    #[serde(skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
}

/// Suffixes of units that can be services.
pub(crate) const UNIT_TYPES: [&str; 7] =
    [".service", ".socket", ".mount", ".swap", ".target", ".timer", ".path"];

/// Units of every type that a node needs to work.
const ESSENTIAL: [&str; 26] = [
    "ha-node-agent.service",
    "ha-watchdogd.service",
    "dbus.service",
    "dbus.socket",
    "dbus-broker.service",
    "-.mount",
    "basic.target",
    "default.target",
    "emergency.target",
    "exit.target",
    "final.target",
    "graphical.target",
    "halt.target",
    "hibernate.target",
    "initrd.target",
    "kexec.target",
    "local-fs.target",
    "multi-user.target",
    "poweroff.target",
    "reboot.target",
    "rescue.target",
    "shutdown.target",
    "soft-reboot.target",
    "suspend.target",
    "sysinit.target",
    "umount.target",
];

impl SystemdDriver {
    /// Returns the full name of the unit, with its suffix.
    pub fn unit_name(&self, resource: &ResourceName) -> String {
        if self.unit.is_empty() {
            return format!("hactl-{}.service", escaped(resource));
        }
        let typed = UNIT_TYPES.iter().any(|suffix| self.unit.ends_with(suffix));
        if typed { self.unit.clone() } else { format!("{}.service", self.unit) }
    }
}

/// Returns `true` if a node does not work without this unit, so that it cannot be a service.
pub fn is_essential_unit(name: &str) -> bool {
    // Units of `systemd-nspawn@` are containers, which can be services.
    let of_systemd = name.starts_with("systemd-") && !name.starts_with("systemd-nspawn@");
    of_systemd || ESSENTIAL.contains(&name)
}

/// Escapes a text for the name of a unit: characters that systemd does not allow become `\xNN`, as in systemd-escape.
fn escaped(text: &str) -> String {
    let mut name = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_' | b'.' | b'-') {
            name.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(name, "\\x{byte:02x}");
        }
    }
    name
}

/// Maximum resource usage of a service, enforced by the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Maximum number of cores. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Quantity>,
    /// Maximum memory, in bytes. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
    /// Maximum number of processes and threads. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
}

impl Limits {
    /// Returns `true` if nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_names_get_the_service_suffix() {
        for (unit, resource, expected) in [
            ("redis-server.service", "cache", "redis-server.service"),
            ("redis-server", "cache", "redis-server.service"),
            ("postgresql@15-main", "db", "postgresql@15-main.service"),
            ("srv-data.mount", "data", "srv-data.mount"),
            ("a.b", "c", "a.b.service"),
            ("", "my-web.1", "hactl-my-web.1.service"),
            ("", "a/b @", r"hactl-a\x2fb\x20\x40.service"),
        ] {
            let driver = SystemdDriver { unit: unit.to_owned(), ..SystemdDriver::default() };
            assert_eq!(driver.unit_name(&resource.into()), expected);
        }
    }
}
