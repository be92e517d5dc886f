//! Random runs: a seeded cluster, seeded faults, the invariants after every event, and progress once the faults stop.
//!
//! A run is an ordinary scenario that was made by chance, so one that fails is printed, shrunk and kept as a file.

mod broken;
mod cluster;
mod edges;
mod faults;
mod feasible;
mod progress;
mod script;
mod seeds;
mod services;
mod shrink;
mod storylines;
mod together;

pub use seeds::{Campaign, Campaigned, FailedSeed, Seeds};
pub use shrink::shrink;

use crate::random::Random;
use crate::scenario::Scenario;
use crate::world::World;
use ha_api_types::time::Millis;
use serde_json::{Value, json};
use std::path::Path;

/// How long everything may take to come right after the last step, in seconds: three times the longest of the protocol's own
/// waits, the deadline of a freeze (600 s).
const BACK_SECONDS: Millis = 1_800;

/// How large a random run is at most; each seed draws its own size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Nodes, at most; no fewer than three unless this is less.
    pub nodes: usize,
    /// Resources, at most; no fewer than three unless this is less.
    pub resources: usize,
    /// How long faults go on, at most. Short times are as likely as long ones: hours and minutes are drawn alike.
    pub faults_ms: Millis,
}

impl Default for Size {
    fn default() -> Size {
        Size { nodes: 5, resources: 20, faults_ms: 4 * 3_600_000 }
    }
}

/// The scenario of a seed, as its file would be.
pub fn scenario_of(seed: u64, size: Size) -> Value {
    // Not the run's own generator: delays may not follow from the cluster's shape.
    let mut random = Random::new(seed ^ 0x5eed_0fac_ade5_0000);
    let cluster = cluster::Cluster::random(&mut random, size);
    let script::Steps { actions: steps, last_ms, broken } =
        script::steps(&mut random, &cluster, size.faults_ms);
    let mut scenario = json!({
        "seed": seed,
        // Faults, and the time in which everything must have come right again.
        "duration": format!("{}s", last_ms / 1000 + BACK_SECONDS),
        "settle": "40s",
        "timing": cluster.timing,
        "nodes": cluster.machines,
        "objects": cluster.objects,
        "later": cluster.later,
        "steps": steps,
        "expect": {"progress": true, "broken": broken},
    });
    if !cluster.store.is_empty() {
        scenario["store"] = json!({"on": cluster.store});
    }
    scenario
}

/// Runs a seed. `World::is_good` says whether the invariants held and everything came right in the end.
///
/// Errors: what is wrong with the scenario, which would be a fault of the generator.
pub fn run_seed(seed: u64, size: Size) -> Result<World, String> {
    run_value(&scenario_of(seed, size))
}

/// Runs a scenario that was made by chance, or what is left of one.
pub fn run_value(scenario: &Value) -> Result<World, String> {
    let text = serde_yaml::to_string(scenario).map_err(|error| error.to_string())?;
    let mut world = World::new(Scenario::parse("a random run", &text, Path::new("."))?)?;
    world.run();
    Ok(world)
}
