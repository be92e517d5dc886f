//! Lists of instances that follow the placement, for random choices.

use super::super::random::Random;

/// Lists of instances; each instance is in at most one of them.
pub(super) struct Lists {
    lists: Vec<Vec<usize>>,
    /// For each instance, its list and its position in that list.
    places: Vec<Option<(usize, usize)>>,
}

impl Lists {
    pub(super) fn new(lists: usize, guests: usize) -> Lists {
        Lists { lists: vec![Vec::new(); lists], places: vec![None; guests] }
    }

    /// Moves an instance to a list, or removes it from all lists.
    pub(super) fn put(&mut self, guest: usize, list: Option<usize>) {
        if self.places[guest].map(|(known, _)| known) == list {
            return;
        }
        if let Some((known, position)) = self.places[guest].take() {
            self.lists[known].swap_remove(position);
            if let Some(&other) = self.lists[known].get(position) {
                self.places[other] = Some((known, position));
            }
        }
        if let Some(list) = list {
            self.places[guest] = Some((list, self.lists[list].len()));
            self.lists[list].push(guest);
        }
    }

    pub(super) fn any(&self, list: usize, random: &mut Random) -> Option<usize> {
        let list = &self.lists[list];
        (!list.is_empty()).then(|| list[random.below(list.len())])
    }

    /// Returns the first instance that fits, starting at a random one.
    pub(super) fn pick<T>(
        &self,
        list: usize,
        random: &mut Random,
        fits: impl FnMut(usize) -> Option<T>,
    ) -> Option<T> {
        let list = &self.lists[list];
        let begin = if list.is_empty() { 0 } else { random.below(list.len()) };
        list[begin..].iter().chain(&list[..begin]).copied().find_map(fits)
    }
}
