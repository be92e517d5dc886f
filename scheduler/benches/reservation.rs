//! Duration of the failover capacity (N+1) check: `cargo bench -p ha-scheduler --bench reservation`.

#![allow(clippy::print_stdout, reason = "a program that prints figures")]

#[path = "common/cluster.rs"]
mod cluster;

use cluster::cluster;
use ha_scheduler::place;
use ha_scheduler::reservation::{MAX_SEARCH_STEPS, Model, Verdict, VerdictCache};
use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Instant;

fn timed<T>(description: &str, run: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = black_box(run());
    println!("  {description:<56} {:>12.3} ms", begun.elapsed().as_secs_f64() * 1e3);
    result
}

fn counts(watch: &VerdictCache) -> String {
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
    let mut watch = timed("taking the cluster in", || VerdictCache::new(view.clone()));
    timed("every node judged", || watch.compute_missing(u64::MAX));
    println!("  {}", counts(&watch));
    let mut changed = view.services["s000000"].clone();
    changed.requests.memory = "6Gi".parse().ok();
    timed("after one service has grown", || {
        watch.on_service_changed(&"s000000".into(), Some(changed.clone()));
        watch.compute_missing(u64::MAX)
    });
    let mut later = view.clone();
    later.services.insert("s000000".into(), changed);
    let mut moved = later.services["s000001"].clone();
    (moved.node, moved.used_nodes) = (Some("node0007".into()), BTreeSet::from(["node0007".into()]));
    later.services.insert("s000001".into(), moved);
    timed("the same from a whole view, one service moved", || {
        watch.update(later.clone());
        watch.compute_missing(u64::MAX)
    });
    if let Some(node) = later.nodes.get_mut("node0003") {
        node.maintenance = true;
    }
    timed("after a node went into maintenance", || {
        watch.update(later.clone());
        watch.compute_missing(u64::MAX)
    });
    let model = Model::new(&view);
    let failure = BTreeSet::from(["node0002".into()]);
    timed("places for the services of one failed node", || model.check(&failure, MAX_SEARCH_STEPS));
    let mut view = view;
    let mut service = view.services["s000002"].clone();
    service.used_nodes.clear();
    view.services.insert("s000002".into(), service.clone());
    timed("one service placed by the leader", || place(&view, &"s000002".into(), &service));
}

fn main() {
    measure(40, 200, "24Gi");
    measure(1_000, 10_000, "64Gi");
    measure(1_000, 100_000, "512Gi");
    // This cluster has so little free capacity that the results are proofs of failure, not placements.
    measure(1_000, 100_000, "256Gi");
}
