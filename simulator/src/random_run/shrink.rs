//! Reduction of a failing run: steps, objects and nodes are removed as long as the same invariant is broken in the same way.

use super::run_scenario_value;
use crate::world::Violation;
use serde_json::Value;

/// Lists that are shrunk, in this order: the lists that explain a failure best come first.
const LISTS: [&str; 4] = ["steps", "objects", "later", "nodes"];

/// Returns a smaller scenario that breaks the same invariant in the same way, after at most `runs` runs. Returns the
/// given scenario if it breaks none.
pub fn shrink(scenario: &Value, runs: usize) -> Value {
    let Some(way) = broken(scenario) else { return scenario.clone() };
    let mut best = scenario.clone();
    let mut left = runs;
    for list in LISTS {
        let mut chunk = length(&best, list).div_ceil(2).max(1);
        loop {
            let mut at = 0;
            while at < length(&best, list) && left > 0 {
                if list == "steps" && way.0 == "progress" && ends_fault(&best, at, chunk) {
                    at += chunk;
                    continue;
                }
                let smaller = without(&best, list, at, chunk);
                left -= 1;
                if broken(&smaller).as_ref() == Some(&way) {
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

/// Returns `true` if one of these steps ends a fault: without it, the cluster could not recover.
fn ends_fault(scenario: &Value, at: usize, count: usize) -> bool {
    let steps = scenario.get("steps").and_then(Value::as_array);
    steps.into_iter().flatten().skip(at).take(count).any(|step| {
        let words = step.get("do").and_then(Value::as_str).unwrap_or_default().split_whitespace();
        words
            .last()
            .is_some_and(|last| ["on", "start", "resume", "arm", "disable", "1.0", "0ms"].contains(&last))
    })
}

/// Returns the first violated invariant, and the way in which it was violated.
fn broken(scenario: &Value) -> Option<(&'static str, Vec<String>)> {
    run_scenario_value(scenario).ok()?.violations().first().map(way)
}

/// Returns the violated invariant, and the words of the violation without names and numbers. If the step that ends a
/// fault is removed, the lack of progress is described in other words, and so counts as another violation.
fn way(violation: &Violation) -> (&'static str, Vec<String>) {
    let words = violation.detail.split(|character: char| !character.is_alphanumeric());
    let plain =
        words.filter(|word| !word.is_empty() && !word.contains(|character: char| character.is_ascii_digit()));
    (violation.invariant, plain.map(str::to_owned).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_differ_in_more_than_names() {
        let way = |detail: &str| way(&Violation { at: 1, invariant: "progress", detail: detail.to_owned() });
        assert_eq!(way("r1 is on [\"node1\"]"), way("r2 is on [\"node2\"]"));
        assert_ne!(way("node1 is not up"), way("node1 is Online"));
    }
}
