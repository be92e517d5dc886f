//! The controller: a pure core that decides, a shell that performs the I/O, and the HTTP API.

#[cfg(feature = "shell")]
pub mod api;
pub mod core;
#[cfg(feature = "shell")]
pub mod fencer;
#[cfg(feature = "shell")]
pub mod notifier;
#[cfg(feature = "shell")]
pub mod shell;
