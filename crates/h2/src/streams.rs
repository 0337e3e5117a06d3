//! Streams of a connection by number: a slab, and a list of numbers. The list is sorted because numbers only grow.

use slab::Slab;

use crate::stream::Stream;

/// Numbers of streams that we reset, of which frames may still be under way.
const REMEMBERED: usize = 32;

/// Streams whose room stays in any case.
const KEPT: usize = 32;

/// The slot of a stream that was removed.
const GONE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct Streams {
    slots: Slab<Stream>,
    /// Number and slot, sorted within the numbers of each side: those we opened and those the peer did are never both used.
    /// A stream that was removed keeps its place as [`GONE`] until half of the list is gone.
    order: Vec<(u32, u32)>,
    /// Number and slot of the stream that was asked for last.
    last: (u32, u32),
    reset: Vec<u32>,
    /// Numbers up to this one may have been forgotten.
    forgotten: u32,
    /// Places of `order` that are gone.
    gone: u32,
}

impl Streams {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Adds a stream whose number is larger than all before it.
    pub(crate) fn insert(&mut self, stream: Stream) -> &mut Stream {
        let id = stream.id;
        let slot = self.slots.insert(stream);
        self.order.push((id, slot as u32));
        self.last = (id, slot as u32);
        &mut self.slots[slot]
    }

    /// The place of a number in `order`. The newest numbers have no gaps in most lists, so the distance from the newest is
    /// tried before the list is searched.
    #[inline]
    fn place(&self, id: u32) -> Option<usize> {
        steps::count(1);
        let newest = self.order.len().checked_sub(1)?;
        let distance = self.order[newest].0.checked_sub(id)? / 2;
        if let Some(guess) = newest.checked_sub(distance as usize)
            && self.order[guess].0 == id
        {
            return Some(guess);
        }
        steps::count(u64::from(self.order.len().ilog2()) + 1);
        self.order.binary_search_by_key(&id, |(id, _)| *id).ok()
    }

    #[inline]
    fn find(&mut self, id: u32) -> Option<usize> {
        if self.last.0 == id && id != 0 {
            return Some(self.last.1 as usize);
        }
        self.search(id)
    }

    #[inline(never)]
    fn search(&mut self, id: u32) -> Option<usize> {
        let found = self.order[self.place(id)?];
        if found.1 == GONE {
            return None;
        }
        self.last = found;
        Some(found.1 as usize)
    }

