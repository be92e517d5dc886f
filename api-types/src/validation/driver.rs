//! Checks of a resource's driver.

mod libvirt;
mod lxc;
mod podman;
mod systemd;

use super::context::Context;
use crate::driver::{DriverSpec, ExecDriver, ExternalDriver, OcfDriver};
use crate::ocf::AgentName;
use crate::problem::{element_path, field_path};
use crate::setting::{Reference, Setting, ValueSource};
use std::collections::BTreeMap;

/// Maximum number of arguments of a command.
const MAX_ARGUMENTS: usize = 1000;
/// Reserved names of external drivers: the drivers and types of hactl itself.
const RESERVED_NAMES: [&str; 11] =
    ["exec", "unit", "systemd", "ocf", "ct", "podman", "lxc", "vm", "libvirt", "sim", "simulated"];

pub(super) fn check(driver: &DriverSpec, context: &mut Context) {
    match driver.kinds().as_slice() {
        [] => context.add_required(
            "spec.driver",
            "must name one driver: exec, systemd, ocf, podman, lxc, libvirt, external or simulated, such \
             as driver: {exec: {command: [...]}}",
        ),
        [_] => {}
        kinds => {
            let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            context.add_invalid(
                "spec.driver",
                format!("must name exactly one driver, got {}", names.join(" and ")),
            );
        }
    }
    if let Some(exec) = &driver.exec {
        check_exec(exec, context);
    }
    if let Some(systemd) = &driver.systemd {
        systemd::check(systemd, context);
    }
    if let Some(ocf) = &driver.ocf {
        check_ocf(ocf, context);
    }
    if let Some(podman) = &driver.podman {
        podman::check(podman, context);
    }
    if let Some(lxc) = &driver.lxc {
        lxc::check(lxc, context);
    }
    if let Some(libvirt) = &driver.libvirt {
        libvirt::check(libvirt, context);
    }
    if let Some(external) = &driver.external {
        check_external(external, context);
    }
    if let Some(simulated) = &driver.simulated {
        context.check_name("spec.driver.simulated.type", &simulated.kind);
    }
}

fn check_exec(exec: &ExecDriver, context: &mut Context) {
    let path = "spec.driver.exec";
    let commands = [
        ("command", &exec.command),
        ("start", &exec.start),
        ("stop", &exec.stop),
        ("monitor", &exec.monitor),
        ("migrate", &exec.migrate),
        ("replaceSecondary", &exec.replace_secondary),
    ];
    match (exec.command.is_empty(), exec.start.is_empty()) {
        (true, true) => context
            .add_required(path, "set command (a supervised foreground process), or start, stop and monitor"),
        (false, false) => context.add_invalid(
            path,
            "command and start are mutually exclusive: command is a supervised foreground process, start \
             is a program that returns",
        ),
        (true, false) => {
            for (field, program) in [("stop", &exec.stop), ("monitor", &exec.monitor)] {
                if program.is_empty() {
                    context.add_required(&field_path(path, field), "start also requires stop and monitor");
                }
            }
        }
        (false, true) => {}
    }
    for (field, program) in commands {
        check_arguments(&field_path(path, field), program, context);
    }
    check_settings(&field_path(path, "environment"), &exec.environment, context);
    check_working_directory(
        &field_path(path, "workingDirectory"),
        exec.working_directory.as_deref(),
        context,
    );
    check_user(&field_path(path, "user"), exec.user.as_deref(), context);
}

