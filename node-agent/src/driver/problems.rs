//! Problems that are logged once, when they appear or change, although they are checked again and again.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The problems that the last check found.
#[derive(Debug)]
pub(crate) struct Problems<T>(Mutex<BTreeSet<T>>);

impl<T> Default for Problems<T> {
    fn default() -> Problems<T> {
        Problems(Mutex::default())
    }
}

impl<T: Ord + Clone> Problems<T> {
    /// Replaces the problems by those of a new check, and returns the ones that the last check did not find.
    pub(crate) fn update(&self, found: BTreeSet<T>) -> Vec<T> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = found.difference(&known).cloned().collect();
        *known = found;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_new_until_it_is_known_and_again_after_it_was_gone() {
        let problems = Problems::default();
        let update = |found: &[&'static str]| problems.update(found.iter().copied().collect());
        assert_eq!(update(&["a", "b"]), ["a", "b"]);
        assert_eq!(update(&["b", "c"]), ["c"]);
        assert!(update(&["b", "c"]).is_empty());
        assert_eq!(update(&["a"]), ["a"]);
    }
}
