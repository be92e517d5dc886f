//! The driver `external` with the example driver of manifests/examples, and with drivers that fail in every way.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

mod answers;
mod example;
mod node;
#[path = "../common/secrets.rs"]
mod secrets;
