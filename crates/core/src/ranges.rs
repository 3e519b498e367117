//! A set of item indices that stays small while the indices are dense: a million finished items are
//! a handful of ranges.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Disjoint, not touching, by first index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u32, u32)>", into = "Vec<(u32, u32)>")]
pub struct Ranges {
    last_by_first: BTreeMap<u32, u32>,
    len: u32,
}

impl Ranges {
    /// False if it was there already.
    pub fn insert(&mut self, index: u32) -> bool {
        let before = self.last_by_first.range(..=index).next_back().map(|(&f, &l)| (f, l));
        if before.is_some_and(|(_, last)| index <= last) {
            return false;
        }
        let mut last = index;
        if let Some(end) = index.checked_add(1).and_then(|next| self.last_by_first.remove(&next)) {
            last = end;
        }
        match before {
            Some((first, end)) if end + 1 == index => self.last_by_first.insert(first, last),
            _ => self.last_by_first.insert(index, last),
        };
        self.len += 1;
        true
    }

    pub fn contains(&self, index: u32) -> bool {
        self.last_by_first.range(..=index).next_back().is_some_and(|(_, &last)| index <= last)
    }

    /// The first index from `from` on that is not in the set.
    pub fn next_gap(&self, from: u32) -> u32 {
        match self.last_by_first.range(..=from).next_back() {
            Some((_, &last)) if from <= last => last + 1,
            _ => from,
        }
    }

    /// The first index from `from` on that is in the set.
    pub fn next_in(&self, from: u32) -> Option<u32> {
        let after = self.last_by_first.range(from..).next().map(|(&first, _)| first);
        if self.contains(from) { Some(from) } else { after }
    }

    pub fn len(&self) -> u32 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl From<Ranges> for Vec<(u32, u32)> {
    fn from(ranges: Ranges) -> Self {
        ranges.last_by_first.into_iter().collect()
    }
}

impl From<Vec<(u32, u32)>> for Ranges {
    fn from(pairs: Vec<(u32, u32)>) -> Self {
        let len = pairs.iter().map(|(first, last)| last.saturating_sub(*first) + 1).sum();
        Self { last_by_first: pairs.into_iter().collect(), len }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(indices in proptest::collection::vec(0u32..200, 0..300)) {
            let mut ranges = Ranges::default();
            let mut set = BTreeSet::new();
            for index in indices {
                prop_assert_eq!(ranges.insert(index), set.insert(index));
            }
            prop_assert_eq!(ranges.len() as usize, set.len());
            for index in 0..202 {
                prop_assert_eq!(ranges.contains(index), set.contains(&index));
                let gap = (index..300).find(|i| !set.contains(i));
                prop_assert_eq!(Some(ranges.next_gap(index)), gap);
                prop_assert_eq!(ranges.next_in(index), set.range(index..).next().copied());
            }
            let again = Ranges::from(Vec::from(ranges.clone()));
            prop_assert_eq!(again, ranges);
        }
    }
}
