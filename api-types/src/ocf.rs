//! Resource agents of the Open Cluster Framework (OCF): names, location and metadata.

mod metadata;
mod parameters;

pub use metadata::{Action, AgentMetadata, MetadataError, Parameter, ParameterType};
pub use parameters::check;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Directory of the agents on a machine (`OCF_ROOT`), as in Debian's package `resource-agents`.
pub const DEFAULT_ROOT: &str = "/usr/lib/ocf";

/// Time limit for the meta-data of an agent, in seconds.
pub const METADATA_LIMIT_SECONDS: u64 = 5;

/// The name of an agent, such as `heartbeat:IPaddr2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentName {
    /// Provider: the name of the agent's directory in `resource.d`.
    pub provider: String,
    /// Name of the agent's file in that directory.
    pub agent: String,
}

/// The error for a text that is not the name of an agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be provider:agent, such as heartbeat:IPaddr2, got {0:?}")]
pub struct WrongName(String);

impl FromStr for AgentName {
    type Err = WrongName;

    /// Parses `PROVIDER:AGENT`. The prefix `ocf:`, which other tools write, is accepted.
    fn from_str(text: &str) -> Result<AgentName, WrongName> {
        let is_plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        let named = text.strip_prefix("ocf:").unwrap_or(text).split_once(':');
        let parts = named.filter(|(provider, agent)| is_plain(provider) && is_plain(agent));
        let (provider, agent) = parts.ok_or_else(|| WrongName(text.to_owned()))?;
        Ok(AgentName { provider: provider.to_owned(), agent: agent.to_owned() })
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ocf:{}:{}", self.provider, self.agent)
    }
}

/// Returns the directory that contains the directories of the providers.
pub fn agents_directory(root: &Path) -> PathBuf {
    root.join("resource.d")
}

impl AgentName {
    /// Returns the path of the agent's program under a root.
    pub fn program(&self, root: &Path) -> PathBuf {
        agents_directory(root).join(&self.provider).join(&self.agent)
    }

    /// Returns the environment variables that an agent gets for every action. The root must be an absolute path.
    pub fn environment(&self, root: &Path) -> Vec<(String, String)> {
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        vec![
            variable("OCF_ROOT", &root.display().to_string()),
            variable("OCF_RA_VERSION_MAJOR", "1"),
            variable("OCF_RA_VERSION_MINOR", "1"),
            variable("OCF_RESOURCE_PROVIDER", &self.provider),
            variable("OCF_RESOURCE_TYPE", &self.agent),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_names_are_parsed() {
        for (text, expected) in [
            ("heartbeat:IPaddr2", Some("ocf:heartbeat:IPaddr2")),
            ("ocf:heartbeat:IPaddr2", Some("ocf:heartbeat:IPaddr2")),
            ("linbit:drbd-attr.sh", Some("ocf:linbit:drbd-attr.sh")),
            ("IPaddr2", None),
            ("heartbeat:", None),
            ("heartbeat:../../bin/sh", None),
            ("..:sh", None),
            ("heartbeat:.hidden", None),
            ("a:b:c", None),
        ] {
            let name = text.parse::<AgentName>();
            assert_eq!(name.as_ref().map(ToString::to_string).ok().as_deref(), expected, "{text}");
        }
        let name: AgentName = "heartbeat:IPaddr2".parse().expect("a name");
        assert_eq!(
            name.program(Path::new("/usr/lib/ocf")),
            Path::new("/usr/lib/ocf/resource.d/heartbeat/IPaddr2")
        );
    }
}
