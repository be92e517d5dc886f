//! Checks of driver `external`.

use super::super::context::Context;
use crate::driver::ExternalDriver;

/// Reserved names: the drivers and types of hactl itself.
const TAKEN: [&str; 10] =
    ["exec", "unit", "systemd", "ocf", "ct", "podman", "vm", "libvirt", "sim", "simulated"];

pub(super) fn check(external: &ExternalDriver, context: &mut Context) {
    let path = "spec.driver.external.name";
    if external.name.is_empty() {
        context.required(path, "required: the name of the executable in the driver directory");
    } else if TAKEN.contains(&external.name.as_str()) {
        context.invalid(path, format!("{:?} is reserved for a built-in driver or type", external.name));
    } else {
        context.name(path, &external.name);
    }
}
