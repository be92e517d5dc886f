//! The policy of a controller: the local files, fence agents and network addresses that objects may make it use.
//!
//! The API cannot change the policy. It limits what a stolen certificate of an administrator reaches on this machine.

use crate::api::spec_of;
use ha_api_types::cluster::{ClusterSpec, SmtpSpec, WebhookSpec};
use ha_api_types::kind::Kind;
use ha_api_types::node::{FencePart, NodeSpec};
use ha_api_types::problem::{Problem, element_path, field_path};
use ha_api_types::setting::{ValueLocation, ValueSource};
use ha_api_types::yaml;
use ha_runtime::local_values::LocalValues;
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Directory of the files that objects name without a directory, unless the policy names another one.
const DEFAULT_SECRETS_DIRECTORY: &str = "/etc/hactl/secrets";

/// Limits of a controller.
///
/// Guarantees: with a policy, an object cannot make the controller read a file outside of one directory, run a fence
/// agent that is not listed, or connect to an address that is not listed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerPolicy {
    /// The only directory with files that objects may name.
    secrets_directory: PathBuf,
    /// Fence agents that the controller runs. Absent: all that are installed.
    fence_agents: Option<Vec<String>>,
    /// Hosts, domains and networks to which the controller sends notifications. Absent: all.
    notification_addresses: Option<Vec<String>>,
}

impl Default for ControllerPolicy {
    fn default() -> ControllerPolicy {
        ControllerPolicy {
            secrets_directory: PathBuf::from(DEFAULT_SECRETS_DIRECTORY),
            fence_agents: None,
            notification_addresses: None,
        }
    }
}

impl ControllerPolicy {
    /// Reads a policy from YAML.
    ///
    /// # Errors
    /// Fails if the text is not a map, or has an unknown key or an invalid value; the message names it.
    pub fn parse(text: &str) -> Result<ControllerPolicy, String> {
        let fields = yaml::map_with_keys(text, &FIELDS)?;
        let policy: ControllerPolicy =
            serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())?;
        if !policy.secrets_directory.is_absolute() {
            let path = policy.secrets_directory.display();
            return Err(format!("secretsDirectory {path} is not an absolute path"));
        }
        for entry in policy.notification_addresses.iter().flatten() {
            AllowedAddress::parse(entry)?;
        }
        Ok(policy)
    }

    fn check_file(&self, field: &str, name: &str) -> Result<PathBuf, String> {
        let path = self.secrets_directory.join(name);
        if path.parent() == Some(&self.secrets_directory) && path.file_name().is_some() {
            return Ok(path);
        }
        Err(format!(
            "{field} {name} is not in {directory}, the only directory with files that this controller reads: copy the \
             file there, and set {field} to its name without a directory",
            directory = self.secrets_directory.display()
        ))
    }

    fn check_part(&self, part: &FencePart) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        if let Some(agents) = &self.fence_agents
            && !agents.contains(&part.agent)
        {
            let message = format!(
                "policy of this controller does not allow {}: add it to policy.fenceAgents in controller.yaml",
                part.agent
            );
            problems.push(("agent".to_owned(), message));
        }
        for name in part.attributes.keys().filter(|name| names_file_or_program(name)) {
            let message = format!(
                "{name} can name a file or a program of the controller: set it in attributesFile on the controllers"
            );
            problems.push((field_path("attributes", name), message));
        }
        for (name, value) in &part.attributes {
            if let Some(Ok(location @ (ValueLocation::Credential(_) | ValueLocation::Env(_)))) =
                value.source().map(ValueSource::location)
            {
                let message = format!(
                    "policy of this controller does not allow {location} for fence agents: use a file in \
                     {}",
                    self.secrets_directory.display()
                );
                problems.push((field_path("attributes", name), message));
            }
        }
        if let Some(file) = &part.attributes_file
            && let Err(message) = self.check_file("attributesFile", file)
        {
            problems.push(("attributesFile".to_owned(), message));
        }
        problems
    }

    /// Returns why the controller does not connect to a host with this name. A name that is not listed may have an
    /// address that is.
    fn check_host(&self, host: &str) -> HostDecision {
        let Some(entries) = &self.notification_addresses else { return HostDecision::Allowed };
        let entries: Vec<AllowedAddress> =
            entries.iter().filter_map(|entry| AllowedAddress::parse(entry).ok()).collect();
        let host = host.trim_matches(['[', ']']);
        let networks: Vec<IpNet> = entries.iter().filter_map(AllowedAddress::network).collect();
        match host.parse::<IpAddr>() {
            Ok(address) if networks.iter().any(|network| network.contains(&address)) => HostDecision::Allowed,
            Ok(_) => HostDecision::Refused,
            Err(_) if entries.iter().any(|entry| entry.covers(host)) => HostDecision::Allowed,
            Err(_) if networks.is_empty() => HostDecision::Refused,
            Err(_) => HostDecision::DependsOnAddress(networks),
        }
    }
}

