//! Sets of small numbers.

/// A set of numbers below a count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bits(Box<[u64]>);

impl Bits {
    /// The numbers below `count` of which `is` holds.
    pub(super) fn of(count: usize, is: impl Fn(usize) -> bool) -> Self {
        let mut words = vec![0; count.div_ceil(64)];
        for id in (0..count).filter(|id| is(*id)) {
            words[id / 64] |= 1 << (id % 64);
        }
        Self(words.into())
    }

    /// True if the number is in the set.
    #[inline]
    pub(super) fn has(&self, id: u32) -> bool {
        self.0[id as usize / 64] >> (id % 64) & 1 == 1
    }
}
