//! What came for a stream whose reader is busy, in buffers of its own.
//!
//! A chunk of the HTTP/2 layer is a part of the tunnel's read buffer and keeps all of it alive: a peer
//! could have us hold a full buffer for each byte. Here small chunks are gathered, so that what waits
//! takes at most about twice its length.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// A chunk of this length is kept as it is: it is half a read buffer of the tunnel, see `Settings::max_frame`.
const LARGE: usize = 128 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Held {
    chunks: VecDeque<Bytes>,
    /// The newest bytes.
    tail: BytesMut,
}

impl Held {
    pub(crate) fn push(&mut self, chunk: Bytes) {
        if chunk.len() >= LARGE || self.tail.len() + chunk.len() > LARGE {
            self.seal();
        }
        if chunk.len() >= LARGE {
            self.chunks.push_back(chunk);
        } else {
            self.tail.extend_from_slice(&chunk);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        if self.chunks.is_empty() {
            self.seal();
        }
        self.chunks.pop_front()
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            // The whole buffer goes, so that none of it is shared with what comes next.
            self.chunks
                .push_back(std::mem::take(&mut self.tail).freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gives_back_what_it_got(lengths in prop::collection::vec((0usize..200_000, any::<bool>()), 0..30)) {
            let mut held = Held::default();
            let (mut put, mut got) = (Vec::new(), Vec::new());
            for (number, (length, pop)) in lengths.into_iter().enumerate() {
                let chunk = vec![number as u8; length];
                put.extend_from_slice(&chunk);
                held.push(chunk.into());
                if pop {
                    got.extend_from_slice(&held.pop().unwrap_or_default());
                }
            }
            while let Some(chunk) = held.pop() {
                got.extend_from_slice(&chunk);
            }
            prop_assert_eq!(got, put);
        }
    }

    #[test]
    fn small_chunks_do_not_keep_the_buffer_that_they_came_in() {
        let mut held = Held::default();
        let mut buffer = BytesMut::from(&vec![1; 256 * 1024][..]);
        held.push(buffer.split_to(1).freeze());
        buffer.clear();
        // Nobody else has a part of it: it can be taken back whole.
        assert!(buffer.try_reclaim(256 * 1024));
        for _ in 0..1000 {
            held.push(Bytes::from_static(b"x"));
        }
        assert!(held.chunks.is_empty());
        assert!(held.tail.capacity() <= 2 * held.tail.len().max(64));
    }
}
