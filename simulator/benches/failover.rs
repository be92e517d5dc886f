//! Measures failover times over random losses of nodes, for comparison with W: `cargo bench -p ha-simulator --bench failover`.

#![allow(clippy::print_stdout, reason = "a program that prints figures")]

use ha_api_types::timing::{
    Profile, StoreTimes, Timings, UNANSWERED_REQUEST_MS, WatchdogBounds, failover_bound_ms, fencing_delay_ms,
};
use ha_simulator::random::Random;
use ha_simulator::scenario::Scenario;
use ha_simulator::world::{Failover, World};
use serde_json::{Value, json};
use std::path::Path;

/// Number of lost nodes for each profile.
const NODE_DEATHS: usize = 1_000;
/// Number of lost nodes in one run: each node has recovered before the next one is lost.
const NODE_DEATHS_PER_RUN: usize = 20;
/// Times of the simulated etcd without delays: a commit takes up to 4 ms, and a process sees a change after up to 6 ms.
const STORE_TIMES: StoreTimes = StoreTimes { commit_ms: 10, expiry_ms: 0, unanswered_ms: 0 };
/// Time from the timeout of a request until its sender has read etcd again and decided again, in milliseconds.
const READ_RETRY_MS: u64 = 100;

/// Returns a scenario of three nodes and six services, in which machines lose their power one at a time at random moments.
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
    let (mut steps, mut step_ms) = (Vec::new(), 120_000);
    for _ in 0..NODE_DEATHS_PER_RUN {
        let node = format!("node{}", 1 + random.draw_below(3));
        step_ms += random.draw_between_ms(0, 10_000);
        steps.push(json!({"at": format!("{step_ms}ms"), "do": format!("power {node} off")}));
        step_ms += 120_000;
        steps.push(json!({"at": format!("{step_ms}ms"), "do": format!("power {node} on")}));
        step_ms += 120_000;
    }
    json!({
        "seed": random.number(), "duration": "24h", "settle": "10s", "timing": {"profile": profile},
        "nodes": nodes, "objects": objects, "steps": steps,
    })
}

/// Returns the failovers of enough runs for `NODE_DEATHS` lost nodes.
fn measure(profile: &str) -> Vec<Failover> {
    let mut random = Random::new(1);
    let mut failovers = Vec::new();
    for _ in 0..NODE_DEATHS.div_ceil(NODE_DEATHS_PER_RUN) {
        let text = scenario(profile, &mut random).to_string();
        let scenario = Scenario::parse("failover", &text, Path::new(".")).expect("a valid scenario");
        let mut world = World::new(scenario).expect("a valid world");
        world.run();
        assert!(world.has_passed(), "{:?}", world.violations());
        failovers.extend_from_slice(world.failovers());
    }
    failovers
}

/// Returns the median and the maximum of these times, in seconds.
fn median_and_worst(mut times_ms: Vec<u64>) -> (f64, f64) {
    times_ms.sort_unstable();
    let time = |ms: Option<&u64>| ms.map_or(f64::NAN, |ms| seconds(*ms));
    (time(times_ms.get(times_ms.len() / 2)), time(times_ms.last()))
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// Prints one line: the failovers from nodes with the leader or without it, compared with the computed bound.
fn print_line(name: &str, profile: Profile, failovers: &[Failover], from_leader: bool) {
    let timings = Timings::of_profile(profile);
    let watchdog =
        WatchdogBounds { timeout_ms: timings.watchdog_timeout_ms, sliding: true, descriptor_retained: true };
    let bound_ms = failover_bound_ms(&timings, &watchdog, &STORE_TIMES, from_leader);
    let one_lost_times = StoreTimes { unanswered_ms: UNANSWERED_REQUEST_MS + READ_RETRY_MS, ..STORE_TIMES };
    let one_lost_ms = failover_bound_ms(&timings, &watchdog, &one_lost_times, from_leader);
    let selected: Vec<&Failover> =
        failovers.iter().filter(|failover| failover.from_leader == from_leader).collect();
    let durations_until = |time: fn(&Failover) -> u64| -> Vec<u64> {
        selected.iter().map(|failover| time(failover).saturating_sub(failover.heartbeat_at)).collect()
    };
    let permit_times = durations_until(|failover| failover.permitted_at);
    let beyond = |limit_ms: u64| permit_times.iter().filter(|ms| **ms > limit_ms).count();
    let (beyond_bound, beyond_one_lost) = (beyond(bound_ms), beyond(one_lost_ms));
    let (median_permit, worst_permit) = median_and_worst(permit_times);
    let (median_run, worst_runs) = median_and_worst(durations_until(|failover| failover.running_at));
    let lost_node = if from_leader { "leader's" } else { "another" };
    println!(
        "{name:<13} {lost_node:<9} {:>9} {:>6.1} {:>8.2} {beyond_bound:>6} {:>8.2} {beyond_one_lost:>6} \
         {median_permit:>8.2}{worst_permit:>8.2} {median_run:>8.2}{worst_runs:>8.2}",
        selected.len(),
        seconds(fencing_delay_ms(&timings, &watchdog)),
        seconds(bound_ms),
        seconds(one_lost_ms),
    );
}

fn main() {
    println!("{NODE_DEATHS} deaths of a node, seconds since its last heartbeat was applied");
    println!(
        "bound: nothing on the way is lost; one lost: one request is answered by nobody; beyond: how many took longer"
    );
    println!(
        "{:<13} {:<9} {:>9} {:>6} {:>15} {:>15} {:>16} {:>16}",
        "profile",
        "node",
        "failovers",
        "W",
        "bound beyond",
        "one lost beyond",
        "permit elsewhere",
        "runs elsewhere"
    );
    println!("{:>72} {:>8}{:>8} {:>8}{:>8}", "", "median", "worst", "median", "worst");
    for (name, profile) in
        [("Fast", Profile::Fast), ("Default", Profile::Default), ("Conservative", Profile::Conservative)]
    {
        let failovers = measure(name);
        print_line(name, profile, &failovers, true);
        print_line(name, profile, &failovers, false);
    }
}
