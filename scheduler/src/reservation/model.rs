//! The cluster as numbers: nodes and services by index, with sums, for fast checks of a thousand failures.

use super::bits::Bits;
use super::counted_facts::counted_facts;
use super::eligibility::{EligibilityCache, reachable_nodes};
use crate::filter::limits;
use crate::view::{NodeFacts, ServiceFacts, View};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::quantity::{Amounts, Quantity};
use std::collections::{BTreeMap, BTreeSet};

/// Sums of cpu, memory and disk in thousandths.
pub(super) type Sums = [i128; 3];

/// A node with its limits and usage.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: NodeName,
    pub(super) limits: [Option<i128>; 3],
    /// Sum of the requests of all services that use the node.
    pub(super) used: Sums,
    /// Services that run on this node, or for which this node is the first one that they use.
    pub(super) services: BTreeSet<u32>,
    /// Number of services that use the node, by anti-affinity set.
    pub(super) services_by_set: BTreeMap<u32, i64>,
}

/// A service with its requests and constraints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) name: ResourceName,
    /// Current node; `None` if the service uses no node.
    pub(super) current_node: Option<u32>,
    /// All nodes that the service uses, including `current_node`.
    pub(super) used_nodes: Vec<u32>,
    /// `true` if the service needs another node when its node fails.
    pub(super) needs_failover: bool,
    /// `true` if the service can be moved now.
    pub(super) movable: bool,
    pub(super) requests: [Option<i128>; 3],
    pub(super) eligibility: usize,
    /// The only nodes with the data of the service; `None` for all nodes.
    pub(super) storage_nodes: Option<Vec<u32>>,
    /// Nodes on which the service cannot run.
    pub(super) incompatible_nodes: Vec<u32>,
    /// Numbers of the strict anti-affinity sets of the service: rules, then exclusion tags.
    pub(super) anti_affinity_sets: Vec<u32>,
    /// Number of the strict affinity set of the service.
    pub(super) affinity_set: Option<u32>,
    pub(super) priority: i32,
}

/// The cluster, prepared for checks of node failures.
#[derive(Clone, Debug)]
pub struct Model {
    pub(super) view: View,
    pub(super) nodes: Vec<Node>,
    pub(super) services: Vec<Service>,
    pub(super) eligibility_cache: EligibilityCache,
    node_numbers: BTreeMap<NodeName, u32>,
    service_numbers: BTreeMap<ResourceName, u32>,
    /// Numbers of removed services, for reuse.
    free_numbers: Vec<u32>,
    /// Numbers of the anti-affinity sets of each service, without exclusion tags.
    anti_affinity_of: BTreeMap<ResourceName, Vec<u32>>,
    /// Names of the anti-affinity sets for messages.
    pub(super) anti_affinity_names: Vec<String>,
    /// Number of the first set that is an exclusion tag.
    pub(super) first_tag: u32,
    tags: BTreeMap<String, u32>,
    affinity_of: BTreeMap<ResourceName, u32>,
    pub(super) affinity_sets: Vec<BTreeSet<u32>>,
    /// Nodes, those with the most free capacity first.
    pub(super) nodes_by_free_capacity: Vec<u32>,
}

impl Model {
    /// Copies the view, and computes the sums and candidates of all nodes and services.
    pub fn new(view: &View) -> Model {
        Model::of(view.clone())
    }

    /// Builds the model of an owned view, without a copy.
    pub fn of(view: View) -> Model {
        let mut model = Model {
            nodes: Vec::new(),
            services: Vec::new(),
            eligibility_cache: EligibilityCache::default(),
            node_numbers: view.nodes.keys().cloned().zip(0..).collect(),
            service_numbers: BTreeMap::new(),
            free_numbers: Vec::new(),
            anti_affinity_of: BTreeMap::new(),
            anti_affinity_names: Vec::new(),
            first_tag: 0,
            tags: BTreeMap::new(),
            affinity_of: BTreeMap::new(),
            affinity_sets: Vec::new(),
            nodes_by_free_capacity: Vec::new(),
            view,
        };
        model.load_nodes();
        model.load_rules();
        let names: Vec<ResourceName> = model.view.services.keys().cloned().collect();
        for name in names {
            model.update_service(&name);
        }
        model.sort_nodes();
        model
    }

