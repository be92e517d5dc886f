//! The fault suite: seeded faults of every kind against a cluster of real parts, for minutes to hours.
//!
//! No service may ever run twice at the same time, according to the outside checker and the services' own records.
//! Every acknowledged write must exist at the end. When the faults stop, the cluster must recover automatically.

pub mod campaign;
pub mod injector;
pub mod kind;
pub mod report;
pub mod schedule;
pub mod write_recorder;
