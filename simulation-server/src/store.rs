//! The simulated etcd as a store for the API: reads see the present content, and writes are steps of the simulation.

use crate::session::Session;
use futures::stream::BoxStream;
use ha_api_types::id::Revision;
use ha_api_types::keys::Keys;
use ha_simulator::interactive::Simulation;
use ha_store::memory::follow;
use ha_store::memory_state::MemoryState;
use ha_store::{LeaseId, Outcome, Reading, Store, StoreError, Transaction, WatchItem, Write};
use std::sync::Arc;

/// Message while the simulated etcd does not answer.
const OUTAGE: &str = "the simulated etcd does not answer";
/// Reason why services have no log. The API uses leases only for logs, so the store grants none.
pub(crate) const NO_LOGS: &str = "simulated services have no logs";

/// The simulated etcd.
pub(crate) struct SimulatedStore {
    session: Arc<Session>,
    keys: Keys,
}

impl SimulatedStore {
    pub(crate) fn new(session: Arc<Session>) -> SimulatedStore {
        SimulatedStore { session, keys: Keys::new(crate::CLUSTER) }
    }

    /// Reads the simulated etcd, unless it does not answer.
    fn read<T>(&self, read: impl FnOnce(&Simulation) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.session.with(|simulation| {
            if simulation.world().is_etcd_available() {
                read(simulation)
            } else {
                Err(StoreError::Unreachable(OUTAGE.to_owned()))
            }
        })
    }
}

/// Returns the content that the selectors name: the events, or all other keys.
fn state_of<'a>(events_prefix: &str, simulation: &'a Simulation, selectors: &[String]) -> &'a MemoryState {
    let world = simulation.world();
    let names_events = selectors.iter().all(|selector| selector.starts_with(events_prefix));
    world.events().filter(|_| names_events).unwrap_or_else(|| world.store())
}

impl Store for SimulatedStore {
    async fn list_all(&self, selectors: &[String]) -> Result<Reading, StoreError> {
        self.read(|simulation| Ok(state_of(&self.keys.events(), simulation, selectors).list_all(selectors)))
    }

    async fn list_at(&self, selectors: &[String], revision: Revision) -> Result<Reading, StoreError> {
        self.read(|simulation| {
            state_of(&self.keys.events(), simulation, selectors).list_at(selectors, revision)
        })
    }

    fn watch_all(
        &self,
        selectors: &[String],
        from: Revision,
    ) -> BoxStream<'static, Result<WatchItem, StoreError>> {
        let session = Arc::clone(&self.session);
        let selectors = selectors.to_vec();
        let events_prefix = self.keys.events();
        let positions = session.positions();
        let jumps = positions.borrow().jumps;
        follow(positions.clone(), from, move |next| {
            session.with(|simulation| {
                // A jump and its notification exclude this read, so the changes are those of one world.
                if positions.borrow().jumps != jumps {
                    return Err(StoreError::Compacted { oldest: Revision(i64::MAX) });
                }
                let state = state_of(&events_prefix, simulation, &selectors);
                Ok((state.changes_of(&selectors, next)?, state.revision()))
            })
        })
    }

    async fn commit(&self, transaction: Transaction) -> Outcome {
        let has_lease = transaction.writes().values().any(|write| match write {
            Write::Put { lease, .. } => *lease != LeaseId::NONE,
            Write::Delete => false,
        });
        if has_lease {
            return Outcome::Refused(NO_LOGS.to_owned());
        }
        self.session.change(|simulation| {
            if simulation.world().is_etcd_available() {
                simulation.commit(&self.keys, transaction)
            } else {
                Outcome::Unknown(OUTAGE.to_owned())
            }
        })
    }

    async fn grant_lease(&self, _ttl_seconds: i64) -> Result<LeaseId, StoreError> {
        Err(StoreError::Refused(NO_LOGS.to_owned()))
    }

    async fn keep_alive(&self, _lease: LeaseId) -> Result<i64, StoreError> {
        Err(StoreError::LeaseNotFound)
    }

    async fn revoke_lease(&self, _lease: LeaseId) -> Result<(), StoreError> {
        Err(StoreError::LeaseNotFound)
    }
}
