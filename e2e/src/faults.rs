//! The fault suite: seeded faults of every kind against a cluster of real parts, for minutes to hours.
//!
//! What must hold: never two copies (the outside checker and the services' own records), every acknowledged write is there in
//! the end, and when the faults stop everything comes back by itself.

pub mod campaign;
pub mod injector;
pub mod kind;
pub mod ledger;
pub mod report;
pub mod schedule;
