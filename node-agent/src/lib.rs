//! The node agent: its pure core, its shell, its drivers, and the watchdog daemon.
//!
//! The program `ha-node-agent` is [`shell::main`], and `ha-watchdogd` is the daemon in [`watchdog`]. The simulator runs
//! both cores without the feature `shell`.
//!
//! - [`AgentCore`](crate::core::AgentCore) decides on the actions of the node for its assignments. Read it first.
//! - [`driver::Driver`] is the trait for one kind of service: start, stop, probe, watch, migrate.
//! - [`watchdog::core::Core`] is the core of the daemon, which renews the device only until the last proven deadline.
//! - [`doctor::run_checks()`] evaluates the facts of a machine for `hactl doctor`.
//!
//! Rule: the cores are pure. They never await, read a clock or draw a random number: inputs enter through `handle`, and
//! effects leave through `poll_effect`. No service starts without a permit that was committed under an open epoch, and
//! a value that could not be determined is unknown, not guessed.

pub mod core;
pub mod doctor;
#[cfg(feature = "shell")]
pub mod driver;
#[cfg(feature = "shell")]
pub mod shell;
pub mod watchdog;
