//! Driver `podman`: a container.

use super::systemd::Limits;
use crate::id::ResourceName;
use crate::setting::Setting;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A container: an existing one by its name, or one that is created from an image on start and removed on
/// stop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodmanDriver {
    /// Name of the container. Default with `image`: `hactl-RESOURCE`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// Image from which the container is created. The node pulls the image if it is missing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Program and arguments, instead of the image's entrypoint and command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Environment variables of the container. A value can come from the node (`valueFrom`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, Setting>,
    /// Directories and files of the node inside the container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Ports of the node that are forwarded to the container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// Network: `host`, `none`, `bridge` or the name of a network. Default: chosen by podman.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// User, or user and group, that runs the program, such as `name` or `uid:gid`. Default: that of the
    /// image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Working directory of the program. Default: that of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Resource limits of the container.
    #[serde(skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// Limits of processes by name: `soft:hard`, such as `nofile: "1024:1024"`, or one number for both.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ulimits: BTreeMap<String, String>,
    /// Health check of the container. The service counts as running once the check succeeds, and an unhealthy container
    /// counts as a crash. Default without `image`: the check of the existing container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
}

impl PodmanDriver {
    /// Returns the name of the container.
    pub fn container_name(&self, resource: &ResourceName) -> String {
        if self.container.is_empty() { format!("hactl-{resource}") } else { self.container.clone() }
    }
}

/// A directory or file of the node inside a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Mount {
    /// Path on the node.
    pub source: String,
    /// Path in the container.
    pub target: String,
    /// Whether the mount is read-only in the container.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// A port of the node that is forwarded to a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// Port on the node.
    pub host: u16,
    /// Port in the container. Default: the same as on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<u16>,
    /// Address of the node to listen on. Default: all addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Transport protocol of the port.
    pub protocol: Protocol,
}

/// Transport protocol of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-hactl-aliases" = ["tcp", "udp"]))]
pub enum Protocol {
    /// TCP.
    #[default]
    #[serde(alias = "tcp", alias = "TCP")]
    #[schemars(rename = "TCP")]
    Tcp,
    /// UDP.
    #[serde(alias = "udp", alias = "UDP")]
    #[schemars(rename = "UDP")]
    Udp,
}

/// Command inside a container that exits 0 if the service is healthy, with its interval and limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HealthCheck {
    /// Program and arguments. With driver `podman`, allowed only together with `image`: an existing container has its own
    /// check.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Seconds between two checks.
    pub interval_seconds: f64,
    /// Maximum duration of a check, in seconds.
    pub timeout_seconds: f64,
    /// Number of consecutive failures after which the container is unhealthy.
    pub retries: u32,
    /// Seconds after the start within which failures do not count.
    pub start_period_seconds: f64,
}

impl Default for HealthCheck {
    fn default() -> HealthCheck {
        HealthCheck {
            command: Vec::new(),
            interval_seconds: 10.0,
            timeout_seconds: 5.0,
            retries: 3,
            start_period_seconds: 0.0,
        }
    }
}
