//! The podman driver with the real podman. Requires root and Debian's packages podman, runc and busybox-static.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

#[path = "../common/containers.rs"]
mod containers;
mod events;
mod existing;
mod failures;
mod health;
mod lifecycle;
mod node;
#[path = "../common/secrets.rs"]
mod secrets;