/// The keys of a policy in YAML.
const FIELDS: [&str; 3] = ["secretsDirectory", "fenceAgents", "notificationAddresses"];

/// Whether the controller may connect to a host.
#[derive(Debug, PartialEq, Eq)]
enum HostDecision {
    Allowed,
    Refused,
    /// Only to addresses in one of these networks.
    DependsOnAddress(Vec<IpNet>),
}

/// One entry of `notificationAddresses`.
#[derive(Debug, PartialEq, Eq)]
enum AllowedAddress {
    Host(String),
    /// All hosts of a domain; the text begins with a dot.
    Domain(String),
    Network(IpNet),
}

impl AllowedAddress {
    fn parse(text: &str) -> Result<AllowedAddress, String> {
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(AllowedAddress::Network(network));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(AllowedAddress::Network(address.into()));
        }
        let is_name = |name: &str| {
            !name.is_empty()
                && name.split('.').all(|label| {
                    !label.is_empty()
                        && label
                            .bytes()
                            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
                })
        };
        match text.strip_prefix('.') {
            Some(domain) if is_name(domain) => Ok(AllowedAddress::Domain(text.to_ascii_lowercase())),
            None if is_name(text) => Ok(AllowedAddress::Host(text.to_ascii_lowercase())),
            Some(_) | None => Err(format!(
                "{text:?} is not a valid address: use a host, a domain such as .example.org, or a network such as \
                 10.0.0.0/8"
            )),
        }
    }

    fn network(&self) -> Option<IpNet> {
        match self {
            AllowedAddress::Network(network) => Some(*network),
            AllowedAddress::Host(_) | AllowedAddress::Domain(_) => None,
        }
    }

    fn covers(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        match self {
            AllowedAddress::Host(name) => host == *name,
            AllowedAddress::Domain(suffix) => host.ends_with(suffix.as_str()),
            AllowedAddress::Network(_) => false,
        }
    }
}

/// Returns `true` if an attribute of the fence agents names a file or a program, such as `passwd_script`,
/// `ipmitool_path`, `identity_file` and `ssh_options`. The agents run these programs and write some of the files.
fn names_file_or_program(attribute: &str) -> bool {
    // The agents accept both separators.
    let attribute = attribute.replace('-', "_").to_ascii_lowercase();
    ["_path", "_script", "_file", "_options"].iter().any(|suffix| attribute.ends_with(suffix))
        || attribute == "debug"
}

/// The limits of this controller; without a policy, none.
#[derive(Clone, Debug, Default)]
pub struct Limits(Option<ControllerPolicy>);

impl Limits {
    /// Creates the limits of a policy; without a policy, everything is allowed.
    pub fn new(policy: Option<ControllerPolicy>) -> Limits {
        Limits(policy)
    }

    /// Returns the path of a file that an object names in `field`. A name without a directory is a file of the secrets
    /// directory.
    ///
    /// # Errors
    /// Fails if the policy does not allow the file; the message contains the suggested action.
    pub fn file(&self, field: &str, name: &str) -> Result<PathBuf, String> {
        match &self.0 {
            Some(policy) => policy.check_file(field, name),
            None => Ok(Path::new(DEFAULT_SECRETS_DIRECTORY).join(name)),
        }
    }

    /// Returns the locations of the values that attributes of fence devices get from this machine.
    pub fn local_values(&self) -> LocalValues {
        let directory = self.0.as_ref().map(|policy| policy.secrets_directory.clone());
        LocalValues::new(directory.unwrap_or_else(|| PathBuf::from(DEFAULT_SECRETS_DIRECTORY)))
    }

    /// Checks a part of a fence device before a run.
    ///
    /// # Errors
    /// Fails if the policy does not allow the agent, an attribute or the file; the message contains the suggested
    /// action.
    pub fn check_part(&self, part: &FencePart) -> Result<(), String> {
        let problems = self.0.iter().flat_map(|policy| policy.check_part(part)).next();
        problems.map_or(Ok(()), |(_, message)| Err(message))
    }

