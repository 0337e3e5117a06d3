//! The streams of a connection by number. Numbers only grow, so a sorted list and a memory of the last one do.

use slab::Slab;

use crate::stream::Stream;

/// Numbers of streams that we reset, of which frames may still be under way.
const REMEMBERED: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Streams {
    slots: Slab<Stream>,
    /// Number and slot, sorted within the numbers of each side: those we opened and those the peer did are never both used.
    order: Vec<(u32, u32)>,
    /// Where the last one that was asked for is in `slots`.
    last: (u32, u32),
    reset: Vec<u32>,
    /// Numbers up to this one may have been forgotten.
    forgotten: u32,
}

impl Streams {
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Adds a stream whose number is larger than all before it.
    pub(crate) fn insert(&mut self, stream: Stream) -> &mut Stream {
        let id = stream.id;
        let slot = self.slots.insert(stream);
        self.order.push((id, slot as u32));
        self.last = (id, slot as u32);
        &mut self.slots[slot]
    }

    #[inline]
    fn find(&mut self, id: u32) -> Option<usize> {
        if self.last.0 == id && id != 0 {
            return Some(self.last.1 as usize);
        }
        let place = self.order.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.last = self.order[place];
        Some(self.last.1 as usize)
    }

    #[inline]
    pub(crate) fn get(&mut self, id: u32) -> Option<&mut Stream> {
        let slot = self.find(id)?;
        self.slots.get_mut(slot)
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Stream> {
        let place = self.order.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        let (_, slot) = self.order.remove(place);
        self.last = (0, 0);
        self.slots.try_remove(slot as usize)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
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

    /// Gives memory back if there are no streams.
    pub(crate) fn rest(&mut self) {
        if self.order.is_empty() {
            self.slots = Slab::new();
            self.order = Vec::new();
        }
    }
}
