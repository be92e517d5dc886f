//! Translates a service's definition into podman's request to create a container.

use ha_api_types::driver::{Mount, PodmanDriver as PodmanSpec, Port, Protocol};
use ha_api_types::id::NodeName;
use ha_api_types::quantity::Quantity;
use ha_api_types::resource::ServiceDefinition;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// Label with the resource's name. hactl created every container that has this label, and may remove the container.
pub(super) const RESOURCE_LABEL: &str = "io.hactl.resource";
/// Label with the resource's uid.
const UID_LABEL: &str = "io.hactl.uid";
/// Label with the digest of the definition.
pub(super) const DEFINITION_LABEL: &str = "io.hactl.definition";
/// Period of the kernel's CPU quota, in microseconds.
const CPU_PERIOD_US: u32 = 100_000;
/// Value of a ulimit without a limit.
const UNLIMITED: u64 = u64::MAX;

pub(super) fn container_name(service: &ServiceDefinition, podman: &PodmanSpec) -> String {
    podman.container_name(&service.name)
}

/// Returns a digest that identifies the definition. It depends only on the user's settings, so that another version of
/// the agent computes the same digest.
pub(super) fn digest(podman: &PodmanSpec) -> String {
    let text = serde_json::to_vec(podman).unwrap_or_default();
    let mut hexadecimal = String::new();
    for byte in Sha256::digest(text).iter().take(16) {
        // Writing to a string does not fail.
        let _ = write!(hexadecimal, "{byte:02x}");
    }
    hexadecimal
}

