//! How long the reservation check takes: `cargo bench -p ha-scheduler --bench reservation`.

#![allow(clippy::print_stdout, reason = "a program that prints figures")]

use ha_api_types::driver::DriverKind;
use ha_scheduler::reservation::{EFFORT, Model, Verdict, Watch};
use ha_scheduler::{NodeFacts, ServiceFacts, View, place};
use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Instant;

/// A seeded sequence of numbers (Knuth's multiplier).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Nodes of 512Gi with so many services each of 1 to 4Gi, spread evenly; `memory` is what each node has.
fn cluster(nodes: u64, services: u64, memory: &str) -> View {
    let mut numbers = Numbers(1);
    let mut view = View::default();
    let name = |at: u64| format!("node{at:04}");
    for at in 0..nodes {
        let mut node = NodeFacts::default();
        node.capacity.memory = memory.parse().ok();
        node.capacity.cpu = "128".parse().ok();
        view.nodes.insert(name(at), node);
    }
    for at in 0..services {
        let node = name(at % nodes);
        let mut service = ServiceFacts {
            node: Some(node.clone()),
            uses: BTreeSet::from([node]),
            driver: Some(DriverKind::Exec),
            wanted: true,
            movable: true,
            exclusive: true,
            priority: i32::try_from(numbers.below(3)).unwrap_or(0),
            ..ServiceFacts::default()
        };
        service.requests.memory = format!("{}Gi", 1 + numbers.below(4)).parse().ok();
        service.requests.cpu = "1".parse().ok();
        if numbers.below(10) == 0 {
            let other = name(numbers.below(nodes));
            service.storage_nodes =
                service.node.iter().cloned().chain([other]).collect::<BTreeSet<_>>().into();
        }
        view.services.insert(format!("s{at:06}"), service);
    }
    view
}

fn timed<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = black_box(run());
    println!("  {what:<56} {:>12.3} ms", begun.elapsed().as_secs_f64() * 1e3);
    result
}

fn counts(watch: &Watch) -> String {
    let mut counts = [0; 3];
    for (_, verdict) in watch.verdicts() {
        counts[match verdict {
            Verdict::Survives(_) => 0,
            Verdict::Fails(_) => 1,
            Verdict::Unknown(_) => 2,
        }] += 1;
    }
    format!("{} survive, {} fail, {} unknown", counts[0], counts[1], counts[2])
}

fn measure(nodes: u64, services: u64, memory: &str) {
    println!("{nodes} nodes of {memory}, {services} services");
    let view = cluster(nodes, services, memory);
    let mut watch = timed("taking the cluster in", || Watch::new(view.clone()));
    timed("every node judged", || watch.work(u64::MAX));
    println!("  {}", counts(&watch));
    let mut changed = view.services["s000000"].clone();
    changed.requests.memory = "6Gi".parse().ok();
    timed("after one service has grown", || {
        watch.service_changed("s000000", Some(changed.clone()));
        watch.work(u64::MAX)
    });
    let mut later = view.clone();
    later.services.insert("s000000".to_owned(), changed);
    let mut moved = later.services["s000001"].clone();
    (moved.node, moved.uses) = (Some("node0007".to_owned()), BTreeSet::from(["node0007".to_owned()]));
    later.services.insert("s000001".to_owned(), moved);
    timed("the same from a whole view, one service moved", || {
        watch.update(later.clone());
        watch.work(u64::MAX)
    });
    if let Some(node) = later.nodes.get_mut("node0003") {
        node.maintenance = true;
    }
    timed("after a node went into maintenance", || {
        watch.update(later.clone());
        watch.work(u64::MAX)
    });
    let model = Model::new(&view);
    let failure = BTreeSet::from(["node0002".to_owned()]);
    timed("places for the services of one failed node", || model.check(&failure, EFFORT));
    let mut view = view;
    let mut wanted = view.services["s000002"].clone();
    wanted.uses.clear();
    view.services.insert("s000002".to_owned(), wanted.clone());
    timed("one service placed by the leader", || place(&view, "s000002", &wanted));
}

fn main() {
    measure(40, 200, "24Gi");
    measure(1_000, 10_000, "64Gi");
    measure(1_000, 100_000, "512Gi");
    // So full that nothing more goes in: proofs of failure instead of placements.
    measure(1_000, 100_000, "256Gi");
}
