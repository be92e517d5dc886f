//! `maxFencing`: the number of nodes that may be declared dead on silence within a window.
//!
//! If many nodes become unreachable at the same time, the likely cause is this controller or the network, not the
//! nodes. The limit delays and alerts. Declarations continue as the window slides, or when an operator confirms a node
//! off.

use crate::core::plan::Plan;
use crate::core::situation::Situation;
use ha_api_types::record::{FenceState, Proof};
use ha_api_types::time::Mono;

/// Remaining allowance of the window.
pub(super) struct Budget {
    /// Number of nodes that may still be declared dead now.
    pub(super) left: usize,
    /// Maximum number of nodes in a window.
    pub(super) limit: usize,
    /// Time at which the oldest declaration leaves the window.
    next: Option<Mono>,
    /// `true` if the limit delayed a declaration.
    pub(super) held_up: bool,
}

impl Budget {
    /// Computes the allowance now. It counts distinct nodes that were closed on silence and are not open again. Each
    /// counts for one window from the time at which this process saw the close. A commit with an unknown outcome
    /// counts as a declaration.
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
                FenceState::Fenced => match fence.value.proof {
                    Some(Proof::Silence { .. }) => true,
                    // A device confirms within seconds. Without this, devices would make the limit ineffective.
                    Some(Proof::Device { .. }) => fence.value.on_silence,
                    Some(
                        Proof::NewBoot { .. }
                        | Proof::CleanLeave { .. }
                        | Proof::Operator { .. }
                        | Proof::Reregistered
                        | Proof::NothingActive,
                    )
                    | None => false,
                },
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

    /// Takes one declaration from the allowance. Returns `false` if none is left.
    pub(super) fn take(&mut self) -> bool {
        if self.left == 0 {
            self.held_up = true;
            return false;
        }
        self.left -= 1;
        true
    }

    /// Sets a wake-up for the time at which the window has slid, if the limit delayed a declaration.
    pub(super) fn wake(&self, situation: &Situation<'_>, plan: &mut Plan) {
        if let (true, Some(at)) = (self.held_up, self.next) {
            plan.wake(situation, at, "fencing.maxFencing allows another node");
        }
    }
}
