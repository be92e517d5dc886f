//! The machine checks of `hactl doctor NODE`: facts that a thin reader collects (`read`), judged by a pure function
//! (`run_checks`).

mod checks;
mod facts;
mod manager;
#[cfg(feature = "shell")]
pub mod read;

pub use checks::{CheckContext, run_checks};
pub use facts::{MachineFacts, Owner, PanicSettings, Sleep, TimeDaemon};
pub use manager::ManagerSettings;
