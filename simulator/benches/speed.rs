//! Measures how many hours of a cluster one core simulates in a minute: `cargo bench -p ha-simulator --bench speed`.

#![allow(clippy::print_stdout, reason = "a program that prints figures")]

use ha_simulator::scenario::Scenario;
use ha_simulator::world::World;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// Returns a scenario of three nodes and six services, in which a machine loses its power and boots again at this interval.
fn scenario(hours: u64, fault_every_minutes: Option<u64>) -> Value {
    let nodes: Vec<Value> = (1..=3).map(|number| json!({"name": format!("node{number}")})).collect();
    let service = |number: u64| {
        json!({
            "apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": format!("r{number}")},
            "spec": {"driver": {"simulated": {"type": "vm"}}},
        })
    };
    let objects: Vec<Value> = (1..=6).map(service).collect();
    let minutes = hours * 60;
    let mut steps = Vec::new();
    let mut fault_minute = fault_every_minutes.unwrap_or(minutes);
    while fault_minute < minutes {
        let node = 1 + fault_minute % 3;
        steps.push(json!({"at": format!("{fault_minute}m"), "do": format!("power node{node} off")}));
        steps.push(json!({"after": "1m", "do": format!("power node{node} on")}));
        fault_minute += fault_every_minutes.unwrap_or(minutes);
    }
    // The last step keeps the run going to its end.
    steps.push(json!({"at": format!("{minutes}m"), "check": "service r1 running"}));
    json!({
        "duration": format!("{}m", minutes + 5), "settle": "1s", "nodes": nodes, "objects": objects, "steps": steps,
    })
}

/// Returns the CPU time of this process in seconds; unlike elapsed time, it does not depend on other load of the machine.
fn core_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

fn main() {
    println!("{:<34} {:>8} {:>9} {:>15}", "3 nodes, 6 services", "hours", "core s", "hours a minute");
    for (label, hours, fault_every_minutes) in
        [("nothing happens", 24, None), ("a node dies every ten minutes", 12, Some(10))]
    {
        let text = scenario(hours, fault_every_minutes).to_string();
        let scenario = Scenario::parse("speed", &text, Path::new(".")).expect("a valid scenario");
        let mut world = World::new(scenario).expect("a valid world");
        let (start, start_core_seconds) = (Instant::now(), core_seconds());
        world.run();
        let seconds = start_core_seconds.zip(core_seconds()).map_or_else(
            || start.elapsed().as_secs_f64(),
            |(start_seconds, end_seconds)| end_seconds - start_seconds,
        );
        assert!(world.has_passed(), "{:?}", world.violations());
        let simulated = world.simulated_ms() as f64 / 3_600_000.0;
        println!("{label:<34} {simulated:>8.1} {seconds:>9.2} {:>15.0}", simulated / seconds * 60.0);
    }
}
