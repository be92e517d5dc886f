//! Nodes that are whole machines: QEMU with Debian's stock kernel, systemd, and watchdogs that really reset.
//!
//! What process trees cannot show is shown here: kernel drivers, resets, a service manager, a machine that is paused. The store
//! and the controllers stay process trees of the same cluster. QEMU runs as the one program of a node's tree, so that
//! power, links, and the removal after a kill are those of every other machine.

pub mod bystanders;
pub mod case;
pub mod cases;
pub mod deeds;
pub mod disk;
pub mod fabric;
pub mod guest;
pub mod hardware;
pub mod holders;
pub mod measure;
pub mod qemu;
pub mod qmp;
pub mod rig;
pub mod run;
pub mod stalls;
pub mod suspended;
pub mod table;
pub mod unbound;
