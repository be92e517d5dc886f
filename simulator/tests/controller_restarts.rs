//! Up to six clean restarts of controllers around the loss of a node: the services of the node must run again within W
//! plus a bound.
//!
//! `HACTL_RESTART_SEEDS=500 cargo test --release -p ha-simulator --test controller_restarts` runs 500 seeds.

use ha_simulator::random::Random;
use ha_simulator::scenario::Scenario;
use ha_simulator::world::World;
use std::fmt::Write;
use std::path::Path;

/// W of the default profile, rounded up, plus the possible delays: the leader's lease, if the leader's node is lost,
/// and the first read and commit of restarted processes.
const BOUND_MS: u64 = 13_300 + 5_500 + 6_000;

/// Returns a scenario of three controllers and four nodes, with restarts from 10 s before the loss to 15 s after it.
fn scenario(seed: u64) -> String {
    let mut random = Random::new(seed);
    let lost_node = random.draw_between_ms(1, 4);
    let loss_ms = 60_000;
    let mut steps: Vec<(u64, String)> = vec![(loss_ms, format!("power node{lost_node} off"))];
    for _ in 0..random.draw_between_ms(1, 6) {
        let restart_ms = loss_ms - 10_000 + random.draw_between_ms(0, 25_000);
        let surviving_nodes: Vec<u64> = (1..=3).filter(|number| *number != lost_node).collect();
        let chosen = surviving_nodes[random.draw_below(surviving_nodes.len())];
        let target = if random.draw_chance(0.5) { "leader".to_owned() } else { format!("node{chosen}") };
        steps.push((restart_ms, format!("controller {target} restart")));
    }
    steps.sort();
    let last_ms = steps.iter().map(|(restart_ms, _)| *restart_ms).max().unwrap_or(loss_ms);
    let mut text = format!(
        "seed: {seed}\nduration: 30m\nnodes:\n  - {{name: node1}}\n  - {{name: node2}}\n  - {{name: node3}}\n  \
         - {{name: node4, controller: false}}\nobjects:\n  - {{apiVersion: hactl.io/v1, kind: Resource, metadata: \
         {{name: web}}, spec: {{driver: {{simulated: {{type: vm}}}}}}}}\nplace: {{web: {{node: node{lost_node}, running: \
         true}}}}\nsteps:\n"
    );
    for (restart_ms, action) in steps {
        let _ = writeln!(text, "  - at: {restart_ms}ms\n    do: {action}");
    }
    let _ = writeln!(text, "  - at: {}ms\n    check: service web running", last_ms + BOUND_MS);
    text
}

#[test]
fn every_lost_node_is_fenced_in_time() {
    let seeds = std::env::var("HACTL_RESTART_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(25);
    let mut failed = Vec::new();
    for seed in 0..seeds {
        let text = scenario(seed);
        let parsed = Scenario::parse("restarts", &text, Path::new(".")).expect("a valid scenario");
        let mut world = World::new(parsed).expect("a valid world");
        world.run();
        // While no controller is the leader, a restart of the leader is refused, and such a step has no effect.
        let has_failed = !world.has_passed();
        if has_failed {
            failed.push(format!("seed {seed}\n{text}\n{:#}", world.summary()));
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {seeds}:\n{}",
        failed.len(),
        failed.first().cloned().unwrap_or_default()
    );
}
