//! Checks of driver `podman`.

use super::super::context::Context;
use super::{check_arguments, check_settings, check_working_directory, is_absolute, is_printable};
use crate::driver::{HealthCheck, Limits, PodmanDriver, Port};
use crate::problem::{element_path, field_path};
use crate::quantity::Quantity;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Names of resource limits of processes.
const ULIMITS: [&str; 15] = [
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
];
/// Minimum share of a core that the kernel can assign.
const MIN_CPU: Quantity = Quantity::from_milli(10);
/// Minimum memory with which a container can be set up.
const MIN_MEMORY: Quantity = Quantity::from_units(6 << 20);
/// Maximum of each time of a health check, in seconds: one day.
const MAX_SECONDS: f64 = 86_400.0;

pub(super) fn check(podman: &PodmanDriver, context: &mut Context) {
    let path = "spec.driver.podman";
    let at = |field: &str| field_path(path, field);
    let (container, image) = (&podman.container, &podman.image);
    if container.is_empty() && image.is_empty() {
        context.add_required(
            path,
            "set image to create the container from, or the name of an existing container",
        );
    }
    if !container.is_empty() && !is_name(container) {
        context.add_invalid(
            &at("container"),
            format!(
                "{container:?} is not a valid container name: use letters, digits and any of -_., with a \
                 letter or digit first"
            ),
        );
    }
    if image.starts_with('-') || !is_printable(image) {
        context.add_invalid(&at("image"), format!("{image:?} is not a valid image name"));
    }
    check_arguments(&at("command"), &podman.command, context);
    check_settings(&at("environment"), &podman.environment, context);
    check_mounts(&at("mounts"), podman, context);
    check_ports(&at("ports"), podman, context);
    if podman.network.as_deref().is_some_and(|network| !is_name(network)) {
        context.add_invalid(&at("network"), "must be host, none, bridge or the name of a network");
    }
    if podman.user.as_deref().is_some_and(|user| !is_user(user)) {
        context.add_invalid(&at("user"), "must be user or user:group, as names or numbers");
    }
    check_working_directory(&at("workingDirectory"), podman.working_directory.as_deref(), context);
    check_limits(&at("limits"), &podman.limits, context);
    check_ulimits(&at("ulimits"), &podman.ulimits, context);
    if let Some(check) = &podman.health_check {
        check_health_check(&at("healthCheck"), check, image.is_empty(), context);
    }
    if image.is_empty() {
        for (field, _) in of_images(podman).into_iter().filter(|(_, is_given)| *is_given) {
            context.add_invalid(
                &at(field),
                "requires image: an existing container keeps the settings it was created with",
            );
        }
    }
}

