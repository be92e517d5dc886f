//! All stored and printed types of hactl: objects, protocol records, the key layout, reasons, timing arithmetic.
//!
//! This crate does no I/O and depends on no other crate of the project.

pub mod availability;
pub mod check;
pub mod cluster;
pub mod document;
pub mod driver;
pub mod error_reason;
pub mod event;
pub mod id;
pub mod keys;
pub mod kind;
pub mod lenient;
pub mod meta;
pub mod metric;
pub mod names;
pub mod node;
pub mod notification;
pub mod object;
pub mod ocf;
pub mod operation;
pub mod placement;
pub mod problem;
pub mod protocol;
pub mod quantity;
pub mod reason;
pub mod record;
pub mod renamed;
pub mod resource;
pub mod schema;
pub mod table;
pub mod time;
pub mod timing;
pub mod usage;
pub mod validation;
pub mod view;
pub mod yaml;
