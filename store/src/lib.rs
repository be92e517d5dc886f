//! The `Store` trait with guarded transactions, watches and leases. It is implemented for etcd, behind feature `etcd`,
//! and for an in-memory store with the same semantics.

pub mod cache;
pub mod conformance;
pub mod election;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod event_writer;
#[cfg(feature = "etcd")]
pub mod followed;
pub mod memory;
pub mod memory_state;
pub mod reflector;
pub mod short_lease;
pub mod store;
pub mod transaction;

#[cfg(feature = "etcd")]
pub use etcd::{Config, EtcdStore, MemberStatus};
#[cfg(feature = "etcd")]
pub use followed::{Followed, Verdict};
pub use memory::MemoryStore;
pub use short_lease::ShortLease;
pub use store::{Change, Reading, Store, StoreError, WatchItem, selects};
pub use transaction::{Entry, Guard, LeaseId, MAX_OPERATIONS, Outcome, Transaction, Write};