/// Returns the fields that apply only to the creation of a container. The flag is `true` if the field is set.
fn of_images(podman: &PodmanDriver) -> [(&'static str, bool); 9] {
    [
        ("command", !podman.command.is_empty()),
        ("environment", !podman.environment.is_empty()),
        ("mounts", !podman.mounts.is_empty()),
        ("ports", !podman.ports.is_empty()),
        ("network", podman.network.is_some()),
        ("user", podman.user.is_some()),
        ("workingDirectory", podman.working_directory.is_some()),
        ("limits", !podman.limits.is_empty()),
        ("ulimits", !podman.ulimits.is_empty()),
    ]
}

fn check_mounts(path: &str, podman: &PodmanDriver, context: &mut Context) {
    context.check_size(path, podman.mounts.len());
    for (index, mount) in podman.mounts.iter().enumerate() {
        let path = element_path(path, index);
        for (field, directory) in [("source", &mount.source), ("target", &mount.target)] {
            if !is_absolute(directory) {
                context.add_invalid(
                    &field_path(&path, field),
                    format!("must be an absolute path, got {directory:?}"),
                );
            }
        }
        if is_absolute(&mount.target) && mount.target.trim_end_matches('/').is_empty() {
            context.add_invalid(&field_path(&path, "target"), "must not be the root of the container");
        }
    }
    context.check_distinct(path, podman.mounts.iter().map(|mount| mount.target.trim_end_matches('/')));
}

fn check_ports(path: &str, podman: &PodmanDriver, context: &mut Context) {
    context.check_size(path, podman.ports.len());
    if let Some(mode @ ("host" | "none")) = podman.network.as_deref().filter(|_| !podman.ports.is_empty()) {
        context.add_invalid(
            path,
            format!("ports cannot be published with network {mode}: remove ports or network"),
        );
    }
    for (index, port) in podman.ports.iter().enumerate() {
        let element_path = element_path(path, index);
        if port.host == 0 {
            context.add_required(
                &field_path(&element_path, "host"),
                "required: the port of the node, 1 to 65535",
            );
        }
        if port.container == Some(0) {
            context.add_invalid(&field_path(&element_path, "container"), "must be 1 to 65535");
        }
        if port.address.as_deref().is_some_and(|address| address.parse::<IpAddr>().is_err()) {
            context.add_invalid(&field_path(&element_path, "address"), "must be an IP address");
        }
        if podman.ports[..index].iter().any(|other| collide(port, other)) {
            context.add_invalid(&element_path, format!("port {} of the node is published twice", port.host));
        }
    }
}

fn collide(left: &Port, right: &Port) -> bool {
    let everywhere = |port: &Port| {
        let address = port.address.as_deref().map(str::parse::<IpAddr>);
        address.is_none_or(|address| address.is_ok_and(|address| address.is_unspecified()))
    };
    left.host == right.host
        && left.protocol == right.protocol
        && (left.address == right.address || everywhere(left) || everywhere(right))
}

pub(super) fn check_limits(path: &str, limits: &Limits, context: &mut Context) {
    if limits.cpu.is_some_and(|cpu| cpu < MIN_CPU) {
        context.add_invalid(&field_path(path, "cpu"), "must be at least 10m (0.01 cores)");
    }
    if limits.memory.is_some_and(|memory| memory < MIN_MEMORY) {
        context.add_invalid(&field_path(path, "memory"), "must be at least 6Mi");
    }
    if limits.tasks == Some(0) {
        context.add_invalid(&field_path(path, "tasks"), "must be at least 1");
    }
}

fn check_ulimits(path: &str, ulimits: &BTreeMap<String, String>, context: &mut Context) {
    for (name, text) in ulimits {
        let path = field_path(path, name);
        if !ULIMITS.contains(&name.as_str()) {
            context.add_invalid(
                &path,
                format!("{name:?} is not a valid resource limit: must be one of {}", ULIMITS.join(", ")),
            );
        }
        let number = |text: &str| match text {
            "unlimited" | "-1" => Some(u64::MAX),
            digits => digits.parse::<u64>().ok(),
        };
        let (soft, hard) = text.split_once(':').unwrap_or((text, text));
        match (number(soft), number(hard)) {
            (Some(soft), Some(hard)) if soft <= hard => {}
            (Some(_), Some(_)) => {
                context.add_invalid(&path, format!("{text:?} has a soft limit above the hard limit"));
            }
            (None, _) | (_, None) => {
                context.add_invalid(
                    &path,
                    format!("must be soft:hard, such as 1024:4096, or unlimited, got {text:?}"),
                );
            }
        }
    }
}

fn check_health_check(path: &str, check: &HealthCheck, is_existing: bool, context: &mut Context) {
    if is_existing && !check.command.is_empty() {
        context.add_invalid(
            &field_path(path, "command"),
            "requires image: an existing container has its own check (podman create --health-cmd)",
        );
    } else if !is_existing && check.command.is_empty() {
        context.add_required(
            &field_path(path, "command"),
            "required: a program in the container that exits 0 if the service is healthy",
        );
    }
    check_times(path, check, context);
}

/// Checks the command of a health check, and its times.
pub(super) fn check_times(path: &str, check: &HealthCheck, context: &mut Context) {
    check_arguments(&field_path(path, "command"), &check.command, context);
    context.check_seconds(&field_path(path, "intervalSeconds"), check.interval_seconds, 0.1, MAX_SECONDS);
    context.check_seconds(&field_path(path, "timeoutSeconds"), check.timeout_seconds, 0.1, MAX_SECONDS);
    context.check_seconds(
        &field_path(path, "startPeriodSeconds"),
        check.start_period_seconds,
        0.0,
        MAX_SECONDS,
    );
    if !(1..=1000).contains(&check.retries) {
        context.add_invalid(&field_path(path, "retries"), "must be between 1 and 1000");
    }
}

/// Returns `true` if podman accepts the name.
fn is_name(text: &str) -> bool {
    text.len() <= 253
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn is_user(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    parts.len() <= 2 && parts.iter().all(|part| !part.is_empty() && !part.contains('/') && is_printable(part))
}

#[cfg(test)]
mod tests {
    use crate::kind::Kind;
    use crate::validation::problems;
    use serde_json::{Value, json};

    /// Checks the spec of the driver for exactly these problems, as `path: sentence`.
    fn check(podman: &Value, expected: &[&str]) {
        let object = json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "web"},
            "spec": {"driver": {"podman": podman}}});
        let actual: Vec<String> = problems(Kind::Resource, &object)
            .into_iter()
            .map(|problem| {
                format!("{}: {}", problem.path.trim_start_matches("spec.driver.podman."), problem.message)
            })
            .collect();
        assert_eq!(actual, expected, "{podman}");
    }

    /// Checks a field in addition to an image.
    fn field(name: &str, value: &Value, expected: &[&str]) {
        check(&json!({"image": "i", name: value}), expected);
    }

    #[test]
    fn valid_podman_specs_are_accepted() {
        check(
            &json!({
                "image": "docker.io/library/redis@sha256:0", "container": "cache", "command": ["redis-server"],
                "environment": {"A": "b"}, "mounts": [{"source": "/srv", "target": "/data", "readOnly": true}],
                "ports": [{"host": 80}, {"host": 80, "protocol": "udp"}, {"host": 81, "container": 80, "address": "192.0.2.1"},
                    {"host": 81, "address": "::1"}],
                "network": "front", "user": "999:redis", "workingDirectory": "/data",
                "limits": {"cpu": "500m", "memory": "64Mi", "tasks": 100},
                "ulimits": {"nofile": "1024:4096", "core": "0", "memlock": "unlimited"},
                "healthCheck": {"command": ["redis-cli", "ping"]},
            }),
            &[],
        );
        check(&json!({"container": "db", "healthCheck": {"intervalSeconds": 3}}), &[]);
    }

    #[test]
    fn container_and_image_names_are_validated() {
        check(
            &json!({}),
            &[
                "spec.driver.podman: set image to create the container from, or the name of an existing container",
            ],
        );
        for name in ["-x", "a b", "a/b", "é"] {
            let expected = format!(
                "container: {name:?} is not a valid container name: use letters, digits and any of -_., \
                 with a letter or digit first"
            );
            check(&json!({"container": name}), &[&expected]);
        }
        check(&json!({"image": "a b"}), &["image: \"a b\" is not a valid image name"]);
        let message = "requires image: an existing container keeps the settings it was created with";
        check(
            &json!({"container": "db", "command": ["x"], "ulimits": {"core": "0"}}),
            &[&format!("command: {message}"), &format!("ulimits: {message}")],
        );
    }

    #[test]
    fn mounts_and_ports_are_validated() {
        field(
            "mounts",
            &json!([{"source": "srv", "target": "/a"}, {"source": "/srv", "target": "/a/"}, {"source": "/srv", "target": "/"}]),
            &[
                "mounts[0].source: must be an absolute path, got \"srv\"",
                "mounts[2].target: must not be the root of the container",
                "mounts[1]: \"/a\" is a duplicate",
            ],
        );
        field(
            "ports",
            &json!([{"host": 80}, {"host": 80, "address": "192.0.2.1"}, {"container": 0}, {"host": 1, "address": "here"}]),
            &[
                "ports[1]: port 80 of the node is published twice",
                "ports[2].host: required: the port of the node, 1 to 65535",
                "ports[2].container: must be 1 to 65535",
                "ports[3].address: must be an IP address",
            ],
        );
        check(
            &json!({"image": "i", "network": "host", "ports": [{"host": 80}]}),
            &["ports: ports cannot be published with network host: remove ports or network"],
        );
        field(
            "network",
            &json!("container:web"),
            &["network: must be host, none, bridge or the name of a network"],
        );
    }

    #[test]
    fn limits_and_users_are_validated() {
        for user in ["a b", "", "a:b:c", ":33"] {
            field("user", &json!(user), &["user: must be user or user:group, as names or numbers"]);
        }
        field("workingDirectory", &json!("data"), &["workingDirectory: must be an absolute path"]);
        field(
            "limits",
            &json!({"cpu": "5m", "memory": 100, "tasks": 0}),
            &[
                "limits.cpu: must be at least 10m (0.01 cores)",
                "limits.memory: must be at least 6Mi",
                "limits.tasks: must be at least 1",
            ],
        );
        field(
            "ulimits",
            &json!({"files": "1", "nofile": "4096:1024", "stack": "big"}),
            &[
                "ulimits.files: \"files\" is not a valid resource limit: must be one of core, cpu, data, \
                 fsize, locks, memlock, msgqueue, nice, nofile, nproc, rss, rtprio, rttime, sigpending, stack",
                "ulimits.nofile: \"4096:1024\" has a soft limit above the hard limit",
                "ulimits.stack: must be soft:hard, such as 1024:4096, or unlimited, got \"big\"",
            ],
        );
    }

    #[test]
    fn health_checks_are_validated() {
        check(
            &json!({"container": "db", "healthCheck": {"command": ["true"]}}),
            &["healthCheck.command: requires image: an existing container has its own check (podman \
                 create --health-cmd)"],
        );
        field(
            "healthCheck",
            &json!({"intervalSeconds": 0, "retries": 0}),
            &[
                "healthCheck.command: required: a program in the container that exits 0 if the service \
                 is healthy",
                "healthCheck.intervalSeconds: must be between 0.1 and 86400, got 0",
                "healthCheck.retries: must be between 1 and 1000",
            ],
        );
    }
}
