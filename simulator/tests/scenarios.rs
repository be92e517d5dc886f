//! Every scenario file holds: its expectations, and the invariants after every event.

use ha_simulator::scenario::Scenario;
use ha_simulator::world::World;
use std::path::{Path, PathBuf};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder of scenarios") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
}

fn run(path: &Path, seed: Option<u64>) -> World {
    let text = std::fs::read_to_string(path).expect("a scenario");
    let folder = path.parent().expect("a folder");
    let mut scenario = Scenario::parse(&path.display().to_string(), &text, folder).expect("a valid scenario");
    scenario.seed = seed.unwrap_or(scenario.seed);
    let mut world = World::new(scenario).expect("a valid world");
    world.run();
    world
}

#[test]
fn every_scenario_holds() {
    let mut paths = Vec::new();
    files(Path::new("scenarios"), &mut paths);
    paths.sort();
    assert!(!paths.is_empty(), "there are scenarios");
    let mut failed = Vec::new();
    for path in paths {
        // The file's own seed, and others: delays differ, the outcome may not.
        for seed in std::iter::once(None).chain((11..16).map(Some)) {
            let world = run(&path, seed);
            if !world.is_good() {
                eprintln!(
                    "{} with seed {seed:?}\n{}\n{:#}",
                    path.display(),
                    world.timeline().join("\n"),
                    world.summary()
                );
                failed.push(format!("{} with seed {seed:?}", path.display()));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn the_same_seed_gives_the_same_run_byte_for_byte() {
    let path = Path::new("scenarios/fencing/node-loses-power.yaml");
    let (first, second) = (run(path, Some(5)), run(path, Some(5)));
    assert_eq!(first.timeline(), second.timeline());
    assert_eq!(first.summary().to_string(), second.summary().to_string());
    assert_ne!(first.timeline(), run(path, Some(6)).timeline(), "another seed gives another run");
}
