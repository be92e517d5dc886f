//! Random runs: a seeded cluster with seeded faults. Invariants are checked after every event, progress after the last fault.
//!
//! A random run is an ordinary scenario, so a failing run can be printed, shrunk and kept as a file.

mod affinity_sets;
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

pub use seeds::{Campaign, CampaignResult, FailedSeed, SeedRange};
pub use shrink::shrink;

use crate::random::Random;
use crate::scenario::Scenario;
use crate::world::World;
use ha_api_types::time::Millis;
use serde_json::{Value, json};
use std::path::Path;

/// Seconds after the last step within which the cluster must recover: three times the longest wait of the protocol, the
/// freeze deadline (600 s).
const RECOVERY_SECONDS: Millis = 1_800;

/// Upper bounds for the size of a random run; each seed draws its own size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Largest number of nodes; at least three are drawn, unless this number is smaller.
    pub nodes: usize,
    /// Largest number of resources; at least three are drawn, unless this number is smaller.
    pub resources: usize,
    /// Longest time during which faults happen, in milliseconds. Most seeds draw minutes, and few draw hours.
    pub faults_ms: Millis,
}

impl Default for Size {
    fn default() -> Size {
        Size { nodes: 5, resources: 20, faults_ms: 4 * 3_600_000 }
    }
}

/// Generates the scenario of a seed, as the content of a scenario file.
pub fn generate_scenario(seed: u64, size: Size) -> Value {
    // This generator is separate from the generator of the run, so the shape of the cluster does not influence the
    // delays in the run.
    let mut random = Random::new(seed ^ 0x5eed_0fac_ade5_0000);
    let cluster = cluster::Cluster::random(&mut random, size);
    let script::Steps { actions: steps, last_ms, broken } =
        script::generate_steps(&mut random, &cluster, size.faults_ms);
    let mut scenario = json!({
        "seed": seed,
        // The faults, then the time in which the cluster must recover.
        "duration": format!("{}s", last_ms / 1000 + RECOVERY_SECONDS),
        "settle": "40s",
        "timing": cluster.timing,
        "nodes": cluster.machines,
        "objects": cluster.objects,
        "later": cluster.later_objects,
        "steps": steps,
        "expect": {"progress": true, "broken": broken},
    });
    if !cluster.store_members.is_empty() {
        scenario["store"] = json!({"on": cluster.store_members});
    }
    scenario
}

/// Runs a seed. `World::has_passed` returns whether the invariants held and the cluster recovered.
///
/// Errors: the generated scenario is invalid, which is a defect of the generator.
pub fn run_seed(seed: u64, size: Size) -> Result<World, String> {
    run_scenario_value(&generate_scenario(seed, size))
}

/// Runs a generated scenario, or the rest of one after shrinking.
///
/// Errors: the scenario is invalid.
pub fn run_scenario_value(scenario: &Value) -> Result<World, String> {
    let text = serde_yaml::to_string(scenario).map_err(|error| error.to_string())?;
    let mut world = World::new(Scenario::parse("a random run", &text, Path::new("."))?)?;
    world.run();
    Ok(world)
}
