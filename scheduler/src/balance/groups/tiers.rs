//! Tiers: as many services of a size as fit, then of the largest smaller size that fits, and so on.

use super::capacity::fill;
use super::newcomer::Newcomer;
use crate::balance::model::{Cluster, Specification};
use crate::balance::problem::Settings;
use crate::balance::state::{Amount, Keep, Lack};

/// A number of services of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// The size.
    pub size: Amount,
    /// Number of services of this size that fit in addition to the earlier tiers.
    pub count: usize,
}

/// A dimension of the size that can be reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Memory,
    Disk,
    Vcpus,
}

impl Part {
    fn of(self, size: &mut Newcomer) -> &mut i64 {
        match self {
            Part::Memory => &mut size.memory,
            Part::Disk => &mut size.disk,
            Part::Vcpus => &mut size.vcpus,
        }
    }

    /// Returns the step of a reduction.
    fn step(self, cluster: &Cluster) -> i64 {
        match self {
            Part::Memory => 64,
            Part::Disk => 256,
            Part::Vcpus if cluster.cpus_in_thousandths => 100,
            Part::Vcpus => 1,
        }
    }

    /// Returns the minimum size: that of the policy, or else a small default.
    fn least(self, cluster: &Cluster, policy: Option<Specification>) -> i64 {
        match self {
            Part::Memory => policy.map_or(128, |least| least.memory).max(64),
            Part::Disk => policy.map_or(1024, |least| least.disk),
            Part::Vcpus if cluster.cpus_in_thousandths => 100,
            Part::Vcpus => policy.map_or(1, |least| least.cpus),
        }
    }
}

/// Computes the tiers of a group with N+1 kept.
pub(super) fn tiers(cluster: &Cluster, settings: &Settings, group: usize, first: &Newcomer) -> Vec<Tier> {
    let mut filling = Filling { cluster: cluster.clone(), settings, group };
    let mut size = first.clone();
    let mut tiers = Vec::new();
    loop {
        let lack = if size.permitted(&filling.cluster, filling.group).is_ok() {
            let filled = fill(&filling.cluster, settings, filling.group, &size, Keep::NPlusOne, usize::MAX);
            if filled.count() > 0 {
                let amount = Amount { memory: size.memory, disk: size.disk, vcpus: size.vcpus };
                tiers.push(Tier { size: amount, count: filled.count() });
            }
            for place in &filled.places {
                size.add(&mut filling.cluster, *place);
            }
            filled.lack
        } else {
            None
        };
        match filling.smaller(&size, lack) {
            Some(next) => size = next,
            None => return tiers,
        }
    }
}

/// A group that is being filled.
struct Filling<'a> {
    cluster: Cluster,
    settings: &'a Settings,
    group: usize,
}

impl Filling<'_> {
    fn fits(&self, size: &Newcomer) -> bool {
        size.permitted(&self.cluster, self.group).is_ok()
            && fill(&self.cluster, self.settings, self.group, size, Keep::NPlusOne, 1).count() > 0
    }

    /// Returns the largest smaller size that fits, with as few reduced dimensions as possible. The most frequent shortage
    /// is reduced first.
    fn smaller(&self, size: &Newcomer, lack: Option<Lack>) -> Option<Newcomer> {
        let mut parts = match lack {
            Some(Lack::Disk) => vec![Part::Disk, Part::Memory, Part::Vcpus],
            Some(Lack::Cpus) => vec![Part::Vcpus, Part::Memory, Part::Disk],
            Some(
                Lack::Memory
                | Lack::Spindles
                | Lack::Reserve
                | Lack::Offline
                | Lack::ExclusionTag
                | Lack::Forbidden,
            )
            | None => {
                vec![Part::Memory, Part::Disk, Part::Vcpus]
            }
        };
        if !size.template.uses_node_disk() {
            parts.retain(|part| *part != Part::Disk);
        }
        if let Some(next) = parts.iter().find_map(|&part| self.largest(size, part)) {
            return Some(next);
        }
        // A reduction of one dimension is not enough. Some dimensions are set to their minimum, and then each grows as
        // far as it fits.
        let mut least = size.clone();
        for (index, &part) in parts.iter().enumerate() {
            let part_least = part.least(&self.cluster, self.policy_least());
            *part.of(&mut least) = part_least.min(*part.of(&mut least));
            if let Some(mut next) = parts[index + 1..].iter().find_map(|&other| self.largest(&least, other)) {
                for &grown in &parts[..=index] {
                    let mut original = size.clone();
                    let most = *grown.of(&mut original);
                    next = self.grown(&next, grown, most);
                }
                return Some(next);
            }
        }
        None
    }

    fn policy_least(&self) -> Option<Specification> {
        self.cluster.policy(self.group)?.ranges.first().map(|(least, _)| *least)
    }

    /// Returns the largest size that fits and is smaller in this dimension; `None` if none fits.
    fn largest(&self, size: &Newcomer, part: Part) -> Option<Newcomer> {
        let mut smaller = size.clone();
        let now = *part.of(&mut smaller);
        let least = part.least(&self.cluster, self.policy_least());
        if now <= least {
            return None;
        }
        *part.of(&mut smaller) = least;
        self.fits(&smaller).then(|| self.grown(&smaller, part, now - 1))
    }

    /// Returns the size that fits with the largest value of a dimension, in steps, at most `most`.
    fn grown(&self, size: &Newcomer, part: Part, most: i64) -> Newcomer {
        let with = |steps: i64| {
            let mut grown = size.clone();
            *part.of(&mut grown) += steps * part.step(&self.cluster);
            grown
        };
        let now = *part.of(&mut size.clone());
        let (mut fits, mut fails) = (0, (most - now).max(0) / part.step(&self.cluster) + 1);
        while fails - fits > 1 {
            let middle = i64::midpoint(fits, fails);
            if self.fits(&with(middle)) { fits = middle } else { fails = middle }
        }
        with(fits)
    }
}
