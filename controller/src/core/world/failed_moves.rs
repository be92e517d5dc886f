//! When the last move of each service failed, on this process's own clock.

use super::World;
use ha_api_types::time::Mono;

/// How often in a row the moves of a service have failed, and since when it has been so often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedMoves {
    /// How often.
    pub count: u32,
    /// When that was first seen. What else is written about the service meanwhile does not matter.
    pub since: Mono,
}

impl World {
    /// The status of a service was seen.
    pub(super) fn observe_failed_moves(&mut self, name: &str, now: Mono) {
        let count = self.resource_statuses.get(name).map_or(0, |status| status.value.move_failures);
        if count == 0 {
            self.failed_moves.remove(name);
        } else if self.failed_moves.get(name).is_none_or(|known| known.count != count) {
            self.failed_moves.insert(name.to_owned(), FailedMoves { count, since: now });
        }
    }
}
