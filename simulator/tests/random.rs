//! Random runs: clusters and faults by seed, with invariants after every event and a progress check after the last fault.

use ha_simulator::random_run::{Size, generate_scenario, run_scenario_value, run_seed, shrink};
use serde_json::{Value, json};

/// Small runs: forty runs take less than a minute without optimization. `dev/seeds` runs thousands of larger clusters.
const SIZE: Size = Size { nodes: 4, resources: 5, faults_ms: 120_000 };

#[test]
fn forty_seeds_violate_no_invariant() {
    let mut failed = Vec::new();
    for seed in 1_000_000..1_000_040 {
        let world = run_seed(seed, SIZE).expect("a valid scenario");
        if !world.has_passed() {
            eprintln!("{}", world.timeline().join("\n"));
            failed.push((seed, world.violations().to_vec()));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// The invariants must also hold if etcd is restored from a backup during the faults. Progress is not checked, because
/// the restore loses requests of users. A node may therefore stay in maintenance, or the cluster disarmed.
#[test]
fn forty_seeds_with_restored_etcd_violate_nothing() {
    let mut failed = Vec::new();
    for seed in 2_000_000..2_000_040_u64 {
        let mut scenario = generate_scenario(seed, SIZE);
        let steps = scenario["steps"].as_array_mut().expect("steps");
        let step_time_ms = |step: &Value| step["at"].as_str()?.strip_suffix("ms")?.parse::<u64>().ok();
        let (first_ms, last_ms) = (30_000, 30_000 + SIZE.faults_ms);
        let snapshot_ms = first_ms + (last_ms - first_ms) * (seed % 5) / 10;
        let restore_ms = snapshot_ms + 1 + (last_ms - snapshot_ms) * (1 + seed % 4) / 5;
        let outage = format!("store outage {}s", 1 + seed * 7 % 40);
        steps.push(json!({"at": format!("{snapshot_ms}ms"), "do": "store snapshot"}));
        steps.push(json!({"at": format!("{restore_ms}ms"), "do": [outage, "store restore"]}));
        steps.sort_by_key(|step| step_time_ms(step).unwrap_or_default());
        scenario["duration"] = json!("15m");
        scenario["expect"] = json!({});
        let world = run_scenario_value(&scenario).expect("a valid scenario");
        if !world.violations().is_empty() {
            failed.push((seed, world.violations().to_vec()));
        }
        let is_restore = |line: &String| line.contains("is restored, at revision");
        assert!(world.timeline().iter().any(is_restore), "seed {seed} restores nothing");
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn violated_invariant_is_detected_and_shrunk() {
    // Three copies of the service already run when it is added: hactl cannot prevent this violation. The run must
    // report it.
    let mut scenario = generate_scenario(1, SIZE);
    scenario["later"] = json!([{
        "apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "r1"},
        "spec": {"driver": {"simulated": {"type": "vm"}}},
    }]);
    scenario["steps"] = json!([
        {"at": "5s", "do": "crash r2"},
        {"at": "30s", "do": ["add r1 node1 running", "add r1 node2 running", "add r1 node3 running"]},
        {"at": "40s", "do": "crash r3"},
    ]);
    let world = run_scenario_value(&scenario).expect("a valid scenario");
    assert_eq!(world.violations().first().map(|violation| violation.invariant), Some("never two"));
    let shrunk = shrink(&scenario, 40);
    assert_eq!(shrunk["steps"].as_array().map(Vec::len), Some(1));
    let world = run_scenario_value(&shrunk).expect("a valid scenario");
    assert_eq!(world.violations().first().map(|violation| violation.invariant), Some("never two"));
}
