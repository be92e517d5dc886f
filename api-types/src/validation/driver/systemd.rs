//! Checks of driver `systemd`.

use super::super::context::Context;
use super::{absolute, arguments, environment, printable, user, working_directory};
use crate::driver::SystemdDriver;
use crate::problem::{element, member};

/// The longest name of a unit, as systemd has it.
const MAX_NAME: usize = 255;
/// The types of units that can be services.
const TYPES: [&str; 7] = [".service", ".socket", ".mount", ".swap", ".target", ".timer", ".path"];

pub(super) fn check(systemd: &SystemdDriver, context: &mut Context) {
    let path = "spec.driver.systemd";
    let unit = &systemd.unit;
    let at = member(path, "unit");
    if unit.is_empty() {
        if systemd.command.is_empty() {
            context.required(&at, "name the unit, as redis-server.service, or give a command");
        }
    } else if unit.contains('/') || unit.starts_with('-') || !printable(unit) || unit.len() > MAX_NAME {
        context.invalid(&at, format!("{unit:?} is not the name of a unit"));
    } else if !TYPES.iter().any(|suffix| unit.strip_suffix(suffix).is_some_and(|stem| !stem.is_empty())) {
        context.invalid(
            &at,
            format!("{unit:?} must end in the unit's type, as {unit}.service (one of {})", TYPES.join(", ")),
        );
    } else if unit.contains("@.") {
        context.invalid(
            &at,
            format!("{unit:?} is a template: name an instance, as {}", unit.replacen("@.", "@1.", 1)),
        );
    } else if !systemd.command.is_empty() && !unit.ends_with(".service") {
        context.invalid(&at, "a unit with a command must end in .service");
    }
    arguments(&member(path, "command"), &systemd.command, context);
    if systemd.command.first().is_some_and(|program| !program.is_empty() && !absolute(program)) {
        context.invalid(
            &element(&member(path, "command"), 0),
            "must be an absolute path: systemd does not look for programs",
        );
    }
    environment(&member(path, "environment"), &systemd.environment, context);
    working_directory(&member(path, "workingDirectory"), systemd.working_directory.as_deref(), context);
    user(&member(path, "user"), systemd.user.as_deref(), context);
    if systemd.command.is_empty() {
        let given = [
            ("environment", !systemd.environment.is_empty()),
            ("workingDirectory", systemd.working_directory.is_some()),
            ("user", systemd.user.is_some()),
            ("limits", !systemd.limits.is_empty()),
        ];
        for (field, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
            context.invalid(
                &member(path, field),
                "is used with command only; of a unit of the node, its own file says it",
            );
        }
    } else if systemd.disable_at_boot {
        context.invalid(&member(path, "disableAtBoot"), "a unit with a command is never enabled at boot");
    }
}
