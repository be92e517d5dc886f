//! Nodes that have a libvirt each, a guest that counts on its serial console, and what is done to both.
//!
//! A node is a process tree with a network of its own, as everywhere here; folders of its own over libvirt's make its libvirt, and
//! the QEMU below that, its own. The guest is Linux, emulated, with nothing but a shell.

pub mod cases;
pub mod console;
pub mod guest;
pub mod host;
pub mod rig;
