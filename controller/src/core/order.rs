//! Start and stop order between services (`spec.dependsOn`), as one graph.

use ha_api_types::id::ResourceName;
use ha_api_types::names;
use ha_api_types::resource::Resource;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

/// Graph of dependencies. Names without a resource are kept, because services also wait for such names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DependencyGraph {
    dependencies: BTreeMap<ResourceName, BTreeSet<ResourceName>>,
    dependents: BTreeMap<ResourceName, BTreeSet<ResourceName>>,
    /// Priorities that are raised because a dependent service has a higher one, by service.
    raised_priorities: BTreeMap<ResourceName, i32>,
}

impl DependencyGraph {
    /// Returns the order that these resources, by name, declare.
    pub fn of<'a>(
        resources: impl Iterator<Item = (&'a ResourceName, &'a Resource)> + Clone,
    ) -> DependencyGraph {
        let mut order = DependencyGraph::default();
        for (name, resource) in resources.clone() {
            for first in
                resource.spec.depends_on.iter().map(|first| ResourceName::from(names::without_type(first)))
            {
                order.dependencies.entry(name.clone()).or_default().insert(first.clone());
                order.dependents.entry(first).or_default().insert(name.clone());
            }
        }
        if !order.dependencies.is_empty() {
            let own_priorities: BTreeMap<&ResourceName, i32> =
                resources.map(|(name, resource)| (name, resource.spec.priority)).collect();
            order.raise_priorities(&own_priorities);
        }
        order
    }

    /// Raises the priority of each service to that of its dependents. Priorities only rise, so the loop terminates even
    /// if the dependencies form a cycle.
    fn raise_priorities(&mut self, own_priorities: &BTreeMap<&ResourceName, i32>) {
        let mut queue: VecDeque<&ResourceName> = self.dependencies.keys().collect();
        let mut raised: BTreeMap<&ResourceName, i32> = BTreeMap::new();
        while let Some(name) = queue.pop_front() {
            let Some(priority) = raised.get(name).or_else(|| own_priorities.get(name)).copied() else {
                continue;
            };
            for first in self.dependencies(name) {
                let current_priority = raised.get(first).or_else(|| own_priorities.get(first)).copied();
                if current_priority.is_some_and(|current_priority| current_priority < priority) {
                    raised.insert(first, priority);
                    queue.push_back(first);
                }
            }
        }
        self.raised_priorities =
            raised.into_iter().map(|(name, priority)| (name.clone(), priority)).collect();
    }

    /// Returns the dependencies of a service: they start before it and stop after it.
    pub fn dependencies(&self, name: &ResourceName) -> impl Iterator<Item = &ResourceName> {
        self.dependencies.get(name).into_iter().flatten()
    }

    /// Returns the dependents of a service: they start after it and stop before it.
    pub fn dependents(&self, name: &ResourceName) -> impl Iterator<Item = &ResourceName> {
        self.dependents.get(name).into_iter().flatten()
    }

    /// Returns the dependents of a service, their dependents, and so on.
    pub fn all_dependents(&self, name: &ResourceName) -> BTreeSet<&ResourceName> {
        let mut dependents = BTreeSet::new();
        let mut pending: Vec<&ResourceName> = self.dependents(name).collect();
        while let Some(dependent) = pending.pop() {
            if dependents.insert(dependent) {
                pending.extend(self.dependents(dependent));
            }
        }
        dependents
    }

    /// Returns the effective priority of a service: the highest priority among the service and its dependents.
    pub fn priority(&self, name: &ResourceName, own_priority: i32) -> i32 {
        self.raised_priorities.get(name).copied().unwrap_or(own_priority)
    }

    /// Returns the shortest dependency cycle through a service, in start order, from the service back to itself.
    /// `None` if there is no cycle.
    pub fn dependency_cycle(&self, name: &ResourceName) -> Option<Vec<ResourceName>> {
        let mut source_node: BTreeMap<&ResourceName, &ResourceName> = BTreeMap::new();
        let mut queue = VecDeque::from([name]);
        while let Some(current) = queue.pop_front() {
            for first in self.dependencies(current) {
                if first == name {
                    let mut path = vec![name.clone()];
                    let mut step = current;
                    while step != name {
                        path.push(step.clone());
                        step = source_node.get(step).copied().unwrap_or(name);
                    }
                    path.push(name.clone());
                    return Some(path);
                }
                if let std::collections::btree_map::Entry::Vacant(entry) = source_node.entry(first) {
                    entry.insert(current);
                    queue.push_back(first);
                }
            }
        }
        None
    }

    /// Returns the sequence in which services, each with its own priority and its size, are planned: each after its
    /// dependencies, otherwise by priority, then the largest first, then by name. Dependencies within a cycle are
    /// ignored.
    pub fn sequence<'a>(
        &self,
        services: impl Iterator<Item = (&'a ResourceName, i32, u64)>,
    ) -> Vec<&'a ResourceName> {
        let ranked =
            services.map(|(name, own_priority, size)| ((self.priority(name, own_priority), size), name));
        if self.dependencies.is_empty() {
            let mut ranked: Vec<_> = ranked.map(|(rank, name)| (Reverse(rank), name)).collect();
            ranked.sort_unstable();
            return ranked.into_iter().map(|(_, name)| name).collect();
        }
        let ranks: BTreeMap<&'a ResourceName, (i32, u64)> = ranked.map(|(rank, name)| (name, rank)).collect();
        let mut open_dependencies: BTreeMap<&'a ResourceName, usize> = BTreeMap::new();
        let mut ready: BinaryHeap<((i32, u64), Reverse<&'a ResourceName>)> = BinaryHeap::new();
        for (name, rank) in &ranks {
            let dependency_count = self.dependencies(name).filter(|first| ranks.contains_key(first)).count();
            if dependency_count == 0 {
                ready.push((*rank, Reverse(name)));
            } else {
                open_dependencies.insert(name, dependency_count);
            }
        }
        let mut sequence = Vec::with_capacity(ranks.len());
        loop {
            while let Some((_, Reverse(name))) = ready.pop() {
                sequence.push(name);
                for next in self.dependents(name) {
                    let Some((next, rank)) = ranks.get_key_value(next) else { continue };
                    if let Some(count) = open_dependencies.get_mut(next) {
                        *count -= 1;
                        if *count == 0 {
                            open_dependencies.remove(next);
                            ready.push((*rank, Reverse(next)));
                        }
                    }
                }
            }
            // The remaining services are in a cycle, or depend on one.
            let next = open_dependencies.keys().find(|name| self.dependency_cycle(name).is_some());
            let Some(next) = next.or_else(|| open_dependencies.keys().next()).copied() else {
                return sequence;
            };
            open_dependencies.remove(next);
            ready.push((ranks.get(next).copied().unwrap_or_default(), Reverse(next)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `web>fs,address=5`: web, with priority 5, depends on fs and address.
    fn resources(text: &str) -> BTreeMap<ResourceName, Resource> {
        text.split(' ')
            .map(|word| {
                let (word, priority) = word.split_once('=').unwrap_or((word, "0"));
                let (name, after) = word.split_once('>').unwrap_or((word, ""));
                let mut resource = Resource::default();
                resource.metadata.name = name.to_owned();
                resource.spec.priority = priority.parse().unwrap();
                resource.spec.depends_on =
                    after.split(',').filter(|first| !first.is_empty()).map(str::to_owned).collect();
                (name.into(), resource)
            })
            .collect()
    }

    fn check_sequence(text: &str, expected: &str) {
        let resources = resources(text);
        let order = DependencyGraph::of(resources.iter());
        // A name in upper case is a large service.
        let services = resources.iter().map(|(name, resource)| {
            (name, resource.spec.priority, u64::from(name.starts_with(char::is_uppercase)))
        });
        let sequence: Vec<&str> = order.sequence(services).into_iter().map(ResourceName::as_str).collect();
        assert_eq!(sequence.join(" "), expected, "{text}");
    }

    fn check_dependency_cycle(text: &str, name: &str, expected: Option<&str>) {
        let resources = resources(text);
        let dependency_cycle =
            DependencyGraph::of(resources.iter()).dependency_cycle(&name.into()).map(|names| names.join(" "));
        assert_eq!(dependency_cycle.as_deref(), expected, "{text}");
    }

    #[test]
    fn services_are_planned_after_their_dependencies() {
        check_sequence("a b c=5", "c a b");
        check_sequence("a>b b>c c", "c b a");
        check_sequence("a>missing b", "a b");
        check_sequence("web>exec:fs fs", "fs web");
    }

    #[test]
    fn equal_priority_plans_the_largest_first() {
        check_sequence("a B c=5", "c B a");
        check_sequence("a>b b C", "C b a");
        check_sequence("A>b b C=0", "C b A");
    }

    #[test]
    fn dependencies_inherit_the_priority_of_their_dependents() {
        check_sequence("address other=3 web>address=5", "address web other");
        check_sequence("address=9 other=3 web>address=1", "address other web");
        let resources = resources("a b>a c>b=7");
        let order = DependencyGraph::of(resources.iter());
        assert_eq!(
            (order.priority(&"a".into(), 0), order.priority(&"b".into(), 0), order.priority(&"c".into(), 7)),
            (7, 7, 7)
        );
    }

    #[test]
    fn a_dependency_cycle_is_found_and_all_services_are_planned() {
        check_dependency_cycle("a>b b>c c", "a", None);
        check_dependency_cycle("a>b b>a", "a", Some("a b a"));
        check_dependency_cycle("a>b b>c c>a", "b", Some("b a c b"));
        check_dependency_cycle("a>b b>c c>b", "a", None);
        check_sequence("a>b b>c c>b d", "d b a c");
    }
}
