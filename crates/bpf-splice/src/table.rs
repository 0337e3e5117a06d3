//! Layout of the keys and values of the BPF maps, through which the programs and this process exchange state.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, PoisonError};

use crate::end::End;
use crate::sys::Shared;

/// Connections that can be joined at a time. Others go through the process as ever.
pub(crate) const MOST: u32 = 4096;

/// A connection as both see it, in a map's memory.
pub(crate) mod shared {
    /// Never used twice.
    pub(crate) const ID: i16 = 0;
    /// Whether bytes may pass.
    pub(crate) const STATE: i16 = 8;
    /// Bytes that passed, from the client and from the server.
    pub(crate) const MOVED: i16 = 16;
    pub(crate) const SIZE: usize = 32;
}

/// What a connection's state can be.
pub(crate) mod state {
    pub(crate) const CLOSED: i32 = 0;
    pub(crate) const OPEN: i32 = 1;
    /// Closed by the program: an application does what does not go with it any more.
    pub(crate) const LEFT: i32 = 2;
}

/// What is kept with an application's socket, and is gone with it.
pub(crate) mod own {
    pub(crate) const ID: i16 = 0;
    pub(crate) const INDEX: i16 = 8;
    pub(crate) const END: i16 = 12;
    /// The key of the connection that it may write to.
    pub(crate) const TARGET: i16 = 16;
    /// Where the kernel has that, to look at what waits there.
    pub(crate) const ADDRESS: i16 = 24;
    /// Its number for life: whether it is still there.
    pub(crate) const COOKIE: i16 = 32;
    /// Where the two stood in their sequences of bytes when as many had come from the one as gone to the other.
    pub(crate) const READ: i16 = 40;
    pub(crate) const WRITTEN: i16 = 44;
    pub(crate) const SIZE: usize = 48;
}

/// What the program is told that enters an application's socket: a packet, the first bytes of which are Ethernet's.
pub(crate) mod order {
    pub(crate) const ID: i16 = 16;
    pub(crate) const INDEX: i16 = 24;
    pub(crate) const END: i16 = 28;
    /// The key of this process's end of the application's connection, also that of the application's socket in its map.
    pub(crate) const OWN: i16 = 32;
    /// The key of this process's end of the other connection.
    pub(crate) const TARGET: i16 = 40;
    /// 4 or 6.
    pub(crate) const FAMILY: i16 = 48;
    /// Addresses and ports as in a packet to the application: source and destination.
    pub(crate) const TUPLE: i16 = 52;
    pub(crate) const SIZE: usize = 88;
}

/// The key of one of the two sockets of a connection.
pub(crate) fn key(id: u64, end: End) -> u64 {
    id << 1 | end as u64
}

/// The connections.
#[derive(Debug)]
pub(crate) struct Table {
    memory: Shared,
    free: Mutex<(Vec<u32>, u64)>,
}

impl Table {
    /// The table in this map.
    pub(crate) fn of(map: BorrowedFd<'_>) -> std::io::Result<Self> {
        Ok(Self {
            memory: Shared::of(map, MOST as usize * shared::SIZE)?,
            free: Mutex::new(((0..MOST).rev().collect(), 0)),
        })
    }

    fn word(&self, index: u32, field: i16) -> &std::sync::atomic::AtomicU64 {
        self.memory
            .word((index as usize * shared::SIZE + field as usize) / 8)
    }

    /// A place and a number for a connection.
    pub(crate) fn take(&self) -> Option<(u32, u64)> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let index = free.0.pop()?;
        free.1 += 1;
        let id = free.1;
        self.set(index, state::CLOSED);
        for end in [End::Client, End::Server] {
            self.moved_from(index, end).store(0, Relaxed);
        }
        self.word(index, shared::ID).store(id, Release);
        Some((index, id))
    }

    /// Bytes may pass, or not.
    pub(crate) fn open(&self, index: u32, open: bool) {
        self.set(index, if open { state::OPEN } else { state::CLOSED });
    }

    fn set(&self, index: u32, state: i32) {
        self.word(index, shared::STATE).store(state as u64, Release);
    }

    /// Whether the program has closed it.
    pub(crate) fn left(&self, index: u32) -> bool {
        self.word(index, shared::STATE).load(Acquire) == state::LEFT as u64
    }

    fn moved_from(&self, index: u32, end: End) -> &std::sync::atomic::AtomicU64 {
        self.word(index, shared::MOVED + 8 * end as i16)
    }

    /// Bytes that passed, from the client and from the server.
    pub(crate) fn moved(&self, index: u32) -> [u64; 2] {
        [End::Client, End::Server].map(|end| self.moved_from(index, end).load(Acquire))
    }

    /// The place is free again. Sockets that still know it by its last number find another one there.
    pub(crate) fn give_back(&self, index: u32) {
        self.word(index, shared::ID).store(0, Release);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.0.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_sockets_have_one_key() {
        let keys = [
            key(1, End::Client),
            key(1, End::Server),
            key(2, End::Client),
            key(2, End::Server),
        ];
        assert_eq!(keys, [2, 3, 4, 5]);
    }

    #[test]
    fn fields_do_not_overlap() {
        assert_eq!(shared::MOVED as usize + 16, shared::SIZE);
        assert_eq!(own::WRITTEN as usize + 4, own::SIZE);
        // The largest tuple: two IPv6 addresses, two ports.
        assert_eq!(order::TUPLE as usize + 36, order::SIZE);
        assert!(order::ID as usize >= 14, "behind an Ethernet header");
    }
}
