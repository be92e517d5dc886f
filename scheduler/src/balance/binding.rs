//! Constraints of instances on a live cluster that the text format cannot express.

use super::model::Instance;
use super::problem::{Guest, Problem, Spot};
use std::collections::{BTreeMap, BTreeSet};

/// The constraints of one instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// Eligible nodes, by position in the cluster, without regard to other instances on them.
    pub nodes: BTreeSet<usize>,
    /// Further eligible nodes, which the instance prefers less than its current one. They count only if that node is to be
    /// emptied.
    pub less_preferred: BTreeSet<usize>,
    /// Reason why the instance is not moved; `None` if it may be moved.
    pub stays: Option<&'static str>,
    /// Number of the unit; instances of one unit move as one.
    pub unit: Option<usize>,
    /// Number of the strict affinity set; a move of one of its instances also moves the others.
    pub crew: Option<usize>,
    /// `true` if the instance can be live-migrated.
    pub live: bool,
    /// `true` if a command can copy the disk of the instance to another node.
    pub copies: bool,
}

impl Binding {
    /// Applies the constraints to a guest. `nodes` are the positions of the problem's hosts in the cluster. `leaves` is
    /// `true` if the guest's node is to be emptied.
    pub(super) fn tie(
        &self,
        guest: &mut Guest,
        instance: &Instance,
        nodes: impl Iterator<Item = usize>,
        leaves: bool,
    ) {
        let may_host =
            |node: &usize| self.nodes.contains(node) || (leaves && self.less_preferred.contains(node));
        guest.hosts = Some(nodes.map(|node| may_host(&node)).collect());
        guest.movable &= self.stays.is_none();
        guest.copies = self.copies;
        // The disk request of a service counts on its node, wherever its data is stored.
        if instance.status.is_running() && !instance.forthcoming {
            guest.disk_used = instance.disk;
            guest.disk_forthcoming = instance.disk;
        }
    }
}

impl Problem {
    /// Merges the members of each unit into one guest. A unit stays on its nodes if not all members are movable, or if
    /// they differ in spot or eligible nodes.
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
    /// Merges another guest that moves together with this one.
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
        // A tag shared within the unit stays together in any case, so duplicates do not count.
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
