//! The ocf driver with the real agents of ClusterLabs' resource-agents, and with agents that fail in every way.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

mod address;
mod agents;
mod failures;
mod node;
