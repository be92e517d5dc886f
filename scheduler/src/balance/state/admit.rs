//! Additional instances without a spot, which are added to nodes and removed again.

use super::super::problem::Spot;
use super::State;
use std::fmt;
use std::ops::Add;

/// The shortage of a node for an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// The node is offline or being emptied.
    Offline,
    /// Too little memory.
    Memory,
    /// Too little disk beyond the part that must stay free.
    Disk,
    /// Too few uses of spindles within the ratio.
    Spindles,
    /// Too few virtual cpus within the ratio.
    Cpus,
    /// The node would no longer survive the failure of a peer.
    Reserve,
    /// An instance with the same exclusion tag is on the node.
    ExclusionTag,
    /// Storage, a rule or the state of the node excludes the instance.
    Forbidden,
}

impl fmt::Display for Lack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Lack::Offline => "offline or being drained",
            Lack::Memory => "too little memory",
            Lack::Disk => "too little disk",
            Lack::Spindles => "too few spindles within the ratio",
            Lack::Cpus => "too few CPUs within the ratio",
            Lack::Reserve => "N+1 would fail",
            Lack::ExclusionTag => "service with the same exclusion tag on the node",
            Lack::Forbidden => "excluded by storage, a rule or the node itself",
        })
    }
}

/// Amounts of memory, disk and virtual cpus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Memory in MiB.
    pub memory: i64,
    /// Disk in MiB, of both copies if there are two.
    pub disk: i64,
    /// Number of virtual cpus.
    pub vcpus: i64,
}

impl Add for Amount {
    type Output = Amount;

    fn add(self, other: Amount) -> Amount {
        Amount {
            memory: self.memory + other.memory,
            disk: self.disk + other.disk,
            vcpus: self.vcpus + other.vcpus,
        }
    }
}

/// The limits that must hold for an additional instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Memory, disk, cpus and exclusion tags.
    Limits,
    /// The same as `Limits`, and none of the instance's nodes may fail N+1.
    NPlusOne,
}

impl State<'_> {
    /// Adds one more copy of an instance of the problem to nodes, if the limits then hold. The state keeps no
    /// spot for the copy, so copies can be added repeatedly.
    ///
    /// # Errors
    /// Returns the shortage that prevents it; the state is then unchanged.
    pub fn admit(&mut self, guest: usize, spot: Spot, keep: Keep) -> Result<(), Lack> {
        if self.would_clash(guest, spot.primary) {
            return Err(Lack::ExclusionTag);
        }
        self.put(guest, spot, 1);
        let fails = |state: &Self| {
            let fails = spot.nodes().any(|host| state.fails_n1(host));
            (keep == Keep::NPlusOne && fails).then_some(Lack::Reserve)
        };
        match self.lack(guest, spot, None, false).or_else(|| fails(self)) {
            None => Ok(()),
            Some(lack) => {
                self.put(guest, spot, -1);
                Err(lack)
            }
        }
    }

    /// Removes an instance that was added by [`State::admit`] or [`State::force`].
    pub fn dismiss(&mut self, guest: usize, spot: Spot) {
        self.put(guest, spot, -1);
    }

    /// Adds an instance to nodes without a check of limits.
    pub fn force(&mut self, guest: usize, spot: Spot) {
        self.put(guest, spot, 1);
    }

    /// Returns the memory of a node that is neither used nor reserved for peers, as a share of its total.
    pub fn spare_memory_share(&self, host: usize) -> f64 {
        let place = &self.places[host];
        (place.memory_free - place.memory_reserved) as f64 / self.problem.hosts[host].memory_total
    }

    /// Returns the free memory of a node in MiB.
    pub fn memory_free(&self, host: usize) -> i64 {
        self.places[host].memory_free
    }

    /// Returns the free amounts of a node within its limits.
    pub fn free(&self, host: usize) -> Amount {
        let (facts, place) = (&self.problem.hosts[host], &self.places[host]);
        Amount {
            memory: place.memory_free,
            disk: place.disk_free - facts.disk_least,
            vcpus: facts.vcpus_most - place.vcpus,
        }
    }
}
