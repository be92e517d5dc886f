//! The services of a view, with indexes by node and by tag, and with sums of usage per node.

use crate::view::ServiceFacts;
use ha_api_types::cluster::SchedulerMode;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::quantity::{Amounts, Quantity};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Services by resource name, readable like a map. All changes use the methods of this type, which keep the indexes
/// current.
#[derive(Clone, Default, Deserialize)]
#[serde(from = "BTreeMap<ResourceName, ServiceFacts>")]
pub struct Services {
    facts: BTreeMap<ResourceName, ServiceFacts>,
    nodes: BTreeMap<NodeName, NodeUse>,
    tagged: BTreeMap<String, BTreeSet<ResourceName>>,
}

/// Sums of cpu, memory and disk in thousandths; a missing amount adds 0.
pub type Sums = [i128; 3];

/// Usage of a node by services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUse {
    users: BTreeSet<ResourceName>,
    requested: Sums,
    measured: Sums,
}

impl NodeUse {
    /// Returns the number of services that use the node.
    pub fn count(&self) -> usize {
        self.users.len()
    }

    /// Returns the services that use the node, by name.
    pub fn users(&self) -> impl Iterator<Item = &ResourceName> {
        self.users.iter()
    }

    /// Returns the sums of the requests of all services that use the node.
    pub fn requested(&self) -> &Sums {
        &self.requested
    }

    /// Returns the sum of the services' load in a mode, see [`ServiceFacts::load`].
    pub fn load(&self, mode: SchedulerMode) -> &Sums {
        match mode {
            SchedulerMode::Basic | SchedulerMode::Static => &self.requested,
            SchedulerMode::Dynamic => &self.measured,
        }
    }
}

/// Converts amounts to thousandths; a missing amount becomes 0.
pub fn sums(amounts: &Amounts) -> Sums {
    [amounts.cpu, amounts.memory, amounts.disk].map(|amount| amount.map_or(0, Quantity::milli))
}

/// Adds to sums. The addition wraps, so that a later subtraction always restores the old value.
pub(crate) fn add_to_sums(sums: &mut Sums, added: &Sums) {
    for (sum, added) in sums.iter_mut().zip(added) {
        *sum = sum.wrapping_add(*added);
    }
}

impl Services {
    /// Returns the usage of a node by services; `None` if no service uses it.
    pub fn node_use(&self, node: &NodeName) -> Option<&NodeUse> {
        self.nodes.get(node)
    }

    /// Returns every node that a service uses, in the order of names.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeName, &NodeUse)> {
        self.nodes.iter()
    }

    /// Returns the services with a tag, by name, from an index.
    pub fn with_tag(&self, tag: &str) -> impl Iterator<Item = &ResourceName> {
        self.tagged.get(tag).into_iter().flatten()
    }

    /// Adds or replaces a service, and returns the replaced facts.
    pub fn insert(&mut self, name: ResourceName, facts: ServiceFacts) -> Option<ServiceFacts> {
        let before = self.remove(&name);
        self.add_to_indexes(&name, &facts);
        self.facts.insert(name, facts);
        before
    }

    /// Removes a service and returns its facts.
    pub fn remove(&mut self, name: &ResourceName) -> Option<ServiceFacts> {
        self.remove_entry(name).map(|(_, facts)| facts)
    }

    /// Removes a service and returns its name and facts.
    pub fn remove_entry(&mut self, name: &ResourceName) -> Option<(ResourceName, ServiceFacts)> {
        let (name, facts) = self.facts.remove_entry(name)?;
        self.remove_from_indexes(&name, &facts);
        Some((name, facts))
    }

    /// Returns a service for modification. The indexes are updated when the returned guard is dropped.
    pub fn get_mut(&mut self, name: &ResourceName) -> Option<ServiceGuard<'_>> {
        let facts = std::mem::take(self.facts.get_mut(name)?);
        self.remove_from_indexes(name, &facts);
        Some(ServiceGuard { services: self, name: name.clone(), facts })
    }

    /// Keeps only the services for which `keep` returns `true`.
    pub fn retain(&mut self, mut keep: impl FnMut(&ResourceName, &ServiceFacts) -> bool) {
        let all = std::mem::take(self);
        self.extend(all.facts.into_iter().filter(|(name, facts)| keep(name, facts)));
    }

    /// Modifies every service, and builds the indexes again.
    pub fn change_all(&mut self, mut change: impl FnMut(&ResourceName, &mut ServiceFacts)) {
        let all = std::mem::take(self);
        self.extend(all.facts.into_iter().map(|(name, mut facts)| {
            change(&name, &mut facts);
            (name, facts)
        }));
    }

    fn add_to_indexes(&mut self, name: &ResourceName, facts: &ServiceFacts) {
        let (requested, measured) = static_and_dynamic_sums(facts);
        for node in &facts.used_nodes {
            let used = get_or_insert_default(&mut self.nodes, node);
            used.users.insert(name.clone());
            add_to_sums(&mut used.requested, &requested);
            add_to_sums(&mut used.measured, &measured);
        }
        for tag in &facts.tags {
            get_or_insert_default(&mut self.tagged, tag).insert(name.clone());
        }
    }

    fn remove_from_indexes(&mut self, name: &ResourceName, facts: &ServiceFacts) {
        let (requested, measured) = static_and_dynamic_sums(facts);
        for node in &facts.used_nodes {
            let Some(used) = self.nodes.get_mut(node) else { continue };
            used.users.remove(name);
            add_to_sums(&mut used.requested, &requested.map(i128::wrapping_neg));
            add_to_sums(&mut used.measured, &measured.map(i128::wrapping_neg));
            if used.users.is_empty() {
                self.nodes.remove(node);
            }
        }
        for tag in &facts.tags {
            let Some(tagged_services) = self.tagged.get_mut(tag) else { continue };
            tagged_services.remove(name);
            if tagged_services.is_empty() {
                self.tagged.remove(tag);
            }
        }
    }
}

