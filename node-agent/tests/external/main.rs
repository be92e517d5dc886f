//! The driver `external` with the driver of manifests/examples, and with some that do everything wrong.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

mod answers;
mod example;
mod node;
