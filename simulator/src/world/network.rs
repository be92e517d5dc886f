//! Which machines reach each other, etcd and the migration network, each direction of its own.

use super::World;
use super::process::Who;
use crate::scenario::action::End;
use std::collections::BTreeSet;

/// What is cut beside machines whose whole network is off.
#[derive(Debug, Default)]
pub(super) struct Network {
    /// From where nothing gets to where.
    cut: BTreeSet<(End, End)>,
    /// Machines without their migration network.
    no_migration: BTreeSet<String>,
}

/// A direction between a process and etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To etcd.
    Request,
    /// Back.
    Answer,
}

impl Network {
    /// Cuts or joins a link.
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

    /// Switches the migration network of a machine.
    pub(super) fn set_migration(&mut self, node: &str, on: bool) {
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
    fn is_connected(&self, node: &str) -> bool {
        self.machines.get(node).is_some_and(|machine| machine.up && machine.network)
    }

    /// Whether a packet gets from one machine to another.
    pub(super) fn gets_through(&self, from: &str, to: &str) -> bool {
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

    /// Whether a question of a machine's agent gets to the controller of a machine.
    pub(super) fn asks_controller(&self, node: &str, candidate: &str) -> bool {
        let cut = node != candidate && self.network.is_cut(&End::Node(node.to_owned()), &End::Controllers);
        !cut && self.gets_through(node, candidate)
    }

    /// Whether the answer of the controller of a machine gets to a machine's agent.
    pub(super) fn hears_controller(&self, candidate: &str, node: &str) -> bool {
        let cut = node != candidate && self.network.is_cut(&End::Controllers, &End::Node(node.to_owned()));
        !cut && self.gets_through(candidate, node)
    }

    /// Whether a live migration gets from one machine to another.
    pub(super) fn migrates_between(&self, source: &str, target: &str) -> bool {
        let works = |node: &str| {
            self.machines.get(node).is_some_and(super::machine::Machine::works)
                && !self.network.no_migration.contains(node)
        };
        works(source) && works(target) && self.both_ways(source, target)
    }

    /// Whether a controller lives that reaches etcd.
    pub(crate) fn controller_works(&self, node: &str) -> bool {
        let who = Who::Controller(node.to_owned());
        self.controllers.get(node).is_some_and(|process| !process.hung)
            && self.reaches_store(&who, Way::Request)
            && self.reaches_store(&who, Way::Answer)
    }

    /// Whether two machines reach each other.
    pub(super) fn both_ways(&self, one: &str, other: &str) -> bool {
        self.gets_through(one, other) && self.gets_through(other, one)
    }

    /// Whether what a process sends to etcd, or what etcd sends to it, gets there: by any member that takes part.
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
