//! The controller: a pure core that decides, a shell that performs the I/O, and the HTTP API.
//!
//! The program `ha-controller` is [`shell::main`]. The simulator runs the core alone. The interactive simulator also
//! serves the API, with the feature `api`.
//!
//! - [`Controller`](crate::core::Controller) observes the cluster and, as leader, plans. Read it first.
//! - [`Candidacy`](crate::core::candidacy::Candidacy) is the election. It is a separate core, because a plan must not
//!   delay it.
//! - [`CombinedController`](crate::core::combined_controller::CombinedController) connects both cores, for the
//!   simulator and for tests.
//! - [`api::router`] is the HTTP API in the shape of Kubernetes.
//! - [`fencer::Fencer`] runs fence agents, and [`notifier::deliver`] sends notifications. [`policy::Limits`] restricts
//!   both.
//!
//! Rule: the cores are pure. They never await, read a clock or draw a random number: inputs enter through `handle`, and
//! effects leave through `poll_effect`. The shell makes no decisions. Every write of a leader is guarded by its term.

#[cfg(feature = "api")]
pub mod api;
pub mod core;
#[cfg(feature = "shell")]
pub mod fencer;
#[cfg(feature = "shell")]
pub mod notifier;
#[cfg(feature = "api")]
pub mod policy;
#[cfg(feature = "shell")]
pub mod shell;
