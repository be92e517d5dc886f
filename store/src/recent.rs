//! Recent changes, kept for readers that resume from a revision.

use ha_api_types::id::Revision;
use std::collections::VecDeque;

/// A limited number of recent changes, in order of their revisions.
#[derive(Debug)]
pub struct Recent<T> {
    changes: VecDeque<T>,
    revision_of: fn(&T) -> Revision,
    limit: usize,
    /// Revision of the newest change that is not kept.
    discarded_until: Revision,
}

impl<T> Recent<T> {
    /// Creates an empty record of at most `limit` changes, all later than revision 0.
    pub fn new(limit: usize, revision_of: fn(&T) -> Revision) -> Recent<T> {
        Recent { changes: VecDeque::new(), revision_of, limit, discarded_until: Revision(0) }
    }

    /// Discards all changes up to a revision.
    pub fn restart(&mut self, revision: Revision) {
        self.changes.clear();
        self.discarded_until = revision;
    }

    /// Keeps a change, unless it belongs to the discarded ones. Discards the oldest change if there are too many.
    pub fn keep(&mut self, change: T) {
        if (self.revision_of)(&change) > self.discarded_until {
            self.changes.push_back(change);
        }
        if self.changes.len() > self.limit
            && let Some(oldest) = self.changes.pop_front()
        {
            self.discarded_until = (self.revision_of)(&oldest);
        }
    }

    /// Returns the revision of the newest change that is not kept.
    pub fn discarded_until(&self) -> Revision {
        self.discarded_until
    }

    /// Returns the changes after a revision; `None` if some of them are not kept.
    pub fn after(&self, revision: Revision) -> Option<impl Iterator<Item = &T>> {
        let first = self.changes.partition_point(|change| (self.revision_of)(change) <= revision);
        (revision >= self.discarded_until).then(|| self.changes.range(first..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_after_a_revision_are_complete_or_refused() {
        let mut recent = Recent::new(3, |revision: &i64| Revision(*revision));
        let after = |recent: &Recent<i64>, revision: i64| {
            recent.after(Revision(revision)).map(|changes| changes.copied().collect::<Vec<_>>())
        };
        recent.restart(Revision(4));
        for revision in [4, 5, 6, 6] {
            recent.keep(revision);
        }
        assert_eq!(after(&recent, 3), None);
        assert_eq!(after(&recent, 4), Some(vec![5, 6, 6]));
        assert_eq!(after(&recent, 6), Some(vec![]));
        recent.keep(8);
        assert_eq!((after(&recent, 4), after(&recent, 5)), (None, Some(vec![6, 6, 8])));
        recent.keep(9);
        assert_eq!((after(&recent, 5), after(&recent, 6)), (None, Some(vec![8, 9])));
    }
}