    /// Returns the addresses of a host to which this controller may connect; `None` for all addresses of the host.
    ///
    /// # Errors
    /// Fails if the policy allows no address of the host, or if the host has none.
    pub async fn addresses(&self, host: &str, port: u16) -> Result<Option<Vec<SocketAddr>>, String> {
        let decision = self.0.as_ref().map_or(HostDecision::Allowed, |policy| policy.check_host(host));
        let networks = match decision {
            HostDecision::Allowed => return Ok(None),
            HostDecision::Refused => return Err(refused_host(host)),
            HostDecision::DependsOnAddress(networks) => networks,
        };
        let addresses = tokio::net::lookup_host((host, port)).await;
        let addresses = addresses.map_err(|error| format!("{host} has no address: {error}"))?;
        let is_allowed = |address: &SocketAddr| {
            networks.iter().any(|network| network.contains(&address.ip().to_canonical()))
        };
        let allowed: Vec<SocketAddr> = addresses.filter(is_allowed).collect();
        if allowed.is_empty() { Err(refused_host(host)) } else { Ok(Some(allowed)) }
    }

    /// Returns the parts of a new or changed object that the policy does not allow. Problems that the stored object
    /// already has are not reported again.
    pub fn problems(&self, kind: Kind, stored: Option<&Value>, proposed: &Value) -> Vec<Problem> {
        let Some(policy) = &self.0 else { return Vec::new() };
        let find = |object: &Value| match kind {
            Kind::Node => policy.problems_of_node(&spec_of(object)),
            Kind::Cluster => policy.problems_of_cluster(&spec_of(object)),
            Kind::Resource
            | Kind::Group
            | Kind::AffinityRule
            | Kind::NodeGroup
            | Kind::Operation
            | Kind::GitSync => Vec::new(),
        };
        let earlier_problems = stored.map(find).unwrap_or_default();
        find(proposed).into_iter().filter(|problem| !earlier_problems.contains(problem)).collect()
    }
}

fn refused_host(host: &str) -> String {
    format!(
        "policy of this controller does not allow notifications to {host}: add it to policy.notificationAddresses in controller.yaml"
    )
}

impl ControllerPolicy {
    fn problems_of_node(&self, spec: &NodeSpec) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (device_index, device) in spec.fencing.devices.iter().enumerate() {
            let parts_path = field_path(&element_path("spec.fencing.devices", device_index), "parts");
            for (part_index, part) in device.parts.iter().enumerate() {
                let part_path = element_path(&parts_path, part_index);
                let forbidden_fields = self.check_part(part).into_iter();
                problems.extend(
                    forbidden_fields
                        .map(|(field, message)| Problem::forbidden(field_path(&part_path, &field), message)),
                );
            }
        }
        problems
    }

    fn problems_of_cluster(&self, spec: &ClusterSpec) -> Vec<Problem> {
        let Some(notifications) = &spec.notifications else { return Vec::new() };
        let mut problems = Vec::new();
        let webhooks = field_path("spec.notifications", "webhooks");
        for (index, webhook) in notifications.webhooks.iter().enumerate() {
            let path = element_path(&webhooks, index);
            let WebhookSpec { url, bearer_token_file, hmac_key_file, ca_file } = webhook.settings();
            let files =
                [("bearerTokenFile", bearer_token_file), ("hmacKeyFile", hmac_key_file), ("caFile", ca_file)];
            self.check_target(&path, host_of_url(&url).as_deref(), &files, &mut problems);
        }
        if let Some(smtp) = &notifications.smtp {
            let SmtpSpec { password_file, ca_file, .. } = smtp.clone();
            let host = smtp.host_and_port().map(|(host, _)| host);
            let files = [("passwordFile", password_file), ("caFile", ca_file)];
            self.check_target("spec.notifications.smtp", host.as_deref(), &files, &mut problems);
        }
        problems
    }

    fn check_target(
        &self,
        path: &str,
        host: Option<&str>,
        files: &[(&str, Option<String>)],
        problems: &mut Vec<Problem>,
    ) {
        if let Some(host) = host
            && self.check_host(host) == HostDecision::Refused
        {
            problems.push(Problem::forbidden(path, refused_host(host)));
        }
        for (field, file) in files {
            if let Some(file) = file
                && let Err(message) = self.check_file(field, file)
            {
                problems.push(Problem::forbidden(field_path(path, field), message));
            }
        }
    }
}

/// Returns the host of a URL; `None` if the URL is not valid.
pub(crate) fn host_of_url(url: &str) -> Option<String> {
    Some(reqwest::Url::parse(url).ok()?.host_str()?.to_owned())
}

#[cfg(test)]
mod tests;
