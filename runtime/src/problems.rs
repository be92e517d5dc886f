//! Problems that are logged once, when they appear or change, although they are checked repeatedly.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The problem of each subject, as the last check found it.
#[derive(Debug)]
pub struct Problems<K, V = String>(Mutex<BTreeMap<K, V>>);

impl<K, V> Default for Problems<K, V> {
    fn default() -> Problems<K, V> {
        Problems::new()
    }
}

impl<K, V> Problems<K, V> {
    /// Creates an empty list.
    pub const fn new() -> Problems<K, V> {
        Problems(Mutex::new(BTreeMap::new()))
    }
}

impl<K: Ord + Clone, V: PartialEq + Clone> Problems<K, V> {
    /// Replaces the problems of all subjects by those of a new check. Returns the problems that the last check did not
    /// find.
    pub fn update(&self, current: BTreeMap<K, V>) -> Vec<(K, V)> {
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |(subject, problem): &(&K, &V)| recorded.get(*subject) != Some(*problem);
        let new = current.iter().filter(is_new).map(|(subject, problem)| (subject.clone(), problem.clone()));
        let new = new.collect();
        *recorded = current;
        new
    }

    /// Replaces the problem of one subject by that of a new check. Returns `true` if the last check found another
    /// problem, or no problem.
    pub fn record(&self, subject: &K, current: Option<V>) -> bool {
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.get(subject) == current.as_ref() {
            return false;
        }
        match current {
            Some(problem) => recorded.insert(subject.clone(), problem),
            None => recorded.remove(subject),
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_returned_when_they_appear() {
        let problems = Problems::default();
        let update = |current_problems: &[(&'static str, u8)]| {
            problems.update(current_problems.iter().copied().collect())
        };
        assert_eq!(update(&[("a", 1), ("b", 1)]), [("a", 1), ("b", 1)]);
        assert_eq!(update(&[("b", 1), ("c", 1)]), [("c", 1)]);
        assert!(update(&[("b", 1), ("c", 1)]).is_empty());
        assert_eq!(update(&[("a", 1), ("c", 2)]), [("a", 1), ("c", 2)]);
    }

    #[test]
    fn each_change_of_a_problem_is_reported_once() {
        static PROBLEMS: Problems<&str, u8> = Problems::new();
        let record = |problem| PROBLEMS.record(&"a", problem);
        assert!(!record(None), "nothing was wrong before");
        assert_eq!([record(Some(1)), record(Some(1)), record(Some(2))], [true, false, true]);
        assert_eq!([record(None), record(None), record(Some(2))], [true, false, true]);
    }
}
