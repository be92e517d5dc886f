//! `maxFencing`: how many nodes may be declared dead on silence within a window.
//!
//! When many fall silent at once, the fault is more likely ours or the network's than theirs. It delays and alerts; it
//! goes on as the window slides, or when an operator confirms a node off.

use crate::core::plan::Plan;
use crate::core::situation::Situation;
use ha_api_types::record::{FenceState, Proof};
use ha_api_types::time::Mono;

/// What is left of the window's allowance.
pub(super) struct Budget {
    /// Nodes that may still be declared dead now.
    pub(super) left: usize,
    /// How many in all.
    pub(super) limit: usize,
    /// When the oldest declaration leaves the window.
    next: Option<Mono>,
    /// Somebody was held up.
    pub(super) held_up: bool,
}

impl Budget {
    /// The allowance now: distinct nodes closed on silence and not open again since, each counted for the window from
    /// when this process saw it closed. A commit whose outcome is unknown counts as a declaration.
    pub(super) fn of(situation: &Situation<'_>) -> Budget {
        let world = situation.world;
        let settings = &world.settings().fencing;
        let nodes = world.nodes.len();
        let limit = settings.max_fencing.of(nodes).unwrap_or(1).max(1);
        let window_ms = u64::from(settings.window_seconds) * 1000;
        let counted: Vec<Mono> = world
            .fences
            .values()
            .filter(|fence| match fence.value.state {
                FenceState::Fencing => true,
                FenceState::Fenced => matches!(fence.value.proof, Some(Proof::Silence { .. })),
                FenceState::Open | FenceState::Closed => false,
            })
            .map(|fence| fence.seen + window_ms)
            .filter(|end| *end > situation.now.raw)
            .collect();
        let perhaps = situation
            .perhaps_closed
            .iter()
            .filter(|node| world.fences.get(*node).is_some_and(|fence| fence.value.state == FenceState::Open))
            .count();
        Budget {
            left: limit.saturating_sub(counted.len() + perhaps),
            limit,
            next: counted.into_iter().min(),
            held_up: false,
        }
    }

    /// Takes one declaration from the allowance.
    pub(super) fn take(&mut self) -> bool {
        if self.left == 0 {
            self.held_up = true;
            return false;
        }
        self.left -= 1;
        true
    }

    /// Asks to look again when the window has slid, if somebody was held up.
    pub(super) fn wake(&self, situation: &Situation<'_>, plan: &mut Plan) {
        if let (true, Some(at)) = (self.held_up, self.next) {
            plan.wake(situation, at, "maxFencing allows another node");
        }
    }
}
