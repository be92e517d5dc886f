//! Test of all scenario files: expectations and invariants must hold, and together, the files must reach every word of
//! the vocabulary.

mod vocabulary;

use ha_simulator::scenario::Scenario;
use ha_simulator::world::World;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use vocabulary::Reached;

fn collect_scenarios(directory: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("the directory of scenarios") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect_scenarios(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            paths.push(path);
        }
    }
}

fn load_world(path: &Path, seed: Option<u64>) -> World {
    let text = std::fs::read_to_string(path).expect("a scenario");
    let directory = path.parent().expect("a temporary directory");
    let mut scenario =
        Scenario::parse(&path.display().to_string(), &text, directory).expect("a valid scenario");
    scenario.seed = seed.unwrap_or(scenario.seed);
    World::new(scenario).expect("a valid world")
}

fn run(path: &Path, seed: Option<u64>) -> World {
    let mut world = load_world(path, seed);
    world.run();
    world
}

/// Every file must pass with its own seed. Every fourth file must also pass with another seed: delays differ, but the
/// outcome must not. Together, the runs with their own seeds must produce every state, proof and reason of the vocabulary.
#[test]
fn every_scenario_passes_and_covers_the_vocabulary() {
    let mut paths = Vec::new();
    collect_scenarios(Path::new("scenarios"), &mut paths);
    paths.sort();
    assert!(!paths.is_empty(), "no scenario found");
    let failed = Mutex::new(BTreeSet::new());
    let reached = Mutex::new(Reached::default());
    let next = Mutex::new(paths.into_iter().enumerate());
    let thread_count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let check = |world: &World, path: &Path, seed: Option<u64>| {
        if !world.has_passed() {
            let name = format!("{} with seed {seed:?}", path.display());
            let text = format!("{name}\n{}\n{:#}", world.timeline().join("\n"), world.summary());
            failed.lock().expect("no thread has panicked").insert(text);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..thread_count {
            scope.spawn(|| {
                loop {
                    let next_path = next.lock().expect("no thread has panicked").next();
                    let Some((index, path)) = next_path else { break };
                    let mut default_world = load_world(&path, None);
                    default_world.collect_vocabulary();
                    default_world.run();
                    check(&default_world, &path, None);
                    reached.lock().expect("no thread has panicked").add(&default_world, &path);
                    if index % 4 == 0 {
                        let other_seed = Some(11 + index as u64 % 5);
                        check(&run(&path, other_seed), &path, other_seed);
                    }
                }
            });
        }
    });
    let failed: Vec<String> = failed.into_inner().expect("no thread has panicked").into_iter().collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    let problems = reached.into_inner().expect("no thread has panicked").problems();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_same_seed_gives_the_same_run_byte_for_byte() {
    for file in ["fencing/node-loses-power", "store/members-on-the-nodes", "moves/migrate-live"] {
        let path = Path::new("scenarios").join(file).with_extension("yaml");
        let (first, second) = (run(&path, Some(5)), run(&path, Some(5)));
        assert_eq!(first.timeline(), second.timeline());
        assert_eq!(first.summary().to_string(), second.summary().to_string());
        assert_ne!(first.timeline(), run(&path, Some(6)).timeline(), "another seed gives another run");
    }
}

/// A refusal that no step can cause must fail the check, although the file is valid.
#[test]
fn unreachable_expected_refusal_fails_the_scenario() {
    let text = "nodes: [{name: node1}]
objects:
  - {apiVersion: hactl.io/v1, kind: Resource, metadata: {name: web}, spec: {driver: {simulated: {}}}}
place: {web: {node: node1, running: true}}
steps:
  - {at: 1m30s, do: migrate web node1}
expect: {refused: [migrate web node1, migrate web node2]}
";
    let scenario = Scenario::parse("file.yaml", text, Path::new(".")).expect("a valid scenario");
    let mut world = World::new(scenario).expect("a valid world");
    world.run();
    assert!(!world.has_passed());
    let summary = world.summary();
    let checks = summary["expect"].as_array().expect("checks");
    let is_unrequested = |check: &&serde_json::Value| check["got"] == "no step requests it";
    let check = checks.iter().find(is_unrequested).expect("a check of its own");
    assert_eq!((&check["check"], &check["ok"]), (&"refused \"migrate web node2\"".into(), &false.into()));
    assert_eq!(summary["refused"], serde_json::json!(["migrate web node1"]), "{checks:?}");
}
