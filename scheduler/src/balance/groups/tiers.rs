//! Tiers: as many services of a size as fit, then of the largest smaller size that fits, and so on.

use super::capacity::fill;
use super::new_service::NewService;
use crate::balance::model::{Cluster, Specification};
use crate::balance::problem::Settings;
use crate::balance::state::{Amount, BlockingReason, RequiredLimits};

/// A number of services of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Size of each service.
    pub size: Amount,
    /// Number of services of this size that fit in addition to the earlier tiers.
    pub count: usize,
}

/// A dimension of the size that can be reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dimension {
    Memory,
    Disk,
    Vcpus,
}

impl Dimension {
    fn amount_mut(self, size: &mut NewService) -> &mut i64 {
        match self {
            Dimension::Memory => &mut size.memory,
            Dimension::Disk => &mut size.disk,
            Dimension::Vcpus => &mut size.vcpus,
        }
    }

    /// Returns the step of a reduction.
    fn step(self, cluster: &Cluster) -> i64 {
        match self {
            Dimension::Memory => 64,
            Dimension::Disk => 256,
            Dimension::Vcpus if cluster.cpus_in_thousandths => 100,
            Dimension::Vcpus => 1,
        }
    }

    /// Returns the minimum size: that of the policy, or else a small default.
    fn minimum_amount(self, cluster: &Cluster, policy: Option<Specification>) -> i64 {
        match self {
            Dimension::Memory => policy.map_or(128, |minimum| minimum.memory).max(64),
            Dimension::Disk => policy.map_or(1024, |minimum| minimum.disk),
            Dimension::Vcpus if cluster.cpus_in_thousandths => 100,
            Dimension::Vcpus => policy.map_or(1, |minimum| minimum.cpus),
        }
    }
}

/// Computes the tiers of a group while every failover stays possible (N+1).
pub(super) fn tiers(
    cluster: &Cluster,
    settings: &Settings,
    group: usize,
    initial_size: &NewService,
) -> Vec<Tier> {
    let mut filling = GroupFilling { cluster: cluster.clone(), settings, group };
    let mut size = initial_size.clone();
    let mut tiers = Vec::new();
    loop {
        let reason = if size.check_policy(&filling.cluster, filling.group).is_ok() {
            let filled =
                fill(&filling.cluster, settings, filling.group, &size, RequiredLimits::NPlusOne, usize::MAX);
            if filled.count() > 0 {
                let amount = Amount { memory: size.memory, disk: size.disk, vcpus: size.vcpus };
                tiers.push(Tier { size: amount, count: filled.count() });
            }
            for placement in &filled.placements {
                size.add_to(&mut filling.cluster, *placement);
            }
            filled.blocking_reason
        } else {
            None
        };
        match filling.next_size(&size, reason) {
            Some(next) => size = next,
            None => return tiers,
        }
    }
}

/// A group that is being filled.
struct GroupFilling<'a> {
    cluster: Cluster,
    settings: &'a Settings,
    group: usize,
}

impl GroupFilling<'_> {
    fn fits(&self, size: &NewService) -> bool {
        size.check_policy(&self.cluster, self.group).is_ok()
            && fill(&self.cluster, self.settings, self.group, size, RequiredLimits::NPlusOne, 1).count() > 0
    }

    /// Returns the largest smaller size that fits, with as few reduced dimensions as possible. The most frequent shortage
    /// is reduced first.
    fn next_size(&self, size: &NewService, reason: Option<BlockingReason>) -> Option<NewService> {
        let mut dimensions = match reason {
            Some(BlockingReason::Disk) => vec![Dimension::Disk, Dimension::Memory, Dimension::Vcpus],
            Some(BlockingReason::Cpus) => vec![Dimension::Vcpus, Dimension::Memory, Dimension::Disk],
            Some(
                BlockingReason::Memory
                | BlockingReason::Spindles
                | BlockingReason::Reserve
                | BlockingReason::Offline
                | BlockingReason::ExclusionTag
                | BlockingReason::Forbidden,
            )
            | None => {
                vec![Dimension::Memory, Dimension::Disk, Dimension::Vcpus]
            }
        };
        if !size.template.uses_node_disk() {
            dimensions.retain(|dimension| *dimension != Dimension::Disk);
        }
        if let Some(next) = dimensions.iter().find_map(|&dimension| self.largest_reduced(size, dimension)) {
            return Some(next);
        }
        // A reduction of one dimension is not enough. Some dimensions are set to their minimum, and then each grows as
        // far as it fits.
        let mut minimum_size = size.clone();
        for (index, &dimension) in dimensions.iter().enumerate() {
            let minimum = dimension.minimum_amount(&self.cluster, self.policy_minimum());
            *dimension.amount_mut(&mut minimum_size) = minimum.min(*dimension.amount_mut(&mut minimum_size));
            if let Some(mut next) =
                dimensions[index + 1..].iter().find_map(|&other| self.largest_reduced(&minimum_size, other))
            {
                for &dimension_to_grow in &dimensions[..=index] {
                    let mut original = size.clone();
                    let max_amount = *dimension_to_grow.amount_mut(&mut original);
                    next = self.grow_to_fit(&next, dimension_to_grow, max_amount);
                }
                return Some(next);
            }
        }
        None
    }

    fn policy_minimum(&self) -> Option<Specification> {
        self.cluster.policy(self.group)?.ranges.first().map(|(minimum, _)| *minimum)
    }

    /// Returns the largest size that fits and is smaller in this dimension; `None` if none fits.
    fn largest_reduced(&self, size: &NewService, dimension: Dimension) -> Option<NewService> {
        let mut smaller = size.clone();
        let current_amount = *dimension.amount_mut(&mut smaller);
        let minimum = dimension.minimum_amount(&self.cluster, self.policy_minimum());
        if current_amount <= minimum {
            return None;
        }
        *dimension.amount_mut(&mut smaller) = minimum;
        self.fits(&smaller).then(|| self.grow_to_fit(&smaller, dimension, current_amount - 1))
    }

    /// Returns the size that fits with the largest value of a dimension, in steps, at most `max_amount`.
    fn grow_to_fit(&self, size: &NewService, dimension: Dimension, max_amount: i64) -> NewService {
        let grown_by = |steps: i64| {
            let mut grown = size.clone();
            *dimension.amount_mut(&mut grown) += steps * dimension.step(&self.cluster);
            grown
        };
        let current_amount = *dimension.amount_mut(&mut size.clone());
        let (mut fitting_steps, mut failing_steps) =
            (0, (max_amount - current_amount).max(0) / dimension.step(&self.cluster) + 1);
        while failing_steps - fitting_steps > 1 {
            let middle = i64::midpoint(fitting_steps, failing_steps);
            if self.fits(&grown_by(middle)) { fitting_steps = middle } else { failing_steps = middle }
        }
        grown_by(fitting_steps)
    }
}
