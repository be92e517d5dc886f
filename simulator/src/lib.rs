//! Simulator of a whole cluster under a virtual clock: the real cores with a simulated store, network, watchdogs and services.

pub mod clock;
pub mod dump;
pub mod duration;
pub mod queue;
pub mod random;
pub mod random_run;
pub mod report;
pub mod scenario;
pub mod vocabulary;
pub mod world;
