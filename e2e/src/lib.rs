//! A cluster of real parts on this machine, ways to break it, and a checker that observes it from outside.
//!
//! The sandbox (`./dev/up`), the end-to-end tests and the benchmark use this library. A *machine* is a process tree with its own
//! pid, mount and host-name namespace. As root, it also has its own network namespace. etcd members, controllers and nodes are
//! all machines. Killing the first process of the tree is a power cut.

pub mod api;
pub mod background;
pub mod binaries;
pub mod bmc;
pub mod certificates;
pub mod checker;
pub mod cluster;
pub mod command;
pub mod container;
pub mod container_survival;
pub mod dashboard;
pub mod documented_commands;
pub mod etcd;
pub mod faults;
pub mod fence_agent;
pub mod init;
pub mod libvirt;
pub mod lxc;
pub mod machine;
pub mod measure;
pub mod network;
pub mod notification_receivers;
pub mod plan;
pub mod podman;
pub mod power;
pub mod process;
pub mod program;
pub mod qemu_nodes;
pub mod registry;
pub mod scenario;
pub mod scratch;
pub mod timeline;
pub mod upgrade;
pub mod wait;
