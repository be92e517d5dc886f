//! The libvirt suite: nodes with a libvirt each, a guest that counts on its serial console, and faults of both.
//!
//! A node is a process tree with its own network, like in the other tests. The node's own directories replace those of the host's
//! libvirt, so each node has its own libvirt and QEMU. The guest is an emulated Linux with only a shell.

pub mod cases;
pub mod console;
pub mod guest;
pub mod host;
pub mod rig;
