//! How long a failover takes, measured over random node deaths and beside the computed W: `cargo bench -p ha-simulator --bench failover`.

#![allow(clippy::print_stdout, reason = "a program that prints figures")]

use ha_api_types::timing::{Profile, Timings, WatchdogBounds, wait_ms};
use ha_simulator::random::Random;
use ha_simulator::scenario::Scenario;
use ha_simulator::world::{Failover, World};
use serde_json::{Value, json};
use std::path::Path;

/// Node deaths of each profile.
const DEATHS: usize = 1_000;
/// Deaths in one run: each node comes back and is well again before the next one dies.
const DEATHS_IN_A_RUN: usize = 20;

/// Three nodes, six services, and machines that lose their power one after the other, at any moment.
fn scenario(profile: &str, random: &mut Random) -> Value {
    let nodes: Vec<Value> = (1..=3).map(|number| json!({"name": format!("node{number}")})).collect();
    let service = |number: u64| {
        let driver = json!({"simulated": {"type": "vm", "startSeconds": 0}});
        json!({
            "apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": format!("r{number}")},
            "spec": {"driver": driver},
        })
    };
    let objects: Vec<Value> = (1..=6).map(service).collect();
    let (mut steps, mut at) = (Vec::new(), 120_000);
    for _ in 0..DEATHS_IN_A_RUN {
        let node = format!("node{}", 1 + random.below(3));
        at += random.between_ms(0, 10_000);
        steps.push(json!({"at": format!("{at}ms"), "do": format!("power {node} off")}));
        at += 120_000;
        steps.push(json!({"at": format!("{at}ms"), "do": format!("power {node} on")}));
        at += 120_000;
    }
    json!({
        "seed": random.number(), "duration": "24h", "settle": "10s", "timing": {"profile": profile},
        "nodes": nodes, "objects": objects, "steps": steps,
    })
}

/// Failovers of one run after the other until there were enough deaths.
fn measure(profile: &str) -> Vec<Failover> {
    let mut random = Random::new(1);
    let mut failovers = Vec::new();
    for _ in 0..DEATHS.div_ceil(DEATHS_IN_A_RUN) {
        let text = scenario(profile, &mut random).to_string();
        let scenario = Scenario::parse("failover", &text, Path::new(".")).expect("a valid scenario");
        let mut world = World::new(scenario).expect("a valid world");
        world.run();
        assert!(world.is_good(), "{:?}", world.violations());
        failovers.extend_from_slice(world.failovers());
    }
    failovers
}

/// Median and worst, seconds.
fn spread(mut times_ms: Vec<u64>) -> (f64, f64) {
    times_ms.sort_unstable();
    let seconds = |ms: Option<&u64>| ms.map_or(f64::NAN, |ms| *ms as f64 / 1000.0);
    (seconds(times_ms.get(times_ms.len() / 2)), seconds(times_ms.last()))
}

fn main() {
    println!("{DEATHS} deaths of a node, seconds since its last heartbeat was applied");
    println!(
        "{:<13} {:>9} {:>6} {:>16} {:>16}",
        "profile", "failovers", "W", "permit elsewhere", "runs elsewhere"
    );
    println!("{:<13} {:>9} {:>6} {:>8}{:>8} {:>8}{:>8}", "", "", "", "median", "worst", "median", "worst");
    for (name, profile) in
        [("Fast", Profile::Fast), ("Default", Profile::Default), ("Conservative", Profile::Conservative)]
    {
        let timings = Timings::of_profile(profile);
        let bounds = WatchdogBounds {
            timeout_ms: timings.watchdog_timeout_ms,
            sliding: true,
            descriptor_retained: true,
        };
        let wait = wait_ms(&timings, &bounds) as f64 / 1000.0;
        let failovers = measure(name);
        let since = |at: fn(&Failover) -> u64| {
            spread(
                failovers.iter().map(|failover| at(failover).saturating_sub(failover.heartbeat_at)).collect(),
            )
        };
        let (permit, worst_permit) = since(|failover| failover.permitted_at);
        let (runs, worst_runs) = since(|failover| failover.running_at);
        println!(
            "{name:<13} {:>9} {wait:>6.1} {permit:>8.2}{worst_permit:>8.2} {runs:>8.2}{worst_runs:>8.2}",
            failovers.len()
        );
    }
}
