//! Checks of a Resource.

use super::context::Context;
use crate::driver::{DriverSpec, ExecDriver};
use crate::names;
use crate::problem::{element, member};
use crate::resource::{Resource, StorageMode};

/// The most arguments of a command.
const MAX_ARGUMENTS: usize = 1000;
/// A day: no command is waited for longer.
const MAX_TIMEOUT_SECONDS: f64 = 86_400.0;

pub(super) fn check(resource: &Resource, context: &mut Context) {
    let spec = &resource.spec;
    check_driver(&spec.driver, context);
    if let Some(group) = &spec.group {
        context.name("spec.group", group);
    }
    if let Some(storage) = &spec.storage {
        if storage.pool.is_empty() {
            context.required("spec.storage.pool", "name the pool; nodes list theirs in spec.storagePools");
        }
        match (&storage.secondary, storage.mode) {
            (Some(node), StorageMode::Replicated) => context.node_name("spec.storage.secondary", node),
            (Some(_), StorageMode::Shared | StorageMode::Local) => {
                context.invalid("spec.storage.secondary", "is used with mode Replicated only");
            }
            (None, StorageMode::Replicated) => {
                context.required(
                    "spec.storage.secondary",
                    "mode Replicated needs the node with the second copy",
                );
            }
            (None, StorageMode::Shared | StorageMode::Local) => {}
        }
    }
    context.resource_names("spec.after", &spec.after);
    for (index, other) in spec.after.iter().enumerate() {
        if names::bare(other) == resource.metadata.name {
            context.invalid(&element("spec.after", index), "a resource cannot start after itself");
        }
    }
    context.tags("spec.tags", &spec.tags);
    context.comment(&spec.comment);
    let timeouts = &spec.timeouts;
    for (field, value, least) in [
        ("startSeconds", timeouts.start_seconds, 0.1),
        ("stopSeconds", timeouts.stop_seconds, 0.0),
        ("migrateSeconds", timeouts.migrate_seconds, 0.1),
        ("monitorSeconds", timeouts.monitor_seconds, 0.1),
        ("stableSeconds", timeouts.stable_seconds, 0.0),
    ] {
        context.seconds(&member("spec.timeouts", field), value, least, MAX_TIMEOUT_SECONDS);
    }
}

fn check_driver(driver: &DriverSpec, context: &mut Context) {
    match driver.kinds().as_slice() {
        [] => context.required(
            "spec.driver",
            "name one driver: exec, systemd, ocf, podman, libvirt or simulated, as driver: {exec: {command: [...]}}",
        ),
        [_] => {}
        several => {
            let named: Vec<&str> = several.iter().map(|kind| kind.name()).collect();
            context.invalid("spec.driver", format!("must have one driver, got {}", named.join(" and ")));
        }
    }
    if let Some(exec) = &driver.exec {
        check_exec(exec, context);
    }
    if let Some(systemd) = &driver.systemd {
        let path = "spec.driver.systemd.unit";
        if systemd.unit.is_empty() {
            context.required(path, "name the unit, as redis-server.service");
        } else if systemd.unit.contains('/') || systemd.unit.starts_with('-') || !printable(&systemd.unit) {
            context.invalid(path, format!("{:?} is not the name of a unit", systemd.unit));
        }
    }
    if let Some(ocf) = &driver.ocf {
        let plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        if !ocf.agent.split_once(':').is_some_and(|(provider, agent)| plain(provider) && plain(agent)) {
            context.invalid(
                "spec.driver.ocf.agent",
                format!("must be provider:agent, as heartbeat:IPaddr2, got {:?}", ocf.agent),
            );
        }
    }
    if let Some(podman) = &driver.podman {
        if podman.container.is_empty() && podman.image.is_empty() {
            context.required("spec.driver.podman", "name a container or an image");
        }
        for (field, text) in [("container", &podman.container), ("image", &podman.image)] {
            if text.starts_with('-') || !printable(text) {
                context.invalid(&member("spec.driver.podman", field), format!("{text:?} is not a name"));
            }
        }
    }
    if let Some(libvirt) = &driver.libvirt {
        if libvirt.domain.is_empty() && libvirt.definition.is_empty() {
            context.required("spec.driver.libvirt.domain", "name the domain");
        }
        if libvirt.domain.starts_with('-') || !printable(&libvirt.domain) {
            context.invalid("spec.driver.libvirt.domain", format!("{:?} is not a name", libvirt.domain));
        }
    }
    if let Some(simulated) = &driver.simulated {
        context.name("spec.driver.simulated.type", &simulated.kind);
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
    ];
    match (exec.command.is_empty(), exec.start.is_empty()) {
        (true, true) => context.required(
            path,
            "give command (a foreground process that is supervised), or start, stop and monitor",
        ),
        (false, false) => context.invalid(
            path,
            "has both command and start: command is a foreground process that is supervised, start a program that returns",
        ),
        (true, false) => {
            for (field, program) in [("stop", &exec.stop), ("monitor", &exec.monitor)] {
                if program.is_empty() {
                    context.required(&member(path, field), "start needs stop and monitor beside it");
                }
            }
        }
        (false, true) => {}
    }
    for (field, program) in commands {
        let path = member(path, field);
        if program.first().is_some_and(String::is_empty) {
            context.invalid(&element(&path, 0), "the program's name must not be empty");
        }
        if program.len() > MAX_ARGUMENTS {
            context.invalid(&path, format!("must have at most {MAX_ARGUMENTS} arguments"));
        }
        for (index, argument) in program.iter().enumerate() {
            if argument.contains('\0') {
                context.invalid(&element(&path, index), "must not contain a NUL character");
            }
        }
    }
    for (name, text) in &exec.environment {
        let path = member("spec.driver.exec.environment", name);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || name.as_bytes()[0].is_ascii_digit() || !name.bytes().all(plain) {
            context.invalid(&path, format!("{name:?} is not the name of an environment variable"));
        }
        if text.contains('\0') {
            context.invalid(&path, "must not contain a NUL character");
        }
        if name.starts_with("HA_") {
            context.invalid(&path, "names that begin with HA_ are set by hactl");
        }
    }
    if exec.working_directory.as_deref().is_some_and(|path| !path.starts_with('/') || path.contains('\0')) {
        context.invalid("spec.driver.exec.workingDirectory", "must be an absolute path");
    }
    if exec.user.as_deref().is_some_and(|user| user.is_empty() || user.contains(['\0', ':', '\n'])) {
        context.invalid("spec.driver.exec.user", "is not the name of a user");
    }
}

fn printable(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() || c.is_whitespace())
}