    fn load_nodes(&mut self) {
        let settings = &self.view.settings;
        self.nodes = self
            .view
            .nodes
            .iter()
            .map(|(name, facts)| Node {
                name: name.clone(),
                limits: limits(settings, facts),
                used: [0; 3],
                services: BTreeSet::new(),
                services_by_set: BTreeMap::new(),
            })
            .collect();
        self.eligibility_cache.update_reachable(&self.view);
    }

    fn load_rules(&mut self) {
        for (number, partners) in (0..).zip(self.view.rules.strict_anti_affinity_rules()) {
            self.anti_affinity_names.push(format!("rule {}", partners.name));
            for resource in &partners.resources {
                self.anti_affinity_of.entry(resource.clone()).or_default().push(number);
            }
        }
        self.first_tag = u32::try_from(self.anti_affinity_names.len()).unwrap_or(u32::MAX);
        for (number, partners) in (0..).zip(self.view.rules.strict_affinity_rules()) {
            self.affinity_sets.push(BTreeSet::new());
            for resource in &partners.resources {
                self.affinity_of.insert(resource.clone(), number);
            }
        }
    }

    pub(super) fn node_number(&self, name: &NodeName) -> Option<u32> {
        self.node_numbers.get(name).copied()
    }

    pub(super) fn service_number(&self, name: &ResourceName) -> Option<u32> {
        self.service_numbers.get(name).copied()
    }

    pub(super) fn service(&self, number: u32) -> &Service {
        &self.services[number as usize]
    }

    pub(super) fn node(&self, number: u32) -> &Node {
        &self.nodes[number as usize]
    }

    /// Updates a service from the view, and removes it if the view does not contain it. Returns the service before and
    /// after.
    pub(super) fn update_service(&mut self, name: &ResourceName) -> (Service, Service) {
        let number = self.number_of_or_insert(name);
        let after = match self.view.services.get(name) {
            Some(facts) => {
                let facts = counted_facts(&self.view, name, facts).into_owned();
                self.index_service(name, &facts)
            }
            None => Service { name: name.to_owned(), ..Service::default() },
        };
        self.add_to_sums(number, -1);
        let before = std::mem::replace(&mut self.services[number as usize], after.clone());
        self.add_to_sums(number, 1);
        if !self.view.services.contains_key(name) {
            self.service_numbers.remove(name);
            self.free_numbers.push(number);
        }
        (before, after)
    }

    /// Returns the number of a service, and assigns one if it has none.
    fn number_of_or_insert(&mut self, name: &ResourceName) -> u32 {
        if let Some(number) = self.service_numbers.get(name) {
            return *number;
        }
        let number = self.free_numbers.pop().unwrap_or_else(|| {
            self.services.push(Service::default());
            u32::try_from(self.services.len() - 1).unwrap_or(u32::MAX)
        });
        self.services[number as usize] = Service { name: name.to_owned(), ..Service::default() };
        self.service_numbers.insert(name.to_owned(), number);
        number
    }

