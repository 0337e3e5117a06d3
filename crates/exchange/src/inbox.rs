//! Queue of a stream's received content that its reader has not taken.
//!
//! A large piece is a slice of the buffer that it was read into, and keeps the whole buffer alive. Small pieces are copied, and
//! so are large ones that nobody reads for a while. So waiting content takes at most four times its length, and about its own
//! length if its reader is busy.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// The size of a connection's read buffer, in bytes.
pub const BUFFER: usize = 32 * 1024;

/// A piece of this length is kept as a part of its buffer.
pub(crate) const LARGE: usize = BUFFER / 4;

/// Copied pieces are gathered up to this length. Parts of them keep all of them alive.
const GATHERED: usize = BUFFER;

/// Received content in order of arrival.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Nearly always all there is.
    front: Bytes,
    /// Most streams never need it.
    rest: Option<Box<Rest>>,
    /// Some of it keeps buffers alive.
    borrows: bool,
}

#[derive(Debug, Default)]
struct Rest {
    chunks: VecDeque<Bytes>,
    /// The newest bytes.
    tail: BytesMut,
}

impl Rest {
    fn seal(&mut self) {
        if !self.tail.is_empty() {
            // The whole buffer goes, so that none of it is shared with what comes next.
            self.chunks
                .push_back(std::mem::take(&mut self.tail).freeze());
        }
    }

    fn gather(&mut self, piece: &[u8]) {
        if self.tail.len() + piece.len() > GATHERED {
            self.seal();
        }
        self.tail.extend_from_slice(piece);
    }
}

impl Inbox {
    /// Adds `piece`, a part of `buffer`.
    #[inline]
    pub fn push(&mut self, buffer: &Bytes, piece: &[u8]) {
        let large = piece.len() >= LARGE;
        self.borrows |= large;
        if self.front.is_empty() && self.rest.is_none() {
            self.front = match large {
                true => buffer.slice_ref(piece),
                false => Bytes::copy_from_slice(piece),
            };
            return;
        }
        let rest = self.rest.get_or_insert_default();
        if large {
            rest.seal();
            rest.chunks.push_back(buffer.slice_ref(piece));
        } else {
            rest.gather(piece);
        }
    }

    /// The oldest bytes.
    #[inline]
    pub fn pop(&mut self) -> Option<Bytes> {
        if !self.front.is_empty() {
            return Some(std::mem::take(&mut self.front));
        }
        let rest = self.rest.as_mut()?;
        if rest.chunks.is_empty() {
            rest.seal();
        }
        let chunk = rest.chunks.pop_front();
        if rest.chunks.is_empty() && rest.tail.is_empty() {
            self.rest = None;
            self.borrows = false;
        }
        chunk
    }

    /// Copies all pieces that keep read buffers alive, so that the buffers can be freed.
    #[inline]
    pub fn settle(&mut self) {
        if !std::mem::take(&mut self.borrows) {
            return;
        }
        let mut settled = Rest::default();
        let before = self.rest.take().map(|rest| *rest).unwrap_or_default();
        let front = std::mem::take(&mut self.front);
        for chunk in std::iter::once(front).chain(before.chunks) {
            settled.gather(&chunk);
        }
        settled.gather(&before.tail);
        self.rest = Some(Box::new(settled));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gives_back_what_it_got(
            steps in prop::collection::vec((1usize..BUFFER, 0u8..4), 0..60),
        ) {
            let mut inbox = Inbox::default();
            let (mut put, mut got) = (Vec::new(), Vec::new());
            for (number, (length, what)) in steps.into_iter().enumerate() {
                let buffer = Bytes::from(vec![number as u8; BUFFER]);
                put.extend_from_slice(&buffer[..length]);
                inbox.push(&buffer, &buffer[..length]);
                match what {
                    0 => got.extend_from_slice(&inbox.pop().unwrap_or_default()),
                    1 => {
                        inbox.settle();
                        got.extend_from_slice(&inbox.pop().unwrap_or_default());
                    }
                    _ => {}
                }
            }
            while let Some(chunk) = inbox.pop() {
                prop_assert!(!chunk.is_empty());
                got.extend_from_slice(&chunk);
            }
            prop_assert_eq!(got, put);
            prop_assert!(inbox.rest.is_none() && inbox.pop().is_none());
        }
    }

    /// However small the pieces are that a peer sends, and however they lie in what is read.
    #[test]
    fn what_waits_keeps_little_more_than_itself() {
        for length in [1, 100, LARGE - 1] {
            let mut inbox = Inbox::default();
            let mut buffer = BytesMut::from(&vec![1; BUFFER][..]);
            let read = buffer.split_to(length).freeze();
            inbox.push(&read, &read);
            inbox.push(&read, &read);
            drop(read);
            buffer.clear();
            // Nobody else has a part of it: it can be taken back whole.
            assert!(buffer.try_reclaim(BUFFER), "{length}");
        }
        let mut inbox = Inbox::default();
        let mut buffer = BytesMut::from(&vec![1; BUFFER][..]);
        for _ in 0..3 {
            let read = buffer.split_to(LARGE).freeze();
            inbox.push(&read, &read);
        }
        buffer.clear();
        assert!(!buffer.try_reclaim(BUFFER));
        inbox.settle();
        assert!(buffer.try_reclaim(BUFFER));
        assert_eq!(inbox.pop().map(|bytes| bytes.len()), Some(3 * LARGE));
    }
}
