//! The `Store` trait with guarded transactions, watches and leases. It is implemented for etcd, behind feature `etcd`,
//! and for an in-memory store with the same semantics.
//!
//! The controller and the agent write through this crate. The simulator uses its in-memory state.
//!
//! - [`Store`] reads, watches and commits. [`EtcdStore`] and [`MemoryStore`] implement the trait, and
//!   [`conformance::run`] checks that both behave the same.
//! - [`Transaction`] is the only way to write; [`Guard`] is its condition on a key, and [`Outcome`] its result.
//! - [`memory_state::MemoryState`] is the in-memory store without clock and tasks, for simulations and tests.
//! - [`reflector::reflector`] keeps a view current. [`CachedStore`] answers reads and watches from a [`cache::cache`] that
//!   a reflector feeds.
//! - [`election::Election`] is the pure state machine by which controllers elect a leader.
//!
//! Rule: no write is unguarded, and an unanswered commit is [`Outcome::Unknown`], after which only another read is
//! allowed. etcd's client is named only in `etcd` and its submodules.

pub mod cache;
pub mod cached_store;
pub mod conformance;
pub mod election;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod etcd_version;
pub mod event_writer;
#[cfg(feature = "etcd")]
pub mod followed;
pub mod memory;
pub mod memory_state;
pub mod recent;
pub mod reflector;
pub mod short_lease;
pub mod store;
pub mod transaction;

pub use cached_store::CachedStore;
#[cfg(feature = "etcd")]
pub use etcd::{Config, EtcdStore, MemberStatus};
#[cfg(feature = "etcd")]
pub use followed::{FollowedData, Verdict};
pub use memory::MemoryStore;
pub use short_lease::ShortLease;
pub use store::{Change, Reading, Store, StoreError, WatchItem, selects};
pub use transaction::{
    Entry, Guard, LeaseId, MAX_OPERATIONS, MAX_REQUEST_BYTES, Outcome, Transaction, Write,
};
