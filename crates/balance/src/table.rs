//! Weighted draw from a table that is made once, so that the cost of a draw does not grow with the number of endpoints.

/// Candidates in the order of their rank, best first, with their weights summed up. Items are numbers of the caller's,
/// such as positions in a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Best rank first; within one the caller's order. None of weight 0.
    entries: Vec<Entry>,
    /// The candidates of one rank, best first.
    ranks: Vec<Rank>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    item: u32,
    weight: u32,
    /// The sum of the weights of its rank up to here, its own included.
    upto: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rank {
    rank: usize,
    /// One past its last entry.
    end: usize,
}

/// What was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn {
    /// The caller's number.
    pub item: u32,
    /// Its rank.
    pub rank: usize,
    /// How many others there are, of any rank, to be avoided or not.
    pub others: usize,
    /// All were to be avoided, so this is one of them.
    pub avoided: bool,
}

impl Table {
    /// Makes a table of `(item, rank, weight)`; a weight of 0 is never drawn.
    pub fn new(candidates: impl IntoIterator<Item = (u32, usize, u32)>) -> Self {
        let mut all: Vec<_> = candidates
            .into_iter()
            .filter(|(_, _, weight)| *weight > 0)
            .collect();
        // Stable: the caller's order stays within a rank.
        all.sort_by_key(|(_, rank, _)| std::cmp::Reverse(*rank));
        let mut table = Self::default();
        let mut upto = 0u64;
        for (item, rank, weight) in all {
            match table.ranks.last_mut() {
                Some(last) if last.rank == rank => last.end += 1,
                _ => {
                    upto = 0;
                    let end = table.entries.len() + 1;
                    table.ranks.push(Rank { rank, end });
                }
            }
            upto += u64::from(weight);
            table.entries.push(Entry { item, weight, upto });
        }
        table
    }

    /// The table of those that `keep` admits. It gets each as a draw would give it.
    pub fn only(&self, mut keep: impl FnMut(Drawn) -> bool) -> Self {
        let others = self.entries.len().saturating_sub(1);
        let mut kept = Vec::new();
        let mut start = 0;
        for &Rank { rank, end } in &self.ranks {
            for entry in &self.entries[start..end] {
                let drawn = Drawn {
                    item: entry.item,
                    rank,
                    others,
                    avoided: false,
                };
                if keep(drawn) {
                    kept.push((entry.item, rank, entry.weight));
                }
            }
            start = end;
        }
        Self::new(kept)
    }

