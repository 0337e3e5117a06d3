//! The weighted draw.

/// An endpoint that may be picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<T> {
    /// Only candidates of the highest rank present are considered.
    pub rank: usize,
    /// Relative weight; 0 is never picked.
    pub weight: u32,
    /// What is picked.
    pub item: T,
}

/// Draws among the candidates of the highest rank, each with its weight's share, and returns that rank and what it drew. `random(n)` is uniform below `n`, asked
/// at most once. `None` if the best rank holds no weight.
///
/// The candidates are walked twice rather than collected: a pick costs no allocation.
pub fn pick<T>(
    candidates: impl Iterator<Item = Candidate<T>> + Clone,
    random: &mut dyn FnMut(u64) -> u64,
) -> Option<(usize, T)> {
    let (mut best, mut total) = (0, 0u64);
    for candidate in candidates.clone() {
        if candidate.rank > best {
            (best, total) = (candidate.rank, 0);
        }
        if candidate.rank == best {
            total += u64::from(candidate.weight);
        }
    }
    if total == 0 {
        return None;
    }
    let mut left = random(total);
    for candidate in candidates.filter(|candidate| candidate.rank == best) {
        let weight = u64::from(candidate.weight);
        if left < weight {
            return Some((best, candidate.item));
        }
        left -= weight;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidates(shape: &[(usize, u32)]) -> Vec<Candidate<usize>> {
        shape
            .iter()
            .enumerate()
            .map(|(item, (rank, weight))| Candidate {
                rank: *rank,
                weight: *weight,
                item,
            })
            .collect()
    }

    #[test]
    fn nothing_comes_of_nothing() {
        assert_eq!(pick(candidates(&[]).into_iter(), &mut |_| 0), None);
        assert_eq!(pick(candidates(&[(0, 0)]).into_iter(), &mut |_| 0), None);
    }

    proptest! {
        /// Walking the whole range of the random number hits each candidate of the best rank exactly as often as its
        /// weight says, and no other.
        #[test]
        fn each_gets_its_share(shape in prop::collection::vec((0usize..3, 0u32..6), 1..8)) {
            let all = candidates(&shape);
            let best = shape.iter().map(|(rank, _)| *rank).max().unwrap();
            let total: u64 = shape.iter().filter(|(rank, _)| *rank == best).map(|(_, w)| u64::from(*w)).sum();
            let mut hits = vec![0u32; shape.len()];
            for r in 0..total {
                let picked = pick(all.iter().copied(), &mut |below| { assert_eq!(below, total); r });
                let (rank, item) = picked.unwrap();
                prop_assert_eq!(rank, best);
                hits[item] += 1;
            }
            for (item, (rank, weight)) in shape.iter().enumerate() {
                prop_assert_eq!(hits[item], if *rank == best { *weight } else { 0 });
            }
        }
    }
}
