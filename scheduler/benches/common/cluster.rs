//! Large clusters for benchmarks, in the form of the leader's view.

use ha_api_types::id::NodeName;
use ha_scheduler::{NodeFacts, ServiceFacts, View};
use std::collections::BTreeSet;

/// A seeded sequence of numbers (Knuth's multiplier).
struct Numbers(u64);

impl Numbers {
    fn draw_below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Returns a cluster with this memory per node, and services of 1 to 4 GiB that are spread evenly over the nodes.
pub(crate) fn cluster(nodes: u64, services: u64, memory: &str) -> View {
    let mut numbers = Numbers(1);
    let mut view = View::default();
    let name = |index: u64| NodeName::from(format!("node{index:04}"));
    for index in 0..nodes {
        let mut node = NodeFacts::default();
        node.capacity.memory = memory.parse().ok();
        node.capacity.cpu = "128".parse().ok();
        view.nodes.insert(name(index), node);
    }
    for index in 0..services {
        let node = name(index % nodes);
        let mut service = ServiceFacts {
            node: Some(node.clone()),
            used_nodes: BTreeSet::from([node]),
            driver: Some("exec".to_owned()),
            is_desired: true,
            movable: true,
            exclusive: true,
            priority: i32::try_from(numbers.draw_below(3)).unwrap_or(0),
            ..ServiceFacts::default()
        };
        service.requests.memory = format!("{}Gi", 1 + numbers.draw_below(4)).parse().ok();
        service.requests.cpu = "1".parse().ok();
        if numbers.draw_below(10) == 0 {
            let other = name(numbers.draw_below(nodes));
            service.storage_nodes =
                service.node.iter().cloned().chain([other]).collect::<BTreeSet<_>>().into();
        }
        view.services.insert(format!("s{index:06}").into(), service);
    }
    view
}
