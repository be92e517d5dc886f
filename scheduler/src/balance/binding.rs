//! What ties an instance of a live cluster beyond what the text format can say.

use super::model::Instance;
use super::problem::{Guest, Problem, Spot};
use std::collections::{BTreeMap, BTreeSet};

/// The ties of one instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// The nodes that it may come to, by position in the cluster, as far as nothing else that is there matters.
    pub nodes: BTreeSet<usize>,
    /// Why it is not moved, in words; `None`: it may be.
    pub stays: Option<&'static str>,
    /// Instances of the same unit move as one.
    pub unit: Option<usize>,
    /// Instances of the same crew are brought along by a move of any of them.
    pub crew: Option<usize>,
    /// It can be moved without being stopped.
    pub live: bool,
    /// Its disk can be copied to another node by a command.
    pub copies: bool,
}

impl Binding {
    /// Ties a guest; `nodes` are the positions of the problem's hosts in the cluster.
    pub(super) fn tie(&self, guest: &mut Guest, instance: &Instance, nodes: impl Iterator<Item = usize>) {
        guest.hosts = Some(nodes.map(|node| self.nodes.contains(&node)).collect());
        guest.movable &= self.stays.is_none();
        guest.copies = self.copies;
        // What a service asks for counts on its node, wherever its data is.
        if instance.status.is_running() && !instance.forthcoming {
            guest.disk_used = instance.disk;
            guest.disk_forthcoming = instance.disk;
        }
    }
}

impl Problem {
    /// Makes one guest of each unit. A unit whose members are not alike in where they are stays.
    pub(super) fn unite(&mut self, bindings: &BTreeMap<usize, Binding>) {
        let mut units: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (position, guest) in self.guests.iter().enumerate() {
            if let Some(unit) = bindings.get(&guest.instance).and_then(|binding| binding.unit) {
                units.entry(unit).or_default().push(position);
            }
        }
        let mut joined = vec![false; self.guests.len()];
        for members in units.values() {
            let [first, others @ ..] = members.as_slice() else { continue };
            let kin = |at: usize| (self.start[at], self.guests[at].reach);
            let moves = members.iter().all(|&at| self.guests[at].movable && kin(at) == kin(*first));
            if !moves {
                for &member in members {
                    self.guests[member].movable = false;
                }
                continue;
            }
            for &other in others {
                let partner = self.guests[other].clone();
                self.guests[*first].join(&partner);
                joined[other] = true;
            }
        }
        if !joined.contains(&true) {
            return;
        }
        let guests = std::mem::take(&mut self.guests).into_iter().zip(std::mem::take(&mut self.start));
        let left: Vec<(Guest, Spot)> =
            guests.zip(joined).filter(|(_, joined)| !joined).map(|(guest, _)| guest).collect();
        (self.guests, self.start) = left.into_iter().unzip();
    }
}

impl Guest {
    /// Takes in another one that moves as one with it.
    fn join(&mut self, other: &Guest) {
        self.memory += other.memory;
        self.memory_used += other.memory_used;
        self.memory_forthcoming += other.memory_forthcoming;
        self.memory_reserved += other.memory_reserved;
        self.disk_used += other.disk_used;
        self.disk_forthcoming += other.disk_forthcoming;
        self.vcpus += other.vcpus;
        self.vcpus_forthcoming += other.vcpus_forthcoming;
        for (sum, part) in self.spindles.iter_mut().zip(other.spindles) {
            *sum += part;
        }
        for (sum, part) in self.load.iter_mut().zip(other.load) {
            *sum += part;
        }
        // What they share among themselves is with them wherever they go.
        self.exclusion.extend(&other.exclusion);
        self.exclusion.sort_unstable();
        self.exclusion.dedup();
        self.desired.extend(&other.desired);
        self.copies &= other.copies;
        if let (Some(hosts), Some(others)) = (&mut self.hosts, &other.hosts) {
            hosts.iter_mut().zip(others).for_each(|(host, other)| *host &= other);
        }
        self.partners.push(other.instance);
        self.partners.extend(&other.partners);
    }
}