    #[inline]
    pub(crate) fn get(&mut self, id: u32) -> Option<&mut Stream> {
        let slot = self.find(id)?;
        self.slots.get_mut(slot)
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Stream> {
        let place = self.place(id)?;
        let slot = std::mem::replace(&mut self.order[place].1, GONE);
        if slot == GONE {
            return None;
        }
        self.last = (0, 0);
        self.gone += 1;
        if self.gone as usize > self.order.len() / 2 {
            steps::count(self.order.len() as u64);
            self.order.retain(|(_, slot)| *slot != GONE);
            self.gone = 0;
        }
        self.slots.try_remove(slot as usize)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        steps::count(self.slots.len() as u64);
        self.slots.iter_mut().map(|(_, stream)| stream)
    }

    /// We reset this stream, and it is removed.
    pub(crate) fn remember(&mut self, id: u32) {
        if self.reset.len() == REMEMBERED {
            self.forgotten = self.forgotten.max(self.reset.remove(0));
        }
        self.reset.push(id);
    }

    /// True if we may have reset this stream, which is no longer here.
    pub(crate) fn may_have_been_reset(&self, id: u32) -> bool {
        id <= self.forgotten || self.reset.contains(&id)
    }

    /// Gives memory back that many more streams took than there are.
    pub(crate) fn shrink(&mut self) {
        if self.slots.capacity() <= KEPT.max(4 * self.slots.len()) {
            return;
        }
        self.order.retain(|(_, slot)| *slot != GONE);
        (self.gone, self.last) = (0, (0, 0));
        let order = &mut self.order;
        self.slots.compact(|stream, _, slot| {
            let place = order.binary_search_by_key(&stream.id, |(id, _)| *id);
            if let Ok(place) = place {
                order[place].1 = slot as u32;
            }
            true
        });
        self.slots.shrink_to_fit();
        self.order.shrink_to_fit();
    }

    /// Gives memory back if there are no streams.
    pub(crate) fn rest(&mut self) {
        if self.slots.is_empty() {
            self.slots = Slab::new();
            self.order = Vec::new();
            self.gone = 0;
        }
    }
}

/// A count of what the lists of streams cost, for tests; nothing otherwise.
pub(crate) mod steps {
    #[cfg(test)]
    thread_local! {
        static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    #[inline(always)]
    pub(crate) fn count(_more: u64) {
        #[cfg(test)]
        STEPS.with(|steps| steps.set(steps.get() + _more));
    }

    /// The steps since the last call.
    #[cfg(test)]
    pub(crate) fn take() -> u64 {
        STEPS.with(|steps| steps.replace(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn stream(id: u32) -> Stream {
        Stream::new(id, 0, 0, 0)
    }

    proptest! {
        #[test]
        fn keeps_what_a_set_keeps(steps in prop::collection::vec((0u32..4, 1u32..40), 1..300)) {
            let (mut streams, mut set, mut next) = (Streams::default(), BTreeSet::new(), 1);
            for (what, number) in steps {
                let nth = number as usize % (set.len() + 1);
                let id = set.iter().nth(nth).copied().unwrap_or(2 * number + 1);
                match what {
                    0 => {
                        // Peers may leave numbers out.
                        next += 2 * (number / 30);
                        streams.insert(stream(next));
                        set.insert(next);
                        next += 2;
                    }
                    1 => {
                        let oldest = set.pop_first().unwrap_or(id);
                        streams.remove(oldest);
                    }
                    2 => prop_assert_eq!(streams.remove(id).is_some(), set.remove(&id)),
                    _ => {}
                }
                prop_assert_eq!(streams.get(id).map(|stream| stream.id), set.get(&id).copied());
                prop_assert_eq!(streams.len(), set.len());
                prop_assert!(streams.order.len() <= 2 * set.len() + 1);
                for id in &set {
                    prop_assert_eq!(streams.get(*id).map(|stream| stream.id), Some(*id));
                }
            }
        }
    }

    #[test]
    fn few_streams_do_not_keep_the_room_of_many() {
        let mut streams = Streams::default();
        for id in (1..2000).step_by(2) {
            streams.insert(stream(id));
        }
        for id in (1..2000).step_by(2).filter(|id| id % 500 != 1) {
            streams.remove(id);
        }
        streams.shrink();
        assert!(streams.slots.capacity() <= KEPT && streams.order.capacity() <= KEPT);
        for id in [1, 501, 1001, 1501] {
            assert_eq!(streams.get(id).map(|stream| stream.id), Some(id));
            assert!(streams.remove(id).is_some() && streams.get(id).is_none());
        }
        assert_eq!(streams.insert(stream(2001)).id, 2001);
    }

    /// A peer that leaves numbers out pays with a search and no more.
    #[test]
    fn a_stream_is_found_in_few_steps_whatever_the_numbers() {
        for gap in [2, 2000] {
            let mut streams = Streams::default();
            let ids: Vec<u32> = (0..4000).map(|n| 1 + n * gap).collect();
            ids.iter().for_each(|id| {
                streams.insert(stream(*id));
            });
            steps::take();
            for id in ids.iter().rev().chain(&ids) {
                assert!(streams.get(*id).is_some());
            }
            for id in &ids {
                assert!(streams.remove(*id).is_some());
            }
            let most = if gap == 2 { 4 } else { 20 };
            assert!(steps::take() < 3 * 4000 * most);
            assert_eq!(streams.len(), 0);
        }
    }
}
