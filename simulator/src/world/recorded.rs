//! The transactions of a run, for comparison with the model of the protocol.

use super::World;
use ha_api_types::keys::Keys;
use ha_store::Transaction;

impl World {
    /// Records every applied transaction of an agent or a controller from now on.
    pub fn record_commits(&mut self) {
        self.recorded = Some(Vec::new());
    }

    /// The transactions that were applied since [`World::record_commits`], in order.
    pub fn recorded_commits(&self) -> &[Transaction] {
        self.recorded.as_deref().unwrap_or_default()
    }

    /// The keys of the simulated cluster.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(super) fn note_commit(&mut self, transaction: &Transaction) {
        if let Some(recorded) = &mut self.recorded {
            recorded.push(transaction.clone());
        }
    }
}
