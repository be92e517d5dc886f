//! The identity of a driver's definition: the driver, and the fields that name the unit, domain, container or program.

use super::{DriverKind, DriverSpec};
use crate::id::ResourceName;
use crate::ocf::AgentName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Identity of the unit, domain or container that a definition runs, such as `systemd:redis-server.service` (FENCING,
/// R6.2).
///
/// Two definitions run the same unit, domain or container on a node if and only if they have the same identity, even if
/// they are written differently. Programs, timeouts, limits and similar settings are not part of the identity.
///
/// `Display` omits the values of parameters, because a value may be a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Identity(String);

impl Identity {
    /// Returns the whole text, including parameters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parsed = self.0.split_once(" {").and_then(|(named, _)| {
            let parameters = &self.0[named.len() + 1..];
            Some((named, serde_json::from_str::<BTreeMap<String, Value>>(parameters).ok()?))
        });
        let Some((named, keys)) = parsed else { return f.write_str(&self.0) };
        write!(f, "{named} ({})", keys.into_keys().collect::<Vec<_>>().join(", "))
    }
}

impl DriverSpec {
    /// Returns the identity of the unit, container or machine that this driver runs for a resource.
    ///
    /// `None` unless exactly one driver is set, or if a definition that contains the name cannot be read. A spec with a
    /// driver that this build does not support has no driver set. An unknown identity differs from every other
    /// identity.
    pub fn identity(&self, resource: &ResourceName) -> Option<Identity> {
        let kind = self.kind()?;
        let item = match kind {
            // The agent finds these programs by their control groups, which have the name of the resource.
            DriverKind::Exec => resource.to_string(),
            DriverKind::Systemd => self.systemd.as_ref()?.unit_name(resource),
            DriverKind::Ocf => {
                let ocf = self.ocf.as_ref()?;
                let agent = ocf.agent.parse::<AgentName>().ok()?;
                let named = format!("{}:{}", agent.provider, agent.agent);
                with_parameters(&named, resource, &ocf.parameters)
            }
            DriverKind::Podman => self.podman.as_ref()?.container_name(resource),
            DriverKind::Lxc => self.lxc.as_ref()?.container.clone(),
            DriverKind::Libvirt => {
                let libvirt = self.libvirt.as_ref()?;
                let uri = libvirt.uri();
                // Transport `unix` is the default of a local libvirt.
                let uri = uri
                    .strip_prefix("qemu+unix:")
                    .map_or_else(|| uri.to_owned(), |rest| format!("qemu:{rest}"));
                format!("{uri}#{}", libvirt.domain_name().ok()?)
            }
            DriverKind::External => {
                let external = self.external.as_ref()?;
                with_parameters(&external.name, resource, &external.settings)
            }
            DriverKind::Simulated => {
                let simulated = self.simulated.as_ref()?;
                if simulated.identity.is_empty() { resource.to_string() } else { simulated.identity.clone() }
            }
        };
        Some(Identity(format!("{kind}:{item}")))
    }

    /// Returns `true` if both drivers run the same unit, domain or container for a resource: equal identities, or equal
    /// specs if neither has an identity.
    pub fn has_same_identity(&self, other: &DriverSpec, resource: &ResourceName) -> bool {
        // Equal specs have equal identities, or none.
        if self == other {
            return true;
        }
        match (self.identity(resource), other.identity(resource)) {
            (Some(left), Some(right)) => left == right,
            (Some(_) | None, None) | (None, Some(_)) => false,
        }
    }
}

/// Returns the identity of a service: its name and all parameters. Without parameters, the name of the resource
/// distinguishes the service from other services.
fn with_parameters<T: Serialize>(
    named: &str,
    resource: &ResourceName,
    parameters: &BTreeMap<String, T>,
) -> String {
    if parameters.is_empty() {
        return format!("{named}#{resource}");
    }
    // Nested members are sorted by name too, so that neither order nor layout of a manifest matters.
    let value = serde_json::to_value(parameters).unwrap_or_default();
    format!("{named} {}", sorted(value))
}

