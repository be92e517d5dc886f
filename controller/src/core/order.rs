//! Start and stop order between services (`spec.dependsOn`), as one graph.

use ha_api_types::id::ResourceName;
use ha_api_types::names;
use ha_api_types::resource::Resource;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

/// Graph of dependencies. Names without a resource are kept, because services wait for them too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    before: BTreeMap<ResourceName, BTreeSet<ResourceName>>,
    following: BTreeMap<ResourceName, BTreeSet<ResourceName>>,
    /// Priorities that are raised because a dependent service has a higher one, by service.
    raised: BTreeMap<ResourceName, i32>,
}

impl Order {
    /// Returns the order that these resources, by name, declare.
    pub fn of<'a>(resources: impl Iterator<Item = (&'a ResourceName, &'a Resource)> + Clone) -> Order {
        let mut order = Order::default();
        for (name, resource) in resources.clone() {
            for first in resource.spec.depends_on.iter().map(|first| ResourceName::from(names::bare(first))) {
                order.before.entry(name.clone()).or_default().insert(first.clone());
                order.following.entry(first).or_default().insert(name.clone());
            }
        }
        if !order.before.is_empty() {
            let own: BTreeMap<&ResourceName, i32> =
                resources.map(|(name, resource)| (name, resource.spec.priority)).collect();
            order.raise(&own);
        }
        order
    }

    /// Raises the priority of each service to that of its dependents. Priorities only rise, so the loop also ends in
    /// a dependency cycle.
    fn raise(&mut self, own: &BTreeMap<&ResourceName, i32>) {
        let mut queue: VecDeque<&ResourceName> = self.before.keys().collect();
        let mut raised: BTreeMap<&ResourceName, i32> = BTreeMap::new();
        while let Some(name) = queue.pop_front() {
            let Some(priority) = raised.get(name).or_else(|| own.get(name)).copied() else { continue };
            for first in self.before(name) {
                let known = raised.get(first).or_else(|| own.get(first)).copied();
                if known.is_some_and(|known| known < priority) {
                    raised.insert(first, priority);
                    queue.push_back(first);
                }
            }
        }
        self.raised = raised.into_iter().map(|(name, priority)| (name.clone(), priority)).collect();
    }

    /// Returns the dependencies of a service: they start before it and stop after it.
    pub fn before(&self, name: &ResourceName) -> impl Iterator<Item = &ResourceName> {
        self.before.get(name).into_iter().flatten()
    }

    /// Returns the dependents of a service: they start after it and stop before it.
    pub fn following(&self, name: &ResourceName) -> impl Iterator<Item = &ResourceName> {
        self.following.get(name).into_iter().flatten()
    }

    /// Returns the priority of a service: the highest of its own and those of its dependents.
    pub fn priority(&self, name: &ResourceName, own: i32) -> i32 {
        self.raised.get(name).copied().unwrap_or(own)
    }

    /// Returns the shortest dependency cycle through a service, in start order, from the service back to itself.
    /// `None` if there is no cycle.
    pub fn circle(&self, name: &ResourceName) -> Option<Vec<ResourceName>> {
        let mut came_from: BTreeMap<&ResourceName, &ResourceName> = BTreeMap::new();
        let mut queue = VecDeque::from([name]);
        while let Some(current) = queue.pop_front() {
            for first in self.before(current) {
                if first == name {
                    let mut way = vec![name.clone()];
                    let mut back = current;
                    while back != name {
                        way.push(back.clone());
                        back = came_from.get(back).copied().unwrap_or(name);
                    }
                    way.push(name.clone());
                    return Some(way);
                }
                if let std::collections::btree_map::Entry::Vacant(entry) = came_from.entry(first) {
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
        let ranked = services.map(|(name, own, size)| ((self.priority(name, own), size), name));
        if self.before.is_empty() {
            let mut ranked: Vec<_> = ranked.map(|(rank, name)| (Reverse(rank), name)).collect();
            ranked.sort_unstable();
            return ranked.into_iter().map(|(_, name)| name).collect();
        }
        let ranks: BTreeMap<&'a ResourceName, (i32, u64)> = ranked.map(|(rank, name)| (name, rank)).collect();
        let mut missing: BTreeMap<&'a ResourceName, usize> = BTreeMap::new();
        let mut ready: BinaryHeap<((i32, u64), Reverse<&'a ResourceName>)> = BinaryHeap::new();
        for (name, rank) in &ranks {
            let waits_for = self.before(name).filter(|first| ranks.contains_key(first)).count();
            if waits_for == 0 {
                ready.push((*rank, Reverse(name)));
            } else {
                missing.insert(name, waits_for);
            }
        }
        let mut sequence = Vec::with_capacity(ranks.len());
        loop {
            while let Some((_, Reverse(name))) = ready.pop() {
                sequence.push(name);
                for next in self.following(name) {
                    let Some((next, rank)) = ranks.get_key_value(next) else { continue };
                    if let Some(count) = missing.get_mut(next) {
                        *count -= 1;
                        if *count == 0 {
                            missing.remove(next);
                            ready.push((*rank, Reverse(next)));
                        }
                    }
                }
            }
            // The remaining services are in a cycle, or depend on one.
            let next = missing.keys().find(|name| self.circle(name).is_some());
            let Some(next) = next.or_else(|| missing.keys().next()).copied() else { return sequence };
            missing.remove(next);
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
        let order = Order::of(resources.iter());
        // A name in upper case is a large service.
        let services = resources.iter().map(|(name, resource)| {
            (name, resource.spec.priority, u64::from(name.starts_with(char::is_uppercase)))
        });
        let sequence: Vec<&str> = order.sequence(services).into_iter().map(ResourceName::as_str).collect();
        assert_eq!(sequence.join(" "), expected, "{text}");
    }

    fn check_circle(text: &str, name: &str, expected: Option<&str>) {
        let resources = resources(text);
        let circle = Order::of(resources.iter()).circle(&name.into()).map(|names| names.join(" "));
        assert_eq!(circle.as_deref(), expected, "{text}");
    }

    #[test]
    fn each_is_planned_after_those_that_it_comes_after() {
        check_sequence("a b c=5", "c a b");
        check_sequence("a>b b>c c", "c b a");
        check_sequence("a>missing b", "a b");
        check_sequence("web>exec:fs fs", "fs web");
    }

    #[test]
    fn of_equal_priority_the_largest_is_planned_first() {
        check_sequence("a B c=5", "c B a");
        check_sequence("a>b b C", "C b a");
        check_sequence("A>b b C=0", "C b A");
    }

    #[test]
    fn who_is_waited_for_is_as_important_as_who_waits() {
        check_sequence("address other=3 web>address=5", "address web other");
        check_sequence("address=9 other=3 web>address=1", "address other web");
        let resources = resources("a b>a c>b=7");
        let order = Order::of(resources.iter());
        assert_eq!(
            (order.priority(&"a".into(), 0), order.priority(&"b".into(), 0), order.priority(&"c".into(), 7)),
            (7, 7, 7)
        );
    }

    #[test]
    fn a_circle_is_found_and_yet_everybody_is_planned() {
        check_circle("a>b b>c c", "a", None);
        check_circle("a>b b>a", "a", Some("a b a"));
        check_circle("a>b b>c c>a", "b", Some("b a c b"));
        check_circle("a>b b>c c>b", "a", None);
        check_sequence("a>b b>c c>b d", "d b a c");
    }
}
