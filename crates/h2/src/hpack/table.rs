//! Dynamic table of the decoder (RFC 7541 §2.3.2): its entries lie one after another in one buffer, which is allocated once.

use std::collections::VecDeque;

use super::{Known, OVERHEAD, TABLE};

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Where it begins, counted from the first byte that was ever kept.
    at: u32,
    name: u16,
    value: u16,
    known: Option<Known>,
}

impl Entry {
    fn size(self) -> u32 {
        u32::from(self.name) + u32::from(self.value) + OVERHEAD as u32
    }
}

/// The entries, and the bytes of their names and values.
#[derive(Debug)]
pub(crate) struct Table {
    /// The newest at the front.
    entries: VecDeque<Entry>,
    bytes: Vec<u8>,
    /// What [`Entry::at`] is for the first of `bytes`.
    base: u32,
    size: u32,
    most: u32,
}

impl Table {
    pub(crate) fn new() -> Self {
        Table {
            entries: VecDeque::new(),
            bytes: Vec::new(),
            base: 0,
            size: 0,
            most: TABLE,
        }
    }

    /// The newest entry is 0.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> Option<(Option<Known>, &[u8], &[u8])> {
        let (known, both, name) = self.whole(place)?;
        let (name, value) = both.split_at(name);
        Some((known, name, value))
    }

    /// The same: name and value in one piece, and the length of the name.
    #[inline]
    pub(crate) fn whole(&self, place: usize) -> Option<(Option<Known>, &[u8], usize)> {
        let entry = self.entries.get(place)?;
        let at = entry.at.wrapping_sub(self.base) as usize;
        let name = usize::from(entry.name);
        let both = self.bytes.get(at..at + name + usize::from(entry.value))?;
        Some((entry.known, both, name))
    }

    /// The encoder chose another size, at most [`TABLE`].
    pub(crate) fn resize(&mut self, most: u32) {
        self.most = most;
        self.evict(0);
    }

    /// Adds an entry; one that is larger than the table leaves it empty (RFC 7541 §4.4).
    pub(crate) fn insert(&mut self, known: Option<Known>, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + OVERHEAD;
        if size > self.most as usize {
            return self.clear();
        }
        self.evict(size as u32);
        if self.bytes.len() + size > 2 * TABLE as usize {
            self.compact();
        }
        self.entries.push_front(Entry {
            at: self.base.wrapping_add(self.bytes.len() as u32),
            name: name.len() as u16,
            value: value.len() as u16,
            known,
        });
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.size += size as u32;
    }

    /// Drops all entries.
    pub(crate) fn clear(&mut self) {
        self.evict(self.most + 1);
    }

    /// Makes room for so many bytes.
    fn evict(&mut self, room: u32) {
        while self.size + room > self.most
            && let Some(entry) = self.entries.pop_back()
        {
            self.size -= entry.size();
        }
        if self.entries.is_empty() {
            self.bytes.clear();
        }
    }

    /// Gives back memory that the entries do not need.
    pub(crate) fn rest(&mut self) {
        self.compact();
        self.bytes.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    /// Drops the bytes of entries that are gone.
    fn compact(&mut self) {
        let first = self.entries.back().map_or(self.bytes.len(), |oldest| {
            oldest.at.wrapping_sub(self.base) as usize
        });
        self.bytes.drain(..first);
        self.base = self.base.wrapping_add(first as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Pair = (Vec<u8>, Vec<u8>);

    proptest! {
        #[test]
        fn keeps_what_a_plain_list_keeps(
            steps in prop::collection::vec((0usize..700, 0usize..1500, prop::option::weighted(0.1, 0u32..=TABLE), any::<bool>()), 1..80),
        ) {
            let mut table = Table::new();
            let (mut list, mut most) = (Vec::<Pair>::new(), TABLE as usize);
            for (number, (name, value, resize, rest)) in steps.into_iter().enumerate() {
                if let Some(size) = resize {
                    table.resize(size);
                    most = size as usize;
                }
                let (name, value) = (vec![number as u8; name], vec![!(number as u8); value]);
                table.insert(None, &name, &value);
                list.insert(0, (name, value));
                let mut size = 0;
                let fits = |(name, value): &&Pair| {
                    size += name.len() + value.len() + OVERHEAD;
                    size <= most
                };
                let kept = list.iter().take_while(fits).count();
                list.truncate(kept);
                for (place, (name, value)) in list.iter().enumerate() {
                    prop_assert_eq!(table.get(place), Some((None, &name[..], &value[..])));
                }
                prop_assert_eq!(table.get(list.len()), None);
                prop_assert!(table.bytes.len() <= 2 * TABLE as usize);
                if rest {
                    table.rest();
                    prop_assert!(table.bytes.capacity() <= TABLE as usize);
                }
            }
        }
    }
}
