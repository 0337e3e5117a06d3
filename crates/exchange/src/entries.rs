//! Exchanges of a connection by number, in slots that later exchanges use again.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::entry::{Entry, Key, Remains};
use crate::spread::Spread;

/// Slots that stay in any case.
const KEPT: usize = 32;

/// The open exchanges. An exchange moves no bytes when it begins and when it ends: its slot is filled and emptied in place.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// Entries of open exchanges, and empty ones.
    slots: Vec<Entry>,
    vacant: Vec<u32>,
    places: HashMap<Key, u32, BuildHasherDefault<Spread>>,
    /// The exchange that was asked for last, and its slot.
    last: Option<(Key, u32)>,
}

impl Entries {
    /// True if no exchange is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The number of open exchanges.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Opens an exchange, whose entry is empty.
    pub(crate) fn insert(&mut self, key: Key) -> &mut Entry {
        let slot = match self.vacant.pop() {
            Some(slot) => slot as usize,
            None => {
                self.slots.push(Entry::default());
                self.slots.len() - 1
            }
        };
        self.places.insert(key, slot as u32);
        self.last = Some((key, slot as u32));
        &mut self.slots[slot]
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&Entry> {
        let slot = match self.last {
            Some((last, slot)) if last == key => slot,
            _ => *self.places.get(&key)?,
        };
        self.slots.get(slot as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Entry> {
        let slot = match self.last {
            Some((last, slot)) if last == key => slot,
            _ => self.find(key)?,
        };
        self.slots.get_mut(slot as usize)
    }

    #[inline(never)]
    fn find(&mut self, key: Key) -> Option<u32> {
        let slot = *self.places.get(&key)?;
        self.last = Some((key, slot));
        Some(slot)
    }

    /// Closes an exchange.
    pub(crate) fn remove(&mut self, key: Key) -> Remains {
        let Some(slot) = self.places.remove(&key) else {
            return ([None, None], None);
        };
        self.last = None;
        self.vacant.push(slot);
        let entry = &mut self.slots[slot as usize];
        let wakes = [entry.reader.take(), entry.writer.take()];
        let charge = entry.charge.take();
        *entry = Entry::default();
        (wakes, charge)
    }

    /// Entries of all open exchanges, and empty ones.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.slots.iter_mut()
    }

    /// Gives memory back that many more exchanges took than are open.
    pub(crate) fn shrink(&mut self) {
        if self.slots.capacity() <= KEPT.max(4 * self.len()) {
            return;
        }
        let mut slots = Vec::with_capacity(self.len());
        for place in self.places.values_mut() {
            let entry = std::mem::take(&mut self.slots[*place as usize]);
            *place = slots.len() as u32;
            slots.push(entry);
        }
        (self.slots, self.vacant, self.last) = (slots, Vec::new(), None);
        self.places.shrink_to_fit();
    }

    /// Gives memory back if no exchange is open.
    pub(crate) fn rest(&mut self) {
        if self.is_empty() {
            *self = Entries::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_exchanges_do_not_keep_the_room_of_many() {
        let mut entries = Entries::default();
        for key in 0..1000 {
            entries.insert(key).held = key as usize;
        }
        for key in (0..1000).filter(|key| key % 250 != 7) {
            entries.remove(key);
        }
        entries.shrink();
        assert!(entries.slots.capacity() <= KEPT && entries.vacant.capacity() <= KEPT);
        assert_eq!(entries.len(), 4);
        for key in [7, 257, 507, 757] {
            let held = entries.get(key).map(|entry| entry.held);
            assert_eq!(held, Some(key as usize));
        }
        assert_eq!(entries.insert(1000).held, 0);
        entries.remove(7);
        assert_eq!(entries.get(757).map(|entry| entry.held), Some(757));
    }

    #[test]
    fn a_slot_is_empty_when_it_is_used_again() {
        let mut entries = Entries::default();
        entries.insert(1).held = 7;
        entries.insert(3).held = 8;
        assert_eq!(entries.get(1).map(|entry| entry.held), Some(7));
        entries.remove(1);
        assert!(entries.get(1).is_none() && entries.get_mut(1).is_none());
        assert_eq!(entries.insert(5).held, 0);
        assert_eq!(entries.slots.len(), 2);
        assert_eq!(entries.get_mut(3).map(|entry| entry.held), Some(8));
        assert_eq!(entries.get(5).map(|entry| entry.held), Some(0));
        entries.remove(3);
        entries.remove(5);
        entries.rest();
        assert_eq!(entries.slots.capacity(), 0);
    }
}
