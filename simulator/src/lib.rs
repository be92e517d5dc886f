//! Simulator of a whole cluster under a virtual clock: the real cores with a simulated store, network, watchdogs and
//! services.
//!
//! `hactl simulate` runs this crate, and its tests run the scenarios in `simulator/scenarios`.
//!
//! - [`scenario::Scenario::parse`] reads a scenario: a cluster, steps that change or break it, and expectations.
//! - [`world::World::new`] forms the cluster, [`world::World::run`] runs the steps, and [`world::World::has_passed`]
//!   returns `true` if every expectation was met and no invariant was violated.
//! - [`random_run::run_seed`] runs a random cluster with random faults. [`random_run::shrink()`] shortens the script of
//!   a failing run.
//! - [`interactive::Simulation`] is a simulation that its user changes while it runs.
//! - [`dump::Dump`] is the state of a real cluster, at which a simulation can begin.
//!
//! Rule: a run is deterministic. The seed decides every delay, time is virtual, and the invariants of the protocol are
//! checked after every event. The crate links neither etcd's client nor `ha_runtime`.

pub mod clock;
pub mod dump;
pub mod duration;
pub mod interactive;
pub mod queue;
pub mod random;
pub mod random_run;
pub mod report;
pub mod scenario;
pub mod vocabulary;
pub mod world;