/// Checks driver `ocf` without its agent; the checks of its parameters are in `crate::ocf`.
fn check_ocf(ocf: &OcfDriver, context: &mut Context) {
    let path = "spec.driver.ocf";
    if let Err(error) = ocf.agent.parse::<AgentName>() {
        context.add_invalid(&field_path(path, "agent"), error.to_string());
    }
    for (name, value) in &ocf.parameters {
        let parameter_path = field_path(&field_path(path, "parameters"), name);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if name.is_empty() || !name.bytes().all(is_plain) {
            context.add_invalid(&parameter_path, format!("{name:?} is not a valid parameter name"));
        }
        if value.text().is_some_and(|text| text.contains('\0')) {
            context.add_invalid(&parameter_path, "must not contain a NUL character");
        }
        check_source(&parameter_path, value, context);
    }
    if let Some(seconds) = ocf.monitor_interval_seconds
        && !(0.1..=86_400.0).contains(&seconds)
    {
        context.add_invalid(
            &field_path(path, "monitorIntervalSeconds"),
            format!("must be between 0.1 and 86400, got {seconds}"),
        );
    }
}

fn check_external(external: &ExternalDriver, context: &mut Context) {
    let path = "spec.driver.external.name";
    if external.name.is_empty() {
        context.add_required(path, "required: the name of the executable in the driver directory");
    } else if RESERVED_NAMES.contains(&external.name.as_str()) {
        context.add_invalid(path, format!("{:?} is reserved for a built-in driver or type", external.name));
    } else {
        context.check_name(path, &external.name);
    }
    for (name, value) in &external.settings {
        if let Some(Err(problem)) = Reference::from_value(value) {
            let path = field_path("spec.driver.external.settings", name);
            context.add_invalid(&field_path(&path, "valueFrom"), problem);
        }
    }
}

/// Checks a program and its arguments.
fn check_arguments(path: &str, program: &[String], context: &mut Context) {
    if program.first().is_some_and(String::is_empty) {
        context.add_invalid(&element_path(path, 0), "program name must not be empty");
    }
    if program.len() > MAX_ARGUMENTS {
        context.add_invalid(path, format!("must have at most {MAX_ARGUMENTS} arguments"));
    }
    for (index, argument) in program.iter().enumerate() {
        if argument.contains('\0') {
            context.add_invalid(&element_path(path, index), "must not contain a NUL character");
        }
    }
}

/// Checks environment variables whose values may come from the node.
fn check_settings(path: &str, variables: &BTreeMap<String, Setting>, context: &mut Context) {
    for (name, value) in variables {
        check_variable(&field_path(path, name), name, value.text().unwrap_or_default(), context);
        check_source(&field_path(path, name), value, context);
    }
}

/// Checks where a value comes from, if it comes from the node.
pub(super) fn check_source(path: &str, value: &Setting, context: &mut Context) {
    if let Some(Err(problem)) = value.source().map(ValueSource::location) {
        context.add_invalid(&field_path(path, "valueFrom"), problem);
    }
}

/// Checks environment variables.
fn check_environment(path: &str, variables: &BTreeMap<String, String>, context: &mut Context) {
    for (name, text) in variables {
        check_variable(&field_path(path, name), name, text, context);
    }
}

fn check_variable(path: &str, name: &str, text: &str, context: &mut Context) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() || !name.bytes().all(is_plain) {
        context.add_invalid(path, format!("{name:?} is not a valid environment variable name"));
    }
    if text.contains('\0') {
        context.add_invalid(path, "must not contain a NUL character");
    }
    if name.starts_with("HA_") {
        context.add_invalid(path, "names that start with HA_ are reserved for hactl");
    }
}

/// Checks the working directory of a program.
fn check_working_directory(path: &str, directory: Option<&str>, context: &mut Context) {
    if directory.is_some_and(|directory| !is_absolute(directory)) {
        context.add_invalid(path, "must be an absolute path");
    }
}

/// Checks the user of a program.
fn check_user(path: &str, user: Option<&str>, context: &mut Context) {
    if user.is_some_and(|user| user.is_empty() || user.contains(['\0', ':', '\n'])) {
        context.add_invalid(path, "not a valid user name");
    }
}

fn is_absolute(path: &str) -> bool {
    path.starts_with('/') && !path.contains('\0')
}

fn is_printable(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() || c.is_whitespace())
}
