//! Driver `lxc`: a system container.

use super::podman::HealthCheck;
use super::systemd::Limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An existing LXC container, by its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LxcDriver {
    /// Name of the container.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// File with the configuration of the container, on storage that all nodes reach. Default: file `config` in the
    /// directory of the container, such as `/var/lib/lxc/web/config`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub config: String,
    /// Resource limits of the container, from its next start on. They take precedence over those in its configuration.
    #[serde(skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// Health check of the container. The service counts as running once the check succeeds, and an unhealthy container
    /// counts as a crash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
}
