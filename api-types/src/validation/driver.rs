//! Checks of a resource's driver.

mod exec;
mod external;
mod libvirt;
mod ocf;
mod podman;
mod systemd;

use super::context::Context;
use crate::driver::DriverSpec;
use crate::problem::{element, member};
use std::collections::BTreeMap;

/// Maximum number of arguments of a command.
const MAX_ARGUMENTS: usize = 1000;

pub(super) fn check(driver: &DriverSpec, context: &mut Context) {
    match driver.kinds().as_slice() {
        [] => context.required(
            "spec.driver",
            "must name one driver: exec, systemd, ocf, podman, libvirt, external or simulated, such as \
             driver: {exec: {command: [...]}}",
        ),
        [_] => {}
        several => {
            let named: Vec<&str> = several.iter().map(|kind| kind.name()).collect();
            context
                .invalid("spec.driver", format!("must name exactly one driver, got {}", named.join(" and ")));
        }
    }
    if let Some(exec) = &driver.exec {
        exec::check(exec, context);
    }
    if let Some(systemd) = &driver.systemd {
        systemd::check(systemd, context);
    }
    if let Some(ocf) = &driver.ocf {
        ocf::check(ocf, context);
    }
    if let Some(podman) = &driver.podman {
        podman::check(podman, context);
    }
    if let Some(libvirt) = &driver.libvirt {
        libvirt::check(libvirt, context);
    }
    if let Some(external) = &driver.external {
        external::check(external, context);
    }
    if let Some(simulated) = &driver.simulated {
        context.name("spec.driver.simulated.type", &simulated.kind);
    }
}

/// Checks a program and its arguments.
fn arguments(path: &str, program: &[String], context: &mut Context) {
    if program.first().is_some_and(String::is_empty) {
        context.invalid(&element(path, 0), "program name must not be empty");
    }
    if program.len() > MAX_ARGUMENTS {
        context.invalid(path, format!("must have at most {MAX_ARGUMENTS} arguments"));
    }
    for (index, argument) in program.iter().enumerate() {
        if argument.contains('\0') {
            context.invalid(&element(path, index), "must not contain a NUL character");
        }
    }
}

/// Checks environment variables.
fn environment(path: &str, variables: &BTreeMap<String, String>, context: &mut Context) {
    for (name, text) in variables {
        let path = member(path, name);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || name.as_bytes()[0].is_ascii_digit() || !name.bytes().all(plain) {
            context.invalid(&path, format!("{name:?} is not a valid environment variable name"));
        }
        if text.contains('\0') {
            context.invalid(&path, "must not contain a NUL character");
        }
        if name.starts_with("HA_") {
            context.invalid(&path, "names that start with HA_ are reserved for hactl");
        }
    }
}

/// Checks the working directory of a program.
fn working_directory(path: &str, directory: Option<&str>, context: &mut Context) {
    if directory.is_some_and(|directory| !absolute(directory)) {
        context.invalid(path, "must be an absolute path");
    }
}

/// Checks the user of a program.
fn user(path: &str, user: Option<&str>, context: &mut Context) {
    if user.is_some_and(|user| user.is_empty() || user.contains(['\0', ':', '\n'])) {
        context.invalid(path, "not a valid user name");
    }
}

/// Returns `true` if the path is absolute.
fn absolute(path: &str) -> bool {
    path.starts_with('/') && !path.contains('\0')
}

fn printable(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() || c.is_whitespace())
}
