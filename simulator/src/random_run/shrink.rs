//! Making a failing run small: steps, objects and nodes are left out for as long as the same invariant is broken.

use super::run_value;
use serde_json::Value;

/// The lists that are shrunk, most telling first.
const LISTS: [&str; 4] = ["steps", "objects", "later", "nodes"];

/// A smaller scenario that breaks the same invariant, after at most `runs` runs; the given one if it breaks none.
pub fn shrink(scenario: &Value, runs: usize) -> Value {
    let Some(invariant) = broken(scenario) else { return scenario.clone() };
    let mut best = scenario.clone();
    let mut left = runs;
    for list in LISTS {
        let mut chunk = length(&best, list).div_ceil(2).max(1);
        loop {
            let mut at = 0;
            while at < length(&best, list) && left > 0 {
                let smaller = without(&best, list, at, chunk);
                left -= 1;
                if broken(&smaller) == Some(invariant) {
                    best = smaller;
                } else {
                    at += chunk;
                }
            }
            if chunk == 1 || left == 0 {
                break;
            }
            chunk = chunk.div_ceil(2).min(chunk - 1);
        }
    }
    best
}

fn broken(scenario: &Value) -> Option<&'static str> {
    run_value(scenario).ok()?.violations().first().map(|violation| violation.invariant)
}

fn length(scenario: &Value, list: &str) -> usize {
    scenario.get(list).and_then(Value::as_array).map_or(0, Vec::len)
}

fn without(scenario: &Value, list: &str, at: usize, count: usize) -> Value {
    let mut smaller = scenario.clone();
    if let Some(items) = smaller.get_mut(list).and_then(Value::as_array_mut) {
        let end = (at + count).min(items.len());
        items.drain(at..end);
    }
    smaller
}
