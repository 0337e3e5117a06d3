//! A worker's cells by integers: a request that knows its route, destination and source finds its cell without its labels.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Weak};

use super::cell::Cell;
use super::families::Requests;
use crate::labels::Labels;

/// Cells that a worker keeps at hand; with more, it forgets all and finds them again by their labels.
const MOST: usize = 4096;

/// What a request's labels follow from, as handles that the caller gives out. A handle stands for the same thing for as
/// long as the [`Cells`] that it is used with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The route.
    pub route: u32,
    /// The destination.
    pub destination: u32,
    /// The source.
    pub source: u32,
}

/// Hash of handles. They are given out one after the other, so nobody chooses those that collide.
#[derive(Debug, Default)]
struct Handles(u64);

impl Hasher for Handles {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }

    fn write_u32(&mut self, handle: u32) {
        // The high half of a product depends on all bits of its factors; the table takes its places from the low half.
        let mixed = (self.0 ^ u64::from(handle)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed.rotate_left(32);
    }
}

/// The cells that one worker has used. They expire as if it did not know them.
#[derive(Debug)]
pub struct Cells {
    requests: Arc<Requests>,
    known: HashMap<Key, Weak<Cell>, BuildHasherDefault<Handles>>,
}

impl Cells {
    /// None so far.
    pub fn new(requests: Arc<Requests>) -> Self {
        Self {
            requests,
            known: HashMap::default(),
        }
    }

    /// The cell of a key; `labels` are asked for if it is not at hand. To be held until the request has ended.
    pub fn cell(&mut self, key: Key, labels: impl FnOnce() -> Labels) -> Arc<Cell> {
        if let Some(cell) = self.known.get(&key).and_then(Weak::upgrade) {
            return cell;
        }
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let cell = self.requests.cell(labels());
        self.known.insert(key, Arc::downgrade(&cell));
        cell
    }

    /// Forgets every cell: the handles stand for something else from now on.
    pub fn clear(&mut self) {
        self.known.clear();
    }
}
