//! Driver `libvirt`: a virtual machine.

mod definition;
mod memo;

pub use definition::{DefinitionError, DomainDefinition, is_domain_name};

use crate::quantity::Amounts;
use memo::Memo;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Placeholder for the target's name in the addresses of a migration.
pub const NODE_PLACEHOLDER: &str = "{node}";
/// Default URI of the node's libvirt.
const DEFAULT_URI: &str = "qemu:///system";
/// Default URI of the target's libvirt, as seen from the source.
const DEFAULT_MIGRATION_URI: &str = "qemu+tls://{node}/system";

/// A virtual machine.
///
/// `xml`: the definition itself. `domain` and `definition`: a name, and a file with the definition of that name. `domain` alone:
/// one that is defined in every node's libvirt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LibvirtDriver {
    /// The domain's name; with xml default the one in it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// A file with its definition (domain XML), on storage that all nodes reach.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub definition: String,
    /// The definition itself (domain XML), in place of a file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub xml: String,
    /// Which libvirt of the node; default `qemu:///system`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// How it moves live.
    pub migration: LibvirtMigration,
    /// What `xml` asks for, worked out once.
    #[serde(skip)]
    #[schemars(skip)]
    asked: Memo<Amounts>,
}

/// How a virtual machine moves live.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LibvirtMigration {
    /// The target's libvirt as the source reaches it, `{node}` being the target's name; default `qemu+tls://{node}/system`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Where the memory goes, `{node}` being the target's name, as `tcp://{node}`; default libvirt's own choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_uri: Option<String>,
    /// The most that is sent, in MiB a second; default no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_mebibytes: Option<u64>,
    /// The longest pause that is allowed for the last of the memory, in milliseconds; default libvirt's own. The hand-over from node
    /// to node comes on top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_milliseconds: Option<u64>,
    /// Changes to post-copy after so many seconds; default never. From then on neither side alone has the whole guest:
    /// when either is lost, the guest is, and is started afresh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_copy_after_seconds: Option<u64>,
}

impl LibvirtDriver {
    /// Returns the name of the domain, from the name or the XML in the resource.
    ///
    /// # Errors
    /// The resource has neither a name nor a readable definition.
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
    pub fn asked(&self) -> Amounts {
        self.asked.get_or(|| {
            DomainDefinition::parse(&self.xml).map(|definition| definition.amounts).unwrap_or_default()
        })
    }
}

impl LibvirtMigration {
    /// Returns the URI of a node's libvirt, as seen from other nodes.
    pub fn uri_of(&self, node: &str) -> String {
        self.uri.as_deref().unwrap_or(DEFAULT_MIGRATION_URI).replace(NODE_PLACEHOLDER, node)
    }

    /// Returns the URI for the memory transfer; `None` if libvirt chooses.
    pub fn data_uri_of(&self, node: &str) -> Option<String> {
        Some(self.data_uri.as_ref()?.replace(NODE_PLACEHOLDER, node))
    }
}
