//! Duration of placements in a large cluster: `cargo bench -p ha-scheduler --bench place`.

#![allow(clippy::print_stdout, reason = "a program that prints figures")]

#[path = "common/cluster.rs"]
mod cluster;

use cluster::cluster;
use ha_api_types::cluster::SchedulerMode;
use ha_api_types::id::ResourceName;
use ha_scheduler::place::choose;
use ha_scheduler::{ServiceFacts, View, place};
use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Instant;

/// Number of repetitions of short operations.
const REPETITIONS: u32 = 1000;

/// Returns the median duration of an operation in microseconds.
fn micros<T>(mut run: impl FnMut() -> T) -> f64 {
    let mut times: Vec<f64> = (0..REPETITIONS)
        .map(|_| {
            let begin = Instant::now();
            black_box(run());
            begin.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Places all services of a failed node one at a time. Each placed service reduces the capacity for the following
/// services. Returns the number of placed services.
fn recover(view: &mut View, node: &str) -> usize {
    if let Some(facts) = view.nodes.get_mut(node) {
        facts.online = Err(ha_api_types::reason::Reason::Fencing);
    }
    let services_to_move: Vec<ResourceName> =
        view.users_of(&node.into()).map(|(name, _)| name.clone()).collect();
    let mut placed = 0;
    for name in services_to_move {
        let mut facts: ServiceFacts = view.services[&name].clone();
        (facts.used_nodes, facts.node) = (BTreeSet::new(), None);
        let Some(to) = choose(view, &name, &facts).0.cloned() else { continue };
        (facts.used_nodes, facts.node) = (BTreeSet::from([to.clone()]), Some(to));
        view.services.insert(name, facts);
        placed += 1;
    }
    placed
}

fn main() {
    println!(
        "{:>6} {:>8} {:8} | one chosen | with verdicts | services of a failed node",
        "nodes", "services", "mode"
    );
    for (nodes, services) in [(40, 200), (1_000, 10_000), (1_000, 100_000)] {
        let mut view = cluster(nodes, services, "512Gi");
        for mode in [SchedulerMode::Basic, SchedulerMode::Static, SchedulerMode::Dynamic] {
            view.settings.mode = mode;
            let mut service = view.services["s000002"].clone();
            service.used_nodes.clear();
            let choose_us = micros(|| choose(&view, &"s000002".into(), &service).0.is_some());
            let place_us = micros(|| place(&view, &"s000002".into(), &service));
            let mut view_after_failure = view.clone();
            let begin = Instant::now();
            let placed = recover(&mut view_after_failure, "node0003");
            let recovery_ms = begin.elapsed().as_secs_f64() * 1e3;
            println!(
                "{nodes:>6} {services:>8} {mode:8?} | {choose_us:7.1} us | {place_us:10.1} us | {placed} in {recovery_ms:.2} ms"
            );
        }
    }
}
