//! Driver `libvirt`: a virtual machine.

mod definition;

pub use definition::{DefinitionError, DomainDefinition, HostAccess, console_log, is_domain_name};

use crate::id::NodeName;
use crate::quantity::Amounts;
use crate::time::{DecimalSeconds, Millis};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// Placeholder for the target's name in the addresses of a migration.
pub const NODE_PLACEHOLDER: &str = "{node}";
/// Default URI of the node's libvirt.
const DEFAULT_URI: &str = "qemu:///system";
/// Default URI of the target's libvirt, as seen from the source.
const DEFAULT_MIGRATION_URI: &str = "qemu+tls://{node}/system";

/// A virtual machine.
///
/// The definition is `xml` itself, or the file `definition` for the name `domain`. With `domain` only, the domain must
/// be defined in libvirt on every node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LibvirtDriver {
    /// Name of the domain. Default with `xml`: the name in the definition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// File with the definition (domain XML), on storage that all nodes reach.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub definition: String,
    /// The definition (domain XML), instead of a file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub xml: String,
    /// Libvirt URI on the node. Default: `qemu:///system`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Settings for live migration.
    pub migration: LibvirtMigration,
    /// Amounts that `xml` requests, computed once.
    #[serde(skip)]
    #[schemars(skip)]
    requested: Memo<Amounts>,
    /// Access to the host in `xml`, computed once.
    #[serde(skip)]
    host_access: Memo<Option<HostAccess>>,
}

/// Settings for live migration of a virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LibvirtMigration {
    /// Libvirt URI of the target as seen from the source, where `{node}` is the name of the target. Default:
    /// `qemu+tls://{node}/system`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// URI to which the memory is sent, such as `tcp://{node}`, where `{node}` is the name of the target.
    /// Default: chosen by libvirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_uri: Option<String>,
    /// Maximum bandwidth, in MiB per second. Default: no limit.
    #[serde(
        rename = "bandwidthMebibytes",
        alias = "bandwidthMebibytesPerSecond",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(rename = "bandwidthMebibytesPerSecond")]
    pub bandwidth_mebibytes_per_second: Option<u64>,
    /// Maximum pause for the last part of the memory, in seconds. Default: that of libvirt. The duration of the cutover
    /// is added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_downtime_seconds: Option<DecimalSeconds>,
    /// `max_downtime_seconds` under its name and in its unit in etcd ([`crate::renamed`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub downtime_milliseconds: Option<Millis>,
    /// Seconds after which the migration changes to post-copy. Default: never. From then on, the loss of
    /// either node stops the virtual machine, which is then started again from its disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_copy_after_seconds: Option<u64>,
}

impl LibvirtMigration {
    /// Returns the maximum pause for the last part of the memory, in milliseconds.
    pub fn max_downtime_ms(&self) -> Option<Millis> {
        self.max_downtime_seconds.map(DecimalSeconds::ms).or(self.downtime_milliseconds)
    }
}

impl LibvirtDriver {
    /// Returns the name of the domain, from the name or the XML in the resource.
    ///
    /// # Errors
    /// Fails if the resource has neither a name nor a readable definition.
    pub fn domain_name(&self) -> Result<String, DefinitionError> {
        if self.domain.is_empty() {
            return DomainDefinition::parse(&self.xml).map(|definition| definition.name);
        }
        Ok(self.domain.clone())
    }

    /// Returns the URI of the node's libvirt.
    pub fn uri(&self) -> &str {
        self.uri.as_deref().unwrap_or(DEFAULT_URI)
    }

    /// Returns the processors and memory in the definition of the resource; empty if the definition is in a file.
    pub fn requested_amounts(&self) -> Amounts {
        *self.requested.get_or(|| {
            DomainDefinition::parse(&self.xml).map(|definition| definition.amounts).unwrap_or_default()
        })
    }

    /// Returns what the definition in the resource takes from the host; `None` if it cannot be read.
    pub fn host_access(&self) -> Option<&HostAccess> {
        self.host_access.get_or(|| HostAccess::parse(&self.xml)).as_ref()
    }
}

impl LibvirtMigration {
    /// Returns the URI of a node's libvirt, as seen from other nodes.
    pub fn uri_of(&self, node: &NodeName) -> String {
        self.uri.as_deref().unwrap_or(DEFAULT_MIGRATION_URI).replace(NODE_PLACEHOLDER, node)
    }

    /// Returns the URI for the memory transfer; `None` if libvirt chooses.
    pub fn data_uri_of(&self, node: &NodeName) -> Option<String> {
        Some(self.data_uri.as_ref()?.replace(NODE_PLACEHOLDER, node))
    }
}

/// A value that is computed on first use. Two memos are always equal, because the fields that determine the value are
/// compared instead.
///
/// Assumptions: these fields do not change after the first use; objects are replaced, not edited.
#[derive(Clone, Debug, Default)]
struct Memo<T>(OnceLock<T>);

impl<T> Memo<T> {
    fn get_or(&self, compute: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(compute)
    }
}

impl<T> PartialEq for Memo<T> {
    fn eq(&self, _: &Memo<T>) -> bool {
        true
    }
}

impl<T> Eq for Memo<T> {}
