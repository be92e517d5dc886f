//! The node agent: its pure core, its shell, its drivers, and the watchdog daemon.

pub mod core;
pub mod doctor;
#[cfg(feature = "shell")]
pub mod driver;
#[cfg(feature = "shell")]
pub mod shell;
pub mod watchdog;
