//! Checks of driver `podman`.

use super::super::context::Context;
use super::printable;
use crate::driver::PodmanDriver;
use crate::problem::member;

pub(super) fn check(podman: &PodmanDriver, context: &mut Context) {
    if podman.container.is_empty() && podman.image.is_empty() {
        context.required("spec.driver.podman", "name a container or an image");
    }
    for (field, text) in [("container", &podman.container), ("image", &podman.image)] {
        if text.starts_with('-') || !printable(text) {
            context.invalid(&member("spec.driver.podman", field), format!("{text:?} is not a name"));
        }
    }
}
