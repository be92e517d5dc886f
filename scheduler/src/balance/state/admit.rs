//! Newcomers: instances that have no place yet, put on nodes and taken away again.

use super::super::problem::Spot;
use super::State;
use std::fmt;
use std::ops::Add;

/// What a node lacks for an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// It is offline, or being emptied.
    Offline,
    /// Memory.
    Memory,
    /// Disk, what must remain free included.
    Disk,
    /// Virtual cpus within the ratio.
    Cpus,
    /// A peer's failure could not be borne any more.
    Reserve,
    /// An instance with the same exclusion tag is there.
    ExclusionTag,
    /// Its storage, a rule, or what the node is does not let it come there.
    Forbidden,
}

impl fmt::Display for Lack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Lack::Offline => "offline or being emptied",
            Lack::Memory => "too little memory",
            Lack::Disk => "too little disk",
            Lack::Cpus => "too few cpus within the ratio",
            Lack::Reserve => "N+1 would fail",
            Lack::ExclusionTag => "the same exclusion tag is there",
            Lack::Forbidden => "storage, a rule or the node itself forbids it",
        })
    }
}

/// Memory and disk in MiB, and virtual cpus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Memory.
    pub memory: i64,
    /// Disk, of both copies where there are two.
    pub disk: i64,
    /// Virtual cpus.
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

/// What must hold where a newcomer is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Memory, disk, cpus and exclusion tags.
    Limits,
    /// These, and no node that it comes to fails N+1.
    NPlusOne,
}

impl State<'_> {
    /// Puts one more of an instance of the problem on nodes, if limits hold then. The placement knows no spot of it: it may be put as
    /// often as there is room.
    ///
    /// # Errors
    /// What is lacking; nothing has changed then.
    pub fn admit(&mut self, guest: usize, spot: Spot, keep: Keep) -> Result<(), Lack> {
        if self.would_clash(guest, spot.primary) {
            return Err(Lack::ExclusionTag);
        }
        self.put(guest, spot, 1);
        let fails = |state: &Self| {
            let fails = spot.nodes().any(|host| state.fails_n1(host));
            (keep == Keep::NPlusOne && fails).then_some(Lack::Reserve)
        };
        match self.lack(guest, spot, None).or_else(|| fails(self)) {
            None => Ok(()),
            Some(lack) => {
                self.put(guest, spot, -1);
                Err(lack)
            }
        }
    }

    /// Takes away what [`State::admit`] put.
    pub fn dismiss(&mut self, guest: usize, spot: Spot) {
        self.put(guest, spot, -1);
    }

    /// Puts a newcomer on nodes, whatever limits say.
    pub fn force(&mut self, guest: usize, spot: Spot) {
        self.put(guest, spot, 1);
    }

    /// Memory that is free and not reserved for what peers would send, as a share of the node's.
    pub fn spare_memory_share(&self, host: usize) -> f64 {
        let place = &self.places[host];
        (place.memory_free - place.memory_reserved) as f64 / self.problem.hosts[host].memory_total
    }

    /// Free memory of a node.
    pub fn memory_free(&self, host: usize) -> i64 {
        self.places[host].memory_free
    }

    /// What is free on a node, within its limits.
    pub fn free(&self, host: usize) -> Amount {
        let (facts, place) = (&self.problem.hosts[host], &self.places[host]);
        Amount {
            memory: place.memory_free,
            disk: place.disk_free - facts.disk_least,
            vcpus: facts.vcpus_most - place.vcpus,
        }
    }
}
