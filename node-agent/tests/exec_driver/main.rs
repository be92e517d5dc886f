//! The exec driver with real processes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

mod adoption;
mod launch;
mod node;
mod scripts;
mod secondary_replacement;
#[path = "../common/secrets.rs"]
mod secrets;
mod supervision;
mod usage;
