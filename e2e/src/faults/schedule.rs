//! The schedule of faults: time, kind, target and duration. The seed determines all of it.

use super::kind::{FaultKind, FaultTarget};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Number of possible targets of each kind.
#[derive(Debug, Clone, Copy)]
pub struct ClusterSize {
    /// Nodes.
    pub nodes: usize,
    /// Controllers.
    pub controllers: usize,
    /// Members of etcd.
    pub members: usize,
    /// Services.
    pub services: usize,
}

/// A scheduled fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Start of the fault, in milliseconds after the start of the campaign.
    pub at_ms: u64,
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Index among the possible targets; 0 if there is only one.
    pub target: usize,
    /// End of the fault, in milliseconds after the start of the campaign; `None` for an instantaneous fault.
    pub until_ms: Option<u64>,
}

impl Fault {
    /// Returns `true` if the fault is in effect at this time.
    fn is_active_at(&self, at_ms: u64) -> bool {
        self.until_ms.is_some_and(|until_ms| until_ms >= at_ms)
    }

    /// Returns `true` if another fault would interfere: both have the same target, or one affects all targets of that kind.
    fn conflicts_with(&self, kind: FaultKind, target: usize) -> bool {
        match (self.kind.target(), kind.target()) {
            (FaultTarget::Node, FaultTarget::Node)
            | (FaultTarget::Controller, FaultTarget::Controller)
            | (FaultTarget::Member, FaultTarget::Member)
            | (FaultTarget::Service, FaultTarget::Service) => self.target == target,
            (FaultTarget::Controllers | FaultTarget::Controller, FaultTarget::Controllers)
            | (FaultTarget::Controllers, FaultTarget::Controller)
            | (FaultTarget::Store | FaultTarget::Member, FaultTarget::Store)
            | (FaultTarget::Store, FaultTarget::Member) => true,
            (
                FaultTarget::Node
                | FaultTarget::Controller
                | FaultTarget::Controllers
                | FaultTarget::Member
                | FaultTarget::Store
                | FaultTarget::Service,
                _,
            ) => false,
        }
    }
}

/// Draws `count` faults over `duration_ms` milliseconds. Faults overlap, but each machine has at most one at a time.
pub fn draw_schedule(seed: u64, size: ClusterSize, count: u32, duration_ms: u64) -> Vec<Fault> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let step_ms = (duration_ms / u64::from(count.max(1))).max(1);
    let mut faults: Vec<Fault> = Vec::new();
    let mut at_ms = 0;
    // Each kind comes once, in random order, before any kind repeats. A short run then covers as many kinds as possible.
    let mut undrawn_kinds: Vec<FaultKind> = FaultKind::ALL.to_vec();
    let mut remaining = count;
    while remaining > 0 {
        let kind = if undrawn_kinds.is_empty() {
            draw_kind(&mut random)
        } else {
            undrawn_kinds[random.random_range(0..undrawn_kinds.len())]
        };
        let target = random.random_range(0..target_count(kind, size));
        if faults.iter().any(|fault| fault.is_active_at(at_ms) && fault.conflicts_with(kind, target)) {
            // The target already has a fault: draw again, a little later.
            at_ms += step_ms / 10 + 1;
            continue;
        }
        undrawn_kinds.retain(|waiting| *waiting != kind);
        let until_ms = kind
            .duration_range_ms()
            .map(|(shortest, longest)| at_ms + random.random_range(shortest..=longest));
        faults.push(Fault { at_ms, kind, target, until_ms });
        remaining -= 1;
        at_ms += random.random_range(step_ms / 2..=step_ms * 3 / 2);
    }
    faults
}

fn draw_kind(random: &mut ChaCha8Rng) -> FaultKind {
    let sum: u32 = FaultKind::ALL.iter().map(|kind| kind.weight()).sum();
    let mut remaining = random.random_range(0..sum);
    for kind in FaultKind::ALL {
        match remaining.checked_sub(kind.weight()) {
            Some(reduced) => remaining = reduced,
            None => return *kind,
        }
    }
    FaultKind::AgentKilled
}

fn target_count(kind: FaultKind, size: ClusterSize) -> usize {
    match kind.target() {
        FaultTarget::Node => size.nodes,
        FaultTarget::Controller => size.controllers,
        FaultTarget::Member => size.members,
        FaultTarget::Service => size.services,
        FaultTarget::Controllers | FaultTarget::Store => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SIZE: ClusterSize = ClusterSize { nodes: 3, controllers: 3, members: 3, services: 4 };

    #[test]
    fn seed_determines_the_fault_schedule() {
        assert_eq!(draw_schedule(7, SIZE, 100, 400_000), draw_schedule(7, SIZE, 100, 400_000));
        assert_ne!(draw_schedule(7, SIZE, 100, 400_000), draw_schedule(8, SIZE, 100, 400_000));
    }

    #[test]
    fn schedule_has_every_fault_kind_without_overlap() {
        for seed in 0..20 {
            let faults = draw_schedule(seed, SIZE, 300, 1_200_000);
            assert_eq!(faults.len(), 300);
            let kinds: BTreeSet<FaultKind> = faults.iter().map(|fault| fault.kind).collect();
            assert_eq!(kinds.len(), FaultKind::ALL.len(), "seed {seed}");
            for (index, fault) in faults.iter().enumerate() {
                let earlier_faults = &faults[..index];
                let clash = earlier_faults.iter().find(|other| {
                    other.is_active_at(fault.at_ms) && other.conflicts_with(fault.kind, fault.target)
                });
                assert_eq!(clash, None, "seed {seed}: {fault:?}");
            }
            assert!(
                faults.windows(2).all(|pair| pair[0].at_ms <= pair[1].at_ms),
                "seed {seed}: in the order of time"
            );
            assert!(
                faults.iter().any(|fault| {
                    faults
                        .iter()
                        .filter(|other| other.is_active_at(fault.at_ms) && other.at_ms <= fault.at_ms)
                        .count()
                        > 2
                }),
                "seed {seed}: several at once"
            );
        }
    }
}
