//! `maxFencing`: the number of nodes that may be declared dead on silence within a window.
//!
//! If many nodes become unreachable at the same time, the likely cause is this controller or the network, not the
//! nodes. The limit delays and alerts. Declarations continue as the window slides, or when an operator confirms a node
//! off.

use crate::core::plan::Plan;
use crate::core::plan_input::PlanInput;
use ha_api_types::record::{FenceState, Proof};
use ha_api_types::time::MonotonicTime;

/// Remaining allowance of the window.
pub(super) struct FencingBudget {
    /// Number of nodes that may still be declared dead now.
    pub(super) remaining: usize,
    /// Maximum number of nodes in a window.
    pub(super) limit: usize,
    /// Time at which the oldest declaration leaves the window.
    next_allowed_at: Option<MonotonicTime>,
    /// `true` if the limit delayed a declaration.
    pub(super) has_delayed: bool,
}

impl FencingBudget {
    /// Computes the allowance now. It counts distinct nodes that were closed on silence and are not open again. Each
    /// counts for one window from the time at which this process saw the close. A commit with an unknown outcome
    /// counts as a declaration.
    pub(super) fn of(input: &PlanInput<'_>) -> FencingBudget {
        let cluster_view = input.cluster_view;
        let settings = &cluster_view.settings().fencing;
        let nodes = cluster_view.nodes.len();
        let limit = settings.max_fencing.of(nodes).unwrap_or(1).max(1);
        let window_ms = u64::from(settings.window_seconds) * 1000;
        let window_ends: Vec<MonotonicTime> = cluster_view
            .fences
            .values()
            .filter(|fence| match fence.value.state {
                FenceState::Fencing => true,
                FenceState::Fenced => match fence.value.proof {
                    Some(Proof::Silence { .. }) => true,
                    // A close on silence counts even if a device then confirms the node off. A device confirms within
                    // seconds, so it would otherwise make the limit ineffective.
                    Some(Proof::Device { .. }) => fence.value.on_missed_heartbeats,
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
            .map(|fence| fence.first_seen_at + window_ms)
            .filter(|end| *end > input.now.monotonic_raw)
            .collect();
        let possibly_closed = input
            .possibly_closed
            .iter()
            .filter(|node| {
                cluster_view.fences.get(*node).is_some_and(|fence| fence.value.state == FenceState::Open)
            })
            .count();
        FencingBudget {
            remaining: limit.saturating_sub(window_ends.len() + possibly_closed),
            limit,
            next_allowed_at: window_ends.into_iter().min(),
            has_delayed: false,
        }
    }

    /// Takes one declaration from the allowance. Returns `false` if the allowance is used up.
    pub(super) fn try_use(&mut self) -> bool {
        if self.remaining == 0 {
            self.has_delayed = true;
            return false;
        }
        self.remaining -= 1;
        true
    }

    /// Sets a wake-up for the time at which the window has slid, if the limit delayed a declaration.
    pub(super) fn wake_when_allowed(&self, input: &PlanInput<'_>, plan: &mut Plan) {
        if let (true, Some(at)) = (self.has_delayed, self.next_allowed_at) {
            plan.wake_at(input, at, "fencing.maxFencing allows another node");
        }
    }
}