fn static_and_dynamic_sums(facts: &ServiceFacts) -> (Sums, Sums) {
    (sums(&facts.load(SchedulerMode::Static)), sums(&facts.load(SchedulerMode::Dynamic)))
}

fn get_or_insert_default<'m, K: Ord + Clone, T: Default>(map: &'m mut BTreeMap<K, T>, key: &K) -> &'m mut T {
    if !map.contains_key(key) {
        map.insert(key.clone(), T::default());
    }
    map.get_mut(key).expect("the entry was just inserted")
}

impl Deref for Services {
    type Target = BTreeMap<ResourceName, ServiceFacts>;

    fn deref(&self) -> &Self::Target {
        &self.facts
    }
}

impl Serialize for Services {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.facts.serialize(serializer)
    }
}

impl PartialEq for Services {
    fn eq(&self, other: &Services) -> bool {
        self.facts == other.facts
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts.fmt(f)
    }
}

impl Extend<(ResourceName, ServiceFacts)> for Services {
    fn extend<I: IntoIterator<Item = (ResourceName, ServiceFacts)>>(&mut self, services: I) {
        for (name, facts) in services {
            self.insert(name, facts);
        }
    }
}

impl FromIterator<(ResourceName, ServiceFacts)> for Services {
    fn from_iter<I: IntoIterator<Item = (ResourceName, ServiceFacts)>>(services: I) -> Services {
        Services::from(services.into_iter().collect::<BTreeMap<_, _>>())
    }
}

impl From<BTreeMap<ResourceName, ServiceFacts>> for Services {
    fn from(facts: BTreeMap<ResourceName, ServiceFacts>) -> Services {
        let mut services = Services::default();
        for (name, service) in &facts {
            services.add_to_indexes(name, service);
        }
        services.facts = facts;
        services
    }
}

impl<const N: usize> From<[(ResourceName, ServiceFacts); N]> for Services {
    fn from(services: [(ResourceName, ServiceFacts); N]) -> Services {
        services.into_iter().collect()
    }
}

impl<'a> IntoIterator for &'a Services {
    type Item = (&'a ResourceName, &'a ServiceFacts);
    type IntoIter = std::collections::btree_map::Iter<'a, ResourceName, ServiceFacts>;

    fn into_iter(self) -> Self::IntoIter {
        self.facts.iter()
    }
}

/// A service that is being modified. It is removed from the indexes until the guard is dropped, and its place in the map
/// is kept.
pub struct ServiceGuard<'a> {
    services: &'a mut Services,
    name: ResourceName,
    facts: ServiceFacts,
}

impl Deref for ServiceGuard<'_> {
    type Target = ServiceFacts;

    fn deref(&self) -> &ServiceFacts {
        &self.facts
    }
}

impl DerefMut for ServiceGuard<'_> {
    fn deref_mut(&mut self) -> &mut ServiceFacts {
        &mut self.facts
    }
}

impl Drop for ServiceGuard<'_> {
    fn drop(&mut self) {
        let facts = std::mem::take(&mut self.facts);
        self.services.add_to_indexes(&self.name, &facts);
        if let Some(slot) = self.services.facts.get_mut(&self.name) {
            *slot = facts;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn service((node, tag, cpu): (u8, u8, i128)) -> ServiceFacts {
        let mut facts = ServiceFacts {
            used_nodes: (0..node % 3).map(|index| format!("node{}", (node + index) % 4).into()).collect(),
            tags: BTreeSet::from([format!("t:{tag}")]),
            ..ServiceFacts::default()
        };
        facts.requests.cpu = (cpu > 0).then(|| Quantity::from_milli(cpu));
        facts.measured.cpu = (cpu % 2 == 0).then(|| Quantity::from_milli(cpu / 2));
        facts
    }

    proptest! {
        /// Each change has the number of a service, and its new node, tag and size; `None` removes the service.
        #[test]
        fn service_index_matches_a_full_scan(
            changes in proptest::collection::vec((0u8..5, proptest::option::of((0u8..9, 0u8..3, 0i128..9))), 0..40)
        ) {
            let mut services = Services::default();
            for (name, change) in changes {
                let name = ResourceName::from(format!("s{name}"));
                match change.map(service) {
                    None => drop(services.remove(&name)),
                    Some(facts) if services.contains_key(&name) => {
                        *services.get_mut(&name).expect("there") = facts;
                    }
                    Some(facts) => drop(services.insert(name, facts)),
                }
                let rebuilt = Services::from(services.facts.clone());
                prop_assert_eq!(&services.nodes, &rebuilt.nodes);
                prop_assert_eq!(&services.tagged, &rebuilt.tagged);
            }
            for node in ["node0", "node1", "node2", "node3"] {
                let users: Vec<&ResourceName> = services
                    .iter()
                    .filter(|(_, facts)| facts.used_nodes.contains(node))
                    .map(|(name, _)| name)
                    .collect();
                let node_use = services.node_use(&node.into()).cloned().unwrap_or_default();
                prop_assert_eq!(node_use.users().collect::<Vec<_>>(), users.clone());
                for mode in [SchedulerMode::Static, SchedulerMode::Dynamic] {
                    let cpu: i128 = users.iter().map(|name| sums(&services[*name].load(mode))[0]).sum();
                    prop_assert_eq!(node_use.load(mode)[0], cpu);
                }
            }
        }
    }
}
