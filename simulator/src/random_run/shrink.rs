//! Reduction of a failing run: steps, objects and nodes are removed as long as the run violates the same invariant in
//! the same way.

use super::run_scenario_value;
use crate::world::Violation;
use serde_json::Value;

/// Lists that are shrunk, in this order: the lists that best explain a failure come first.
const SCENARIO_LISTS: [&str; 4] = ["steps", "objects", "later", "nodes"];

/// Returns a smaller scenario that violates the same invariant in the same way, after at most `runs` runs. If the given
/// scenario violates no invariant, returns it unchanged.
pub fn shrink(scenario: &Value, runs: usize) -> Value {
    let Some(violation_kind) = first_violation_kind(scenario) else { return scenario.clone() };
    let mut smallest = scenario.clone();
    let mut remaining_runs = runs;
    for list in SCENARIO_LISTS {
        let mut chunk = list_length(&smallest, list).div_ceil(2).max(1);
        loop {
            let mut index = 0;
            while index < list_length(&smallest, list) && remaining_runs > 0 {
                if list == "steps" && violation_kind.0 == "progress" && ends_fault(&smallest, index, chunk) {
                    index += chunk;
                    continue;
                }
                let smaller = without_items(&smallest, list, index, chunk);
                remaining_runs -= 1;
                if first_violation_kind(&smaller).as_ref() == Some(&violation_kind) {
                    smallest = smaller;
                } else {
                    index += chunk;
                }
            }
            if chunk == 1 || remaining_runs == 0 {
                break;
            }
            chunk = chunk.div_ceil(2).min(chunk - 1);
        }
    }
    smallest
}

/// Returns `true` if one of these steps ends a fault. Without this step, the cluster could not recover.
fn ends_fault(scenario: &Value, index: usize, count: usize) -> bool {
    let steps = scenario.get("steps").and_then(Value::as_array);
    steps.into_iter().flatten().skip(index).take(count).any(|step| {
        let words = step.get("do").and_then(Value::as_str).unwrap_or_default().split_whitespace();
        words
            .last()
            .is_some_and(|last| ["on", "start", "resume", "arm", "disable", "1.0", "0ms"].contains(&last))
    })
}

/// Returns the first violated invariant, and the way in which it was violated.
fn first_violation_kind(scenario: &Value) -> Option<(&'static str, Vec<String>)> {
    run_scenario_value(scenario).ok()?.violations().first().map(violation_kind)
}

/// Returns the violated invariant, and the words of the violation without names and numbers. A scenario without the
/// step that ends a fault lacks progress for another reason. Its violation has other words, and therefore counts as a
/// different violation.
fn violation_kind(violation: &Violation) -> (&'static str, Vec<String>) {
    let words = violation.detail.split(|character: char| !character.is_alphanumeric());
    let plain_words =
        words.filter(|word| !word.is_empty() && !word.contains(|character: char| character.is_ascii_digit()));
    (violation.invariant, plain_words.map(str::to_owned).collect())
}

fn list_length(scenario: &Value, list: &str) -> usize {
    scenario.get(list).and_then(Value::as_array).map_or(0, Vec::len)
}

fn without_items(scenario: &Value, list: &str, index: usize, count: usize) -> Value {
    let mut smaller = scenario.clone();
    if let Some(items) = smaller.get_mut(list).and_then(Value::as_array_mut) {
        let end = (index + count).min(items.len());
        items.drain(index..end);
    }
    smaller
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_of_same_kind_ignore_names() {
        let kind_of_detail = |detail: &str| {
            violation_kind(&Violation { at: 1, invariant: "progress", detail: detail.to_owned() })
        };
        assert_eq!(kind_of_detail("r1 is on [\"node1\"]"), kind_of_detail("r2 is on [\"node2\"]"));
        assert_ne!(kind_of_detail("node1 is not up"), kind_of_detail("node1 is Online"));
    }
}
