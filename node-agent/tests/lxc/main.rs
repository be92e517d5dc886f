//! The lxc driver with the real LXC. Requires root and Debian's packages lxc and busybox-static.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

mod changes;
#[path = "../common/containers.rs"]
mod containers;
mod failures;
mod lifecycle;
mod node;
