//! Driver `podman`: a container.

use super::systemd::Limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A container: an existing one by its name, or one that is made of an image for as long as it runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodmanDriver {
    /// The container's name. With `image` it may be left out: `hactl-RESOURCE`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// The image to make it of; it is pulled when the node does not have it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The program and its arguments, in place of the image's entrypoint and command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Environment variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Folders of the node that it sees.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Ports of the node that lead to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// `host`, `none`, `bridge` or a network's name; default podman's own choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The user that the program runs as, or user and group, as `name` or `uid:gid`; default the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where the program runs; default the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// What it may use at most.
    #[serde(skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// Resource limits of its processes, `soft:hard` by name, as `nofile: "1024:1024"`, or one number for both.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ulimits: BTreeMap<String, String>,
    /// Asked now and then: it runs once this succeeds, and unhealthy counts as a crash. Without `image` the container's own check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
}

impl PodmanDriver {
    /// Returns the name of the container.
    pub fn container_name(&self, resource: &str) -> String {
        if self.container.is_empty() { format!("hactl-{resource}") } else { self.container.clone() }
    }
}

/// A folder or file of the node inside a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Mount {
    /// On the node.
    pub source: String,
    /// In the container.
    pub target: String,
    /// Whether the container cannot write to it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// A port of the node that leads to a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// On the node.
    pub host: u16,
    /// In the container; default the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<u16>,
    /// The node's address to listen on; default all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Tcp or Udp.
    pub protocol: Protocol,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-hactl-aliases" = ["tcp", "TCP", "udp", "UDP"]))]
pub enum Protocol {
    /// TCP.
    #[default]
    #[serde(alias = "tcp", alias = "TCP")]
    Tcp,
    /// UDP.
    #[serde(alias = "udp", alias = "UDP")]
    Udp,
}

/// A command inside a container that tells whether its service is well: exit 0. How often it is asked, and what that means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HealthCheck {
    /// The program and its arguments. An existing container has its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// How often it is asked.
    pub interval_seconds: f64,
    /// How long it may take.
    pub timeout_seconds: f64,
    /// How often in a row it must fail.
    pub retries: u32,
    /// Failures so soon after the start do not count.
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
