//! The network: the machines that reach each other, etcd and the migration network, in each direction separately.

use super::World;
use super::process::Who;
use crate::scenario::action::End;
use ha_api_types::id::NodeName;
use std::collections::BTreeSet;

/// Cut links, in addition to machines without any network.
#[derive(Debug, Default)]
pub(super) struct Network {
    /// Cut links, as source and destination.
    cut: BTreeSet<(End, End)>,
    /// Machines without their migration network.
    no_migration: BTreeSet<NodeName>,
}

/// A direction between a process and etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the process to etcd.
    Request,
    /// From etcd to the process.
    Answer,
}

impl Network {
    /// Cuts or restores a link.
    pub(super) fn set(&mut self, from: End, to: End, on: bool, one_way: bool) {
        let mut ways = vec![(from.clone(), to.clone())];
        if !one_way {
            ways.push((to, from));
        }
        for way in ways {
            if on {
                self.cut.remove(&way);
            } else {
                self.cut.insert(way);
            }
        }
    }

    /// Sets whether a machine has its migration network.
    pub(super) fn set_migration(&mut self, node: &NodeName, on: bool) {
        if on {
            self.no_migration.remove(node);
        } else {
            self.no_migration.insert(node.to_owned());
        }
    }

    fn is_cut(&self, from: &End, to: &End) -> bool {
        !self.cut.is_empty() && self.cut.contains(&(from.clone(), to.clone()))
    }
}

impl World {
    fn is_connected(&self, node: &NodeName) -> bool {
        self.machines.get(node).is_some_and(|machine| machine.up && machine.network)
    }

    /// Returns `true` if a packet from one machine reaches the other.
    pub(super) fn gets_through(&self, from: &NodeName, to: &NodeName) -> bool {
        if from == to {
            return self.machines.get(from).is_some_and(|machine| machine.up);
        }
        if !self.is_connected(from) || !self.is_connected(to) {
            return false;
        }
        if self.network.cut.is_empty() {
            return true;
        }
        let (from, to) = (End::Node(from.to_owned()), End::Node(to.to_owned()));
        ![(&from, &to), (&from, &End::Peers), (&End::Peers, &to)]
            .into_iter()
            .any(|(from, to)| self.network.is_cut(from, to))
    }

    /// Returns `true` if a request of a machine's agent reaches a machine's controller.
    pub(super) fn asks_controller(&self, node: &NodeName, candidate: &NodeName) -> bool {
        let cut = node != candidate && self.network.is_cut(&End::Node(node.to_owned()), &End::Controllers);
        !cut && self.gets_through(node, candidate)
    }

    /// Returns `true` if an answer of a machine's controller reaches a machine's agent.
    pub(super) fn hears_controller(&self, candidate: &NodeName, node: &NodeName) -> bool {
        let cut = node != candidate && self.network.is_cut(&End::Controllers, &End::Node(node.to_owned()));
        !cut && self.gets_through(candidate, node)
    }

    /// Returns `true` if a live migration can run from one machine to another.
    pub(super) fn migrates_between(&self, source: &NodeName, target: &NodeName) -> bool {
        let works = |node: &NodeName| {
            self.machines.get(node).is_some_and(super::machine::Machine::works)
                && !self.network.no_migration.contains(node)
        };
        works(source) && works(target) && self.both_ways(source, target)
    }

    /// Returns `true` if the machine's controller runs and reaches etcd.
    pub(crate) fn controller_works(&self, node: &NodeName) -> bool {
        let who = Who::Controller(node.to_owned());
        self.controllers.get(node).is_some_and(|process| !process.hung)
            && self.reaches_store(&who, Way::Request)
            && self.reaches_store(&who, Way::Answer)
    }

    /// Returns `true` if two machines reach each other in both directions.
    pub(super) fn both_ways(&self, one: &NodeName, other: &NodeName) -> bool {
        self.gets_through(one, other) && self.gets_through(other, one)
    }

    /// Returns `true` if messages between a process and etcd arrive in this direction, over any working member.
    pub(crate) fn reaches_store(&self, who: &Who, way: Way) -> bool {
        let node = who.node();
        if !self.is_connected(node) {
            return false;
        }
        if self.network.cut.is_empty() {
            return true;
        }
        let process = match who {
            Who::Agent(node) => vec![End::Node(node.clone())],
            Who::Controller(node) => vec![End::Node(node.clone()), End::Controllers],
        };
        let is_cut = process.iter().any(|end| match way {
            Way::Request => self.network.is_cut(end, &End::Store),
            Way::Answer => self.network.is_cut(&End::Store, end),
        });
        let members = &self.scenario.store;
        !is_cut
            && (members.is_empty()
                || members.iter().any(|member| {
                    self.member_serves(member)
                        && match way {
                            Way::Request => self.gets_through(node, member),
                            Way::Answer => self.gets_through(member, node),
                        }
                }))
    }
}