    /// How many there are to draw from.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is nobody to draw.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Draws by weight among the best rank that has anybody who is not to be avoided; if nobody is, avoidance is
    /// ignored. `random(n)` is uniform below `n`.
    ///
    /// Whoever is drawn and not to be avoided was found by one search by halves; only else each candidate is looked at.
    pub fn draw(
        &self,
        mut avoid: impl FnMut(u32) -> bool,
        random: &mut dyn FnMut(u64) -> u64,
    ) -> Option<Drawn> {
        let others = self.entries.len().saturating_sub(1);
        let best = self.ranks.first()?;
        let entries = &self.entries[..best.end];
        let at = random(entries.last()?.upto);
        let first = entries.get(entries.partition_point(|entry| entry.upto <= at))?;
        let first = Drawn {
            item: first.item,
            rank: best.rank,
            others,
            avoided: avoid(first.item),
        };
        if !first.avoided {
            return Some(first);
        }
        // To draw anew among the rest leaves everybody's share of the rest as it is.
        let mut start = 0;
        for rank in &self.ranks {
            let entries = &self.entries[start..rank.end];
            start = rank.end;
            let total: u64 = entries
                .iter()
                .filter(|entry| !avoid(entry.item))
                .map(|entry| u64::from(entry.weight))
                .sum();
            if total == 0 {
                continue;
            }
            let mut at = random(total);
            for entry in entries.iter().filter(|entry| !avoid(entry.item)) {
                let weight = u64::from(entry.weight);
                if at < weight {
                    return Some(Drawn {
                        item: entry.item,
                        rank: rank.rank,
                        others,
                        avoided: false,
                    });
                }
                at -= weight;
            }
        }
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// How often each item is drawn over the whole range of both random numbers, the second of which is below `second`
    /// where there is one; and the range of the first.
    fn shares(table: &Table, avoid: &[bool], second: u64) -> (BTreeMap<u32, u64>, u64) {
        let mut shares = BTreeMap::new();
        let mut total = 1;
        for turn in 0u64.. {
            let (first, mut again) = (turn / second.max(1), 0);
            if first >= total {
                break;
            }
            let drawn = table.draw(|item| avoid[item as usize], &mut |below| {
                again += 1;
                if again == 1 {
                    total = below;
                    first
                } else {
                    assert_eq!(below, second);
                    turn % second
                }
            });
            let Some(drawn) = drawn else { break };
            *shares.entry(drawn.item).or_default() += 1;
        }
        (shares, total)
    }

    /// The same from the words of the rule.
    fn expected(shape: &[(usize, u32)], avoid: &[bool]) -> BTreeMap<u32, u64> {
        let drawable = |at: &usize| shape[*at].1 > 0;
        let all: Vec<usize> = (0..shape.len()).filter(drawable).collect();
        let mut left: Vec<usize> = all.iter().copied().filter(|at| !avoid[*at]).collect();
        if left.is_empty() {
            left = all;
        }
        let best = left.iter().map(|at| shape[*at].0).max();
        left.into_iter()
            .filter(|at| Some(shape[*at].0) == best)
            .map(|at| (at as u32, u64::from(shape[at].1)))
            .collect()
    }

    #[test]
    fn nothing_comes_of_nothing() {
        assert_eq!(Table::new([]).draw(|_| false, &mut |_| 0), None);
        assert_eq!(Table::new([(0, 3, 0)]).draw(|_| false, &mut |_| 0), None);
    }

    #[test]
    fn a_table_of_some_is_the_table_that_is_made_of_them() {
        let all = [(0, 1, 3), (1, 2, 1), (2, 1, 0), (3, 1, 2), (4, 0, 5)];
        let table = Table::new(all);
        let mut seen = Vec::new();
        let some = table.only(|drawn| {
            assert!(!drawn.avoided && drawn.others == 3);
            seen.push((drawn.item, drawn.rank));
            drawn.item != 0
        });
        assert_eq!(seen, [(1, 2), (0, 1), (3, 1), (4, 0)]);
        assert_eq!(some, Table::new(all.into_iter().skip(1)));
        assert!(table.only(|_| false).is_empty());
    }

    #[test]
    fn the_largest_weights_do_not_overflow() {
        let table = Table::new([(0, 0, u32::MAX), (1, 0, u32::MAX)]);
        let drawn = table.draw(|_| false, &mut |below| below - 1).unwrap();
        assert_eq!((drawn.item, drawn.others), (1, 1));
    }

    proptest! {
        #[test]
        fn each_gets_its_share_of_the_best_rank_that_is_left(
            shape in prop::collection::vec((0usize..3, 0u32..5, any::<bool>()), 0..9)
        ) {
            let avoid: Vec<bool> = shape.iter().map(|(_, _, avoid)| *avoid).collect();
            let pairs: Vec<(usize, u32)> = shape.iter().map(|(rank, weight, _)| (*rank, *weight)).collect();
            let table = Table::new((0u32..).zip(&pairs).map(|(item, (rank, weight))| (item, *rank, *weight)));
            let expected = expected(&pairs, &avoid);
            let (shares, first) = shares(&table, &avoid, expected.values().sum());
            for (item, share) in &shares {
                prop_assert_eq!(*share, expected.get(item).copied().unwrap_or(0) * first, "of item {}", item);
            }
            prop_assert_eq!(shares.len(), expected.len());
            if let Some(drawn) = table.draw(|item| avoid[item as usize], &mut |_| 0) {
                let fresh = (0..pairs.len()).filter(|at| pairs[*at].1 > 0 && !avoid[*at]).count();
                prop_assert_eq!(drawn.avoided, fresh == 0);
                prop_assert_eq!(drawn.others, table.len() - 1);
                prop_assert_eq!(drawn.rank, pairs[drawn.item as usize].0);
            }
        }
    }
}
