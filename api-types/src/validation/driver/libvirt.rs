//! Checks of driver `libvirt`.

use super::super::context::Context;
use super::printable;
use crate::driver::LibvirtDriver;

pub(super) fn check(libvirt: &LibvirtDriver, context: &mut Context) {
    if libvirt.domain.is_empty() && libvirt.definition.is_empty() {
        context.required("spec.driver.libvirt.domain", "name the domain");
    }
    if libvirt.domain.starts_with('-') || !printable(&libvirt.domain) {
        context.invalid("spec.driver.libvirt.domain", format!("{:?} is not a name", libvirt.domain));
    }
}
