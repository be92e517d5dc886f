//! Shared parts of all hactl processes: clock, reconcile loop, shutdown, logging, journal, metrics, HTTP, TLS,
//! notification and options.
//!
//! The shells of the controller and of the agent depend on this crate. The cores and the simulator do not link it.
//!
//! - [`program::main`] runs a daemon: options, logging, the asynchronous runtime, and the exit status.
//! - [`reconcile::run_core`] passes inputs and deadlines to a pure core ([`reconcile::Core`]), and runs its effects.
//! - [`clock::SystemClock`] reads the clocks of the machine.
//! - [`shutdown::Shutdown`] is the state that SIGTERM and SIGINT change.
//! - [`http::bind`] opens a server: on a Unix socket, on loopback without TLS, or with TLS. [`http::admin`] serves health checks and metrics.
//! - [`local_values::LocalValues`] reads the values that objects get from this machine.
//! - [`metrics::Metrics`] is the registry of a process.
//!
//! Rule: this crate decides nothing about services and nodes, and only [`clock`] provides the time on which cores
//! decide.

pub mod certificate;
pub mod changed_file;
pub mod clock;
pub mod config;
pub mod http;
pub mod journal;
pub mod local_values;
pub mod logging;
pub mod metrics;
pub mod notify;
pub mod problems;
pub mod program;
pub mod reconcile;
pub mod shutdown;
pub mod tls;
