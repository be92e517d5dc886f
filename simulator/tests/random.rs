//! Random runs: clusters and faults by seed, the invariants after every event, progress once the faults have stopped.

use ha_simulator::random_run::{Size, run_seed, run_value, scenario_of, shrink};

/// Small runs, so that forty take less than a minute without optimization; thousands of larger ones are run by `dev/seeds`.
const SIZE: Size = Size { nodes: 4, resources: 5, faults_ms: 120_000 };

#[test]
fn forty_seeds_keep_the_promises() {
    let mut failed = Vec::new();
    for seed in 1_000_000..1_000_040 {
        let world = run_seed(seed, SIZE).expect("a valid scenario");
        if !world.is_good() {
            eprintln!("{}", world.timeline().join("\n"));
            failed.push((seed, world.violations().to_vec()));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn a_broken_promise_is_seen_and_shrunk() {
    // A service without a working stop, two machines of which only one takes it, and a copy started by hand on the other:
    // nothing that hactl could prevent, and so a violation that must be seen.
    let mut scenario = scenario_of(1, SIZE);
    scenario["later"] = serde_json::json!([{
        "apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "r1"},
        "spec": {"driver": {"simulated": {"type": "vm"}}},
    }]);
    scenario["steps"] = serde_json::json!([
        {"at": "5s", "do": "crash r2"},
        {"at": "30s", "do": ["add r1 node1 running", "add r1 node2 running", "add r1 node3 running"]},
        {"at": "40s", "do": "crash r3"},
    ]);
    let world = run_value(&scenario).expect("a valid scenario");
    assert_eq!(world.violations().first().map(|violation| violation.invariant), Some("never two"));
    let small = shrink(&scenario, 40);
    assert_eq!(small["steps"].as_array().map(Vec::len), Some(1));
    let world = run_value(&small).expect("a valid scenario");
    assert_eq!(world.violations().first().map(|violation| violation.invariant), Some("never two"));
}
