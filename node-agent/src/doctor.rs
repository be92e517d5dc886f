//! The machine checks of `hactl doctor NODE`: facts that a thin reader collects (`read`), judged by a pure function
//! (`judge`).

mod facts;
mod judge;
mod manager;
#[cfg(feature = "shell")]
pub mod read;

pub use facts::{MachineFacts, Owner, PanicSettings, Sleep, TimeDaemon};
pub use judge::{Circumstances, judge};
pub use manager::ManagerSettings;