/// Sorts the members of each map by name, and writes integers without a fraction.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<String, Value> =
                members.into_iter().map(|(name, member)| (name, sorted(member))).collect();
            Value::Object(members.into_iter().collect())
        }
        Value::Array(elements) => Value::Array(elements.into_iter().map(sorted).collect()),
        Value::Number(number) => {
            let integer = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e15);
            #[allow(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
            integer.map_or(Value::Number(number), |integer| Value::from(integer as i64))
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(value: Value) -> DriverSpec {
        serde_json::from_value(value).expect("of the right types")
    }

    #[track_caller]
    fn check(driver: Value, expected: Option<&str>) {
        let spec = spec(driver);
        assert_eq!(spec.identity(&"web".into()).as_ref().map(Identity::as_str), expected);
    }

    #[test]
    fn each_driver_has_an_identity() {
        check(json!({"exec": {"command": ["/bin/a"], "user": "u"}}), Some("exec:web"));
        check(json!({"exec": {"start": ["/a"], "stop": ["/b"], "monitor": ["/c"]}}), Some("exec:web"));
        check(json!({"systemd": {"unit": "redis"}}), Some("systemd:redis.service"));
        check(
            json!({"systemd": {"unit": "redis.service", "disableAtBoot": true}}),
            Some("systemd:redis.service"),
        );
        check(json!({"systemd": {"unit": "data.mount"}}), Some("systemd:data.mount"));
        check(json!({"systemd": {"command": ["/bin/a"]}}), Some("systemd:hactl-web.service"));
        check(json!({"podman": {"container": "db"}}), Some("podman:db"));
        check(json!({"podman": {"container": "db", "image": "i:2"}}), Some("podman:db"));
        check(json!({"podman": {"image": "i:1"}}), Some("podman:hactl-web"));
        check(json!({"lxc": {"container": "101"}}), Some("lxc:101"));
        check(json!({"lxc": {"container": "101", "config": "/srv/101"}}), Some("lxc:101"));
        check(json!({"libvirt": {"domain": "vm1"}}), Some("libvirt:qemu:///system#vm1"));
        check(
            json!({"libvirt": {"domain": "vm1", "uri": "qemu+unix:///system"}}),
            Some("libvirt:qemu:///system#vm1"),
        );
        check(
            json!({"libvirt": {"domain": "vm1", "uri": "qemu:///session"}}),
            Some("libvirt:qemu:///session#vm1"),
        );
        check(
            json!({"libvirt": {"domain": "vm1", "definition": "/srv/vm1.xml", "migration": {"uri": "qemu+ssh://{node}/system"}}}),
            Some("libvirt:qemu:///system#vm1"),
        );
        check(
            json!({"libvirt": {"xml": "<domain><name> vm1 </name><memory>4</memory></domain>"}}),
            Some("libvirt:qemu:///system#vm1"),
        );
        check(
            json!({"ocf": {"agent": "heartbeat:IPaddr2", "parameters": {"nic": "eth0", "ip": "10.0.0.1"}}}),
            Some(r#"ocf:heartbeat:IPaddr2 {"ip":"10.0.0.1","nic":"eth0"}"#),
        );
        check(
            json!({"ocf": {"agent": "ocf:heartbeat:IPaddr2", "parameters": {"ip": "10.0.0.1", "nic": "eth0"},
                "monitorIntervalSeconds": 3.0, "checkLevel": 10}}),
            Some(r#"ocf:heartbeat:IPaddr2 {"ip":"10.0.0.1","nic":"eth0"}"#),
        );
        check(json!({"ocf": {"agent": "heartbeat:Dummy"}}), Some("ocf:heartbeat:Dummy#web"));
        check(
            json!({"external": {"name": "link", "settings": {"b": {"y": 1.0, "x": [2]}, "a": 1.5}}}),
            Some(r#"external:link {"a":1.5,"b":{"x":[2],"y":1}}"#),
        );
        check(json!({"external": {"name": "link", "allowMigrate": true}}), Some("external:link#web"));
        check(json!({"simulated": {"type": "vm", "stopSeconds": 9}}), Some("simulated:web"));
        check(json!({"simulated": {"identity": "other"}}), Some("simulated:other"));
    }

    #[test]
    fn unknown_driver_identities_are_never_equal() {
        check(json!({}), None);
        check(json!({"exec": {"command": ["/a"]}, "systemd": {"unit": "a"}}), None);
        check(json!({"libvirt": {"xml": "<domain>"}}), None);
        check(json!({"ocf": {"agent": "nothing"}}), None);
        let (without_identity, incomplete_xml) =
            (spec(json!({})), spec(json!({"libvirt": {"xml": "<domain>"}})));
        let exec = spec(json!({"exec": {"command": ["/a"]}}));
        assert!(!without_identity.has_same_identity(&incomplete_xml, &"web".into()));
        assert!(!without_identity.has_same_identity(&exec, &"web".into()));
        assert!(
            incomplete_xml.has_same_identity(&incomplete_xml.clone(), &"web".into()),
            "nothing was edited"
        );
    }

    #[test]
    fn driver_identity_hides_parameter_values() {
        let driver = spec(
            json!({"ocf": {"agent": "heartbeat:db", "parameters": {"password": "hidden", "port": "1"}}}),
        );
        let identity = driver.identity(&"web".into()).expect("has one");
        assert_eq!(identity.to_string(), "ocf:heartbeat:db (password, port)");
        assert_eq!(
            spec(json!({"systemd": {"unit": "a"}})).identity(&"w".into()).expect("has one").to_string(),
            "systemd:a.service"
        );
    }

    #[test]
    fn driver_identity_serializes_as_text() {
        let identity = spec(json!({"podman": {"container": "db"}})).identity(&"web".into()).expect("has one");
        let stored = serde_json::to_value(&identity).expect("serializes");
        assert_eq!(stored, json!("podman:db"));
        assert_eq!(serde_json::from_value::<Identity>(stored).expect("reads"), identity);
    }
}
