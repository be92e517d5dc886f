//! The network: the links between machines, etcd and the migration network. Each direction of a link is separate.

use super::World;
use super::process::Client;
use crate::scenario::action::LinkEnd;
use ha_api_types::id::NodeName;
use std::collections::BTreeSet;

/// Cut links, in addition to machines without any network.
#[derive(Debug, Default)]
pub(super) struct Network {
    /// Cut links, as source and destination.
    cut_links: BTreeSet<(LinkEnd, LinkEnd)>,
    /// Machines without their migration network.
    nodes_without_migration: BTreeSet<NodeName>,
}

/// A direction between a process and etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the process to etcd.
    Request,
    /// From etcd to the process.
    Answer,
}

impl Network {
    /// Cuts or restores a link.
    pub(super) fn set_link(&mut self, from: LinkEnd, to: LinkEnd, on: bool, one_way: bool) {
        let mut directions = vec![(from.clone(), to.clone())];
        if !one_way {
            directions.push((to, from));
        }
        for direction in directions {
            if on {
                self.cut_links.remove(&direction);
            } else {
                self.cut_links.insert(direction);
            }
        }
    }

    /// Sets whether a machine has its migration network.
    pub(super) fn set_migration(&mut self, node: &NodeName, on: bool) {
        if on {
            self.nodes_without_migration.remove(node);
        } else {
            self.nodes_without_migration.insert(node.to_owned());
        }
    }

    /// Returns `true` if a machine has its migration network.
    pub(super) fn has_migration(&self, node: &NodeName) -> bool {
        !self.nodes_without_migration.contains(node)
    }

    pub(super) fn is_cut(&self, from: &LinkEnd, to: &LinkEnd) -> bool {
        !self.cut_links.is_empty() && self.cut_links.contains(&(from.clone(), to.clone()))
    }
}

impl World {
    fn is_connected(&self, node: &NodeName) -> bool {
        self.machines.get(node).is_some_and(|machine| machine.is_up && machine.network)
    }

    /// Returns `true` if a packet from one machine reaches the other machine.
    pub(super) fn delivers_messages(&self, from: &NodeName, to: &NodeName) -> bool {
        if from == to {
            return self.machines.get(from).is_some_and(|machine| machine.is_up);
        }
        if !self.is_connected(from) || !self.is_connected(to) {
            return false;
        }
        if self.network.cut_links.is_empty() {
            return true;
        }
        let (from, to) = (LinkEnd::Node(from.to_owned()), LinkEnd::Node(to.to_owned()));
        ![(&from, &to), (&from, &LinkEnd::Peers), (&LinkEnd::Peers, &to)]
            .into_iter()
            .any(|(from, to)| self.network.is_cut(from, to))
    }

    /// Returns `true` if a request of a machine's agent reaches a machine's controller.
    pub(super) fn can_ask_controller(&self, node: &NodeName, candidate: &NodeName) -> bool {
        let is_cut =
            node != candidate && self.network.is_cut(&LinkEnd::Node(node.to_owned()), &LinkEnd::Controllers);
        !is_cut && self.delivers_messages(node, candidate)
    }

    /// Returns `true` if an answer of a machine's controller reaches a machine's agent.
    pub(super) fn receives_answer_of_controller(&self, candidate: &NodeName, node: &NodeName) -> bool {
        let is_cut =
            node != candidate && self.network.is_cut(&LinkEnd::Controllers, &LinkEnd::Node(node.to_owned()));
        !is_cut && self.delivers_messages(candidate, node)
    }

    /// Returns `true` if a live migration can run from one machine to another.
    pub(super) fn can_migrate_between(&self, source: &NodeName, target: &NodeName) -> bool {
        let works = |node: &NodeName| {
            self.machines.get(node).is_some_and(super::machine::Machine::is_working)
                && !self.network.nodes_without_migration.contains(node)
        };
        works(source) && works(target) && self.is_connected_both_ways(source, target)
    }

    /// Returns `true` if the machine's controller runs and reaches etcd.
    pub(crate) fn controller_works(&self, node: &NodeName) -> bool {
        let client = Client::Controller(node.to_owned());
        self.controllers.get(node).is_some_and(|process| !process.is_hung)
            && self.reaches_store(&client, Direction::Request)
            && self.reaches_store(&client, Direction::Answer)
    }

    /// Returns `true` if two machines reach each other in both directions.
    pub(super) fn is_connected_both_ways(&self, left: &NodeName, right: &NodeName) -> bool {
        self.delivers_messages(left, right) && self.delivers_messages(right, left)
    }

    /// Returns `true` if messages between a process and etcd arrive in this direction, over any working member.
    pub(crate) fn reaches_store(&self, client: &Client, direction: Direction) -> bool {
        let node = client.node();
        if !self.is_connected(node) {
            return false;
        }
        if self.network.cut_links.is_empty() {
            return true;
        }
        let process = match client {
            Client::Agent(node) => vec![LinkEnd::Node(node.clone())],
            Client::Controller(node) => vec![LinkEnd::Node(node.clone()), LinkEnd::Controllers],
        };
        let is_cut = process.iter().any(|end| match direction {
            Direction::Request => self.network.is_cut(end, &LinkEnd::Store),
            Direction::Answer => self.network.is_cut(&LinkEnd::Store, end),
        });
        let members = &self.scenario.store;
        !is_cut
            && (members.is_empty()
                || members.iter().any(|member| {
                    self.can_member_serve(member)
                        && match direction {
                            Direction::Request => self.delivers_messages(node, member),
                            Direction::Answer => self.delivers_messages(member, node),
                        }
                }))
    }
}