    fn index_service(&mut self, name: &ResourceName, facts: &ServiceFacts) -> Service {
        let number = |node: &NodeName| self.node_numbers.get(node).copied();
        let used_nodes: Vec<u32> = facts.used_nodes.iter().filter_map(number).collect();
        let node_in_use = facts.node.as_ref().filter(|node| facts.used_nodes.contains(*node));
        let current_node = node_in_use.or(facts.used_nodes.first()).and_then(number);
        let storage_nodes =
            facts.storage_nodes.as_ref().map(|nodes| nodes.iter().filter_map(number).collect());
        let incompatible_nodes = facts.incompatible_nodes.iter().filter_map(number).collect();
        let mut anti_affinity_sets = self.anti_affinity_of.get(name).cloned().unwrap_or_default();
        for tag in self.view.exclusion_tags(&facts.tags) {
            let next_number = u32::try_from(self.anti_affinity_names.len()).unwrap_or(u32::MAX);
            let number = *self.tags.entry(tag.clone()).or_insert(next_number);
            if number == next_number {
                self.anti_affinity_names.push(format!("exclusion tag {tag}"));
            }
            anti_affinity_sets.push(number);
        }
        Service {
            name: name.to_owned(),
            current_node,
            needs_failover: facts.is_desired && current_node.is_some(),
            movable: facts.movable,
            requests: amounts(&facts.requests),
            eligibility: self.eligibility_cache.number_of_or_insert(&self.view, name, facts),
            storage_nodes,
            incompatible_nodes,
            anti_affinity_sets,
            affinity_set: self.affinity_of.get(name).copied(),
            priority: facts.priority,
            used_nodes,
        }
    }

    /// Adds a service to the sums of its nodes (`sign` 1), or subtracts it (`sign` -1).
    fn add_to_sums(&mut self, number: u32, sign: i64) {
        let service = &self.services[number as usize];
        for node in &service.used_nodes {
            let node = &mut self.nodes[*node as usize];
            for (used, requests) in node.used.iter_mut().zip(service.requests) {
                *used += i128::from(sign) * requests.unwrap_or(0);
            }
            for set in &service.anti_affinity_sets {
                let count = node.services_by_set.entry(*set).or_default();
                *count += sign;
                if *count == 0 {
                    node.services_by_set.remove(set);
                }
            }
        }
        if let Some(current_node) = service.current_node {
            let services = &mut self.nodes[current_node as usize].services;
            if sign > 0 {
                services.insert(number)
            } else {
                services.remove(&number)
            };
        }
        if let Some(set) = service.affinity_set {
            let members = &mut self.affinity_sets[set as usize];
            if sign > 0 && !service.used_nodes.is_empty() {
                members.insert(number)
            } else {
                members.remove(&number)
            };
        }
    }

    /// Sorts nodes by free capacity.
    pub(super) fn sort_nodes(&mut self) {
        let share = |node: &Node| -> f64 {
            let shares = node.limits.iter().zip(node.used).filter_map(|(limit, used)| {
                let limit = (*limit)? as f64;
                Some(if limit > 0.0 { used as f64 / limit } else { 1.0 })
            });
            shares.fold(0.0, f64::max)
        };
        let mut order: Vec<(f64, u32)> = self.nodes.iter().map(share).zip(0..).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.nodes_by_free_capacity = order.into_iter().map(|(_, number)| number).collect();
    }

    /// Returns the nodes that are eligible for a service from the node `from`, without regard to free capacity and
    /// other services.
    pub(super) fn candidates(&self, service: &Service, from: Option<&NodeFacts>, failed: &[u32]) -> Bits {
        let eligible = self.eligibility_cache.get(service.eligibility);
        let mut bits = eligible.move_targets.clone();
        match from.and_then(|node| self.eligibility_cache.reachable_nodes(node)) {
            Some(reachable) => bits.intersect(reachable),
            None => bits.intersect(&reachable_nodes(&self.view, None)),
        }
        if let Some(storage_nodes) = &service.storage_nodes {
            bits.intersect(&Bits::of(self.nodes.len(), |index| {
                storage_nodes.iter().any(|node| *node as usize == index)
            }));
        }
        for node in service.incompatible_nodes.iter().chain(failed) {
            bits.remove(*node as usize);
        }
        bits
    }

    /// Converts thousandths to a quantity for messages; negative amounts become 0.
    pub(super) fn to_quantity(milli: i128) -> Quantity {
        Quantity::from_milli(milli.max(0))
    }
}

fn amounts(amounts: &Amounts) -> [Option<i128>; 3] {
    [amounts.cpu, amounts.memory, amounts.disk].map(|amount| amount.map(Quantity::milli))
}
