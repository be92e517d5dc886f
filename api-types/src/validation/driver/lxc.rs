//! Checks of driver `lxc`.

use super::super::context::Context;
use super::{is_absolute, podman};
use crate::driver::LxcDriver;
use crate::problem::field_path;

pub(super) fn check(lxc: &LxcDriver, context: &mut Context) {
    let path = "spec.driver.lxc";
    let at = |field: &str| field_path(path, field);
    let container = &lxc.container;
    if container.is_empty() {
        context.add_required(&at("container"), "required: the name of an existing container (lxc-ls)");
    } else if !is_name(container) {
        context.add_invalid(
            &at("container"),
            format!(
                "{container:?} is not a valid container name: use at most 64 letters, digits and any of -_., \
                 with a letter or digit first"
            ),
        );
    }
    if !lxc.config.is_empty() && !is_absolute(&lxc.config) {
        context.add_invalid(&at("config"), format!("must be an absolute path, got {:?}", lxc.config));
    }
    podman::check_limits(&at("limits"), &lxc.limits, context);
    if let Some(check) = &lxc.health_check {
        let path = at("healthCheck");
        if check.command.is_empty() {
            context.add_required(
                &field_path(&path, "command"),
                "required: a program in the container that exits 0 if the service is healthy",
            );
        }
        podman::check_times(&path, check, context);
    }
}

/// Returns `true` if LXC accepts the name, and it can be part of the name of a control group and of a file. The address
/// of the monitor's socket limits the length: it contains the directory and the name.
fn is_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use crate::kind::Kind;
    use crate::validation::problems;
    use serde_json::{Value, json};

    /// Checks the spec of the driver for exactly these problems, as `path: sentence`.
    fn check(lxc: &Value, expected: &[&str]) {
        let object = json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "web"},
            "spec": {"driver": {"lxc": lxc}}});
        let actual: Vec<String> = problems(Kind::Resource, &object)
            .into_iter()
            .map(|problem| {
                format!("{}: {}", problem.path.trim_start_matches("spec.driver.lxc."), problem.message)
            })
            .collect();
        assert_eq!(actual, expected, "{lxc}");
    }

    #[test]
    fn valid_lxc_specs_are_accepted() {
        check(&json!({"container": "101"}), &[]);
        check(
            &json!({"container": "web-1.example_a", "config": "/srv/lxc/web/config",
                "limits": {"cpu": "500m", "memory": "64Mi", "tasks": 100},
                "healthCheck": {"command": ["/bin/true"], "intervalSeconds": 3}}),
            &[],
        );
    }

    #[test]
    fn invalid_lxc_fields_are_rejected() {
        check(&json!({}), &["container: required: the name of an existing container (lxc-ls)"]);
        let long = "x".repeat(65);
        for name in ["-x", "../x", "a b", "a/b", "é", long.as_str()] {
            let expected = format!(
                "container: {name:?} is not a valid container name: use at most 64 letters, digits and any \
                 of -_., with a letter or digit first"
            );
            check(&json!({"container": name}), &[&expected]);
        }
        check(
            &json!({"container": "a", "config": "srv/a"}),
            &["config: must be an absolute path, got \"srv/a\""],
        );
        check(
            &json!({"container": "a", "limits": {"cpu": "5m", "tasks": 0}, "healthCheck": {"retries": 0}}),
            &[
                "limits.cpu: must be at least 10m (0.01 cores)",
                "limits.tasks: must be at least 1",
                "healthCheck.command: required: a program in the container that exits 0 if the service is \
                 healthy",
                "healthCheck.retries: must be between 1 and 1000",
            ],
        );
    }
}