/// Returns the body of the request that creates a container from an image, with the resolved variables of the container.
pub(super) fn create_body(
    service: &ServiceDefinition,
    podman: &PodmanSpec,
    variables: &BTreeMap<String, String>,
    node: &NodeName,
) -> Value {
    let mut environment: BTreeMap<&str, &str> = BTreeMap::from([
        ("HA_RESOURCE", service.name.as_str()),
        ("HA_RESOURCE_UID", service.uid.as_str()),
        ("HA_NODE", node),
    ]);
    environment.extend(variables.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("name", json!(container_name(service, podman)));
    set("image", json!(podman.image));
    set("env", json!(environment));
    set(
        "labels",
        json!({RESOURCE_LABEL: service.name, UID_LABEL: service.uid, DEFINITION_LABEL: digest(podman)}),
    );
    // Only hactl decides about restarts.
    set("restart_policy", json!("no"));
    // In a separate pid namespace, all processes end with the main process.
    set("pidns", json!({"nsmode": "private"}));
    if !podman.command.is_empty() {
        // With an entrypoint in the request, podman ignores the image's entrypoint and command.
        set("entrypoint", json!(podman.command));
    }
    if !podman.mounts.is_empty() {
        set("mounts", podman.mounts.iter().map(mount_json).collect());
    }
    if !podman.ports.is_empty() {
        set("portmappings", podman.ports.iter().map(port_json).collect());
    }
    match podman.network.as_deref() {
        None => {}
        Some(mode @ ("host" | "none" | "bridge")) => {
            set("netns", json!({"nsmode": mode}));
        }
        Some(name) => {
            set("netns", json!({"nsmode": "bridge"}));
            set("Networks", json!({name: {}}));
        }
    }
    if let Some(user) = &podman.user {
        set("user", json!(user));
    }
    if let Some(directory) = &podman.working_directory {
        set("work_dir", json!(directory));
    }
    let limits = limits_json(podman);
    if !limits.is_empty() {
        set("resource_limits", Value::Object(limits));
    }
    if !podman.ulimits.is_empty() {
        set("r_limits", podman.ulimits.iter().filter_map(|(name, text)| ulimit(name, text)).collect());
    }
    set("healthconfig", health_check_json(podman));
    Value::Object(body)
}

fn mount_json(mount: &Mount) -> Value {
    let access = if mount.read_only { "ro" } else { "rw" };
    json!({"type": "bind", "source": mount.source, "destination": mount.target, "options": ["rbind", access]})
}

fn port_json(port: &Port) -> Value {
    let protocol = match port.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    json!({
        "host_ip": port.address.as_deref().unwrap_or_default(),
        "host_port": port.host,
        "container_port": port.container.unwrap_or(port.host),
        "protocol": protocol,
    })
}

/// Returns the configuration of the health check.
///
/// The check has no interval, so podman does not run it with its own systemd timers. If the user defines no check, the
/// image's own check is disabled.
fn health_check_json(podman: &PodmanSpec) -> Value {
    let Some(check) = &podman.health_check else { return json!({"Test": ["NONE"]}) };
    let nanoseconds = |seconds: f64| {
        Duration::try_from_secs_f64(seconds)
            .map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    };
    let test: Vec<&str> = ["CMD"].into_iter().chain(check.command.iter().map(String::as_str)).collect();
    json!({"Test": test, "Interval": 0, "Timeout": nanoseconds(check.timeout_seconds), "Retries": check.retries,
        "StartPeriod": nanoseconds(check.start_period_seconds)})
}

fn limits_json(podman: &PodmanSpec) -> Map<String, Value> {
    let mut limits = Map::new();
    if let Some(cpu) = podman.limits.cpu {
        let quota = whole_units_saturating(Quantity::from_milli(cpu.milli() * i128::from(CPU_PERIOD_US)));
        limits.insert("cpu".to_owned(), json!({"quota": quota, "period": CPU_PERIOD_US}));
    }
    if let Some(memory) = podman.limits.memory {
        limits.insert("memory".to_owned(), json!({"limit": whole_units_saturating(memory)}));
    }
    if let Some(tasks) = podman.limits.tasks {
        limits.insert("pids".to_owned(), json!({"limit": i64::try_from(tasks).unwrap_or(i64::MAX)}));
    }
    limits
}

fn whole_units_saturating(quantity: Quantity) -> i64 {
    i64::try_from(quantity.units()).unwrap_or(i64::MAX)
}

/// Parses `soft:hard`, or one number for both.
fn ulimit(name: &str, text: &str) -> Option<Value> {
    let number = |text: &str| match text {
        "unlimited" | "-1" => Some(UNLIMITED),
        digits => digits.parse::<u64>().ok(),
    };
    let (soft, hard) = text.split_once(':').unwrap_or((text, text));
    Some(json!({"type": name, "soft": number(soft)?, "hard": number(hard)?}))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use ha_api_types::driver::DriverSpec;
    use ha_api_types::resource::Resource;
    use ha_api_types::setting::Setting;

    pub(in super::super) fn service(podman: &Value) -> ServiceDefinition {
        let mut resource = Resource::default();
        resource.metadata.name = "web".into();
        resource.metadata.uid = "u1".into();
        resource.spec.driver =
            serde_json::from_value::<DriverSpec>(json!({"podman": podman})).expect("a spec");
        ServiceDefinition::of(&resource)
    }

    fn body(podman: &Value) -> Value {
        let service = service(podman);
        let podman = service.driver.podman.as_ref().expect("podman");
        let text_of = |setting: &Setting| setting.text().expect("a text").to_owned();
        let variables =
            podman.environment.iter().map(|(name, value)| (name.clone(), text_of(value))).collect();
        create_body(&service, podman, &variables, &"node1".into())
    }

    /// Checks the change that a field makes to the request's body, compared with a definition of the image alone.
    fn check(field: &str, value: &Value, expected: &Value) {
        let mut podman = json!({"image": "i"});
        podman[field] = value.clone();
        let mut body_with_field = body(&podman);
        let minimal_body = body(&json!({"image": "i"}));
        let fields = body_with_field.as_object_mut().expect("an object");
        fields.remove("labels");
        fields.retain(|name, value| minimal_body.get(name) != Some(value));
        assert_eq!(&body_with_field, expected, "{field}: {value}");
    }

    #[test]
    fn every_field_reaches_podman() {
        let minimal_body = body(&json!({"image": "i"}));
        assert_eq!(minimal_body["name"], "hactl-web");
        assert_eq!(minimal_body["restart_policy"], "no");
        assert_eq!(
            minimal_body["env"],
            json!({"HA_RESOURCE": "web", "HA_RESOURCE_UID": "u1", "HA_NODE": "node1"})
        );
        assert_eq!(minimal_body["labels"][RESOURCE_LABEL], "web");
        assert_eq!(minimal_body["labels"][UID_LABEL], "u1");
        check("container", &json!("db"), &json!({"name": "db"}));
        check("image", &json!("r.io/x:1"), &json!({"image": "r.io/x:1"}));
        check("command", &json!(["a", "b"]), &json!({"entrypoint": ["a", "b"]}));
        check(
            "environment",
            &json!({"A": "b"}),
            &json!({"env": {"A": "b", "HA_RESOURCE": "web", "HA_RESOURCE_UID": "u1", "HA_NODE": "node1"}}),
        );
        check(
            "mounts",
            &json!([{"source": "/s", "target": "/t"}, {"source": "/s", "target": "/r", "readOnly": true}]),
            &json!({"mounts": [
                {"type": "bind", "source": "/s", "destination": "/t", "options": ["rbind", "rw"]},
                {"type": "bind", "source": "/s", "destination": "/r", "options": ["rbind", "ro"]},
            ]}),
        );
        check(
            "ports",
            &json!([{"host": 80}, {"host": 53, "container": 5353, "address": "192.0.2.1", "protocol": "Udp"}]),
            &json!({"portmappings": [
                {"host_ip": "", "host_port": 80, "container_port": 80, "protocol": "tcp"},
                {"host_ip": "192.0.2.1", "host_port": 53, "container_port": 5353, "protocol": "udp"},
            ]}),
        );
        for mode in ["host", "none", "bridge"] {
            check("network", &json!(mode), &json!({"netns": {"nsmode": mode}}));
        }
        check("network", &json!("front"), &json!({"netns": {"nsmode": "bridge"}, "Networks": {"front": {}}}));
        check("user", &json!("33:33"), &json!({"user": "33:33"}));
        check("workingDirectory", &json!("/srv"), &json!({"work_dir": "/srv"}));
        check(
            "limits",
            &json!({"cpu": "1500m", "memory": "64Mi", "tasks": 50}),
            &json!({"resource_limits": {"cpu": {"quota": 150_000, "period": 100_000},
                "memory": {"limit": 67_108_864}, "pids": {"limit": 50}}}),
        );
        check(
            "healthCheck",
            &json!({"command": ["a", "b"], "timeoutSeconds": 1.5}),
            &json!({"healthconfig": {"Test": ["CMD", "a", "b"], "Interval": 0, "Timeout": 1_500_000_000_u64, "Retries": 3,
                "StartPeriod": 0}}),
        );
        check(
            "ulimits",
            &json!({"nofile": "1024:2048", "core": "0", "memlock": "unlimited"}),
            &json!({"r_limits": [{"type": "core", "soft": 0, "hard": 0},
                {"type": "memlock", "soft": u64::MAX, "hard": u64::MAX},
                {"type": "nofile", "soft": 1024, "hard": 2048}]}),
        );
    }

    #[test]
    fn another_definition_has_another_digest() {
        let digest_of = |podman: Value| digest(&service(&podman).driver.podman.expect("podman"));
        let minimal_body = digest_of(json!({"image": "i"}));
        // The digest is stored in labels of containers that outlive the agent, so it must be the same in every
        // version.
        assert_eq!(minimal_body, "fe3ac8c8908c8db366b19b27a5ba7532");
        assert_eq!(digest_of(json!({"image": "i", "mounts": []})), minimal_body);
        assert_ne!(digest_of(json!({"image": "i", "user": "www"})), minimal_body);
    }
}
