//! The machine checks of `hactl doctor NODE`: `read` collects facts, and the pure function `run_checks` evaluates them.

mod checks;
mod facts;
mod manager;
#[cfg(feature = "shell")]
pub mod read;

pub use checks::{CheckContext, run_checks};
pub use facts::{MachineFacts, Owner, PanicSettings, Sleep, TimeDaemon};
pub use manager::ManagerSettings;
