//! Nodes that are whole machines: QEMU with Debian's stock kernel, systemd, and watchdogs that reset the machine.
//!
//! This suite covers parts that process trees lack: kernel drivers, resets, a service manager and a paused machine. etcd and the
//! controllers remain process trees of the same cluster. QEMU is the only program of a node's tree. Power, links and the removal
//! after a kill therefore work like those of other machines.

pub mod actions;
pub mod case;
pub mod cases;
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
