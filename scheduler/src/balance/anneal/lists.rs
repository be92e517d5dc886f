//! Who is where: lists of instances that change with the placement.

use super::super::random::Random;

/// Lists of instances, each instance in one of them at most.
pub(super) struct Lists {
    lists: Vec<Vec<usize>>,
    /// The list and the position in it of each instance.
    places: Vec<Option<(usize, usize)>>,
}

impl Lists {
    pub(super) fn new(lists: usize, guests: usize) -> Lists {
        Lists { lists: vec![Vec::new(); lists], places: vec![None; guests] }
    }

    /// Puts an instance into a list, or into none.
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

    /// The first that fits, from a random one on.
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
