//! Shared parts of all hactl processes: clock, reconcile loop, shutdown, logging, journal, metrics, HTTP, TLS,
//! notification and options.

pub mod certificate;
pub mod clock;
pub mod config;
pub mod http;
pub mod journal;
pub mod logging;
pub mod metrics;
pub mod notify;
pub mod problems;
pub mod program;
pub mod reconcile;
pub mod shutdown;
pub mod tls;
