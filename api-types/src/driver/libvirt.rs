//! Driver `libvirt`: a virtual machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LibvirtDriver {
    /// The domain's name; default the one in the definition.
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
    /// The longest pause that is allowed at the end, in milliseconds; default libvirt's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_milliseconds: Option<u64>,
    /// Changes to post-copy after so many seconds; default never. From then on neither side alone has the whole guest:
    /// when either is lost, the guest is, and is started afresh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_copy_after_seconds: Option<u64>,
}
