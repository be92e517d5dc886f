//! All stored and printed types of hactl: objects, protocol records, the key layout, reasons, timing arithmetic.
//!
//! Every other crate of the project depends on this one.
//!
//! - [`resource`], [`node`], [`placement`], [`cluster`] and [`operation`] contain the API objects, one for each
//!   [`kind::Kind`]. [`validation::problems`] checks them.
//! - [`record`] contains the records of the fencing protocol, such as [`record::Fence`] and [`record::Assignment`].
//! - [`keys::Keys`] formats and parses every key in etcd.
//! - [`reason::Reason`] is the vocabulary of conditions, events and `hactl why`.
//! - [`timing::fencing_delay_ms`] computes W, the time after which an unreachable node with an armed watchdog counts as fenced.
//!
//! Rule: this crate does no I/O, reads no clock and depends on no other crate of the project. A stored word that is
//! unknown to a build must stay readable ([`lenient`], [`protocol`]).

pub mod availability;
pub mod check;
pub mod cluster;
pub mod document;
pub mod driver;
pub mod error_reason;
pub mod etcd_access;
pub mod event;
pub mod git_sync;
pub mod id;
pub mod join;
pub mod keys;
pub mod kind;
pub mod kubernetes;
pub mod lenient;
pub mod meta;
pub mod metric;
pub mod names;
pub mod node;
pub mod node_policy;
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
pub mod redact;
pub mod renamed;
pub mod resource;
pub mod role;
pub mod schema;
pub mod setting;
pub mod table;
pub mod time;
pub mod timing;
pub mod token;
pub mod usage;
pub mod validation;
pub mod view;
pub mod yaml;
