//! Checks of driver `systemd`.

use super::super::context::Context;
use super::{
    check_arguments, check_environment, check_user, check_working_directory, is_absolute, is_printable,
};
use crate::driver::{SystemdDriver, UNIT_TYPES, is_essential_unit};
use crate::id::ResourceName;
use crate::problem::{element_path, field_path};

/// Maximum length of a unit's name in systemd.
const MAX_UNIT_NAME_LENGTH: usize = 255;
/// Unit types of systemd that cannot be services, because they cannot be started and stopped or do not persist.
const UNSUPPORTED_UNIT_TYPES: [&str; 4] = [".slice", ".scope", ".device", ".automount"];

pub(super) fn check(systemd: &SystemdDriver, context: &mut Context) {
    let path = "spec.driver.systemd";
    if systemd.unit.is_empty() {
        if systemd.command.is_empty() {
            context.add_required(
                &field_path(path, "unit"),
                "required: a unit such as redis-server.service, or a command",
            );
        }
    } else if let Some(problem) = name_problem(systemd) {
        context.add_invalid(&field_path(path, "unit"), problem);
    }
    check_arguments(&field_path(path, "command"), &systemd.command, context);
    if systemd.command.first().is_some_and(|program| !program.is_empty() && !is_absolute(program)) {
        context.add_invalid(
            &element_path(&field_path(path, "command"), 0),
            "must be an absolute path: systemd does not search PATH",
        );
    }
    check_environment(&field_path(path, "environment"), &systemd.environment, context);
    check_working_directory(
        &field_path(path, "workingDirectory"),
        systemd.working_directory.as_deref(),
        context,
    );
    check_user(&field_path(path, "user"), systemd.user.as_deref(), context);
    if systemd.command.is_empty() {
        let fields_without_command = [
            ("environment", !systemd.environment.is_empty()),
            ("workingDirectory", systemd.working_directory.is_some()),
            ("user", systemd.user.is_some()),
            ("limits", !systemd.limits.is_empty()),
        ];
        for (field, _) in fields_without_command.into_iter().filter(|(_, is_given)| *is_given) {
            context.add_invalid(
                &field_path(path, field),
                "requires command: an existing unit sets this in its unit file",
            );
        }
    } else if systemd.disable_at_boot {
        context.add_invalid(
            &field_path(path, "disableAtBoot"),
            "not allowed with command: a transient unit is never enabled at boot",
        );
    }
}

/// Returns the problem of the unit's name.
fn name_problem(systemd: &SystemdDriver) -> Option<String> {
    let unit = &systemd.unit;
    let name = systemd.unit_name(&ResourceName::default());
    if unit.contains('/') || unit.starts_with('.') || !is_printable(unit) || name.len() > MAX_UNIT_NAME_LENGTH
    {
        return Some(format!("{unit:?} is not a valid unit name"));
    }
    if UNSUPPORTED_UNIT_TYPES.iter().any(|suffix| unit.ends_with(suffix)) {
        return Some(format!(
            "{unit:?} cannot be a service: the unit type must be one of {}",
            UNIT_TYPES.join(", ")
        ));
    }
    if name.contains("@.") {
        return Some(format!(
            "{unit:?} is a template: use an instance such as {}",
            name.replacen("@.", "@1.", 1)
        ));
    }
    if is_essential_unit(&name) {
        return Some(format!("{name} is required by the node itself and cannot be a service"));
    }
    (!systemd.command.is_empty() && !name.ends_with(".service"))
        .then(|| "a unit with a command must end in .service".to_owned())
}

#[cfg(test)]
mod tests {
    use crate::kind::Kind;
    use crate::validation::problems;
    use serde_json::{Value, json};

    /// Checks the spec of the driver for exactly these problems, as `path: sentence`.
    fn check(systemd: &Value, expected: &[&str]) {
        let object = json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "web"},
            "spec": {"driver": {"systemd": systemd}}});
        let actual: Vec<String> = problems(Kind::Resource, &object)
            .into_iter()
            .map(|problem| {
                format!("{}: {}", problem.path.trim_start_matches("spec.driver.systemd."), problem.message)
            })
            .collect();
        assert_eq!(actual, expected, "{systemd}");
    }

    #[test]
    fn unit_names_follow_systemctl_rules() {
        for unit in [
            "redis-server",
            "redis-server.service",
            "postgresql@15-main",
            "srv-data.mount",
            "a.b",
            "systemd-nspawn@web",
        ] {
            check(&json!({"unit": unit}), &[]);
        }
        check(&json!({}), &["unit: required: a unit such as redis-server.service, or a command"]);
        for unit in ["a/b.service", "a b", ".service"] {
            check(&json!({"unit": unit}), &[&format!("unit: {unit:?} is not a valid unit name")]);
        }
        check(
            &json!({"unit": "pg@"}),
            &["unit: \"pg@\" is a template: use an instance such as pg@1.service"],
        );
        check(
            &json!({"unit": "user.slice"}),
            &["unit: \"user.slice\" cannot be a service: the unit type must be one of .service, \
                 .socket, .mount, .swap, .target, .timer, .path"],
        );
        for (unit, whole) in [
            ("ha-node-agent", "ha-node-agent.service"),
            ("systemd-journald", "systemd-journald.service"),
            ("reboot.target", "reboot.target"),
        ] {
            let expected = format!("unit: {whole} is required by the node itself and cannot be a service");
            check(&json!({"unit": unit}), &[&expected]);
        }
    }

    #[test]
    fn transient_units_need_a_command() {
        check(
            &json!({"command": ["/bin/sleep", "9"], "environment": {"A": "b"}, "user": "www-data",
                "workingDirectory": "/srv", "limits": {"cpu": "500m", "memory": "1Gi", "tasks": 10}}),
            &[],
        );
        check(
            &json!({"command": ["sleep", "9"]}),
            &["command[0]: must be an absolute path: systemd does not search PATH"],
        );
        check(
            &json!({"command": ["/a"], "unit": "a.mount"}),
            &["unit: a unit with a command must end in .service"],
        );
        check(
            &json!({"command": ["/a"], "disableAtBoot": true}),
            &["disableAtBoot: not allowed with command: a transient unit is never enabled at boot"],
        );
        check(
            &json!({"unit": "a", "limits": {"tasks": 1}}),
            &["limits: requires command: an existing unit sets this in its unit file"],
        );
    }
}
