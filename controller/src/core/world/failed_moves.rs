//! Time of the last failed move of each service, on this process's own clock.

use super::ClusterView;
use ha_api_types::id::ResourceName;
use ha_api_types::time::Mono;

/// Number of consecutive failed moves of a service, and the time of the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedMoves {
    /// Number of consecutive failures.
    pub count: u32,
    /// Time at which this number was first seen. Other writes about the service do not change it.
    pub since: Mono,
}

impl ClusterView {
    /// Observes a change of a service's status.
    pub(super) fn observe_failed_moves(&mut self, name: &ResourceName, now: Mono) {
        let count = self.resource_statuses.get(name).map_or(0, |status| status.value.move_failures);
        if count == 0 {
            self.failed_moves.remove(name);
        } else if self.failed_moves.get(name).is_none_or(|known| known.count != count) {
            self.failed_moves.insert(name.clone(), FailedMoves { count, since: now });
        }
    }
}
